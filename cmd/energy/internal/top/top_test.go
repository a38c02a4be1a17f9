// SPDX-License-Identifier: Apache-2.0

package top

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/screen"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var update = flag.Bool("update", false, "write the golden files")

// aRow is a process with its name, arguments and user.
func aRow(pid int32, watts, joules float64, texts map[Text]string) Row {
	r := Row{
		Key: fmt.Sprintf("process %05d", pid), PID: pid, Power: watts, Busy: math.NaN(), CPUTime: time.Duration(joules * float64(time.Second) / 3),
		Energy: units.Energy(joules * 1e6), Total: units.Energy(joules * 7e6),
	}
	for t, text := range texts {
		r.Text[t] = text
	}
	return r
}

// noPID returns the row of a program, of a user, or of processes without a series each. The CPU time is unknown.
func noPID(r Row) Row {
	r.Key, r.CPUTime = "program "+r.Text[Name], -1
	return r
}

// processesOf returns a model that shows the processes of a frame.
func processesOf(f *Frame) Model { return New("").Show(f, nil).show(Processes) }

// pinnedRow is energy without a process.
func pinnedRow(name string, watts, joules float64) Row {
	r := aRow(0, watts, joules, map[Text]string{Name: name})
	r.Key, r.Pinned, r.CPUTime = name, true, -1
	return r
}

