// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// steps are what a person does, by a click or by keys, and what holds from then on.
type steps []struct{ element, keys, then string }

const (
	ml     = `q("#icicle [data-key='group ml']")`
	embed  = `q("#icicle [data-key$='group embed-0']")`
	sorted = `q("#table th").ariaSort`
	rows   = `all("#table tbody tr:not(.pin)").map((tr) => plain(tr.cells[0]))`
)

// The button is held for as long as it takes to draw newer figures: people press for about 100 ms.
func TestAClickHoldsWhenThePageIsDrawnAgain(t *testing.T) {
	n := newNode(t, kubernetes(), endless, time.Second)
	n.wave = .3
	p, _ := live(t, n)
	for _, s := range (steps{
		{element: ml, then: `all("#trail button").length === 2 && !q("#icicle [data-key=idle]")`},
		{element: `q("#trail button")`, then: `all("#trail button").length === 1 && q("#icicle [data-key=idle]")`},
		{element: `button("#trees", "By zone")`, then: `text("#icicle").includes("GPU")`},
		{element: `button("#table th", "Program")`, then: sorted + ` === "ascending" && ` + rows + `[0] === "containerd"`},
		{element: `button("#table th", "Program")`, then: sorted + ` === "descending" && ` + rows + `[0] === "vllm"`},
		{element: `q("#search")`, keys: "java", then: rows + `.join() === "java,java"`},
		{element: `button("#tabs", "Pods")`, then: `pressed("tabs", "Pods")`},
		{element: `button("#group", "Pods")`, then: `pressed("group", "Pods") && text(".legend").includes("trainer-x2k9")`},
		{element: `button("#span", "All")`, then: `pressed("span", "All")`},
		{element: `button("#span", "1 min")`, then: `pressed("span", "1 min") && /^Mean of (6|5.)/.test(text(".legend li"))`},
	}) {
		p.click(s.element, true)
		p.press(s.keys)
		p.until(s.then)
		p.untilDrawnAgain()
		assert.True(t, get[bool](p, "Boolean("+s.then+")"), s.then)
	}
}

// The element gets the focus by the tab key alone, and keeps it.
func TestThePageIsUsedByKeyboardAlone(t *testing.T) {
	p, _ := live(t, newNode(t, kubernetes(), endless, time.Second))
	p.untilDrawnAgain()
	for _, s := range (steps{
		{`button("#group", "Pods")`, " ", `pressed("group", "Pods")`},
		{`q("svg.plot")`, kb.Home + kb.ArrowRight, `text(".legend li").startsWith("At ") && / W$/.test(q("svg.plot").ariaValueText)`},
		{`q("svg.plot")`, kb.Escape, `text(".legend li").startsWith("Mean of ")`},
		{ml, kb.ArrowRight + kb.ArrowDown, `document.activeElement === ` + embed},
		{embed, kb.Enter, `all("#trail button").length === 3 && document.activeElement.closest("#icicle")`},
		{`q("#icicle :focus")`, kb.Escape, `all("#trail button").length === 2`},
		{`button("#tabs", "Pods")`, kb.Enter, `pressed("tabs", "Pods")`},
		{`button("#table th", "Pod")`, kb.Enter, sorted + ` === "ascending"`},
		{`button("#table th", "Pod")`, "/shop", rows + `.length === 0 || ` + rows + `.length === 3`},
	}) {
		for i := 0; !get[bool](p, "document.activeElement === "+s.element); i++ {
			require.Less(t, i, 100, "not reached: %s", s.element)
			p.press(kb.Tab)
		}
		p.press(s.keys)
		p.until(s.then)
		p.untilDrawnAgain()
		assert.True(t, get[bool](p, "Boolean("+s.then+") && document.activeElement !== document.body"), s.then)
	}
}

// harmless fails if hostile names have had an effect, or are not shown.
func (p *tab) harmless(names ...string) {
	p.Helper()
	assert.Zero(p, get[int](p, `all("main :is(img, script, iframe, a), [onmouseover], [onerror]").length`))
	assert.True(p, get[bool](p, `Object.keys(Object.prototype).length === 0 && ({}).name === undefined`), "the prototype is clean")
	assert.False(p, get[bool](p, `/[\u202a-\u202e\u2066-\u2069\x07]/.test(document.body.innerText)`), "no invisible characters")
	assert.True(p, get[bool](p, "document.documentElement.scrollWidth <= innerWidth"), "no scrolling sideways")
	for _, name := range names {
		assert.True(p, get[bool](p, "text('main').includes("+quoted(name)+")"), name)
	}
}

