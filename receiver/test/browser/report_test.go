// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// report is a page of energy, and the data to show in it.
type report struct{ page, kind, data string }

var dataElement = regexp.MustCompile(
	`(?s)(<script type="application/json" id="data">).*?"data":(.*),"kind":"(\w+)".*?(</script>)`)

// measured returns the report of energy measure.
func measured(t *testing.T, arguments ...string) report {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	arguments = append([]string{"measure", "--model", "35-120", "--grid", "FRA", "--quiet", "--html", file}, arguments...)
	said, err := exec.CommandContext(t.Context(), *energyPath, arguments...).CombinedOutput()
	require.NoError(t, err, "%s", said)
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	found := dataElement.FindStringSubmatch(string(page))
	require.NotNil(t, found, "the page has data")
	return report{string(page), found[3], found[2]}
}

// write writes the page to a file, and returns its address.
func (r report) write(t *testing.T) string {
	t.Helper()
	at := dataElement.FindStringSubmatchIndex(r.page)
	text := r.page[:at[3]] + `{"kind":"` + r.kind + `","data":` + r.data + "}" + r.page[at[8]:]
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return "file://" + file
}

// loop is a command that takes some 100 ms of CPU time.
const loop = `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; `

// reports returns a report of each kind.
func reports(t *testing.T) map[string]report {
	t.Helper()
	begin := *energyPath + " phase begin "
	run := measured(t, "--", "sh", "-c", begin+"fetch; "+loop+begin+"build; "+loop+loop)
	stacks := `{"profile":{"name":"sh","joules":8,"children":[{"name":"main","joules":5},{"name":"read","joules":1}]},`
	month, err := os.ReadFile("testdata/month.json")
	require.NoError(t, err)
	return map[string]report{
		"run": run, "profile": {run.page, "run", stacks + run.data[1:]}, "month": {run.page, "report", string(month)},
		"comparison": measured(t, "--runs", "3", "--vs", "sh -c '"+loop+"'", "--", "sh", "-c", loop+loop),
	}
}

// openReport opens a report, which requests nothing but itself.
func openReport(t *testing.T, r report) *tab {
	t.Helper()
	address := r.write(t)
	p := open(t, address, desk)
	p.until(`q("#verdict b") && q("#table tbody tr")`)
	_, requests := p.forget()
	assert.Equal(t, []string{address}, slices.DeleteFunc(requests, func(r string) bool { return strings.HasPrefix(r, "data:") }))
	return p
}

// at returns the number at a path of names and indices in a JSON document.
func at(document any, path ...any) float64 {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			document = document.(map[string]any)[step]
		case int:
			document = document.([]any)[step]
		}
	}
	return document.(float64)
}

func TestFiguresOfAReportEqualThoseOfItsDocument(t *testing.T) {
	for kind, r := range reports(t) {
		var d any
		require.NoError(t, json.Unmarshal([]byte(r.data), &d))
		c := openReport(t, r).contents()
		switch kind {
		case "run":
			shows(t, c.Tiles["Energy"][0], at(d, "joules"))
			shows(t, c.Tiles["Mean power"][0], at(d, "mean_watts"))
			shows(t, c.Legend["Sum"], at(d, "mean_watts"))
			shows(t, c.Root, at(d, "joules"))
			shows(t, row(t, c.Rows, "sh")["Energy"], at(d, "programs", 0, "joules", 0))
		case "profile":
			shows(t, c.Root, at(d, "profile", "joules"))
		case "comparison":
			shows(t, c.Tiles["Energy, mean of 3 runs"][0], at(d, "commands", 0, "joules", "mean"),
				at(d, "commands", 1, "joules", "mean"))
			assert.Contains(t, c.Verdict, "more CPU time than B (", "modeled energy is compared by CPU time")
			assert.Len(t, c.Rows, 3)
		case "month":
			shows(t, c.Tiles["Energy"][0], at(d, "joules")/3600)
			shows(t, c.Tiles["Idle"][0], 100*at(d, "idle_joules")/at(d, "joules"))
			shows(t, c.Legend["Sum"], at(d, "joules")/(29*86400)) // a day has no data
			shows(t, c.Root, at(d, "joules")/3600)
			shows(t, row(t, c.Rows, "search")["Energy"], at(d, "rows", 1, "joules")/3600)
		}
	}
}

