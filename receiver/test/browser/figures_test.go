// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// contents are the figures of a page as texts.
type contents struct {
	Verdict, Root string
	Tiles, Legend [][]string
	Rows          []map[string]string // texts by column
}

func (p *tab) contents() contents {
	p.Helper()
	return get[contents](p, `{
		verdict: text("#verdict"), root: text("#trail button"),
		tiles: all("#tiles li").map((li) => [...li.children].map(plain)),
		legend: all(".legend li").map((li) => [...li.children].slice(-2).map(plain)),
		rows: all("#table tbody tr").map((tr) => Object.fromEntries(all("#table th").map((th, i) => [plain(th), plain(tr.cells[i])]))),
	}`)
}

// line returns the first line that begins with a text.
func line(t *testing.T, lines [][]string, begin string) []string {
	t.Helper()
	for _, l := range lines {
		if strings.HasPrefix(l[0], begin) {
			return l
		}
	}
	require.Fail(t, "no line "+begin, "%q", lines)
	return nil
}

// row returns the first row with a name that contains a text.
func row(t *testing.T, rows []map[string]string, column, name string) map[string]string {
	t.Helper()
	for _, r := range rows {
		if strings.Contains(r[column], name) {
			return r
		}
	}
	require.Fail(t, "no row "+name, "%q", rows)
	return nil
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

func TestFiguresOfThePageEqualThoseOfTheNode(t *testing.T) {
	n := newNode(t, kubernetes(), 10, time.Second)
	p, _ := live(t, n)
	p.untilRead(n)
	used, _, _ := n.used()
	joules := func(name string) float64 { return float64(used[name].energy) / 1e6 }
	watts := func(name string) float64 { return used[name].watts }
	c, active, largest := p.contents(), watts("node")-watts("idle"), "python3 trainer-x2k9"
	shows(t, c.Verdict, watts("node"), watts("idle"), active, 100*watts(largest)/active)
	shows(t, line(t, c.Tiles, "Power")[1], watts("node"))
	assert.Contains(t, line(t, c.Tiles, "Energy")[0], "9 s")
	shows(t, line(t, c.Tiles, "Energy")[1], joules("node"))
	shows(t, line(t, c.Tiles, "Energy")[2], joules("node")/3600)
	shows(t, line(t, c.Tiles, "Idle")[1], 100*watts("idle")/watts("node"))
	shows(t, line(t, c.Tiles, "GPUs")[1], watts("gpu"))
	shows(t, c.Root, joules("node"))
	for name, of := range map[string]string{"Sum": "node", "Idle": "idle", "Unattributed": "unattributed", "python3": largest} {
		shows(t, line(t, c.Legend, name)[1], watts(of))
	}
	sum := 0.
	for _, l := range c.Legend[1 : len(c.Legend)-1] {
		v, _ := values(t, l[1])
		sum += v[0]
	}
	assert.InEpsilon(t, watts("node"), sum, .005, "the sum of the legend")

	for _, tab := range []struct {
		name, total string
		rows        map[string]string
	}{
		{"Programs", "active", map[string]string{"python3": largest, "otelcol-energy": "otelcol-energy ", "unattributed": "unattributed"}},
		{"Pods", "active", map[string]string{"checkout-6d5f": "shop/checkout-6d5f", "trainer-x2k9": "ml/trainer-x2k9"}},
		{"Containers", "active", map[string]string{"embed-0": "ml/embed-0"}},
		{"GPUs", "gpu", map[string]string{"NVIDIA L40S": "GPU-0"}},
	} {
		p.click("button('#tabs', '"+tab.name+"')", false)
		p.until("pressed('tabs', '" + tab.name + "')")
		c := p.contents()
		for name, of := range tab.rows {
			r := row(t, c.Rows, strings.TrimSuffix(tab.name, "s"), name)
			shows(t, r["Power"], watts(of))
			shows(t, r["Energy"], joules(of))
		}
		sum, total := 0., map[string]float64{"active": joules("node") - joules("idle"), "gpu": joules("gpu")}[tab.total]
		for _, r := range c.Rows {
			v, _ := values(t, r["Energy"])
			sum += v[0]
		}
		assert.InEpsilon(t, total, sum, .005, "the sum of the rows: %s", tab.name)
	}
}

// The exporter has new figures every second, and is read in another beat: some readings have none, and
// some are late.
func TestPointsEndAtTheTimestampsOfTheData(t *testing.T) {
	n := newNode(t, kubernetes(), 25, time.Second)
	beat := []time.Duration{0, 1, 0, 2, 1, 0, 0, 3, 1, 1, 0, 2}
	n.passes = func(reading int) time.Duration { return beat[reading%len(beat)] * time.Second }
	p, _ := live(t, n)
	p.untilRead(n)
	used, seconds, at := n.used()
	get[bool](p, "q('svg.plot').focus() ?? true")
	p.press(kb.End)
	last := get[string](p, "text('.legend li')")
	assert.Equal(t, "At "+at.UTC().Format(time.TimeOnly), last)
	p.press(kb.Home)
	points := 1
	for ; get[string](p, "text('.legend li')") != last; points++ {
		shows(t, line(t, p.contents().Legend, "Sum")[1], used["node"].watts)
		require.Less(t, points, int(seconds))
		p.press(kb.ArrowRight)
	}
	assert.Equal(t, 14, points, "readings with new figures")
}

func TestHoursOfHistoryAreBoundedWithoutALossOfEnergy(t *testing.T) {
	n := newNode(t, kubernetes(), 800, 4*time.Minute)
	n.wave = .3
	address, _ := startWeb(t, "--endpoint", n.address, "--interval", "1ms")
	n.untilRead(t)
	p := open(t, address, desk)
	p.untilRead(n)
	p.click("button('#span', 'All')", false)
	p.until("text('.legend li').startsWith('Mean of 2.2 days')")
	used, seconds, _ := n.used()
	joules := float64(used["node"].energy) / 1e6
	c := p.contents()
	shows(t, line(t, c.Legend, "Sum")[1], joules/seconds)
	shows(t, line(t, c.Tiles, "Energy")[1], joules)
	assert.Less(t, get[int](p, "q('svg.plot').outerHTML.length"), 300_000)
	assert.InDelta(t, 7, get[int](p, "all('svg.plot text').filter((e) => plain(e).includes(':')).length"), 4, "times of the axis")

	history := stream(t, address)
	assert.Less(t, len(history), 800, "points are joined")
	var all, active int64
	for _, point := range history {
		all, active = all+point.Node, active+point.Active
	}
	assert.Equal(t, used["node"].energy, all, "microjoules")
	assert.Equal(t, used["node"].energy-used["idle"].energy, active, "microjoules")
}