// aFrame is a node with processes, two containers, a pod and a virtual machine.
func aFrame() *Frame {
	at := time.Date(2026, 1, 2, 14, 3, 5, 0, time.UTC)
	web := map[Text]string{Container: "nginx", Pod: "shop/web-7c9f4", Image: "registry.example/nginx"}
	with := func(more map[Text]string) map[Text]string {
		all := map[Text]string{}
		for _, texts := range []map[Text]string{web, more} {
			for t, text := range texts {
				all[t] = text
			}
		}
		return all
	}
	f := &Frame{
		At: at, Since: at.Add(-65 * time.Second), Host: "node-1.example", Node: 3_292_000_000, Active: 8.544,
		Zones: []Zone{
			{Name: "package", Source: "measured", Active: 8.304, Idle: 38.5, Energy: 3_077_750_000},
			{Name: "dram", Source: "measured", Active: 0.24, Idle: 2.01, Energy: 214_250_000},
			{Name: "core", Besides: "package", Source: "measured", Active: 2, Idle: 3, Energy: 325_000_000},
		},
	}
	builder := map[Text]string{User: "builder", Unit: "user@1000.service"}
	of := func(texts map[Text]string, name, arguments string) map[Text]string {
		all := maps.Clone(texts)
		all[Name], all[Arguments] = name, arguments
		return all
	}
	f.Tables[Processes] = []Row{
		aRow(4242, 4.28, 278, with(map[Text]string{Name: "java", Arguments: "-Xmx2g -jar /srv/shop/catalog.jar --port 8080", User: "10001"})),
		aRow(77, 3, 195, map[Text]string{Name: "qemu-system-x86_64", Arguments: "-name guest=build-1,debug-threads=on -machine pc-q35-8.2", User: "libvirt-qemu", VM: "8d3e4f62"}),
		aRow(901, 0.61, 39.5, of(builder, "cc1plus", "-quiet -O2 main.cc")),
		aRow(4250, 0.325, 21, with(map[Text]string{Name: "nginx", Arguments: "worker process", User: "www-data"})),
		aRow(1, 0.004, 0.26, map[Text]string{Name: "systemd", Arguments: "--system --deserialize=31", User: "root", Unit: "init.scope"}),
		aRow(512, 0, 0, map[Text]string{Name: "kworker/0:1", User: "root"}),
		noPID(aRow(0, 0.28, 18, of(builder, "cc1plus (small or exited)", ""))),
		pinnedRow("(others): too small to be reported one by one", 0.045, 3.1),
		pinnedRow("ended: processes that are gone", math.NaN(), 15.5),
		pinnedRow("unattributed: no process can be named for it", math.NaN(), 0.2),
	}
	f.Tables[Programs] = []Row{
		noPID(aRow(0, 4.28, 278, with(map[Text]string{Name: "java", User: "10001"}))),
		noPID(aRow(0, 3, 195, map[Text]string{Name: "qemu-system-x86_64", User: "libvirt-qemu", VM: "8d3e4f62"})),
		noPID(aRow(0, 0.89, 73, of(builder, "cc1plus", ""))),
		noPID(aRow(0, 0.325, 21, with(map[Text]string{Name: "nginx", User: "www-data"}))),
		noPID(aRow(0, 0.03, 2, of(builder, "make (descendants)", ""))),
		noPID(aRow(0, 0.004, 0.26, map[Text]string{Name: "systemd", User: "root", Unit: "init.scope"})),
		noPID(aRow(0, 0, 0, map[Text]string{Name: "kworker/0:1", User: "root"})),
		pinnedRow("(others): too small to be reported one by one", 0.015, 1.1),
		pinnedRow("unattributed: no process can be named for it", math.NaN(), 0.2),
	}
	for _, v := range []View{Programs, Processes} {
		for i := range f.Tables[v] {
			name, _, _ := strings.Cut(f.Tables[v][i].Text[Name], " (small")
			f.Tables[v][i].Program = "program " + name
		}
	}
	f.Tables[Users] = []Row{
		noPID(aRow(0, 4.28, 278, map[Text]string{Name: "10001"})),
		noPID(aRow(0, 3, 195, map[Text]string{Name: "libvirt-qemu"})),
		noPID(aRow(0, 0.92, 75, map[Text]string{Name: "builder"})),
		noPID(aRow(0, 0.325, 21, map[Text]string{Name: "www-data"})),
		noPID(aRow(0, 0.004, 0.26, map[Text]string{Name: "root"})),
		pinnedRow("(others): too small to be reported one by one", 0.015, 1.1),
		pinnedRow("unattributed: no process can be named for it", math.NaN(), 0.2),
	}
	f.Tables[Containers] = []Row{
		aRow(0, 4.605, 299, map[Text]string{
			Name: "nginx", ID: "3f2a9c1b77de", Runtime: "containerd", Pod: "shop/web-7c9f4", Namespace: "shop", Image: "registry.example/nginx",
		}),
		aRow(0, 0.2, 13, map[Text]string{Name: "db", ID: "b2b2b2b2b2b2", Runtime: "docker", Image: "postgres"}),
	}
	f.Tables[Containers][1].Key = "container 2"
	f.Tables[Pods] = []Row{aRow(0, 4.605, 299, map[Text]string{Name: "web-7c9f4", Namespace: "shop", Class: "Burstable", ID: "0f9b2d6e-1c1b-4f57-9a53-3a4c0b2d9e11"})}
	f.Tables[VMs] = []Row{aRow(0, 3, 195, map[Text]string{Name: "build-1", Runtime: "qemu", ID: "8d3e4f62-7c2a-4c1e-9f10-000000000001"})}
	return f
}

// press presses keys, of which those of one letter are written together.
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

// shown returns the first words of the rows below the head of the table.
func shown(t *testing.T, m Model) (names []string) {
	t.Helper()
	for _, r := range m.rows() {
		names = append(names, r.Text[Name])
	}
	return names
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

var sizes = [][2]int{{80, 24}, {200, 50}, {40, 10}, {132, 43}}

func TestScreens(t *testing.T) {
	notes := []string{"No collector listens at http://127.0.0.1:8889/metrics: this command measures by itself", "CPU time source selected: source procfs"}
	m := New("Measuring").Show(aFrame(), notes)
	for name, m := range map[string]Model{
		"programs":   m,
		"opened":     press(m, "down", "down", "enter"),
		"processes":  press(m, "2"),
		"users":      press(m, "3"),
		"containers": press(m, "4"),
		"filtered":   press(m, "2", "/", "s", "h", "o", "p", "enter"),
		"help":       press(m, "?"),
		"waiting":    New("Looking for a collector").Explain("Nothing to show from http://127.0.0.1:8889/metrics: nothing listens on 127.0.0.1:8889\nIs the collector running?", true, notes),
	} {
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%s_%dx%d", name, size[0], size[1]), func(t *testing.T) {
				got, _ := text(m, size[0], size[1])
				golden(t, fmt.Sprintf("%s_%dx%d", name, size[0], size[1]), got)
				lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
				assert.Len(t, lines, size[1])
				for _, line := range lines {
					assert.LessOrEqual(t, figure.Width(line), size[0])
				}
			})
		}
	}
}

