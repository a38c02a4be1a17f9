// SPDX-License-Identifier: Apache-2.0

package top

import (
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/screen"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// aRow is a process, or another workload if pid is 0.
func aRow(pid int32, watts, joules float64, texts map[Text]string) Row {
	r := Row{
		Key: fmt.Sprint(texts[Name], pid), PID: pid, Power: watts, Busy: math.NaN(), CPUTime: -1,
		Energy: units.Energy(joules * 1e6), Total: units.Energy(joules * 7e6),
	}
	if pid == 0 {
		r.Key = texts[Name]
	} else {
		r.CPUTime = time.Duration(joules * float64(time.Second) / 3)
	}
	for t, text := range texts {
		r.Text[t] = text
	}
	r.Program, _, _ = strings.Cut(r.Text[Name], " (small")
	return r
}

// a returns texts for a row: a name, an optional command line, and others.
func a(name, arguments string, others map[Text]string) map[Text]string {
	all := map[Text]string{}
	maps.Copy(all, others)
	all[Name], all[Arguments] = name, arguments
	return all
}

// pinnedRow is energy without a workload.
func pinnedRow(name string, watts, joules float64) Row {
	r := aRow(0, watts, joules, a(name, "", nil))
	r.Pinned = true
	return r
}

// aFrame is a node with processes, two containers, a pod and a virtual machine.
func aFrame() *Frame {
	at := time.Date(2026, 1, 2, 14, 3, 5, 0, time.UTC)
	f := &Frame{
		At: at, Since: at.Add(-65 * time.Second), Host: "node-1.example", Node: 3_292_000_000, Active: 8.544,
		Zones: []Zone{
			{Name: "package", Source: "measured", Active: 8.304, Idle: 38.5, Energy: 3_077_750_000, ActiveEnergy: 574_300_001, Unattributed: 200_000},
			{Name: "dram", Source: "measured", Active: 0.24, Idle: 2.01, Energy: 214_250_000, ActiveEnergy: 16_100_000},
			{Name: "core", Besides: "package", Source: "measured", Active: 2, Idle: 3, Energy: 325_000_000},
		},
	}
	builder := map[Text]string{User: "builder", Unit: "user@1000.service"}
	web := map[Text]string{User: "10001", Container: "nginx", Pod: "shop/web-7c9f4", Image: "registry.example/nginx"}
	guest := map[Text]string{User: "libvirt-qemu", VM: "8d3e4f62"}
	root := map[Text]string{User: "root", Unit: "init.scope"}
	others := pinnedRow("(others): too small to be reported one by one", 0.045, 3.1)
	unattributed := pinnedRow("unattributed: no process can be named for it", math.NaN(), 0.2)
	f.Tables = [NumViews][]Row{
		Processes: {
			aRow(4242, 4.28, 278, a("java", "-Xmx2g -jar /srv/shop/catalog.jar --port 8080", web)),
			aRow(77, 3, 195, a("qemu-system-x86_64", "-name guest=build-1,debug-threads=on -machine pc-q35-8.2", guest)),
			aRow(901, 0.61, 39.5, a("cc1plus", "-quiet -O2 main.cc", builder)),
			aRow(4250, 0.325, 21, a("nginx", "worker process", web)),
			aRow(1, 0.004, 0.26, a("systemd", "--system --deserialize=31", root)),
			aRow(0, 0.28, 18, a("cc1plus (small or exited)", "", builder)),
			aRow(512, 0, 0, a("kworker/0:1", "", root)), others, unattributed, pinnedRow("nothing", 0, 0),
		},
		Programs: {
			aRow(0, 4.28, 278, a("java", "", web)), aRow(0, 3, 195, a("qemu-system-x86_64", "", guest)), aRow(0, 0.89, 73, a("cc1plus", "", builder)),
			aRow(0, 0.325, 21, a("nginx", "", web)), aRow(0, 0.004, 0.26, a("systemd", "", root)), aRow(0, 0, 0, a("kworker/0:1", "", root)),
			others, unattributed,
		},
		Containers: {
			aRow(0, 4.605, 299, a("nginx", "", map[Text]string{ID: "3f2a9c1b77de", Runtime: "containerd", Pod: "shop/web-7c9f4", Namespace: "shop"})),
			aRow(0, 0.2, 13, a("db", "", map[Text]string{ID: "b2b2b2b2b2b2", Runtime: "docker", Image: "postgres"})),
		},
		Pods:       {aRow(0, 4.605, 299, a("web-7c9f4", "", map[Text]string{Namespace: "shop", Class: "Burstable", ID: "0f9b2d6e-1c1b-4f57-9a53"}))},
		Namespaces: {aRow(0, 4.605, 299, a("shop", "", nil))},
		VMs:        {aRow(0, 3, 195, a("build-1", "", map[Text]string{Runtime: "qemu", ID: "8d3e4f62-7c2a-4c1e"}))},
	}
	f.Tables[Programs][2].Text[Command] = "cc1plus -quiet -O2 main.cc"
	return f
}

// processesOf returns a model that shows the processes of a frame.
func processesOf(f *Frame) Model { return New("").Show(f, nil).show(Processes) }

// press presses keys.
func press(m Model, keys ...string) Model {
	for _, k := range keys {
		m, _ = m.Press(screen.Key(k))
	}
	return m
}

// text returns the screen as text, and the model after it was drawn.
func text(m Model, width, height int) (string, Model) {
	g, m := m.Draw(width, height)
	return g.String(), m
}

// names returns the names of all rows of the table, in their order.
func names(m Model) (names []string) {
	for _, r := range m.list().rows {
		names = append(names, r.Text[Name])
	}
	return names
}

func TestScreens(t *testing.T) {
	notes := []string{"No collector listens at http://127.0.0.1:8889/metrics, so energy top measures", "CPU time source selected: source procfs"}
	m := New("Measuring").Show(aFrame(), notes)
	for name, m := range map[string]Model{
		"programs": m, "build": aBuild(t), "opened": press(m, "down", "down", "down", "enter"), "processes": press(m, "2"), "containers": press(m, "3"),
		"filtered": press(m, "2", "/", "s", "h", "o", "p", "enter"), "help": press(m, "?"),
		"waiting": New("Looking for a collector").Explain("Nothing to show from http://127.0.0.1:8889/metrics: nothing listens on 127.0.0.1:8889\nIs the collector running?", true, notes),
	} {
		for _, size := range [][2]int{{80, 24}, {200, 50}, {40, 10}} {
			got, _ := text(m, size[0], size[1])
			golden.Equal(t, fmt.Sprintf("%s_%dx%d.golden", name, size[0], size[1]), got)
		}
	}
	golden.Equal(t, "plain.golden", m.Text(3))
	var json strings.Builder
	require.NoError(t, JSON(&json, aFrame(), notes[:1], "  "))
	golden.Equal(t, "json.golden", json.String())
}

// aBuild returns a model of a recorded build: testdata/build.csv has mean powers of 10 s for each
// program.
func aBuild(t *testing.T) Model {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "build.csv"))
	require.NoError(t, err)
	r := csv.NewReader(file)
	r.FieldsPerRecord = -1
	records, err := r.ReadAll()
	require.NoError(t, errors.Join(err, file.Close()))
	number := func(text string) float64 { v, _ := strconv.ParseFloat(text, 64); return v }
	zone := func(record []string, uncertainty float64) Zone {
		return Zone{Name: record[0], Source: "modeled", Active: number(record[3]), Idle: number(record[5]), Energy: units.Energy(1e6 * number(record[4])), Uncertainty: uncertainty}
	}
	node, at := records[3], time.Date(2026, 11, 28, 19, 8, 34, 0, time.UTC)
	last := &Frame{At: at, Since: at.Add(-107 * time.Second), Host: "builder-1", Active: number(node[3]), Node: units.Energy(1e6 * number(node[4]))}
	last.Zones = []Zone{zone(records[1], 0.74), zone(records[2], 0.23)}
	m := New("")
	for i, power := range node[5:] {
		f := &Frame{At: at.Add(time.Duration(i-len(node)+5) * step), Zones: []Zone{{Active: number(power)}}}
		for _, record := range records[4:] {
			row := aRow(0, number(record[3]), number(record[4]), a(record[0], "", map[Text]string{User: record[1], Command: record[2]}))
			row.Key += record[1]
			row.Pinned, row.Total = record[1] == "", row.Energy
			if i == 0 {
				last.Tables[Programs] = append(last.Tables[Programs], row)
			}
			if len(record) > 5+i && record[5+i] != "" {
				row.Power = number(record[5+i])
				f.Tables[Programs] = append(f.Tables[Programs], row)
			}
		}
		m = m.Show(f, nil)
	}
	for _, user := range []string{"builder", "root"} {
		row := aRow(0, 0, 0, a(user, "", nil))
		for _, program := range last.Tables[Programs] {
			if program.Text[User] == user {
				row.Power += program.Power
				row.Energy += program.Energy
			}
		}
		last.Tables[Users] = append(last.Tables[Users], row)
	}
	return m.Show(last, nil)
}

