// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
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
	energyPath  = flag.String("browser.energy", "", "path of the program energy; without it all tests are skipped")
	axePath     = flag.String("browser.axe", "", "path of axe.min.js; without it the tests of accessibility are skipped")
	picturesDir = flag.String("browser.pictures", "", "directory for pictures of the pages")
)

// patience is the maximum wait for a condition.
const patience = 30 * time.Second

// chromium is the browser of all tests, which the first one starts.
var chromium struct {
	once sync.Once
	ctx  context.Context
	stop []context.CancelFunc
	err  error
}

func TestMain(m *testing.M) {
	flag.Parse()
	status := m.Run()
	for _, stop := range chromium.stop {
		stop()
	}
	if err := goleak.Find(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func startChromium() {
	path, err := exec.LookPath("chromium")
	if err != nil {
		chromium.err = err
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Env("TZ=UTC"), chromedp.Flag("lang", "en"), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("host-resolver-rules", "MAP evil.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	quiet := func(string, ...any) {} // events of a newer Chromium
	ctx, stop := chromedp.NewContext(ctx, chromedp.WithErrorf(quiet))
	chromium.ctx, chromium.stop, chromium.err = ctx, []context.CancelFunc{stop, end}, chromedp.Do(ctx)
}

// view is how a page is looked at.
type view struct {
	width, height int
	dark, trusted bool // trusted pages may run scripts that are not theirs
}

var desk = view{width: 1440, height: 1000}

// tab is a page in a window of its own.
type tab struct {
	*testing.T
	ctx    context.Context
	expect *regexp.Regexp // faults that the test brings about

	mu       sync.Mutex
	faults   []string
	requests []string
}

// open opens an address. The test fails if the page has a fault, such as a violation of its policy, or sends a request
// elsewhere.
func open(t *testing.T, address string, v view) *tab {
	t.Helper()
	if chromium.once.Do(startChromium); chromium.err != nil {
		t.Skip("lacks chromium:", chromium.err)
	}
	p := &tab{T: t, expect: regexp.MustCompile("^$")}
	ctx, end := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.event))
	p.ctx = ctx
	t.Cleanup(func() {
		end()
		origin := regexp.MustCompile(`^[a-z]+://[^/]*/`).FindString(address)
		for _, request := range p.seen(&p.requests) {
			assert.True(t, strings.HasPrefix(request, origin) || strings.HasPrefix(request, "data:"), "a request to %s", request)
		}
		for _, fault := range p.seen(&p.faults) {
			assert.Regexp(t, p.expect, fault, "a fault of the page")
		}
	})
	scheme := "light"
	if v.dark {
		scheme = "dark"
	}
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	call(p, page.Enable, page.EnableParams{})
	call(p, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: v.trusted})
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	p.run(chromedp.EmulateViewport(int64(v.width), int64(v.height)), chromedp.Navigate(address))
	return p
}

func (p *tab) seen(list *[]string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), *list...)
}

