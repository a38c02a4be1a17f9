// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// object is a JSON object of a document.
type object = map[string]any

// report is the data in a report of energy.
type report struct {
	Version int    `json:"version"`
	Kind    string `json:"kind"`
	Data    object `json:"data"`
}

var dataElement = regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`)

// measured runs energy measure, and returns its page and the data in it.
func measured(t *testing.T, arguments ...string) (page string, r report) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	arguments = append([]string{"measure", "--model", "35-120", "--grid", "FRA", "--quiet", "--html", file}, arguments...)
	said, err := exec.CommandContext(t.Context(), *energyPath, arguments...).CombinedOutput()
	require.NoError(t, err, "%s", said)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	found := dataElement.FindSubmatch(b)
	require.NotNil(t, found, "the page has data")
	require.NoError(t, json.Unmarshal(found[1], &r))
	return string(b), r
}

// loop is a command that takes some 100 ms of CPU time.
const loop = `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; `

// reports returns the data of each kind of report, and a page that can contain it.
func reports(t *testing.T) (page string, all map[string]report) {
	t.Helper()
	begin := *energyPath + " phase begin "
	page, run := measured(t, "--", "sh", "-c", begin+"fetch; "+loop+begin+"build; "+loop+loop)
	_, comparison := measured(t, "--runs", "3", "--vs", "sh -c '"+loop+"'", "--", "sh", "-c", loop+loop)
	profile := report{run.Version, run.Kind, maps.Clone(run.Data)}
	profile.Data["profile"] = stacks(80, "sh", "main", "evaltree", "evalcommand", "expandarg", "memcpy")
	return page, map[string]report{"run": run, "profile": profile, "comparison": comparison, "month": {run.Version, "report", month(t)}}
}

// stacks returns a tree of functions that call two others each.
func stacks(joules float64, names ...string) object {
	tree := object{"name": names[0], "joules": joules, "children": []object{}}
	if len(names) > 1 {
		tree["children"] = []object{stacks(joules*.6, names[1:]...), stacks(joules*.3, names[len(names)-1])}
	}
	return tree
}

// month returns a document of energy report: 30 days of four namespaces, and half a day without data.
func month(t *testing.T) (d object) {
	from, day := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), 86400.
	at := func(days float64) time.Time { return from.Add(time.Duration(days * day * 1e9)) }
	sums := func(active float64, covered float64) object {
		return object{"joules": active + 250*day*covered, "active_joules": active, "idle_joules": 250 * day * covered,
			"unattributed_joules": 0, "coverage": covered / 30, "covered": covered}
	}
	const perKWh, price = 56, .3
	active, steps, rows := make([]float64, 30), []object{}, []object{}
	for i, name := range []string{"shop", "search", "ml", "kube-system"} {
		of, all := make([]float64, 30), 0.
		for k := range of {
			of[k] = day * (400 - 90*float64(i)) * (1 + .4*math.Sin(float64(k)/float64(2+i)))
			if k == 11 {
				of[k] /= 2
			}
			active[k], all = active[k]+of[k], all+of[k]
		}
		rows = append(rows, object{"name": name, "joules": all, "before_joules": all * (.8 + .15*float64(i)), "steps": of, "share": .25,
			"grams": all / 3.6e6 * perKWh, "cost": all / 3.6e6 * price, "parts": []object{{"name": name + "-0", "joules": all * .7}}})
	}
	total := 0.
	for k, a := range active {
		step := sums(a, map[bool]float64{true: .5, false: 1}[k == 11])
		step["start"], total = at(float64(k)), total+a
		steps = append(steps, step)
	}
	d = sums(total, 29.5)
	kWh := d["joules"].(float64) / 3.6e6
	maps.Copy(d, object{"schema": 1, "by": "namespace", "from": at(0), "to": at(30), "step_seconds": day, "before_from": at(-30),
		"before": sums(total*1.1, 29.6), "zones": []object{{"zone": "package", "source": "measured"}}, "source": "http://prometheus.example:9090",
		"co2e": object{"per_kwh": perKWh, "grid": "FRA", "grams": kWh * perKWh}, "price": object{"per_kwh": price, "currency": "EUR", "cost": kWh * price},
		"rows": rows, "rest": object{"joules": 0, "steps": []float64{}}, "steps": steps,
		"gaps": []object{{"from": at(11.5), "to": at(12)}}, "notes": []string{"2 nodes report estimates."}})
	b, err := json.Marshal(d)
	require.NoError(t, err)
	d = nil
	require.NoError(t, json.Unmarshal(b, &d))
	return d
}

// written writes a page with other data, and returns its address.
func written(t *testing.T, page string, r report) string {
	t.Helper()
	b, err := json.Marshal(r) // which escapes <, > and &
	require.NoError(t, err)
	at := dataElement.FindStringSubmatchIndex(page)
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(file, []byte(page[:at[2]]+string(b)+page[at[3]:]), 0o600))
	return "file://" + file
}

// openReport opens a report, which requests nothing but itself.
func openReport(t *testing.T, address string) *tab {
	t.Helper()
	p := open(t, address, desk)
	p.until("q('#verdict b') && q('#table tbody tr')")
	_, requests := p.forget()
	assert.Equal(t, []string{address}, slices.DeleteFunc(requests, func(r string) bool { return strings.HasPrefix(r, "data:") }))
	return p
}

func TestFiguresOfAReportEqualThoseOfItsDocument(t *testing.T) {
	page, all := reports(t)
	run := all["run"].Data
	c := openReport(t, written(t, page, all["run"])).contents()
	joules, node := run["joules"].(float64), run["node_joules"].(float64)
	shows(t, line(t, c.Tiles, "Energy")[1], joules)
	shows(t, line(t, c.Tiles, "Mean power")[1], run["mean_watts"].(float64))
	shows(t, line(t, c.Legend, "Sum")[1], node/run["seconds"].(float64))
	shows(t, c.Root, node)
	for _, p := range run["programs"].([]any) {
		shows(t, row(t, c.Rows, "Program", p.(object)["program"].(string))["Energy"], p.(object)["joules"].([]any)[0].(float64))
	}
	c = openReport(t, written(t, page, all["comparison"])).contents()
	assert.Len(t, c.Rows, 3)
	for i, command := range all["comparison"].Data["commands"].([]any) {
		shows(t, line(t, c.Tiles, "AB"[i:i+1]+", mean of 3")[1], command.(object)["joules"].(object)["mean"].(float64))
	}
	month := all["month"].Data
	c = openReport(t, written(t, page, all["month"])).contents()
	joules = month["joules"].(float64)
	shows(t, line(t, c.Tiles, "Energy")[1], joules/3600)
	shows(t, line(t, c.Tiles, "Idle")[1], 100*month["idle_joules"].(float64)/joules)
	shows(t, line(t, c.Legend, "Sum")[1], joules/(29.5*86400))
	shows(t, c.Root, joules/3600)
	for _, r := range month["rows"].([]any) {
		shows(t, row(t, c.Rows, "Namespace", r.(object)["name"].(string))["Energy"], r.(object)["joules"].(float64)/3600)
	}
}

// attacked returns a value of a document with hostile names in place of its own.
func attacked(v any, name string) any {
	switch v := v.(type) {
	case object:
		changed := object{}
		for key, value := range v {
			changed[key] = attacked(value, key)
		}
		return changed
	case []any:
		changed := []any{}
		for _, value := range v {
			changed = append(changed, attacked(value, name))
		}
		return changed
	case string:
		if slices.Contains([]string{"command", "program", "phase", "name", "notes", "by", "grid", "currency", "zone", "source"}, name) {
			return hostile()[len(v)%4].name + "</script><script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>"
		}
	}
	return v
}

func TestReportsWithHostileNamesRunAndLoadNothing(t *testing.T) {
	page, all := reports(t)
	for kind, r := range all {
		t.Run(kind, func(t *testing.T) {
			r.Data = attacked(r.Data, "").(object)
			openReport(t, written(t, page, r)).harmless("</script><script>alert(1)</script>")
		})
	}
	shell, err := os.ReadFile("/bin/sh")
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "<img src=x>")
	require.NoError(t, os.WriteFile(program, shell, 0o700))
	page, r := measured(t, "--", program, "-c", *energyPath+" phase begin __proto__; "+loop, "</script><script>alert(3)</script>")
	assert.Equal(t, 2, strings.Count(page, "</script>"), "elements of the page")
	openReport(t, written(t, page, r)).harmless("</script><script>alert(3)</script>", "<img src=x>", "__proto__")
}