func TestKeysSort(t *testing.T) {
	m := processesOf(aFrame())
	byPower := []string{"java", "qemu-system-x86_64", "cc1plus", "nginx", "cc1plus (small or exited)", "systemd", "kworker/0:1"}
	assert.Equal(t, byPower, shown(t, m))
	for key, want := range map[string][]string{
		"p": {"kworker/0:1", "systemd", "cc1plus (small or exited)", "nginx", "cc1plus", "qemu-system-x86_64", "java"}, // it is sorted by power already
		"e": byPower,
		"t": byPower,
		"c": {"java", "qemu-system-x86_64", "cc1plus", "nginx", "systemd", "kworker/0:1", "cc1plus (small or exited)"},
		"n": {"cc1plus", "cc1plus (small or exited)", "java", "kworker/0:1", "nginx", "qemu-system-x86_64", "systemd"},
		"i": {"cc1plus (small or exited)", "systemd", "qemu-system-x86_64", "kworker/0:1", "cc1plus", "java", "nginx"},
	} {
		assert.Equal(t, want, shown(t, press(m, key)), key)
	}
	assert.Equal(t, []string{"systemd", "qemu-system-x86_64", "nginx", "kworker/0:1", "java", "cc1plus (small or exited)", "cc1plus"}, shown(t, press(m, "n", "n")))
	assert.Equal(t, shown(t, press(m, "n")), shown(t, press(m, "n", "n", "n")))
	assert.Equal(t, byPower, shown(t, press(m, "n", "n", "p")), "another column is not reversed")
	got, _ := text(press(m, "n", "n"), 80, 24)
	assert.Contains(t, got, "by name, reversed")
}

func TestEachFigureCanBeSortedBy(t *testing.T) {
	f := &Frame{}
	for i, r := range []Row{{Power: 1, Energy: 3, Total: 2, CPUTime: 4, PID: 2}, {Power: 2, Energy: 1, Total: 3, CPUTime: 3, PID: 3}, {Power: math.NaN(), Energy: 2, Total: 1, CPUTime: -1, PID: 1}} {
		r.Key, r.Text[Name] = fmt.Sprint(i), string(rune('a'+i))
		f.Tables[Processes] = append(f.Tables[Processes], r)
	}
	m := processesOf(f)
	assert.Equal(t, []string{"b", "a", "c"}, shown(t, m), "a power that is not known is the least")
	for key, want := range map[string]string{"e": "acb", "t": "bac", "c": "abc", "i": "cab", "n": "abc"} {
		assert.Equal(t, want, strings.Join(shown(t, press(m, key)), ""), key)
	}
}

func TestEqualRowsKeepTheirPlaces(t *testing.T) {
	f := &Frame{}
	for i := range 100 {
		f.Tables[Processes] = append(f.Tables[Processes], aRow(int32(i+1), float64(i%3), 1, map[Text]string{Name: fmt.Sprint(i)}))
	}
	want := shown(t, processesOf(f))
	for range 10 {
		rand.Shuffle(100, func(a, b int) {
			rows := f.Tables[Processes]
			rows[a], rows[b] = rows[b], rows[a]
		})
		assert.Equal(t, want, shown(t, processesOf(f)))
	}
}

func TestTheFilterLooksAtAllTexts(t *testing.T) {
	m := processesOf(aFrame())
	for filter, want := range map[string][]string{
		"java":         {"java"},
		"catalog.jar":  {"java"},
		"LIBVIRT":      {"qemu-system-x86_64"},
		"nginx":        {"java", "nginx"}, // its container
		"shop worker":  {"nginx"},
		"901":          {"cc1plus"},
		"init.scope":   {"systemd"},
		"no such name": nil,
	} {
		got := press(m, "/")
		for _, r := range filter {
			got = press(got, string(r))
		}
		assert.Equal(t, want, shown(t, got), filter)
		assert.Equal(t, want, shown(t, press(got, "enter")), "it stays")
		assert.Len(t, shown(t, press(got, "esc")), 7, "it is cleared")
		assert.Len(t, shown(t, press(got, "enter", "esc")), 7)
		assert.Len(t, shown(t, press(got, "ctrl-u")), 7)
	}
	containers := press(m, "4", "/", "s", "h", "o", "p", "enter")
	assert.Equal(t, []string{"nginx"}, shown(t, containers), "by the namespace")
}

