// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var (
	energyPath  = flag.String("browser.energy", "", "path of the program energy; without it no test runs")
	axePath     = flag.String("browser.axe", "", "path of axe.min.js; without it accessibility is not tested")
	picturesDir = flag.String("browser.pictures", "", "directory for pictures of the pages")
)

// patience is the maximum wait for a condition.
const patience = 30 * time.Second

// browser is the context of the Chromium of all tests.
var browser context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(inChromium{m})
}

// inChromium runs tests with a browser.
type inChromium struct{ *testing.M }

// Run implements goleak.TestingM.
func (m inChromium) Run() int {
	path, err := exec.LookPath("chromium")
	switch {
	case *energyPath == "":
		fmt.Println("Skipped: make browser runs these tests")
		return 0
	case err != nil:
		fmt.Println("Skipped:", err)
		return 0
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Env("TZ=UTC"), chromedp.Flag("lang", "en"),
		chromedp.Flag("host-resolver-rules", "MAP evil.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	ctx, stop := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	defer stop()
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chromium:", err)
		return 1
	}
	browser = ctx
	defer func() { _ = chromedp.Cancel(ctx) }() // waits for its end
	return m.M.Run()
}

// view is how a page is looked at. Scripts of others run in trusted pages only.
type view struct {
	width, height int
	dark, trusted bool
}

var themes = map[bool]string{false: "light", true: "dark"} // by view.dark

var desk = view{width: 1440, height: 1000}

// tab is a page in a window of its own.
type tab struct {
	*testing.T
	ctx    context.Context
	expect string // pattern of the faults that the test brings about
	stop   func() // ends the server

	mu               sync.Mutex
	faults, requests []string
}

// open opens an address. The test fails if the page has a fault, such as a violation of its policy,
// or sends a request elsewhere.
func open(t *testing.T, address string, v view) *tab {
	t.Helper()
	p := &tab{T: t, expect: "^$"}
	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.event))
	p.ctx = ctx
	origin := regexp.MustCompile(`^[a-z]+:(//[^/]*/)?`).FindString(address)
	t.Cleanup(func() {
		end()
		faults, requests := p.forget()
		for _, request := range requests {
			assert.True(t, strings.HasPrefix(request, origin) || strings.HasPrefix(request, "data:"), "a request: %s", request)
		}
		for _, fault := range faults {
			assert.Regexp(t, p.expect, fault, "a fault of the page")
		}
	})
	theme := &emulation.MediaFeature{Name: "prefers-color-scheme", Value: themes[v.dark]}
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	call(p, page.Enable, page.EnableParams{})
	call(p, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: v.trusted})
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{theme}})
	p.do(chromedp.EmulateViewport(int64(v.width), int64(v.height)), chromedp.Navigate(address))
	return p
}

// event records an event of the page.
func (p *tab) event(e any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := e.(type) {
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.faults = append(p.faults, fmt.Sprint(e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			p.faults = append(p.faults, e.Entry.Text)
		}
	case *page.EventJavascriptDialogOpening:
		p.faults = append(p.faults, "a dialog: "+e.Message)
		go func() { _, _ = chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{}) }()
	}
}

// forget returns the faults and requests until now, which the test has brought about.
func (p *tab) forget() (faults, requests []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	faults, requests = p.faults, p.requests
	p.faults, p.requests = nil, nil
	return faults, requests
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	require.NoError(p, chromedp.Do(ctx, actions...))
}

// call calls a method of the browser's protocol.
func call[P, R any](p *tab, method cdp.Command[P, R], parameters P) R {
	p.Helper()
	result, err := chromedp.Call(p.ctx, method, parameters)
	require.NoError(p, err)
	return result
}