// TestThePictureIsCurrent writes docs/top.svg with -update.
func TestThePictureIsCurrent(t *testing.T) {
	g, _ := aBuild(t).Draw(110, 28)
	golden.Equal(t, "../../../../../docs/top.svg", picture(g, "energy top next to a build: the power of each zone, and the programs with the highest power, with their last two minutes"))
}

func TestEachFigureCanBeSortedBy(t *testing.T) {
	f := &Frame{}
	for i, r := range []Row{{Power: 1, Energy: 3, Total: 2, CPUTime: 4, PID: 2}, {Power: 2, Energy: 1, Total: 3, CPUTime: 3, PID: 3}, {Power: math.NaN(), Energy: 2, Total: 1, CPUTime: -1}} {
		r.Key, r.Text[Name] = fmt.Sprint(i), string(rune('a'+i))
		f.Tables[Processes] = append(f.Tables[Processes], r)
	}
	m := processesOf(f)
	for keys, want := range map[string]string{
		"": "bac", "e": "acb", "t": "bac", "c": "abc", "i": "abc", "n": "abc", "c r": "bac", "i r": "bac",
		"p": "abc", "n n": "cba", "n n n": "abc", "n n p": "bac", "e r": "bca", "right": "acb", "right right": "bac", "left": "abc", "left left": "abc",
	} {
		assert.Equal(t, want, strings.Join(names(press(m, strings.Fields(keys)...)), ""), keys)
	}
	got, _ := text(press(m, "n", "n"), 80, 24)
	assert.Contains(t, got, "by name, reversed")
	assert.Contains(t, got, "PROCESS▲")
	got, _ = text(press(m, "t"), 80, 24)
	assert.Contains(t, got, "TOTAL▼", "the column is shown where it would not be otherwise")
	f = aFrame()
	for i := range f.Tables[Programs] {
		f.Tables[Programs][i].Total = f.Tables[Programs][i].Energy
	}
	m = New("").Show(f, nil)
	for _, keys := range [][]string{{"t"}, {"c"}, {"i"}, {"2", "i", "1"}, {"2", "c", "1"}, {"left", "right"}} {
		assert.Equal(t, ByPower, press(m, keys...).order, keys)
	}
	got, _ = text(m, 200, 50)
	assert.NotContains(t, got, "TOTAL", "all are as in ENERGY")
}

