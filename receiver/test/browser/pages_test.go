// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// everyPage calls look with the name and the address of each kind of page.
func everyPage(t *testing.T, look func(t *testing.T, name, address string)) {
	t.Helper()
	page, all := reports(t)
	for kind, r := range all {
		t.Run(kind, func(t *testing.T) { look(t, kind, written(t, page, r)) })
	}
	for name, programs := range map[string][]program{"live": kubernetes(), "hostile": hostile()} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, programs, 150, 2*time.Second)
			n.wave = .35
			address, _ := startWeb(t, "--endpoint", n.address, "--interval", "5ms")
			n.untilRead(t)
			look(t, name, address)
		})
	}
}

// Every page is looked at in both themes, on a phone, on a desk and on a wide screen. With axe-core its accessibility
// is tested; an image without a text shows that violations are found.
func TestEveryPageFitsItsWindowFollowsTheThemeAndIsAccessible(t *testing.T) {
	axe := ""
	if *axePath != "" {
		b, err := os.ReadFile(*axePath)
		require.NoError(t, err)
		axe = string(b)
	}
	everyPage(t, func(t *testing.T, name, address string) {
		grounds := map[string]bool{}
		for _, v := range []view{{390, 844, false, true}, {390, 844, true, true}, {1440, 1000, false, true}, {1440, 1000, true, true}, {2560, 1440, true, true}} {
			p := open(t, address, v)
			p.until("q('#table tbody tr')")
			get[bool](p, "drawn()")
			assert.LessOrEqual(t, get[int](p, "document.documentElement.scrollWidth"), v.width, "%+v", v)
			assert.Greater(t, get[int](p, "q('main').clientWidth"), min(v.width, 1000)*8/10, "%+v", v)
			grounds[get[string](p, "getComputedStyle(document.body).backgroundColor")] = true
			if *picturesDir != "" {
				p.picture(fmt.Sprintf("%s-%d-%s.png", name, v.width, themes[v.dark]))
			}
			if axe == "" || v.width > 1440 {
				continue
			}
			p.do(chromedp.Evaluate[chromedp.Void](axe))
			get[bool](p, "q('main').append(new Image()) ?? true")
			found := get[[]string](p, `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]}).then((r) =>
				r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html + " " + n.failureSummary)))`)
			require.Len(t, found, 1, "%+v: %q", v, found)
			assert.Contains(t, found[0], "<img>", "%+v", v)
		}
		assert.Len(t, grounds, 2, "backgrounds of the themes")
	})
}

// picture writes a picture of the whole page, which people look at.
func (p *tab) picture(name string) {
	p.Helper()
	picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	require.NoError(p, err)
	require.NoError(p, os.WriteFile(filepath.Join(*picturesDir, name), picture, 0o600))
}

// The bounds of the two tests are wide, because the machine may be busy. They log their figures.

func TestThePageCostsLittle(t *testing.T) {
	programs := kubernetes()
	for i := range 500 {
		programs = append(programs, program{"batch", fmt.Sprint("job-", i/5), "", fmt.Sprint("worker-", i), "", .01 * float64(1+i%7), 0})
	}
	n := newNode(t, programs, endless, 2*time.Second)
	n.wave = .3
	address, _ := startWeb(t, "--endpoint", n.address)
	p := open(t, address, desk)
	p.until("q('svg.plot path')")
	call(p, performance.Enable, performance.EnableParams{})
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
	t.Logf("the main thread is busy for %.1f %% of the time", 100*share)
	assert.Less(t, share, .3)
}

func TestTheFirstFiguresOfThisMachineComeSoon(t *testing.T) {
	began := time.Now()
	address, _ := startWeb(t, "--local")
	printed := time.Since(began)
	p := open(t, address, desk)
	p.until(`/draws.* W/.test(text("#verdict"))`)
	figures := time.Since(began)
	p.until("q('svg.plot path')")
	t.Logf("address after %v, figures after %v, chart after %v", printed, figures, time.Since(began))
	assert.Less(t, figures, patience/2)
}
