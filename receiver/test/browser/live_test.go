// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"cmp"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// contents are the figures of a page as texts.
type contents struct {
	Verdict, Root       string
	Tiles, Legend, Rows [][]string
}

const readContents = `(() => {
	const texts = (list) => [...list].map((e) => e.textContent), all = (query) => document.querySelectorAll(query);
	return {
		verdict: document.querySelector("#verdict").textContent, root: document.querySelector("#icicle [data-path='']").title,
		tiles: [...all("#tiles li")].map((li) => texts(li.children)),
		legend: [...all(".legend li")].map((li) => texts(li.querySelectorAll(".cut, .v"))),
		rows: [...all("#table tbody tr")].map((tr) => texts(tr.cells)),
	};
})()`

// find returns the texts of the first line whose first text begins with a prefix.
func find(t *testing.T, lines [][]string, prefix string) []string {
	t.Helper()
	for _, line := range lines {
		if strings.HasPrefix(strings.TrimLeft(line[0], "�? "), prefix) {
			return line
		}
	}
	require.Fail(t, "no line "+prefix, "%q", lines)
	return nil
}

var quantity = regexp.MustCompile(`([\d.]+)[\s\x{202f}]?([GMkmµ]?)(Wh|W|J|%)`)

// values returns the quantities of a text in their order, and half the last digit of each.
func values(t *testing.T, text string) (values, precise []float64) {
	t.Helper()
	for _, part := range quantity.FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseFloat(part[1], 64)
		require.NoError(t, err)
		_, decimals, _ := strings.Cut(part[1], ".")
		by := map[string]float64{"G": 1e9, "M": 1e6, "k": 1e3, "m": 1e-3, "µ": 1e-6, "": 1}[part[2]]
		values, precise = append(values, v*by), append(precise, .5*math.Pow10(-len(decimals))*by)
	}
	return values, precise
}

// shows fails unless a text has these quantities, to all digits and to a hundredth or better.
func shows(t *testing.T, text string, want ...float64) {
	t.Helper()
	found, precise := values(t, text)
	require.Len(t, found, len(want), "quantities of %q", text)
	for i := range want {
		assert.InDelta(t, want[i], found[i], precise[i]*1.0001, "%q", text)
		if !strings.Contains(text, "%") {
			assert.LessOrEqual(t, precise[i], want[i]/100, "digits of %q", text)
		}
	}
}

func TestFiguresOfThePageEqualThoseOfTheNode(t *testing.T) {
	n := newNode(t, kubernetes(), 10)
	p, _ := live(t, n, desk)
	p.untilRead(n)
	used, seconds, _ := n.used()
	joules := func(name string) float64 { return float64(used[name].energy) / 1e6 }
	watts := func(name string) float64 { return used[name].watts }
	c := get[contents](p, readContents)
	active := watts("node") - watts("idle")
	largest := "python3 trainer-x2k9"
	shows(t, c.Verdict, watts("node"), watts("idle"), active, 100*watts(largest)/active)
	shows(t, find(t, c.Tiles, "Power")[1], watts("node"))
	energy := find(t, c.Tiles, "Energy")
	assert.Contains(t, energy[0], strconv.FormatFloat(seconds, 'f', 1, 64))
	shows(t, energy[1], joules("node"))
	shows(t, energy[2], joules("node")/3600)
	shows(t, find(t, c.Tiles, "Idle")[1], 100*watts("idle")/watts("node"))
	gpus := find(t, c.Tiles, "GPUs")
	shows(t, gpus[1], watts("gpu"))
	shows(t, gpus[2], 73, 27)
	shows(t, c.Root, joules("node"), 100)

	shows(t, find(t, c.Legend, "Sum")[1], watts("node"))
	shows(t, find(t, c.Legend, "Unattributed")[1], watts("unattributed"))
	shows(t, find(t, c.Legend, "Idle")[1], watts("idle"))
	shows(t, find(t, c.Legend, "python3")[1], watts(largest))
	sum := 0.
	for _, line := range c.Legend[1 : len(c.Legend)-1] {
		v, _ := values(t, line[1])
		sum += v[0]
	}
	assert.InDelta(t, watts("node"), sum, 1, "the sum of the legend")

	for tab, want := range map[string]map[string]string{
		"Programs":   {"python3": largest, "postgres": "postgres postgres-0", "otelcol-energy": "otelcol-energy ", "unattributed": "unattributed"},
		"Pods":       {"checkout-6d5f": "shop/checkout-6d5f", "trainer-x2k9": "ml/trainer-x2k9"},
		"Containers": {"app": "shop/checkout-6d5f", "serve": "ml/embed-0"},
		"GPUs":       {"NVIDIA L40S 0": "gpu 0", "NVIDIA L40S 1": "gpu 1"},
	} {
		p.click(button("#tabs", tab))
		p.until("document.querySelector('#tabs [aria-pressed=true]').textContent === " + quoted(tab))
		c := get[contents](p, readContents)
		for row, name := range want {
			text := strings.Join(find(t, c.Rows, row)[2:5], " ")
			shows(t, text, watts(name), joules(name))
		}
		sum := 0.
		for _, row := range c.Rows {
			v, _ := values(t, row[4])
			sum += v[0]
		}
		of := joules("node") - joules("idle")
		if tab == "GPUs" {
			of = joules("gpu")
		}
		assert.InEpsilon(t, of, sum, .005, "the sum of the rows of %s", tab)
	}
}