func TestTheFilterLooksAtAllTexts(t *testing.T) {
	m := processesOf(aFrame())
	for filter, want := range map[string][]string{
		"java": {"java"}, "catalog.jar": {"java"}, "LIBVIRT": {"qemu-system-x86_64"}, "nginx": {"java", "nginx"}, "shop worker": {"nginx"},
		"901": {"cc1plus"}, "init.scope": {"systemd", "kworker/0:1"}, "no such name": nil,
	} {
		got := press(m, "/")
		for _, r := range filter {
			got = press(got, string(r))
		}
		assert.Equal(t, want, names(got), filter)
		assert.Equal(t, want, names(press(got, "enter")), "it stays")
		for _, keys := range [][]string{{"esc"}, {"enter", "esc"}, {"ctrl-u"}} {
			assert.Len(t, names(press(got, keys...)), 6)
		}
	}
	got, _ := text(press(m, "/", "s", "h", "o", "p", "enter"), 80, 24)
	assert.Contains(t, got, "2 of 7 processes: 4.61 W of 8.54 W.\n")
	assert.Regexp(t, `(?m)^ +4\.61 W +53\.9 % .* 299 J .* 2 matching rows$`, got)
	assert.NotContains(t, got, "unattributed")
}

func TestKeysWriteTheFilterWhileItIsEdited(t *testing.T) {
	m := press(New("").Show(aFrame(), nil), "/", "q", "?", " ", "e", "x", "backspace", "tab", "f1")
	assert.Equal(t, "q? e", m.filter)
	assert.Equal(t, ByPower, m.order)
	_, action := m.Press(screen.KeyInterrupt)
	assert.Equal(t, Quit, action, "Ctrl-C quits always")
	m = press(m, "backspace", "backspace", "backspace", "backspace")
	assert.True(t, m.editing)
	assert.False(t, press(m, "backspace").editing, "the filter is empty")
}