// helpers are functions for the expressions of tests.
const helpers = `
	const q = (query) => document.querySelector(query), all = (query) => [...document.querySelectorAll(query)];
	const plain = (e) => (e?.textContent ?? "").replaceAll("\u202f", " "), text = (query) => plain(q(query));
	const button = (below, name) => all(below + " button").find((b) => plain(b).startsWith(name));
	const pressed = (id, name) => text("#" + id + " [aria-pressed=true]") === name;
	const names = () => all("#table tbody tr:not(.pin)").map((tr) => plain(tr.cells[0]));
	const middle = (e) => {
		e.scrollIntoView({block: "center"});
		const box = e.getBoundingClientRect();
		return [box.left + box.width / 2, box.top + box.height / 2];
	};
	const wrong = () => all("#state.bad, #alert").some((e) => e.checkVisibility());
	const drawn = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))));
`

// evaluate returns the value of an expression in the page, or of its promise.
func evaluate[T any](p *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	expression = "(() => {" + helpers + "return (" + expression + "); })()"
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// get is evaluate without errors.
func get[T any](p *tab, expression string) T {
	p.Helper()
	v, err := evaluate[T](p, expression)
	require.NoError(p, err, expression)
	return v
}

// until waits for a condition, which is an expression in the page. The page may be loaded again meanwhile.
func (p *tab) until(condition string) {
	p.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		holds, err := evaluate[bool](p, "Boolean("+condition+")")
		if err == nil && holds {
			return
		}
		if time.Now().After(end) {
			require.Fail(p, condition+" does not hold", "%v: %s", err, get[string](p, "document.body.innerText.slice(0, 800)"))
		}
	}
}

// untilDrawnAgain waits for newer figures.
func (p *tab) untilDrawnAgain() {
	p.Helper()
	p.until("text('#state') !== " + quoted(get[string](p, "text('#state')")))
	get[bool](p, "drawn()")
}

// untilRead waits for the figures of the last reading of a node: the page has their time.
func (p *tab) untilRead(n *node) {
	p.Helper()
	n.untilRead(p.T)
	_, _, at := n.used()
	p.until("text('#state').includes('" + at.UTC().Format(time.TimeOnly) + "')")
	get[bool](p, "drawn()")
}

// quoted returns a text as an expression.
func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// click clicks an element, and holds the button until the page is drawn again if hold is set.
func (p *tab) click(element string, hold bool) {
	p.Helper()
	p.until(element)
	at := get[[]float64](p, "middle("+element+")")
	p.do(chromedp.MouseEvent(chromedp.MousePressed, at[0], at[1], chromedp.Button("left"), chromedp.ClickCount(1)))
	if hold {
		p.untilDrawnAgain()
	}
	p.do(chromedp.MouseEvent(chromedp.MouseReleased, at[0], at[1], chromedp.Button("left"), chromedp.ClickCount(1)))
}

// press presses keys one after the other, as a keyboard does: a key that the page handles types nothing.
func (p *tab) press(keys string) {
	p.Helper()
	for _, r := range keys {
		events := kb.Encode(r)
		if len(events) == 3 {
			events[0].Type, events[0].Text = input.DispatchKeyEventTypeKeyDown, events[1].Text
			events = slices.Delete(events, 1, 2)
		}
		for _, event := range events {
			call(p, input.DispatchKeyEvent, *event)
		}
	}
}