func TestHostileNamesAreTexts(t *testing.T) {
	n := newNode(t, hostile(), 8, time.Second)
	p, _ := live(t, n)
	p.untilRead(n)
	p.harmless("</script><script>alert(2)</script>", "<img src=http://evil.example/x onerror=alert(1)>")
	for _, program := range n.programs {
		name := strings.TrimPrefix(program.name, "\u202e")[:6]
		shows(t, row(t, p.contents().Rows, "Program", name)["Power"], program.watts+program.gpu)
	}
	for _, kind := range []string{"Users", "Containers", "Pods", "GPUs"} {
		p.click("button('#group', '"+kind+"')", false)
		p.click("button('#tabs', '"+kind+"')", false)
		p.until("pressed('group', '" + kind + "') && pressed('tabs', '" + kind + "')")
		p.harmless()
	}
}

// The violations are reported as faults, which fail the other tests.
func TestThePolicyForbidsScriptsAndRequests(t *testing.T) {
	p, _ := live(t, newNode(t, kubernetes(), 3, time.Second))
	for _, attempt := range []string{
		`(() => { try { document.body.innerHTML = "<b>"; return "done"; } catch { return "refused"; } })()`,
		`fetch("http://evil.example/").then(() => "done", () => "refused")`,
		`new Promise((end) => Object.assign(new Image(), {onload: () => end("done"), onerror: () => end("refused"), src: "x.png"}))`,
	} {
		p.forget()
		assert.Equal(t, "refused", get[string](p, attempt))
		faults, _ := p.forget()
		assert.Regexp(t, "Content Security Policy|requires 'TrustedHTML'", strings.Join(faults, " "))
	}
}

func TestOtherSitesAndReboundNamesGetNothing(t *testing.T) {
	_, address := live(t, newNode(t, kubernetes(), 3, time.Second))
	origin, token, _ := strings.Cut(address, "#")
	rebound := open(t, strings.Replace(address, "127.0.0.1", "evil.example", 1), desk)
	rebound.expect = "421|Cross-Origin-Opener-Policy"
	assert.Equal(t, 421, get[int](rebound, `performance.getEntriesByType("navigation")[0].responseStatus`))
	assert.False(t, get[bool](rebound, `Boolean(q("main"))`))

	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<!doctype html>") }))
	defer site.Close()
	other := open(t, site.URL+"/", desk)
	for _, options := range []string{"{}", `{mode: "no-cors"}`, `{headers: {Authorization: "Bearer ` + token + `"}}`} {
		assert.Equal(t, "refused", get[string](other, `fetch("`+origin+`stream", `+options+`).then(() => "read", () => "refused")`), options)
	}
	other.forget()

	without := open(t, origin, desk)
	without.expect = "401"
	without.until(`wrong() && document.body.innerText.includes("token")`)
}

func TestAPageOutlivesItsCollector(t *testing.T) {
	n := newNode(t, kubernetes(), endless, time.Second)
	p, _ := live(t, n)
	assert.False(t, get[bool](p, "wrong()"))
	n.stop()
	p.until(`wrong() && document.body.innerText.includes("no process listens")`)
	used, _, _ := n.used()
	shows(t, line(t, p.contents().Tiles, "Power")[1], used["node"].watts)
	n.start(t)
	p.until("!wrong()")
	p.untilDrawnAgain()
}

func TestAPageOutlivesItsServer(t *testing.T) {
	n := newNode(t, kubernetes(), endless, time.Second)
	address, stop := startWeb(t, "--endpoint", n.address, "--interval", "50ms")
	p := open(t, address, desk)
	p.until("q('svg.plot')")
	origin, _, _ := strings.Cut(address, "#")
	assert.Equal(t, origin, get[string](p, "location.href"), "the token is not in sight")
	p.do(chromedp.Reload())
	p.until("q('svg.plot')")
	p.expect = "ERR_|401|network error"
	stop()
	p.until(`wrong() && document.body.innerText.includes("rying again")`)
	port := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(address)
	again, _ := startWeb(t, "--endpoint", n.address, "--interval", "50ms", "--listen", port)
	assert.NotEqual(t, address, again)
	p.until(`wrong() && document.body.innerText.includes("token")`)
	get[string](p, "location.href = "+quoted(again)) // as a person enters it
	p.until("!wrong() && q('.legend li:last-child')")
}

// stream returns the points of the first message of energy web.
func stream(t *testing.T, address string) []struct{ Node, Active int64 } {
	t.Helper()
	origin, token, _ := strings.Cut(address, "#")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, origin+"stream", http.NoBody)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	var message struct {
		Points []struct{ Node, Active int64 }
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&message))
	return message.Points
}
