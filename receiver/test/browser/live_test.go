// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
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

func TestFiguresOfThePageEqualThoseOfTheNode(t *testing.T) {
	n := newNode(t, kubernetes, 10, time.Second)
	p, _ := live(t, n)
	p.untilRead(n)
	c, largest := p.contents(), "python3 trainer-x2k9"
	used, _, _ := n.used()
	all, idle := used["node"], used["idle"]
	active := figure{all.energy - idle.energy, all.watts - idle.watts}
	shows(t, c.Verdict, all.watts, idle.watts, active.watts, used[largest].watts, 100*used[largest].watts/active.watts)
	shows(t, c.Tiles["Power now"][0], all.watts)
	shows(t, strings.Join(c.Tiles["Energy in 9 s"], " "), all.joules(), all.joules()/3600)
	shows(t, c.Tiles["Idle"][0], 100*idle.watts/all.watts)
	shows(t, c.Tiles["GPUs"][0], used["gpu"].watts)
	shows(t, c.Root, all.joules())
	shows(t, c.Legend["Sum"], all.watts)
	shows(t, c.Legend["Idle: independent of load"], idle.watts)
	shows(t, c.Legend["Unattributed"], used["unattributed"].watts)
	shows(t, c.Legend["python3 · ml/trainer-x2k9"], used[largest].watts)
	assert.InEpsilon(t, 2*all.watts, sum(t, c.Legend), .005, "the parts of the legend and their sum")
	for _, tab := range []struct {
		name  string
		total figure
		rows  map[string]string
	}{
		{"Program", active, map[string]string{"python3": largest, "kubelet": "kubelet ", "unattributed": "unattributed"}},
		{"Pod", active, map[string]string{"checkout-6d5f": "shop/checkout-6d5f", "trainer-x2k9": "ml/trainer-x2k9"}},
		{"Container", active, map[string]string{"embed": "ml/embed-0"}},
		{"GPU", used["gpu"], map[string]string{"NVIDIA L40S": "GPU-0"}},
	} {
		p.click(`button("#tabs", "`+tab.name+`s")`, false)
		p.until(`pressed("tabs", "` + tab.name + `s")`)
		rows, energies := p.contents().Rows, map[string]string{}
		for name, of := range tab.rows {
			shows(t, row(t, rows, name)["Power"], used[of].watts)
			shows(t, row(t, rows, name)["Energy"], used[of].joules())
		}
		for i, r := range rows {
			energies[fmt.Sprint(i)] = r["Energy"]
		}
		assert.InEpsilon(t, tab.total.joules(), sum(t, energies), .005, "the sum of the rows: %s", tab.name)
	}
}

func TestTheSentenceAndTheTableShowTheSamePower(t *testing.T) {
	n := newNode(t, kubernetes, 10, time.Second)
	n.wave = .35
	p, _ := live(t, n)
	p.untilRead(n)
	c := p.contents()
	power, _ := values(t, c.Verdict)
	used, _, _ := n.used()
	shows(t, row(t, c.Rows, "python3")["Power"], power[3])
	assert.Greater(t, math.Abs(used["python3 trainer-x2k9"].watts/power[3]-1), .05, "the last interval differs from the mean")
	units := `new Set(all("#table tbody td:nth-child(3)").map((td) => plain(td).split(" ").at(-1))).size`
	assert.Equal(t, 1, get[int](p, units), "units of a column")
}

// The exporter has new figures every second, and is read in another beat: some readings have none, and some are late.
func TestPointsEndAtTheTimestampsOfTheData(t *testing.T) {
	n := newNode(t, kubernetes, 25, time.Second)
	beat := []time.Duration{0, 1, 0, 2, 1, 0, 0, 3, 1, 1, 0, 2}
	n.passes = func(reading int) time.Duration { return beat[reading%len(beat)] * time.Second }
	p, _ := live(t, n)
	p.untilRead(n)
	used, _, at := n.used()
	get[bool](p, `q("svg.plot").focus() ?? true`)
	p.press(kb.End)
	last := get[string](p, `text(".legend li")`)
	assert.Equal(t, "At "+at.UTC().Format(time.TimeOnly), last)
	p.press(kb.Home)
	points := 1
	for ; points < 20 && get[string](p, `text(".legend li")`) != last; points++ {
		shows(t, p.contents().Legend["Sum"], used["node"].watts)
		p.press(kb.ArrowRight)
	}
	assert.Equal(t, 14, points, "readings with new figures")
}