func TestKeysOfTheProgram(t *testing.T) {
	m := New("").Show(aFrame(), nil)
	for key, want := range map[screen.Key]Action{
		"q": Quit, screen.KeyQuit: Quit, screen.KeyInterrupt: Quit, screen.KeySuspend: Suspend, screen.KeyRedraw: Redraw, "x": Nothing, "é": Nothing,
	} {
		_, action := m.Press(key)
		assert.Equal(t, want, action, key)
	}
	assert.True(t, press(m, "f1").help)
	assert.False(t, press(m, "?", "q").help, "any key leaves the help")
}

func TestViewsWithoutRowsAreOmitted(t *testing.T) {
	m := New("").Show(aFrame(), nil)
	var seen []View
	for range 7 {
		seen = append(seen, m.view)
		m = press(m, "tab")
	}
	assert.Equal(t, []View{Programs, Processes, Containers, Pods, Namespaces, VMs, Programs}, seen)
	assert.Equal(t, Programs, press(m, "shift-tab").view)
	assert.Equal(t, VMs, press(m, "6").view)
	assert.Equal(t, m.view, press(m, "7", "0").view, "there is none")
	empty := aFrame()
	empty.Tables[VMs] = nil
	assert.Equal(t, Programs, press(m, "6").Show(empty, nil).view, "the last virtual machine ended")
}

// many returns a model with so many programs, the first of which has the highest power.
func many(n int) Model {
	f := &Frame{Active: 1, At: time.Unix(1000, 0)}
	for i := range n {
		f.Tables[Programs] = append(f.Tables[Programs], aRow(int32(i+1), float64(n-i), 1, a(fmt.Sprintf("p%d", i), "", nil)))
	}
	return New("").Show(f, nil)
}

