// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The exporter has new figures every second. Readings are at other times: some have no new figures,
// and some are late.
func TestFiguresOfThePageEqualTheFiguresOfTheNode(t *testing.T) {
	n := newNode(t, kubernetes, 25, time.Second)
	n.beat = []time.Duration{0, 1, 0, 2, 1, 0, 0, 3, 1, 1, 0, 2}
	p := live(t, n)
	p.untilRead(n)
	all, idle, gpus := n.watts("system{"), n.watts("system{", "idle"), n.watts("system{", "gpu")
	largest, unattributed := n.watts("process{", "python3"), n.watts("unattributed")
	_, seconds := n.elapsed()
	p.shows(`text("#verdict")`, all, idle, all-idle, largest, 100*largest/(all-idle))
	p.shows(`tile("Power now")`, all)
	p.shows(`tile("Energy in 22 s") + "; " + tile("Energy in 22 s", 2)`, all*seconds, all*seconds/3600)
	p.shows(`tile("Idle")`, 100*idle/all)
	p.shows(`tile("GPUs")`, gpus)
	p.shows(`text("#trail button")`, all*seconds)
	p.shows(`legend("Idle: independent of load")`, idle)
	p.shows(`legend("Unattributed")`, unattributed)
	p.shows(`legend("python3 · ml/trainer-x2k9")`, largest)
	legend := get[float64](p, `sum(all(".legend li").map((li) => plain(li.lastChild)))`)
	assert.InEpsilon(t, 2*all, legend, .005, "the parts and their sum")
	for _, tab := range []struct {
		name  string
		total float64
		rows  map[string]float64
	}{
		{"Programs", all - idle, map[string]float64{"python3": largest, "unattributed": unattributed}},
		{"Pods", all - idle, map[string]float64{"checkout": n.watts("pod{", "checkout"), "trainer": n.watts("pod{", "trainer")}},
		{"Containers", all - idle, map[string]float64{"embed": n.watts("container{", "embed")}},
		{"GPUs", gpus, map[string]float64{"NVIDIA L40S": n.watts("GPU-0")}},
	} {
		get[bool](p, `button("#tabs", "`+tab.name+`").click() ?? true`)
		for row, watts := range tab.rows {
			p.shows(`cell("`+row+`", "Power")`, watts)
			p.shows(`cell("`+row+`", "Energy")`, watts*seconds)
		}
		assert.InEpsilon(t, tab.total*seconds, get[float64](p, `sum(column("Energy"))`), .005, tab.name)
	}
	get[bool](p, `q("svg.plot").focus() ?? true`)
	p.do(chromedp.KeyEvent(kb.End))
	last := get[string](p, `text(".legend li")`)
	assert.Equal(t, "At "+n.base.Add(n.time).UTC().Format(time.TimeOnly), last)
	p.do(chromedp.KeyEvent(kb.Home))
	points := 1
	for ; points < 20 && get[string](p, `text(".legend li")`) != last; points++ {
		p.shows(`legend("Sum")`, all)
		p.do(chromedp.KeyEvent(kb.ArrowRight))
	}
	assert.Equal(t, 14, points, "readings with new figures")
}

func TestTheSentenceAndTheTableShowTheSamePower(t *testing.T) {
	n := newNode(t, kubernetes, 30, time.Second)
	n.wave = .35
	p := live(t, n)
	p.untilRead(n)
	power := get[float64](p, `quantities(text("#verdict"))[3][0]`)
	p.shows(`cell("python3", "Power")`, power)
	last := n.watts("process{", "python3") * n.slope()
	assert.Greater(t, math.Abs(last/power-1), .05, "the last interval differs from the mean")
	units := `new Set(all("#table tbody td:nth-child(3)").map((td) => plain(td).split(" ").at(-1))).size`
	assert.Equal(t, 1, get[int](p, units), "units of a column")
}