func TestHoursOfHistoryAreBoundedWithoutALossOfEnergy(t *testing.T) {
	n := newNode(t, kubernetes, 800, 4*time.Minute)
	n.wave = .3
	address, _ := startWeb(t, "--endpoint", n.address, "--interval", "1ms")
	n.untilRead(t)
	p := open(t, address, desk)
	p.untilRead(n)
	p.click(`button("#span", "All")`, false)
	p.until(`text(".legend li").startsWith("Mean of 2.2 days")`)
	used, seconds, _ := n.used()
	shows(t, p.contents().Legend["Sum"], used["node"].joules()/seconds)
	assert.Less(t, get[int](p, `q("svg.plot").outerHTML.length`), 300_000)
	times := get[int](p, `all("svg.plot text").filter((e) => plain(e).includes(":")).length`)
	assert.InDelta(t, 7, times, 4, "times of the axis")
	history := get[[]int64](p, `(async () => {
		const r = await fetch("stream", {headers: {Authorization: "Bearer " + sessionStorage.token}});
		let line = "";
		for await (const part of r.body.pipeThrough(new TextDecoderStream())) if ((line += part).includes("\n")) break;
		const {points} = JSON.parse(line.split("\n")[0]), sum = (name) => points.reduce((s, p) => s + p[name], 0);
		return [points.length, sum("node"), sum("active")];
	})()`)
	assert.Less(t, history[0], int64(800), "points are joined")
	assert.Equal(t, []int64{used["node"].energy, used["node"].energy - used["idle"].energy}, history[1:], "microjoules")
}

// step is what a person does, by a click or by keys, and what holds from then on.
type step struct{ element, keys, then string }

const (
	ml     = `q("#icicle [data-key='group ml']")`
	embed  = `q("#icicle [data-key$='group embed-0']")`
	sorted = `q("#table th").ariaSort === `
)

// The button is held until newer figures are drawn: people press for about 100 ms.
func TestAClickHoldsWhenThePageIsDrawnAgain(t *testing.T) {
	n := newNode(t, kubernetes, endless, time.Second)
	n.wave = .3
	p, _ := live(t, n)
	for _, s := range []step{
		{ml, "", `all("#trail button").length === 2 && !q("#icicle [data-key=idle]")`},
		{`q("#trail button")`, "", `all("#trail button").length === 1 && q("#icicle [data-key=idle]")`},
		{`button("#trees", "By component")`, "", `text("#icicle").includes("GPU")`},
		{`button("#table th", "Program")`, "", sorted + `"ascending" && names()[0] === "envoy"`},
		{`button("#table th", "Program")`, "", sorted + `"descending" && names()[0] === "vllm"`},
		{`q("#search")`, "java", `names().join() === "java,java"`},
		{`button("#tabs", "Pods")`, "", `pressed("tabs", "Pods")`},
		{`button("#group", "Pods")`, "", `pressed("group", "Pods") && text(".legend").includes("trainer-x2k9")`},
		{`button("#span", "All")`, "", `pressed("span", "All")`},
		{`button("#span", "1 min")`, "", `pressed("span", "1 min")`},
	} {
		p.click(s.element, true)
		p.holds(s, true)
	}
}

// The tab key alone reaches each element. Figures stand still when a collector is gone, and in reports.
func TestThePageIsUsedByKeyboardAlone(t *testing.T) {
	for _, readings := range []int{10, endless} {
		n := newNode(t, kubernetes, readings, time.Second)
		p, _ := live(t, n)
		p.until(`names().length > 5`)
		for _, s := range []step{
			{`button("#group", "Pods")`, " ", `pressed("group", "Pods")`},
			{`q("svg.plot")`, kb.Home + kb.ArrowRight, `/^At .* W$/.test(q("svg.plot").ariaValueText)`},
			{`q("svg.plot")`, kb.Escape, `text(".legend li").startsWith("Mean of ")`},
			{`button("#tabs", "Pods")`, kb.Enter, `pressed("tabs", "Pods")`},
			{`button("#table th", "Pod")`, kb.Enter, sorted + `"ascending"`},
			{ml, kb.ArrowDown, `document.activeElement.dataset.key.startsWith("group ml\n")`},
			{ml, kb.Enter, `all("#trail button").length === 2`},
			{embed, kb.Enter, `all("#trail button").length === 3 && document.activeElement.closest("#icicle")`},
			{`q("#trail button")`, kb.Enter, `all("#trail button").length === 1`},
			{`button("#tabs", "Programs")`, kb.Enter, `pressed("tabs", "Programs")`},
			{`q("#search")`, "trainer", `names().join() === "python3,pt_data_worker"`},
		} {
			for i := 0; !get[bool](p, "document.activeElement === "+s.element); i++ {
				require.Less(t, i, 100, "not reached: %s", s.element)
				p.press(kb.Tab)
			}
			p.holds(s, readings == endless)
			assert.True(t, get[bool](p, "document.activeElement !== document.body"), "%s keeps the focus", s.element)
		}
	}
}

// holds presses the keys of a step, and fails unless its condition holds then, and when the page is drawn again.
func (p *tab) holds(s step, again bool) {
	p.Helper()
	p.press(s.keys)
	p.until(s.then)
	if again {
		p.untilDrawnAgain()
		assert.True(p, get[bool](p, "Boolean("+s.then+")"), s.then)
	}
}