func TestScrollingEndsWithTheLastRow(t *testing.T) {
	_, m := text(many(100), 80, 24)
	drawn := func(keys ...string) Model {
		m := m
		for _, k := range keys {
			_, m = text(press(m, k), 80, 24)
		}
		return m
	}
	assert.Equal(t, 0, drawn("up").cursor)
	assert.Equal(t, 1, drawn("down", "j").cursor)
	assert.Equal(t, 0, drawn("down", "j").scroll, "the row is shown")
	assert.Equal(t, m.height, drawn("down", "page down").cursor)
	assert.Equal(t, 1, drawn("down", "page down").scroll, "it is the first below the others")
	assert.Equal(t, 0, drawn("page down", "home").scroll)
	end := drawn("end")
	assert.Equal(t, 100-m.height, end.scroll)
	assert.Equal(t, end.scroll, drawn("end", "down", "page down").scroll)
	assert.Equal(t, 98, drawn("end", "down", "up").cursor)
	assert.Equal(t, 0, drawn("end", "n").scroll, "another order starts at the top")
	got, _ := text(end, 80, 24)
	assert.Contains(t, got, " p99\n")
	got, _ = text(end, 80, 120)
	assert.Contains(t, got, " p0\n", "all rows fit after a resize")
	_, fewer := text(press(end.Show(many(30).frame, nil)), 80, 24)
	assert.Equal(t, 30-m.height, fewer.scroll)
	wheel, _ := m.Click(screen.Mouse{Wheel: 1})
	_, wheel = text(wheel, 80, 24)
	assert.Equal(t, []int{3, noRow}, []int{wheel.scroll, wheel.cursor})
}

func TestAProgramIsOpened(t *testing.T) {
	m := New("").Show(aFrame(), nil)
	opened := press(m, "down", "down", "down", "enter")
	assert.Equal(t, []string{"cc1plus", "cc1plus (small or exited)"}, names(opened))
	got, _ := text(opened, 80, 24)
	assert.Contains(t, got, "2 rows of cc1plus\n2 of 7 processes: 890 mW of 8.54 W.\n")
	assert.Contains(t, got, " 2 Processes of cc1plus ")
	assert.Equal(t, []string{"cc1plus"}, names(press(opened, "/", "m", "a", "i", "n", "enter")))
	assert.Len(t, names(press(opened, "2")), 6, "the view of all processes")
	assert.Equal(t, Programs, press(opened, "esc").view)
	filtered := press(m, "/", "n", "g", "i", "n", "x", "enter", "down", "down", "enter")
	assert.Equal(t, []string{"nginx"}, names(filtered), "the filter is cleared")
	assert.Equal(t, opened.view, press(opened, "enter").view, "processes are not opened")
	assert.Equal(t, Programs, New("").Show(&Frame{}, nil).enter().view, "there is none")
	gone := aFrame()
	gone.Tables[Processes] = gone.Tables[Processes][:2]
	assert.Empty(t, names(opened.Show(gone, nil)))
}

func TestAClickIsAKey(t *testing.T) {
	got, m := text(New("").Show(aFrame(), nil), 120, 30)
	lines := strings.Split(got, "\n")
	click := func(word string) (Model, Action) {
		for y, line := range lines {
			if at := strings.Index(line, word); at >= 0 {
				return m.Click(screen.Mouse{X: figure.Width(line[:at]), Y: y})
			}
		}
		t.Fatal(word)
		return m, Nothing
	}
	clicked := func(word string) Model { m, _ := click(word); return m }
	assert.Equal(t, Pods, clicked("Pods").view)
	assert.Equal(t, ByEnergy, clicked("ENERGY USER").order)
	assert.Equal(t, ByUser, clicked("USER ").order)
	assert.True(t, clicked("POWER▼").reverse)
	assert.True(t, clicked("? help").help)
	_, action := click("q quit")
	assert.Equal(t, Quit, action)
	assert.Equal(t, 2, clicked("cc1plus").cursor)
	assert.Equal(t, m.view, clicked("unattributed").view, "no workload")
	m = clicked("cc1plus")
	assert.Equal(t, Processes, clicked("cc1plus").view, "a second click opens the program")
	g, _ := press(m, "m").Draw(80, 24)
	assert.False(t, g.Mouse, "the terminal selects text")
}