// startWeb starts energy web, and returns the address with the token that it prints.
func startWeb(t *testing.T, arguments ...string) (address string, stop func()) {
	t.Helper()
	cmd := exec.Command(*energyPath, append([]string{"web", "--listen", "127.0.0.1:0"}, arguments...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	stop = sync.OnceFunc(func() {
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		assert.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		assert.NoError(t, cmd.Wait(), "energy web ends on a signal")
	})
	t.Cleanup(stop)
	for lines := bufio.NewScanner(out); address == "" && lines.Scan(); {
		address = regexp.MustCompile(`https?://\S+#\S+`).FindString(lines.Text())
	}
	require.NotEmpty(t, address, "energy web prints an address")
	return address, stop
}

// live returns the page of a node with its first figures, and its address.
func live(t *testing.T, n *node, arguments ...string) (p *tab, address string) {
	t.Helper()
	address, stop := startWeb(t, append([]string{"--endpoint", n.address, "--interval", "50ms"}, arguments...)...)
	p = open(t, address, desk)
	p.stop = stop
	p.until(`q("svg.plot")`)
	return p, address
}

// contents are the figures of a page as texts. Rows are by column, with the exact figures of their titles.
type contents struct {
	Verdict, Root string
	Tiles         map[string][]string
	Legend        map[string]string
	Rows          []map[string]string
}

func (p *tab) contents() contents {
	p.Helper()
	return get[contents](p, `(() => {
		const columns = all("#table th").map((e) => plain(e).split(",")[0]), {fromEntries} = Object;
		const texts = (e) => [...e.children].map(plain), exact = (e) => (e.title || e.textContent).replaceAll("\u202f", " ");
		const rowOf = (tr) => fromEntries([...tr.cells].map((e, i) => i ? [columns[i], exact(e)] : ["name", plain(e)]));
		return {
			verdict: text("#verdict"), root: text("#trail button"), rows: all("#table tbody tr").map(rowOf),
			tiles: fromEntries(all("#tiles li").map((li) => [texts(li)[0], texts(li).slice(1)])),
			legend: fromEntries(all(".legend li").map((li) => texts(li).slice(-2))),
		};
	})()`)
}

// row returns the first row with a name that begins with a text.
func row(t *testing.T, rows []map[string]string, name string) map[string]string {
	t.Helper()
	i := slices.IndexFunc(rows, func(r map[string]string) bool {
		return strings.HasPrefix(strings.TrimLeft(r["name"], "?"), name)
	})
	require.GreaterOrEqual(t, i, 0, "no row %s: %q", name, rows)
	return rows[i]
}

var quantity = regexp.MustCompile(`([\d.]+) ?([GMkmµ]?)(Wh|W|J|%)`)

// values returns the quantities in a text, and half the last digit of each.
func values(t *testing.T, text string) (values, precise []float64) {
	t.Helper()
	for _, part := range quantity.FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseFloat(part[1], 64)
		require.NoError(t, err)
		_, decimals, _ := strings.Cut(part[1], ".")
		by := map[string]float64{"G": 1e9, "M": 1e6, "k": 1e3, "": 1, "m": 1e-3, "µ": 1e-6}[part[2]]
		values, precise = append(values, v*by), append(precise, .5*math.Pow10(-len(decimals))*by)
	}
	return values, precise
}

// sum returns the sum of texts with a quantity or none each.
func sum(t *testing.T, texts map[string]string) (sum float64) {
	t.Helper()
	for _, text := range texts {
		if v, _ := values(t, text); len(v) > 0 {
			sum += v[0]
		}
	}
	return sum
}

// shows fails unless a text has these quantities, in at least two digits that are all right.
func shows(t *testing.T, text string, want ...float64) {
	t.Helper()
	found, precise := values(t, text)
	require.Len(t, found, len(want), "quantities of %q", text)
	for i := range want {
		assert.InDelta(t, want[i], found[i], precise[i]*1.0001, "%q", text)
		assert.LessOrEqual(t, precise[i], want[i]/20, "digits of %q", text)
	}
}

// harmless fails if hostile names have had an effect, or are not shown.
func (p *tab) harmless(names ...string) {
	p.Helper()
	assert.Zero(p, get[int](p, `all("main :is(img, script, iframe, a), [onmouseover], [onerror]").length`))
	assert.True(p, get[bool](p, `Object.keys(Object.prototype).length === 0 && ({}).name === undefined`), "polluted")
	assert.False(p, get[bool](p, `/[\u202a-\u202e\u2066-\u2069\x07]/.test(document.body.innerText)`), "invisible")
	assert.True(p, get[bool](p, "document.documentElement.scrollWidth <= innerWidth"), "no scrolling sideways")
	for _, name := range names {
		assert.True(p, get[bool](p, `text("main").includes(`+quoted(name)+")"), name)
	}
}
