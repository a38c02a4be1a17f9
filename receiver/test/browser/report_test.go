// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dataOf matches the data of a report.
var dataOf = regexp.MustCompile(`"data":.*,"kind":"\w+"`)

// measured returns the report of energy measure.
func measured(t *testing.T, arguments ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	arguments = append([]string{"measure", "--model", "35-120", "--grid", "FRA", "--quiet", "--html", file}, arguments...)
	said, err := exec.CommandContext(t.Context(), *energyPath, arguments...).CombinedOutput()
	require.NoError(t, err, "%s", said)
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(page)
}

// loop is a command that uses about 100 ms of CPU time.
const loop = `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; `

// reports returns a report of each kind.
func reports(t *testing.T) map[string]string {
	t.Helper()
	begin := *energyPath + " phase begin "
	run := measured(t, "--", "sh", "-c", begin+"fetch; "+loop+begin+"build; "+loop+loop)
	stacks := `"data":{"profile":{"name":"sh","joules":8,"children":[{"name":"main","joules":5},{"name":"read","joules":1}]},`
	month, err := os.ReadFile("testdata/month.json")
	require.NoError(t, err)
	earlier := filepath.Join(t.TempDir(), "earlier.html")
	require.NoError(t, os.WriteFile(earlier, []byte(measured(t, "--runs", "2", "--", "sh", "-c", loop)), 0o600))
	return map[string]string{
		"base":  measured(t, "--base", earlier, "--", "sh", "-c", loop+loop),
		"bases": measured(t, "--base", earlier, "--runs", "3", "--", "sh", "-c", loop+loop),
		"run":   run, "profile": strings.Replace(run, `"data":{`, stacks, 1),
		"month":      dataOf.ReplaceAllLiteralString(run, `"data":`+string(month)+`,"kind":"report"`),
		"comparison": measured(t, "--max-ratio", "100", "--runs", "3", "--vs", "sh -c '"+loop+"'", "--", "sh", "-c", loop+loop),
	}
}

// openReport opens a report.
func openReport(t *testing.T, text string) *tab {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return open(t, "file://"+file)
}

// shown waits until a page shows all of its parts.
func (p *tab) shown() *tab {
	p.until(`q("#verdict b") && q("#table tbody tr")`)
	get[bool](p, "drawn()")
	return p
}

func TestFiguresOfAReportEqualTheFiguresOfItsDocument(t *testing.T) {
	pages := map[string]*tab{}
	for kind, r := range reports(t) {
		pages[kind] = openReport(t, r).shown()
	}
	for _, tt := range []struct{ kind, text, want string }{
		{"run", `tile("Energy")`, "data().joules"},
		{"run", `tile("Mean power")`, "data().mean_watts"},
		{"run", `legend("Sum")`, "data().mean_watts"},
		{"run", `text("#trail button")`, "data().joules"},
		{"run", `cell("sh", "Energy")`, "data().programs[0].joules[0]"},
		{"profile", `text("#trail button")`, "data().profile.joules"},
		{"comparison", `tile("Energy, mean of 3 runs")`, "data().commands[0].joules.mean, data().commands[1].joules.mean"},
		{"comparison", `tile("Energy, mean of 3 runs", 2).split(" · ")[0]`,
			"data().commands[0].joules.margin, data().commands[1].joules.margin"},
		{"comparison", `column("CPU time A / B")[0] + " W"`, "data().commands[0].runs[0].cpu_seconds / data().commands[1].runs[0].cpu_seconds"},
		{"base", `tile("Energy", 2).split("base: ")[1]`, "data().base.joules.mean, data().base.joules.margin"},
		{"bases", `tile("Energy, mean of 3 runs")`, "data().commands[0].joules.mean, data().base.joules.mean"},
		{"month", `tile("Energy")`, "data().joules / 3600"},
		{"month", `tile("Energy", 2)`, "data().joules / (29 * 86400)"}, // a day has no data
		{"month", `tile("Idle")`, "100 * data().idle_joules / data().joules"},
		{"month", `legend("Sum")`, "data().joules / (29 * 86400)"},
		{"month", `text("#trail button")`, "data().joules / 3600"},
		{"month", `cell("search", "Energy")`, "data().rows[1].joules / 3600"},
		{"month", `cell("Others, and no namespace", "Energy")`, "data().rest.joules / 3600"},
	} {
		pages[tt.kind].shows(tt.text, get[[]float64](pages[tt.kind], "["+tt.want+"]")...)
	}
	covered := get[string](pages["month"], `text("#verdict") + tile("Coverage", 1) + tile("Coverage", 2)`)
	assert.Contains(t, covered, "There is data for 95.6 % of the time.95.6 %gaps of all nodes: 1", "0.9567, rounded down")
	assert.Equal(t, 3, get[int](pages["comparison"], "names().length"), "runs")
	assert.Contains(t, get[string](pages["comparison"], `text("#verdict b")`), "CPU time", "modeled energy is compared by CPU time")
	for _, kind := range []string{"comparison", "base"} {
		sentences := get[string](pages[kind], `text("#verdict") + text("#also")`)
		for _, sentence := range append(get[[]string](pages[kind], "data().verdict"), "Energy is modeled from CPU time") {
			assert.Contains(t, sentences, sentence, kind)
		}
	}
	assert.Contains(t, get[string](pages["comparison"], `text("#also")`), "of --max-ratio.")
	assert.Contains(t, get[string](pages["base"], `text("#commands") + text("#also")`), "sh -c '"+loop+"'")
	run := pages["run"] // a long command is shown in full on request
	run.do(chromedp.EmulateViewport(390, 800), chromedp.Reload())
	run.until(`q("code").clientHeight < q("code").scrollHeight && (button("#commands", "Show all").click() ?? true)`)
	run.until(`q("code").clientHeight === q("code").scrollHeight && button("#commands", "Show less")`)
}