func TestALongCommandIsShownInFullOnRequest(t *testing.T) {
	p := open(t, reports(t)["run"].write(t), view{width: 390, height: 800})
	p.until(`q("code").clientHeight < q("code").scrollHeight`)
	p.click(`button("#commands", "Show all")`, false)
	p.until(`q("code").clientHeight === q("code").scrollHeight && button("#commands", "Show less")`)
}

func TestReportsWithHostileNamesRunAndLoadNothing(t *testing.T) {
	name, i := regexp.MustCompile(`("(?:program|phase|name|by|grid|currency|zone)"): ?"[^"]*"`), 0
	for kind, r := range reports(t) {
		t.Run(kind, func(t *testing.T) {
			r.data = name.ReplaceAllStringFunc(r.data, func(field string) string {
				i++
				evil, err := json.Marshal(hostile[i%len(hostile)].name + image) // which escapes <, > and &
				require.NoError(t, err)
				return field[:strings.Index(field, ":")+1] + string(evil)
			})
			openReport(t, r).harmless(image)
		})
	}
	shell, err := os.ReadFile("/bin/sh")
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "<img src=x>")
	require.NoError(t, os.WriteFile(program, shell, 0o700))
	begin := *energyPath + " phase begin __proto__; "
	r := measured(t, "--", program, "-c", begin+loop, "</script><script>alert(3)</script>\u202e")
	assert.Equal(t, 2, strings.Count(r.page, "</script>"), "elements of the page")
	openReport(t, r).harmless("</script><script>alert(3)</script>", "<img src=x>", "__proto__")
}

// everyPage calls look with the name and the address of each kind of page.
func everyPage(t *testing.T, look func(t *testing.T, name, address string)) {
	t.Helper()
	for kind, r := range reports(t) {
		t.Run(kind, func(t *testing.T) { look(t, kind, r.write(t)) })
	}
	for name, programs := range map[string][]program{"live": kubernetes, "hostile": hostile} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, programs, 150, 2*time.Second)
			n.wave = .35
			address, _ := startWeb(t, "--endpoint", n.address, "--interval", "5ms")
			n.untilRead(t)
			look(t, name, address)
		})
	}
	t.Run("recorded", func(t *testing.T) {
		n := newNode(t, kubernetes, endless, 2*time.Second)
		arguments := []string{"top", "--json", "--for", "1s", "--interval", "100ms", "--endpoint", n.address}
		record, err := exec.CommandContext(t.Context(), *energyPath, arguments...).Output()
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "power.jsonl")
		require.NoError(t, os.WriteFile(file, record, 0o600))
		address, _ := startWeb(t, file)
		look(t, "recorded", address)
	})
}

// An image without a text shows that axe-core finds violations.
func TestEveryPageFitsItsWindowFollowsTheThemeAndIsAccessible(t *testing.T) {
	axe, err := os.ReadFile(*axePath)
	if err != nil {
		t.Run("accessibility", func(t *testing.T) { t.Skip("lacks axe-core:", err) })
	}
	everyPage(t, func(t *testing.T, name, address string) {
		for i, width := range []int{390, 390, 1440, 1440, 2560} {
			v := view{width: width, height: 1000, dark: i%2 == 1, trusted: true}
			p := open(t, address, v)
			p.until(`q("#table tbody tr")`)
			get[bool](p, "drawn()")
			assert.LessOrEqual(t, get[int](p, "document.documentElement.scrollWidth"), v.width, "%+v", v)
			assert.Greater(t, get[int](p, `q("main").clientWidth`), min(v.width, 1000)*8/10, "%+v", v)
			ground := get[[]string](p, `getComputedStyle(document.body).backgroundColor.match(/\d+/g)`)
			assert.Equal(t, v.dark, len(ground[0]) < 3, "background %s, %+v", ground, v)
			if *picturesDir != "" {
				picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
				require.NoError(t, err)
				require.NoError(t, os.MkdirAll(*picturesDir, 0o755))
				file := fmt.Sprintf("%s-%d-%s.png", name, v.width, themes[v.dark])
				require.NoError(t, os.WriteFile(filepath.Join(*picturesDir, file), picture, 0o600))
			}
			if len(axe) == 0 || v.width > 1440 {
				continue
			}
			p.do(chromedp.Evaluate[chromedp.Void](string(axe)))
			get[bool](p, `q("main").append(new Image()) ?? true`)
			found := get[[]string](p, `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]}).then((r) =>
				r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html + " " + n.failureSummary)))`)
			require.Len(t, found, 1, "%+v: %q", v, found)
			assert.Contains(t, found[0], "<img>", "%+v", v)
		}
	})
}