func TestHostileNamesAreTexts(t *testing.T) {
	n := newNode(t, hostile, 8, time.Second)
	p, _ := live(t, n)
	p.untilRead(n)
	p.harmless("</script><script>alert(2)</script>", image)
	for _, program := range hostile {
		name := strings.TrimPrefix(program.name, "\u202e")[:6]
		shows(t, row(t, p.contents().Rows, name)["Power"], program.watts+program.gpu)
	}
	for _, kind := range []string{"Users", "Containers", "Pods", "GPUs"} {
		p.click(`button("#group", "`+kind+`")`, false)
		p.click(`button("#tabs", "`+kind+`")`, false)
		p.until(`pressed("group", "` + kind + `") && pressed("tabs", "` + kind + `")`)
		p.harmless()
	}
}

// The violations are reported as faults, which fail the other tests.
func TestThePolicyForbidsScriptsAndRequests(t *testing.T) {
	p, _ := live(t, newNode(t, kubernetes, 3, time.Second))
	for _, attempt := range []string{
		`(() => { try { document.body.innerHTML = "<b>"; return "done"; } catch { return "refused"; } })()`,
		`fetch("http://evil.example/").then(() => "done", () => "refused")`,
		`new Promise((end) => Object.assign(new Image(), {onerror: () => end("refused"), src: "x.png"}))`,
	} {
		p.forget()
		assert.Equal(t, "refused", get[string](p, attempt))
		faults, _ := p.forget()
		assert.Regexp(t, "Content Security Policy|requires 'TrustedHTML'", strings.Join(faults, " "))
	}
}

func TestOtherSitesAndReboundNamesGetNothing(t *testing.T) {
	_, address := live(t, newNode(t, kubernetes, 3, time.Second))
	origin, token, _ := strings.Cut(address, "#")
	rebound := open(t, strings.Replace(address, "127.0.0.1", "evil.example", 1), desk)
	rebound.expect = "421|Cross-Origin-Opener-Policy"
	assert.Equal(t, 421, get[int](rebound, `performance.getEntriesByType("navigation")[0].responseStatus`))
	assert.False(t, get[bool](rebound, `Boolean(q("main"))`))

	site := httptest.NewServer(http.FileServer(http.Dir("testdata")))
	defer site.Close()
	other := open(t, site.URL+"/", desk)
	for _, options := range []string{`{}`, `{mode: "no-cors"}`, `{headers: {Authorization: "Bearer ` + token + `"}}`} {
		attempt := `fetch("` + origin + `stream", ` + options + `).then(() => "read", () => "refused")`
		assert.Equal(t, "refused", get[string](other, attempt), options)
	}
	other.forget()
	without := open(t, origin, desk)
	without.expect = "401"
	without.until(`wrong() && document.body.innerText.includes("token")`)
}

func TestAPageOutlivesItsCollectorAndItsServer(t *testing.T) {
	n := newNode(t, kubernetes, endless, time.Second)
	p, address := live(t, n)
	origin, _, _ := strings.Cut(address, "#")
	assert.Equal(t, origin, get[string](p, "location.href"), "the token is not in sight")
	p.do(chromedp.Reload())
	p.until(`q("svg.plot") && !wrong()`)
	require.NoError(t, n.stop())
	p.until(`wrong() && document.body.innerText.includes("no process listens")`)
	used, _, _ := n.used()
	shows(t, p.contents().Tiles["Power now"][0], used["node"].watts)
	n.start(t)
	p.until("!wrong()")
	p.untilDrawnAgain()

	p.expect = "ERR_|401|network error"
	p.stop()
	p.until(`wrong() && document.body.innerText.includes("rying again")`)
	again, _ := startWeb(t, "--endpoint", n.address, "--interval", "50ms", "--listen", strings.Split(origin, "/")[2])
	p.until(`wrong() && document.body.innerText.includes("token")`)
	get[string](p, "location.href = "+quoted(again)) // as a person enters it
	p.until(`!wrong() && q("svg.plot")`)
}

// The bounds of cost and time are wide, because the machine may be busy. The log has the figures.
func TestThePageComesSoonAndCostsLittle(t *testing.T) {
	began := time.Now()
	address, _ := startWeb(t, "--local")
	open(t, address, desk).until(`/draws.* W/.test(text("#verdict"))`)
	t.Logf("first figures of this machine after %v", time.Since(began))
	assert.Less(t, time.Since(began), patience/2)

	programs := kubernetes
	for i := range 500 {
		name := fmt.Sprint("worker-", i)
		programs = append(programs, program{"batch", fmt.Sprint("job-", i/5), "", name, "", .01 * float64(1+i%7), 0})
	}
	n := newNode(t, programs, endless, 2*time.Second)
	n.wave = .3
	p, _ := live(t, n, "--interval", "2s")
	call(p, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}) // CPU time
	busy := func() (seconds float64) {
		for _, m := range call(p, performance.GetMetrics, cdp.Empty{}).Metrics {
			if m.Name == "TaskDuration" {
				seconds = m.Value
			}
		}
		return seconds
	}
	p.untilDrawnAgain()
	before, began := busy(), time.Now()
	for range 5 {
		p.untilDrawnAgain()
	}
	share := (busy() - before) / time.Since(began).Seconds()
	t.Logf("the main thread uses %.1f %% of a core", 100*share)
	assert.Less(t, share, .15)
}