func TestHoursOfHistoryAreShownWithTheirMeanInABoundedChart(t *testing.T) {
	n := newNode(t, kubernetes, 801, 4*time.Minute) // the last points are joined
	n.wave = .3
	address, _ := startWeb(t, "--endpoint", n.address, "--interval", "1ms")
	n.untilRead(t)
	p := open(t, address)
	p.untilRead(n)
	p.until(`button("#span", "All")?.click() ?? text(".legend li").startsWith("Mean of 2.2 days")`)
	elapsed, seconds := n.elapsed()
	p.shows(`legend("Sum")`, n.watts("system{")*seconds/elapsed.Seconds())
	mean := func(s float64) float64 { return s + n.wave*math.Sin(s/20)*20 }
	end, step := elapsed.Seconds(), n.step.Seconds() // points are longer than a step
	p.shows(`tile("Power now")`, n.watts("system{")*(mean(end)-mean(end-step))/step)
	assert.Less(t, get[int](p, `q("svg.plot").outerHTML.length`), 300_000)
	times := get[int](p, `all("svg.plot text").filter((e) => plain(e).includes(":")).length`)
	assert.InDelta(t, 7, times, 4, "times of the axis")
}

const (
	ml     = `q("#icicle [data-key='group ml']")`
	embed  = `q("#icicle [data-key$='group embed-0']")`
	sorted = `q("#table th").ariaSort === `
	depth  = `all("#trail button").length`
)

// Figures are constant after the collector has ended, and in reports. The tab key alone reaches
// each element.
func TestAChoiceByMouseOrKeyboardHoldsWhenThePageIsDrawnAgain(t *testing.T) {
	for _, with := range []struct {
		mouse    bool
		readings int
	}{{true, endless}, {false, endless}, {false, 10}} {
		n := newNode(t, kubernetes, with.readings, time.Second)
		n.wave = .3
		p := live(t, n)
		p.until(`names().length > 5`)
		for _, s := range []struct{ element, keys, then string }{
			{`button("#group", "Pods")`, " ", `pressed("group", "Pods") && text(".legend").includes("trainer-x2k9")`},
			{`q("svg.plot")`, kb.Home + kb.ArrowRight, `/^At .* W$/.test(q("svg.plot").ariaValueText)`},
			{`q("svg.plot")`, kb.Escape, `text(".legend li").startsWith("Mean of ")`},
			{ml, kb.ArrowDown, `document.activeElement.dataset.key.startsWith("group ml\n")`},
			{ml, kb.Enter, depth + ` === 2`},
			{embed, kb.Enter, depth + ` === 3 && !q("#icicle [data-key=idle]")`},
			{`q("#trail button")`, kb.Enter, depth + ` === 1 && q("#icicle [data-key=idle]")`},
			{`button("#trees", "By component")`, kb.Enter, `text("#icicle").includes("GPU")`},
			{`button("#table th", "Program")`, kb.Enter, sorted + `"ascending" && names()[0] === "envoy"`},
			{`button("#table th", "Program")`, kb.Enter, sorted + `"descending" && names()[0] === "vllm"`},
			{`button("#tabs", "Pods")`, kb.Enter, `pressed("tabs", "Pods")`},
			{`button("#tabs", "Programs")`, kb.Enter, `pressed("tabs", "Programs")`},
			{`q("#search")`, "trainer", `names().join() === "python3,pt_data_worker"`},
		} {
			for i := 0; !with.mouse && !get[bool](p, "document.activeElement === "+s.element); i++ {
				require.Less(t, i, 200, "not reached: %s", s.element)
				p.do(chromedp.KeyEvent(kb.Tab))
			}
			switch {
			case !with.mouse:
				p.do(chromedp.KeyEvent(s.keys))
			case s.keys == kb.Enter || s.keys == " ":
				p.click(s.element)
			default:
				continue
			}
			p.until(s.then)
			if with.readings == endless {
				p.untilDrawnAgain()
				assert.True(p, get[bool](p, "Boolean("+s.then+")"), s.then)
			}
			assert.True(t, get[bool](p, "document.activeElement !== document.body"), "%s keeps the focus", s.element)
		}
	}
}