func (p *tab) event(e any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := e.(type) {
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.faults = append(p.faults, e.ExceptionDetails.Text+" "+fmt.Sprint(e.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			p.faults = append(p.faults, e.Entry.Text)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError {
			p.faults = append(p.faults, fmt.Sprint("console: ", e.Args))
		}
	case *page.EventJavascriptDialogOpening:
		p.faults = append(p.faults, "a dialog: "+e.Message)
		go func() { _, _ = chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{}) }()
	}
}

func (p *tab) run(actions ...chromedp.Action[chromedp.Void]) {
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

// get returns the value of an expression in the page, or of its promise.
func get[T any](p *tab, expression string) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(p, err, expression)
	return v
}

// until waits for a condition, which is an expression in the page.
func (p *tab) until(condition string) {
	p.Helper()
	for end := time.Now().Add(patience); !get[bool](p, "!!("+condition+")"); time.Sleep(20 * time.Millisecond) {
		require.False(p, time.Now().After(end), "%s does not hold: %s\n%s", condition, p.seen(&p.faults), get[string](p, "document.body.innerText.slice(0, 800)"))
	}
}

// quoted returns a text as an expression.
func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// button is an expression for a button with a text below an element.
func button(below, text string) string {
	return fmt.Sprintf("[...document.querySelectorAll(%s)].find((b) => b.textContent.startsWith(%s))", quoted(below+" button"), quoted(text))
}

// point returns the middle of an element, which it scrolls into the window.
func (p *tab) point(element string) (x, y float64) {
	p.Helper()
	p.until(element)
	at := get[[]float64](p, "(() => { const e = "+element+"; e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); "+
		"return [r.left + r.width / 2, r.top + r.height / 2]; })()")
	return at[0], at[1]
}

func (p *tab) click(element string) {
	p.Helper()
	x, y := p.point(element)
	p.run(chromedp.MouseClickXY(x, y))
}

// press presses keys one after the other.
func (p *tab) press(keys ...string) {
	p.Helper()
	for _, r := range strings.Join(keys, "") {
		events := kb.Encode(r)
		if len(events) == 3 { // as a keyboard does: a page that handles the key gets no character
			events[0].Type, events[0].Text = input.DispatchKeyEventTypeKeyDown, events[1].Text
			events = []*input.DispatchKeyEventParams{events[0], events[2]}
		}
		for _, event := range events {
			call(p, input.DispatchKeyEvent, *event)
		}
	}
}

// web is energy web in a process of its own.
type web struct {
	address string // with the token
	cmd     *exec.Cmd
	stop    func()
}

// startWeb starts energy web, and returns when it has printed its address.
func startWeb(t *testing.T, arguments ...string) *web {
	t.Helper()
	if *energyPath == "" {
		t.Skip("no program energy is given: make browser runs these tests")
	}
	cmd := exec.Command(*energyPath, append([]string{"web", "--listen", "127.0.0.1:0"}, arguments...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	w := &web{cmd: cmd}
	w.stop = sync.OnceFunc(func() {
		assert.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		assert.NoError(t, cmd.Wait(), "energy web ends on a signal")
	})
	t.Cleanup(w.stop)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if w.address = regexp.MustCompile(`https?://\S+#\S+`).FindString(lines.Text()); w.address != "" {
			return w
		}
	}
	require.NoError(t, errors.New("energy web has printed no address"))
	return nil
}

// live returns a page of a node with its first figures.
func live(t *testing.T, n *node, v view, arguments ...string) (*tab, *web) {
	t.Helper()
	w := startWeb(t, append([]string{"--endpoint", n.address, "--interval", "50ms"}, arguments...)...)
	p := open(t, w.address, v)
	p.until(`document.querySelector("svg.plot")`)
	return p, w
}

// untilDrawnAgain waits for newer figures.
func (p *tab) untilDrawnAgain() {
	p.Helper()
	p.until("document.querySelector('#state').textContent !== " + quoted(get[string](p, "document.querySelector('#state').textContent")))
	p.drawn()
}

// untilRead waits until the page has drawn the newest figures of a node, whose time is in its status.
func (p *tab) untilRead(n *node) {
	p.Helper()
	end := time.Now().Add(patience)
	for at, last := n.now(); !last; at, last = n.now() {
		require.False(p, time.Now().After(end), "the node is not read any more at %s", at)
		time.Sleep(20 * time.Millisecond)
	}
	at, _ := n.now()
	p.until("document.querySelector('#state').textContent.includes(" + quoted(at.UTC().Format("15:04:05")) + ")")
	p.drawn()
}

// drawn waits until what has arrived is drawn.
func (p *tab) drawn() {
	p.Helper()
	get[bool](p, "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
}

func (p *tab) focus(query string) {
	p.Helper()
	get[bool](p, "document.querySelector("+quoted(query)+").focus() ?? true")
}

// forget forgets the requests and faults until now.
func (p *tab) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests, p.faults = nil, nil
}