func TestKeysWriteTheFilterWhileItIsEdited(t *testing.T) {
	m := press(New("").Show(aFrame(), nil), "/", "q", "?", " ", "e", "x", "backspace", "tab")
	assert.Equal(t, "q? e", m.filter)
	assert.Equal(t, ByPower, m.order)
	_, action := m.Press(screen.KeyInterrupt)
	assert.Equal(t, Quit, action, "Ctrl-C quits always")
	m = press(m, "backspace", "backspace", "backspace", "backspace")
	assert.True(t, m.editing)
	assert.False(t, press(m, "backspace").editing, "nothing is left to remove")
}

func TestWhatIsFilteredIsAddedUp(t *testing.T) {
	m := press(processesOf(aFrame()), "/", "s", "h", "o", "p", "enter")
	got, _ := text(m, 80, 24)
	assert.Regexp(t, `(?m)^ +4\.61 W +53\.9% +299\.0 J .* 2 rows match the filter$`, got)
	assert.NotContains(t, got, "unattributed")
	got, _ = text(m, 40, 10)
	assert.Contains(t, got, "2 rows")
}

func TestKeysOfTheProgram(t *testing.T) {
	m := New("").Show(aFrame(), nil)
	for key, want := range map[screen.Key]Action{"q": Quit, screen.KeyInterrupt: Quit, screen.KeySuspend: Suspend, screen.KeyRedraw: Redraw, "x": Nothing, "é": Nothing} {
		_, action := m.Press(key)
		assert.Equal(t, want, action, key)
	}
	assert.False(t, press(m, "?", "q").help, "any key leaves the help")
}

func TestViewsAreThoseThatHaveRows(t *testing.T) {
	m := New("").Show(aFrame(), nil)
	var seen []View
	for range 7 {
		seen = append(seen, m.view)
		m = press(m, "tab")
	}
	assert.Equal(t, []View{Programs, Processes, Users, Containers, Pods, VMs, Programs}, seen)
	assert.Equal(t, Programs, press(m, "shift-tab").view)
	assert.Equal(t, VMs, press(m, "6").view)
	assert.Equal(t, m.view, press(m, "7").view, "there is none")
	empty := aFrame()
	empty.Tables[VMs] = nil
	assert.Equal(t, Programs, press(m, "6").Show(empty, nil).view, "the last virtual machine ended")
}

// many returns a model with so many processes, the first of which uses the most.
func many(n int) Model {
	f := &Frame{Active: 1}
	for i := range n {
		f.Tables[Programs] = append(f.Tables[Programs], aRow(int32(i+1), float64(n-i), 1, map[Text]string{Name: fmt.Sprintf("p%d", i)}))
	}
	return New("").Show(f, nil)
}

func TestScrollingEndsWithTheLastRow(t *testing.T) {
	_, m := text(many(100), 80, 24)
	assert.Equal(t, 0, press(m, "up").cursor)
	assert.Equal(t, 2, press(m, "down", "j").cursor)
	assert.Equal(t, 0, press(m, "down", "j").scroll, "the row is shown")
	assert.Equal(t, m.height, press(m, "page down").cursor)
	assert.Equal(t, 1, press(m, "page down").scroll, "it is the first below the others")
	assert.Equal(t, 0, press(m, "page down", "home").scroll)
	end := press(m, "end")
	assert.Equal(t, 100-m.height, end.scroll)
	assert.Equal(t, end.scroll, press(end, "down", "page down").scroll)
	got, _ := text(end, 80, 24)
	assert.Contains(t, got, " p99\n")
	assert.Equal(t, 0, press(end, "n").scroll, "another order starts at the top")
	_, fewer := text(press(end.Show(many(30).frame, nil)), 80, 24)
	assert.Equal(t, 30-m.height, fewer.scroll, "rows have gone")
}