// Violations of the policy are faults, which fail the other tests. The last fetch is from a page of
// another port.
func TestOtherSitesScriptsAndReboundNamesAreRefused(t *testing.T) {
	n := newNode(t, kubernetes, 3, time.Second)
	p := live(t, n)
	other := open(t, "http://"+n.address+"/")
	origin, _, _ := strings.Cut(p.address, "#")
	for _, tt := range []struct {
		from              *tab
		violates, attempt string // which fails
	}{
		{p, "requires 'TrustedHTML'", `new Promise(() => { document.body.innerHTML = "<b>"; })`},
		{p, "Content Security Policy", `fetch("http://evil.example/")`},
		{p, "Content Security Policy", `Object.assign(new Image(), {src: "x.png"}).decode()`},
		{other, "", `fetch("` + origin + `stream", {mode: "no-cors"})`},
	} {
		tt.from.forget()
		assert.True(t, get[bool](tt.from, tt.attempt+".then(() => false, () => true)"), tt.attempt)
		assert.Contains(t, strings.Join(tt.from.forget(), " "), tt.violates)
	}
	rebound := open(t, strings.Replace(p.address, "127.0.0.1", "evil.example", 1))
	rebound.expect = "421|Cross-Origin-Opener-Policy"
	assert.Equal(t, 421, get[int](rebound, `performance.getEntriesByType("navigation")[0].responseStatus`))
	assert.False(t, get[bool](rebound, `Boolean(q("main"))`))
}

func TestAPageOutlivesItsCollectorAndItsServer(t *testing.T) {
	n := newNode(t, kubernetes, endless, time.Second)
	p := live(t, n)
	origin, _, _ := strings.Cut(p.address, "#")
	assert.Equal(t, origin, get[string](p, "location.href"), "the token is not in sight")
	p.do(chromedp.Reload())
	p.until(`q("svg.plot") && !wrong()`)
	require.NoError(t, n.stop())
	p.until(`wrong() && document.body.innerText.includes("no process listens")`)
	p.shows(`tile("Last power")`, n.watts("system{"))
	p.until(`/^At [0-9:]{8}, the machine drew /.test(text("#verdict"))`)
	_, n.reset = n.elapsed()
	n.reset += 3600
	n.start(t)
	p.until("!wrong()")
	p.untilDrawnAgain()
	p.until(`/Energy since [0-9:]{8}.*Wh; the chart has \d+ s of \d+ s/.test(text("#tiles"))`)
	p.until(`text("#where-hint").startsWith("Energy since ")`)

	p.expect = "ERR_|401|network error"
	p.stop()
	p.until(`wrong() && document.body.innerText.includes("rying again")`)
	again, _ := startWeb(t, "--endpoint", n.address, "--interval", "50ms", "--listen", strings.Split(origin, "/")[2])
	p.until(`wrong() && document.body.innerText.includes("token")`)
	get[string](p, "location.href = "+strconv.Quote(again)) // as a person enters it
	p.until(`!wrong() && q("svg.plot")`)
}

// The limits of cost and time are wide, because the machine may be busy. The log has the figures.
func TestThePageComesSoonAndCostsLittle(t *testing.T) {
	began := time.Now()
	address, _ := startWeb(t, "--local")
	open(t, address).until(`/draws.* W/.test(text("#verdict"))`)
	t.Logf("first figures of this machine after %v", time.Since(began))
	assert.Less(t, time.Since(began), patience/2)

	programs := kubernetes
	for i := range 500 {
		name := fmt.Sprint("worker-", i)
		programs = append(programs, program{"batch", fmt.Sprint("job-", i/5), "", name, "", .01 * float64(1+i%7), 0})
	}
	n := newNode(t, programs, endless, 2*time.Second)
	n.wave = .3
	p := live(t, n, "--interval", "2s")
	// Thread ticks are CPU time.
	call(p, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks})
	var busy []float64
	for range 6 {
		p.untilDrawnAgain()
		for _, m := range call(p, performance.GetMetrics, cdp.Empty{}).Metrics {
			if m.Name == "TaskDuration" {
				busy = append(busy, m.Value)
			}
		}
		if len(busy) == 1 {
			began = time.Now()
		}
	}
	share := (busy[5] - busy[0]) / time.Since(began).Seconds()
	t.Logf("the main thread uses %.1f %% of a core", 100*share)
	assert.Less(t, share, .15)
}