var nameField = regexp.MustCompile(`("(?:program|phase|name|by|grid|currency|zone)"): ?"[^"]*"`)

// withHostileNames returns a report with hostile names.
func withHostileNames(report string) string {
	i := 0
	return nameField.ReplaceAllStringFunc(report, func(field string) string {
		i++
		evil, _ := json.Marshal(hostile[i%len(hostile)].name + image) // which escapes <, > and &
		return field[:strings.Index(field, ":")+1] + string(evil)
	})
}

func TestEveryPageFitsItsWindowFollowsTheThemeAndIsAccessible(t *testing.T) {
	for kind, r := range reports(t) {
		t.Run(kind, func(t *testing.T) { openReport(t, r).inAllSizes(kind) })
		t.Run("hostile "+kind, func(t *testing.T) { openReport(t, withHostileNames(r)).inAllSizes("hostile " + kind) })
	}
	t.Run("live", func(t *testing.T) {
		n := newNode(t, kubernetes, 150, 2*time.Second)
		n.wave = .35
		address, _ := startWeb(t, "--endpoint", n.address, "--interval", "5ms")
		n.untilRead(t)
		open(t, address).inAllSizes("live")
	})
	t.Run("hostile live", func(t *testing.T) {
		n := newNode(t, hostile, 8, time.Second)
		p := live(t, n)
		p.untilRead(n)
		for _, program := range hostile {
			name := strings.TrimPrefix(program.name, "\u202e")[:6]
			p.shows(`cell("`+name+`", "Power")`, program.watts+program.gpu)
		}
		p.inAllSizes("hostile live")
	})
	t.Run("recorded", func(t *testing.T) {
		n := newNode(t, kubernetes, endless, 2*time.Second)
		arguments := []string{"top", "--json", "--for", "1s", "--interval", "100ms", "--endpoint", n.address}
		record, err := exec.CommandContext(t.Context(), *energyPath, arguments...).Output()
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "power.jsonl")
		require.NoError(t, os.WriteFile(file, record, 0o600))
		address, _ := startWeb(t, file)
		open(t, address).inAllSizes("recorded")
	})
}

// inAllSizes tests a page in windows of all sizes, then presses all buttons for choices. An image
// without a text shows that axe-core finds violations. For axe-core the page runs foreign scripts.
func (p *tab) inAllSizes(name string) {
	axe, err := os.ReadFile(*axePath)
	if err != nil {
		p.Run("accessibility", func(t *testing.T) { t.Skip("lacks axe-core:", err) })
	}
	if strings.HasPrefix(name, "hostile") {
		p.until(`text("main").includes(` + strconv.Quote(image) + `)`)
	}
	call(p, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: true})
	for i, width := range []int{390, 390, 1440, 1440, 2560} {
		theme := []string{"light", "dark"}[i%2]
		view := fmt.Sprintf("%s-%d-%s", name, width, theme)
		features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}
		call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
		p.do(chromedp.EmulateViewport(int64(width), 1000), chromedp.Reload())
		p.shown()
		assert.LessOrEqual(p, get[int](p, "document.documentElement.scrollWidth"), width, view)
		assert.Greater(p, get[int](p, `q("main").clientWidth`), min(width, 1000)*8/10, view)
		ground := get[[]string](p, `getComputedStyle(document.body).backgroundColor.match(/\d+/g)`)
		assert.Equal(p, theme == "dark", len(ground[0]) < 3, "background %s, %s", ground, view)
		p.harmless()
		if *picturesDir != "" {
			picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
			require.NoError(p, err)
			require.NoError(p, os.MkdirAll(*picturesDir, 0o755))
			require.NoError(p, os.WriteFile(filepath.Join(*picturesDir, view+".png"), picture, 0o600))
		}
		if len(axe) == 0 || width > 1440 {
			continue
		}
		p.do(chromedp.Evaluate[chromedp.Void](string(axe)))
		get[bool](p, `q("main").append(new Image()) ?? true`)
		found := get[[]string](p, `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]}).then((r) =>
			r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html + " " + n.failureSummary)))`)
		require.Len(p, found, 1, "%s: %q", view, found)
		assert.Contains(p, found[0], "<img>", view)
	}
	const choices = `all(".choices button, th button")`
	for i := range get[int](p, choices+".length") {
		get[bool](p, choices+"["+fmt.Sprint(i)+"]?.click() ?? drawn()")
		p.harmless()
	}
}