func TestAProgramIsOpened(t *testing.T) {
	m := New("").Show(aFrame(), nil)
	assert.Equal(t, []string{"java", "qemu-system-x86_64", "cc1plus", "nginx", "make (descendants)", "systemd", "kworker/0:1"}, shown(t, m))
	opened := press(m, "down", "down", "enter")
	assert.Equal(t, Processes, opened.view)
	assert.Equal(t, []string{"cc1plus", "cc1plus (small or exited)"}, shown(t, opened))
	got, _ := text(opened, 80, 24)
	assert.Contains(t, got, "2 rows of cc1plus\n")
	assert.Contains(t, got, "[Processes of cc1plus]")
	assert.Equal(t, []string{"cc1plus"}, shown(t, press(opened, "/", "m", "a", "i", "n", "enter")))
	assert.Len(t, shown(t, press(opened, "2")), 7, "the view of all processes")
	assert.Equal(t, Programs, press(opened, "esc").view)
	filtered := press(m, "/", "n", "g", "i", "n", "x", "enter", "down", "enter")
	assert.Equal(t, []string{"nginx"}, shown(t, filtered), "the filter is cleared")
	assert.Equal(t, opened.view, press(opened, "enter").view, "processes are not opened")
	assert.Equal(t, Programs, New("").Show(&Frame{}, nil).enter().view, "there is none")
	gone := aFrame()
	gone.Tables[Processes] = gone.Tables[Processes][:2]
	assert.Empty(t, shown(t, opened.Show(gone, nil)))
}

func TestASmallTerminalLosesColumnsNotLines(t *testing.T) {
	m := many(5)
	for width := 200; width >= 20; width -= 3 {
		got, _ := text(m, width, 24)
		for i := range 5 {
			if width >= 40 {
				assert.Contains(t, got, fmt.Sprintf(" p%d\n", i), "%d columns", width)
			}
			assert.Contains(t, got, fmt.Sprintf("%.2f W", float64(5-i)), "%d columns", width)
		}
	}
}

func TestNoSizeIsTooSmall(t *testing.T) {
	notes := []string{strings.Repeat("a note ", 30), "b"}
	for _, m := range []Model{New("Looking"), New("").Show(aFrame(), notes), press(New("").Show(aFrame(), notes), "?"), press(New("").Show(aFrame(), notes), "/", "x")} {
		for width := 0; width < 60; width += 3 {
			for height := range 30 {
				g, drawn := m.Draw(width, height)
				w, h := g.Size()
				assert.Equal(t, []int{width, height}, []int{w, h})
				press(drawn, "page down", "end", "up")
			}
		}
	}
}

func TestAResizeKeepsWhatIsShownInside(t *testing.T) {
	_, m := text(many(40), 80, 50)
	m = press(m, "end")
	_, m = text(m, 80, 12)
	got, m := text(press(m, "end"), 80, 12)
	assert.Contains(t, got, " p39\n")
	got, _ = text(m, 80, 60)
	assert.Contains(t, got, " p0\n", "all rows fit: none is above the first line")
}

// Names are chosen by the users that start processes and containers.
var hostile = []string{
	"\x1b[2J\x1b]0;owned\x07", "a\nb\rc\td", "\u009b31m", "\xff\xfe\x1bc", "\u202egnp.exe\u202c", "a\u200d\u200b\ufeffb", strings.Repeat("\u0301", 50) + "x",
	"e" + strings.Repeat("\u0301", 50), "日本語のプロセス名がとても長い場合", "👩‍👩‍👧‍👦 family", "\u0000\u0008\u0008\u0008", strings.Repeat("W", 5000), "\x0e\x0f\x90\x9d",
}