// The exporter has new figures every second, and is read in another beat: some readings have none, some skip one.
func TestPointsEndAtTheTimestampsOfTheData(t *testing.T) {
	n := newNode(t, kubernetes(), 25)
	beats := []time.Duration{0, 1, 0, 2, 1, 0, 0, 3, 1, 1, 0, 2}
	n.passes = func(reading int) time.Duration { return beats[reading%len(beats)] * time.Second }
	p, _ := live(t, n, desk)
	p.untilRead(n)
	used, seconds, at := n.used()
	p.focus("svg.plot")
	p.press(kb.End)
	head := get[contents](p, readContents).Legend[0][0]
	assert.Equal(t, "At "+at.UTC().Format("15:04:05"), head, "the end of the last point")
	p.press(kb.Home)
	for i := 0; ; i++ {
		c := get[contents](p, readContents)
		shows(t, find(t, c.Legend, "Sum")[1], used["node"].watts)
		if c.Legend[0][0] == head {
			assert.Greater(t, i, 10, "points")
			break
		}
		require.Less(t, i, int(seconds))
		p.press(kb.ArrowRight)
	}
}

// endless is the number of readings of nodes whose figures always change.
const endless = math.MaxInt

// text is an expression for the text of an element, with plain spaces.
func text(query string) string {
	return "document.querySelector(" + quoted(query) + ").textContent.replaceAll('\\u202f', ' ')"
}

func focused(query string) string { return "document.activeElement.matches(" + quoted(query) + ")" }

func TestTheCursorAndTheFocusStayWhenThePageIsDrawnAgain(t *testing.T) {
	p, _ := live(t, newNode(t, kubernetes(), endless), desk)
	p.untilDrawnAgain()
	p.focus("svg.plot")
	p.press(kb.Home)
	head := get[string](p, text(".legend .head"))
	assert.Regexp(t, `^At \d\d:\d\d:\d\d`, head)
	p.untilDrawnAgain()
	assert.Equal(t, head, get[string](p, text(".legend .head")))
	assert.True(t, get[bool](p, focused("svg.plot")), "the chart has the focus")
	assert.Regexp(t, `Sum.* W$`, get[string](p, `document.querySelector("svg.plot").getAttribute("aria-valuetext")`))
	for _, query := range []string{"#group button:nth-child(2)", "#icicle button[data-path=gml]", "#table th:nth-child(1) button", "#search"} {
		p.focus(query)
		p.untilDrawnAgain()
		assert.True(t, get[bool](p, focused(query)), "%s has the focus", query)
	}
}