func TestTheExpectedErrorIsShownAtEverySize(t *testing.T) {
	f := aFrame()
	for i := range f.Zones {
		f.Zones[i].Source, f.Zones[i].Uncertainty = "modeled", 0.74
	}
	m := New("").Show(f, nil)
	for width := 16; width <= 300; width += 4 {
		for _, height := range []int{3, 10, 24, 80} {
			got, _ := text(press(m, " "), width, height)
			assert.Contains(t, got, "ESTIMATED ±71 %", "%d columns", width)
		}
	}
	f.Zones[0].Source, f.Zones[0].Uncertainty = "measured", math.NaN()
	got, _ := text(New("").Show(f, nil), 80, 24)
	assert.Contains(t, got, "PARTLY ESTIMATED ±3 %", "of the whole power")
	assert.Regexp(t, `Memory \(dram\).* modeled ±74 %`, got)
}

func TestRowsOfZeroAreHidden(t *testing.T) {
	m := processesOf(aFrame())
	assert.NotContains(t, names(m), "kworker/0:1")
	assert.Contains(t, names(press(m, "z")), "kworker/0:1")
	got, _ := text(m, 80, 24)
	assert.NotContains(t, got, "nothing")
	assert.Contains(t, got, "unattributed", "its power is not known, its energy is not 0")
	assert.Contains(t, got, "Rows add up to the active power: 8.54 W.\n")
	f := aFrame()
	f.Tables[Processes] = f.Tables[Processes][1:]
	got, _ = text(processesOf(f), 80, 16)
	assert.Regexp(t, `Rows add up to 4\.26 W of 8\.54 W active power\.\n`, got)
	for _, w := range []float64{-1e-15, 0, 1e-15} {
		f.Tables[Processes][8] = pinnedRow("nothing", w, 0)
		got, _ = text(processesOf(f), 80, 24)
		assert.NotContains(t, got, "nothing", w)
		f.Tables[Processes][8] = pinnedRow("nothing", w, 1)
		got, _ = text(processesOf(f), 80, 24)
		assert.Regexp(t, ` 0 W +0\.0 % +1\.00 J +nothing`, got, w)
	}
}

func TestTheErrorOfTheSumIsTheRootOfTheSquares(t *testing.T) {
	zones := []Zone{
		{Source: "modeled", Active: 20, Idle: 10, Uncertainty: 0.1}, {Source: "modeled", Active: 40, Uncertainty: 0.1},
		{Source: "measured", Active: 30, Uncertainty: math.NaN()}, {Source: "modeled", Besides: "package", Active: 500, Uncertainty: 0.9},
	}
	assert.InDelta(t, 0.05, Sum(zones).Uncertainty, 1e-9, "5 W of 100 W")
	zones[1].Uncertainty = math.NaN()
	assert.True(t, math.IsNaN(Sum(zones).Uncertainty), "one is not known")
}

func TestNoRowIsChosenBeforeAKeyIsPressed(t *testing.T) {
	m := New("").Show(aFrame(), nil)
	chosen := func(m Model) (rows int) {
		g, m := m.Draw(80, 24)
		for y := m.first; y < m.first+m.height; y++ {
			if g.At(0, y).Style == screen.Chosen {
				rows++
			}
		}
		return rows
	}
	for keys, want := range map[string]int{"": 0, "down": 1, "down esc": 0, "down n": 0, "down tab": 0, "up": 1, "end": 1} {
		assert.Equal(t, want, chosen(press(m, strings.Fields(keys)...)), keys)
	}
}

func TestTheChosenViewHasItsNameOnTheSmallestScreen(t *testing.T) {
	for key, want := range map[string]string{"1": "1 Pro", "2": "2 Pro", "3": "3 Con", "4": "4 Pod", "5": "5 Nam", "6": "6 VMs"} {
		got, _ := text(press(New("").Show(aFrame(), nil), key), 20, 5)
		assert.Contains(t, got, want)
	}
}