func TestHostileNamesCannotSteerTheTerminal(t *testing.T) {
	f := aFrame()
	for i, name := range hostile {
		texts := map[Text]string{}
		for k := range numTexts {
			texts[k] = name
		}
		for v := range NumViews {
			r := aRow(int32(1000+i), float64(100-i), 1, texts)
			r.Key = fmt.Sprint(v, i)
			f.Tables[v] = append(f.Tables[v], r)
		}
	}
	f.Host, f.Wrong = hostile[0], hostile[0]
	f.Zones = append(f.Zones, Zone{Name: hostile[0], Source: hostile[0], Besides: hostile[1], Active: math.NaN(), Idle: math.Inf(1), Energy: math.MaxInt64})
	m := New("").Show(f, hostile).Explain(hostile[0], true, hostile)
	for _, size := range sizes {
		for v := range NumViews {
			for _, m := range []Model{press(m, fmt.Sprint(v+1)), press(m, fmt.Sprint(v+1), "?"), press(m, "/", "\x1b", "["), New(hostile[0]).Explain(strings.Join(hostile, "\n"), false, hostile)} {
				g, _ := m.Draw(size[0], size[1])
				for y := range size[1] {
					columns := 0
					for x := range size[0] {
						c := g.At(x, y)
						columns += figure.Width(c.Text)
						marks := 0
						for _, r := range c.Text {
							if !unicode.IsPrint(r) {
								t.Fatalf("%q", c.Text)
							}
							if unicode.IsMark(r) {
								marks++
							}
						}
						if marks > 3 {
							t.Fatalf("%q", c.Text)
						}
					}
					assert.Equal(t, size[0], columns, "wide characters take two cells")
				}
			}
		}
	}
}

func TestPauseKeepsWhatIsShown(t *testing.T) {
	m := press(New("").Show(many(3).frame, nil), " ")
	m = m.Show(many(5).frame, nil)
	assert.Len(t, shown(t, m), 3)
	m = press(m, " ")
	assert.Len(t, shown(t, m), 5)
	assert.Len(t, shown(t, m.Show(many(6).frame, nil)), 6)
}

func TestAnErrorIsShownUntilFiguresCome(t *testing.T) {
	m := New("").Show(aFrame(), nil).Explain("No answer: connection refused", true, nil)
	got, _ := text(m, 80, 24)
	assert.Contains(t, got, "No answer: connection refused")
	assert.Contains(t, got, "java", "the last figures stay")
	got, _ = text(m.Show(aFrame(), nil), 80, 24)
	assert.NotContains(t, got, "No answer")
}

func TestEnergiesInWattHours(t *testing.T) {
	got, _ := text(press(processesOf(aFrame()), "u"), 80, 24)
	assert.Regexp(t, `4242 10001 .* 77\.2 mWh `, got)
}

func TestColumnsWithoutAnythingAreLeftOut(t *testing.T) {
	got, _ := text(many(2), 200, 24)
	for _, title := range []string{"CONTAINER", "POD", "VM", "UNIT", "GPU", "USER"} {
		assert.NotContains(t, got, title)
	}
	f := aFrame()
	f.Tables[Processes][0].GPU = 3.5
	got, _ = text(processesOf(f), 80, 24)
	assert.Regexp(t, `PID USER +POWER +GPU +SHARE`, got)
}

func TestSumsThatAreWrongAreShown(t *testing.T) {
	f := aFrame()
	f.Wrong = "the sum is wrong"
	got, _ := text(New("").Show(f, []string{"a note"}), 80, 24)
	assert.Contains(t, got, "the sum is wrong")
}

// TestThePictureIsCurrent writes docs/top.svg with -update.
func TestThePictureIsCurrent(t *testing.T) {
	g, _ := New("").Show(aFrame(), nil).Draw(120, 22)
	got := g.SVG("energy top: the power of each zone of a node, and the programs with the highest power, with user, energy and container")
	const file = "../../../../docs/top.svg"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "make screenshots")
}

// The rows of each view add up to the active power, so that the shares of a picture do.
func TestTheExampleAddsUp(t *testing.T) {
	f := aFrame()
	for _, view := range []View{Programs, Processes, Users} {
		sum := 0.0
		for _, r := range f.Tables[view] {
			if !math.IsNaN(r.Power) {
				sum += r.Power
			}
		}
		assert.InDelta(t, f.Active, sum, 1e-9, viewNames[view])
	}
	assert.InDelta(t, f.Active, f.Zones[0].Active+f.Zones[1].Active, 1e-9)
}
