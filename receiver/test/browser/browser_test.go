// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
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
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
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
	path, err := exec.LookPath("chromium")
	if *energyPath == "" || err != nil {
		fmt.Println("Skipped: make browser runs these tests, in Chromium.", err)
		return
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Env("TZ=UTC"), chromedp.Flag("lang", "en"),
		chromedp.Flag("host-resolver-rules", "MAP evil.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	browser = ctx
	code := 1
	if err = chromedp.Do(ctx); err == nil {
		code = m.Run()
	}
	err = errors.Join(err, chromedp.Cancel(ctx)) // waits for its end
	stop()
	end()
	if err = errors.Join(err, goleak.Find()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// tab is a page in a window of its own.
type tab struct {
	*testing.T
	ctx     context.Context
	address string
	expect  string // pattern of the faults that the test brings about
	stop    func() // ends the server

	mu     sync.Mutex
	faults []string
}

// open opens an address. The test fails if the page has a fault, such as a violation of its policy,
// or sends a request to another address. Reports send no requests.
func open(t *testing.T, address string) *tab {
	t.Helper()
	p := &tab{T: t, address: address, expect: "^$"}
	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.event))
	p.ctx = ctx
	t.Cleanup(func() {
		end()
		for _, fault := range p.forget() {
			assert.Regexp(t, p.expect, fault, "a fault of the page")
		}
	})
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	call(p, page.Enable, page.EnableParams{})
	p.do(chromedp.EmulateViewport(1440, 1000), chromedp.Navigate(address))
	return p
}

var origin = regexp.MustCompile("^http://[^/]*/|^.*")

// event records faults.
func (p *tab) event(e any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := e.(type) {
	case *network.EventRequestWillBeSent:
		if to := e.Request.URL; !strings.HasPrefix(to, origin.FindString(p.address)) && !strings.HasPrefix(to, "data:") {
			p.faults = append(p.faults, "a request: "+to)
		}
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

// forget returns the recorded faults and clears them.
func (p *tab) forget() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	faults := p.faults
	p.faults = nil
	return faults
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
	const tile = (name, i = 1) => plain(all("#tiles li").find((li) => plain(li.firstChild) === name)?.children[i]);
	const legend = (name) => plain(all(".legend li").find((li) => plain(li.lastChild.previousSibling) === name)?.lastChild);
	const position = (column) => all("#table th").findIndex((th) => plain(th).startsWith(column));
	const column = (name) => all("#table tbody tr").map((tr) => tr.cells[position(name)]).map((td) => td.title || plain(td));
	const rows = () => all("#table tbody tr").map((tr) => plain(tr.cells[0]).replace(/^\?+/, ""));
	const cell = (row, name) => column(name)[rows().findIndex((title) => title.startsWith(row))];
	const by = {G: 1e9, M: 1e6, k: 1e3, m: 1e-3, µ: 1e-6};
	const quantities = (text) => [...text.matchAll(/([\d.]+)\s?([GMkmµ]?)(Wh|W|J|%)/g)].map(([, figure, prefix]) =>
		[figure, 0.5 / 10 ** (figure.split(".")[1] ?? "").length].map((v) => v * (by[prefix] ?? 1)));
	const sum = (texts) => texts.flatMap(quantities).reduce((sum, [v]) => sum + v, 0);
	const data = () => JSON.parse(q("#data").textContent).data;
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

// until waits for a condition, an expression in the page. The page may reload during the wait.
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
	p.until("text('#state') !== " + strconv.Quote(get[string](p, "text('#state')")))
	get[bool](p, "drawn()")
}

// untilRead waits for the figures of the last reading of a node: the page has their time.
func (p *tab) untilRead(n *node) {
	p.Helper()
	n.untilRead(p.T)
	p.until("text('#state').includes('" + n.base.Add(n.time).UTC().Format(time.TimeOnly) + "')")
	get[bool](p, "drawn()")
}

// click clicks an element. It holds the button until the page is drawn again, because people press
// a button for about 100 ms.
func (p *tab) click(element string) {
	p.Helper()
	p.until(element)
	at := get[[]float64](p, "middle("+element+")")
	p.do(chromedp.MouseEvent(chromedp.MousePressed, at[0], at[1], chromedp.Button("left"), chromedp.ClickCount(1)))
	p.untilDrawnAgain()
	p.do(chromedp.MouseEvent(chromedp.MouseReleased, at[0], at[1], chromedp.Button("left"), chromedp.ClickCount(1)))
}

// startWeb starts energy web, and returns the address with the token that it prints.
func startWeb(t *testing.T, arguments ...string) (address string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, *energyPath, append([]string{"web", "--listen", "127.0.0.1:0"}, arguments...)...)
	cmd.Cancel, cmd.WaitDelay, cmd.Stderr = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, patience, os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	stop = sync.OnceFunc(func() {
		cancel()
		_ = cmd.Wait()
		assert.True(t, cmd.ProcessState.Success(), "energy web ends on a signal")
	})
	t.Cleanup(stop)
	address, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(address), stop
}

// live returns the page of a node with its first figures.
func live(t *testing.T, n *node, arguments ...string) *tab {
	t.Helper()
	address, stop := startWeb(t, append([]string{"--endpoint", n.address, "--interval", "50ms"}, arguments...)...)
	p := open(t, address)
	p.stop = stop
	p.until(`q("svg.plot")`)
	return p
}

// shows fails unless a text of the page has these quantities, with at least two digits, all
// correct.
func (p *tab) shows(text string, want ...float64) {
	p.Helper()
	found := get[[][]float64](p, "quantities("+text+")")
	require.Len(p, found, len(want), "quantities of %s", text)
	for i, precise := range found {
		assert.InDelta(p, want[i], precise[0], precise[1]*1.0001, text)
		assert.LessOrEqual(p, precise[1], want[i]/20, "digits of %s", text)
	}
}

// harmless fails if names have had an effect.
func (p *tab) harmless() {
	p.Helper()
	assert.Zero(p, get[int](p, `all("main :is(img, script, iframe, a), [onmouseover], [onerror]").length`))
	assert.True(p, get[bool](p, `Object.keys(Object.prototype).length === 0 && ({}).name === undefined`), "polluted")
	assert.False(p, get[bool](p, `/[\u202a-\u202e\u2066-\u2069\x07]/.test(document.body.innerText)`), "invisible")
}