func TestNotesHaveTheLinesThatAreFree(t *testing.T) {
	notes := []string{"first note", "second note", "third note"}
	got, _ := text(New("").Show(aFrame(), notes), 100, 30)
	assert.Contains(t, got, "third note")
	got, _ = text(many(100).Show(many(100).frame, notes), 100, 30)
	assert.Contains(t, got, "first note (2 more: ?)\nq quit")
	assert.Regexp(t, `Not shown: 79 programs, [0-9.]+ kW\.\nfirst note`, got)
}

// Names are chosen by the users that start processes and containers.
var hostile = []string{"\x1b[2J\x1b]0;owned\x07", "a\nb\rc\td", "\u202egnp.exe\u202c", strings.Repeat("\u0301", 50) + "日本語", strings.Repeat("W", 5000)}

// TestNoKeySizeOrNameBreaksTheScreen presses random keys and clicks at random sizes.
func TestNoKeySizeOrNameBreaksTheScreen(t *testing.T) {
	f := aFrame()
	for i, name := range hostile {
		for v := range NumViews {
			r := aRow(int32(1000+i), float64(100-i), 1, nil)
			r.Key = fmt.Sprint(v, i)
			for k := range numTexts {
				r.Text[k] = name
			}
			f.Tables[v] = append(f.Tables[v], r)
		}
	}
	f.Host, f.Wrong = hostile[0], hostile[0]
	f.Zones = append(f.Zones, Zone{Name: hostile[0], Source: hostile[0], Besides: hostile[1], Active: math.NaN(), Idle: math.Inf(1), Energy: math.MaxInt64})
	frames := []*Frame{f, aFrame(), {}, {At: time.Unix(0, 0), Active: math.NaN()}}
	keys := strings.Fields("q ? / p e t c n i r u z m 1 2 3 6 9 0 up down left right home end tab shift-tab enter esc backspace x \x1b 日 < >")
	keys = append(keys, " ", "page up", "page down")
	random := rand.New(rand.NewPCG(1, 2))
	m := New(hostile[0]).Explain(strings.Join(hostile, "\n"), false, hostile)
	for range 4000 {
		switch random.IntN(8) {
		case 0:
			f := *frames[random.IntN(len(frames))]
			f.At = f.At.Add(time.Duration(random.IntN(1000)) * time.Second)
			m = m.Show(&f, hostile)
		case 1:
			m, _ = m.Click(screen.Mouse{X: random.IntN(300), Y: random.IntN(80), Wheel: random.IntN(3) - 1})
		default:
			m = press(m, keys[random.IntN(len(keys))])
		}
		width, height := random.IntN(120), random.IntN(40)
		if random.IntN(20) == 0 {
			width, height = 300, 80
		}
		var got string
		got, m = text(m, width, height)
		assert.Equal(t, height, strings.Count(got, "\n"))
		assert.False(t, strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }))
	}
	assert.NotContains(t, m.Show(f, hostile).Text(20), "\x1b")
}

func TestPauseKeepsTheShownFrame(t *testing.T) {
	m := press(New("").Show(many(3).frame, nil), " ").Show(many(5).frame, nil)
	assert.Len(t, names(m), 3)
	m = press(m, " ")
	assert.Len(t, names(m), 5)
	assert.Len(t, names(m.Show(many(6).frame, nil)), 6)
}

func TestErrorsAreShownNextToTheLastFigures(t *testing.T) {
	f := aFrame()
	f.Wrong = "the sum is wrong"
	m := New("").Show(f, []string{"a note"}).Explain("No answer: connection refused", true, nil)
	got, _ := text(m, 80, 24)
	assert.Contains(t, got, "No answer: connection refused")
	assert.Contains(t, got, "the sum is wrong")
	assert.Contains(t, got, "java")
	got, _ = text(m.Show(aFrame(), nil), 80, 24)
	assert.NotContains(t, got, "No answer")
}