func TestAPartIsEnlargedByAClickAndLeftByAnother(t *testing.T) {
	p, _ := live(t, newNode(t, kubernetes(), endless), desk)
	cells := func(path string) int {
		return get[int](p, `document.querySelectorAll("#icicle [data-path^='`+path+`']").length`)
	}
	p.until(`document.querySelector("#icicle [data-path=gml]")`)
	assert.Positive(t, cells("idle"))
	p.click(`document.querySelector("#icicle [data-path=gml]")`)
	p.until(`document.querySelector("#where-hint").textContent.includes("back")`)
	assert.Zero(t, cells("idle"))
	assert.Positive(t, cells("gml"))
	p.untilDrawnAgain()
	assert.Zero(t, cells("idle"), "stays enlarged")
	p.click(`document.querySelector("#icicle [data-path='']")`)
	p.until(`!document.querySelector("#where-hint").textContent.includes("back")`)
	assert.Positive(t, cells("idle"))
}

// A person holds the button for about 100 ms. New figures may arrive meanwhile.
func TestAClickIsNotLostWhenThePageIsDrawnAgain(t *testing.T) {
	p, _ := live(t, newNode(t, kubernetes(), endless), desk)
	for _, c := range []struct{ element, then string }{
		{`document.querySelector("#icicle [data-path=gml]")`, `document.querySelector("#where-hint").textContent.includes("back")`},
		{`document.querySelector("#table th:nth-child(1) button")`, `document.querySelector("#table th:nth-child(1)").ariaSort === "ascending"`},
		{button("#tabs", "Pods"), `document.querySelector("#tabs [aria-pressed=true]").textContent === "Pods"`},
	} {
		x, y := p.point(c.element)
		p.run(chromedp.MouseEvent(chromedp.MousePressed, x, y, chromedp.Button("left"), chromedp.ClickCount(1)))
		p.untilDrawnAgain()
		p.run(chromedp.MouseEvent(chromedp.MouseReleased, x, y, chromedp.Button("left"), chromedp.ClickCount(1)))
		p.until(c.then)
	}
}

func TestTheTableIsSortedAndSearched(t *testing.T) {
	n := newNode(t, kubernetes(), 5)
	p, _ := live(t, n, desk)
	p.untilRead(n)
	column := func(i int) (texts []string) {
		for _, row := range get[contents](p, readContents).Rows {
			if !strings.Contains(row[0], ": ") { // not of a workload
				texts = append(texts, row[i])
			}
		}
		return texts
	}
	assert.Equal(t, []string{"python3", "vllm", "java"}, column(0)[:3], "by power at first")
	p.click(button("#table th", "Program"))
	p.until(`document.querySelector("#table th").ariaSort === "ascending"`)
	assert.IsNonDecreasing(t, column(0))
	p.click(button("#table th", "Program"))
	p.until(`document.querySelector("#table th").ariaSort === "descending"`)
	assert.IsNonIncreasing(t, column(0))
	p.press("/", "java")
	p.until(focused("#search"))
	assert.Equal(t, []string{"java", "java"}, column(0))
	assert.Equal(t, "java", get[string](p, `document.querySelector("#search").value`))
	p.untilRead(n)
	assert.Len(t, column(0), 2, "stays searched")
}

func TestTheChartShowsAnotherDivisionAndSpan(t *testing.T) {
	n := newNode(t, kubernetes(), 10)
	n.passes = func(int) time.Duration { return time.Minute }
	p, _ := live(t, n, desk)
	p.untilRead(n)
	for span, mean := range map[string]string{"1 min": "Mean of 60", "5 min": "Mean of 5 min", "All": "Mean of 9 min"} {
		p.click(button("#span", span))
		p.until(text(".legend .head") + ".startsWith(" + quoted(mean) + ")")
	}
	p.click(button("#group", "Pods"))
	p.until(`document.querySelector(".legend").textContent.includes("trainer-x2k9")`)
	c := get[contents](p, readContents)
	shows(t, find(t, c.Legend, "trainer-x2k9")[1], 18+260+7)
	shows(t, find(t, c.Legend, "Sum")[1], 568.19)
}

func TestThePageIsUsedByKeyboardAlone(t *testing.T) {
	p, _ := live(t, newNode(t, kubernetes(), endless), desk)
	reached := map[string]bool{}
	reach := func(query string) {
		for range 100 {
			if get[bool](p, focused(query)) {
				reached[query] = true
				return
			}
			p.press(kb.Tab)
		}
		require.Fail(t, "not reached: "+query)
	}
	reach("#group button:nth-child(4)")
	p.press(" ")
	p.until(focused("#group [aria-pressed=true]"))
	reach("svg.plot")
	p.press(kb.ArrowLeft)
	p.until(`document.querySelector(".legend .head").textContent.startsWith("At ")`)
	p.press(kb.Escape)
	p.until(`document.querySelector(".legend .head").textContent.startsWith("Mean")`)
	reach("#icicle [data-path=gml]")
	p.press(kb.Enter)
	p.until(`document.querySelector("#where-hint").textContent.includes("back") && document.activeElement.dataset.path === "gml"`)
	reach("#tabs button:nth-child(5)")
	p.press(kb.Enter)
	reach("#table th:first-child button")
	p.press(kb.Enter)
	p.until(`document.querySelector("#table th").ariaSort === "ascending"`)
	assert.Len(t, reached, 5)
}

func TestHostileNamesAreTexts(t *testing.T) {
	n := newNode(t, hostile(), 8)
	p, _ := live(t, n, desk)
	p.untilRead(n)
	harmless := func() {
		assert.Zero(t, get[int](p, `document.querySelectorAll("main :is(img, script, iframe, a), [onmouseover], [onerror]").length`))
		assert.True(t, get[bool](p, `Object.keys(Object.prototype).length === 0 && ({}).e === undefined`), "the prototype is clean")
		assert.NotRegexp(t, `[\x{202a}-\x{202e}\x{2066}-\x{2069}\x07]`, get[string](p, "document.body.innerText"))
	}
	harmless()
	c := get[contents](p, readContents)
	for _, program := range n.programs {
		_, name, _ := strings.Cut("?"+program.name, "\u202e")
		row := find(t, c.Rows, cmp.Or(name, program.name)[:6])
		shows(t, row[2], program.watts+program.gpu)
	}
	assert.Contains(t, get[string](p, "document.body.textContent"), "</script><script>alert(2)</script>")
	assert.Contains(t, get[string](p, "document.body.textContent"), "<img src=http://evil.example/x onerror=alert(1)>")
	for _, kind := range []string{"Users", "Containers", "Pods", "GPUs"} {
		p.click(button("#group", kind))
		p.click(button("#tabs", kind))
		p.drawn()
		harmless()
	}
	shows(t, get[contents](p, readContents).Root, n.joules("node"), 100)
	assert.LessOrEqual(t, get[int](p, "document.documentElement.scrollWidth"), desk.width)
}

// The page would report what the tests of the policy look for.
func TestThePolicyForbidsScriptsAndRequests(t *testing.T) {
	p, _ := live(t, newNode(t, kubernetes(), 3), desk)
	p.expect = regexp.MustCompile("Content Security Policy|TrustedHTML|violates")
	assert.Equal(t, "refused", get[string](p, `(() => { try { document.body.innerHTML = "<b>"; } catch { return "refused"; } })()`))
	assert.Equal(t, "refused", get[string](p, `fetch("http://evil.example/").then(() => "sent", () => "refused")`))
	assert.Equal(t, "refused", get[string](p, `new Promise((done) => { const i = new Image(); i.onerror = () => done("refused"); i.onload = () => done("loaded"); i.src = location.href + "x.png"; })`))
	assert.GreaterOrEqual(t, len(p.seen(&p.faults)), 3)
	p.forget()
}