func TestEmptyColumnsAreLeftOut(t *testing.T) {
	got, _ := text(many(2), 200, 24)
	for _, title := range []string{"COMMAND", "POD", "UNIT", "GPU", "USER"} {
		assert.NotContains(t, got, title)
	}
	f := aFrame()
	f.Tables[Processes][0].GPU = 3.5
	got, _ = text(press(processesOf(f), "u"), 100, 24)
	assert.Regexp(t, `GPU +ENERGY +USER`, got)
	assert.Regexp(t, `4242 .* 77\.2 mWh `, got)
}

func TestASparklineHasTheMeanOfEachStep(t *testing.T) {
	at := time.Unix(100_000, 0)
	m := New("")
	show := func(seconds int, powers ...float64) {
		f := &Frame{At: at.Add(time.Duration(seconds) * time.Second), Zones: []Zone{{Idle: 40}}}
		for i, p := range powers {
			f.Tables[Programs] = append(f.Tables[Programs], aRow(0, p, 1, a(fmt.Sprint(i), "", nil)))
		}
		m = m.Show(f, nil)
	}
	show(10, 6)
	show(15, 0)
	show(20, 12)    // 6 W in this step
	show(40, 3, 1)  // two steps
	show(45, 0, 2)  // 0 W until now
	show(45, 99, 9) // the same reading again
	h := m.history
	at = m.frame.At
	assert.Equal(t, []float64{6, 6, 3, 3, 0}, h.powers(h.rows[Programs]["0"][:], at, 6)[1:])
	assert.True(t, math.IsNaN(h.powers(h.rows[Programs]["0"][:], at, 6)[0]), "no figures yet")
	assert.Equal(t, "       ▇▇▄▄▁", recentOf(&m.frame.Tables[Programs][0], &m))
	assert.Equal(t, "         ▄▄▇", recentOf(&m.frame.Tables[Programs][1], &m), "a new row")
	show(-3600, 5)
	assert.Len(t, h.rows[Programs], 1, "the row that is gone is forgotten")
	assert.Equal(t, "           ▇", recentOf(&m.frame.Tables[Programs][0], &m), "an earlier time begins a new history")
	show(86400, 5)
	assert.Equal(t, "▇▇▇▇▇▇▇▇▇▇▇▇", recentOf(&m.frame.Tables[Programs][0], &m), "one long step")
}

func TestTheCourseHasItsTimeAndContainsThePowerShown(t *testing.T) {
	m := New("")
	shown := func(second int, watts float64) string {
		f := &Frame{At: time.Unix(1000, 0).Add(time.Duration(second) * time.Second), Since: time.Unix(1000, 0), Zones: []Zone{{Active: watts}}}
		m = m.Show(f, nil)
		got, _ := text(m, 120, 24)
		return strings.Split(got, "\n")[1]
	}
	assert.NotContains(t, shown(1, 14.9), "idle  1s", "one step is no course")
	assert.Contains(t, shown(12, 14.9), "idle  12s ▇▇ 14.9 W  ")
	assert.Contains(t, shown(20, 10), "idle  20s ▇▅ 10.0 W to 14.9 W  ")
	assert.Contains(t, shown(140, 10), "idle  2m20s ")
}

func TestBarsShowEighthsOfACell(t *testing.T) {
	for part, want := range map[float64]string{0: "", 0.0004: "", 0.001: "▏", 0.5: "██", 0.6: "██▍", 1: "████", 7: "████", -1: "", math.NaN(): "", math.Inf(1): ""} {
		assert.Equal(t, want, barOf(part, 4), part)
	}
}

func TestAFrameOfManyRowsAllocatesNoMoreThanOneOfFew(t *testing.T) {
	allocations := func(rows int) float64 {
		m := many(rows)
		f := *m.frame
		return testing.AllocsPerRun(20, func() {
			f.At = f.At.Add(time.Second)
			next := f
			_, m = m.Show(&next, nil).Draw(200, 50)
		})
	}
	assert.Less(t, allocations(10_000), 1.2*allocations(100))
}
