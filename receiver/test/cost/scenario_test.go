// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func names(variants []variant) (names []string) {
	for _, v := range variants {
		names = append(names, v.name)
	}
	return names
}

func TestPacesAreMultiplesOfTheInterval(t *testing.T) {
	for interval, want := range map[time.Duration]pace{
		time.Second:      {warmup: 4500 * time.Millisecond, measured: 10 * time.Second},
		10 * time.Second: {warmup: 10500 * time.Millisecond, measured: 20 * time.Second},
	} {
		assert.Equal(t, want, pace{}.of(interval), "%v", interval)
	}
	assert.Equal(t, pace{warmup: 1, measured: 2}, pace{warmup: 1, measured: 2}.of(time.Second))
}

func TestVariantsAreTheProductOfBinariesAndSettingsTheBaseFirst(t *testing.T) {
	o, err := parse(strings.Fields("-binary new -base old -source bpf,procfs -window 0s,10ms -floor procfs,collector,wake -processes 500"))
	require.NoError(t, err)
	assert.Equal(t, 5, o.machine.Active)
	variants, err := o.variants(programs{dir: "built"})
	require.NoError(t, err)
	assert.Equal(t, []string{
		"base bpf 1s", "base bpf 1s in 10ms", "base procfs 1s", "base procfs 1s in 10ms",
		"new bpf 1s", "new bpf 1s in 10ms", "new procfs 1s", "new procfs 1s in 10ms", "floor procfs", "empty collector", "floor wake",
	}, names(variants))
	assert.Equal(t, []string{"old", "new"}, []string{variants[0].command[0], variants[4].command[0]})
	assert.Contains(t, variants[1].command[2], "window: 10ms, cpu_time: bpf")
	assert.Contains(t, variants[1].command[2], "collection_interval: 1s")
	assert.Equal(t, "10ms", variants[8].command[4], "a floor wakes up as often as there are windows")
	assert.Equal(t, []string{"built/floor", "10000000"}, variants[10].command)
}

func TestOtherSettingsOfTheReceiverAreVariants(t *testing.T) {
	o, err := parse([]string{"-receiver", "series: {processes: {max: 5}};series: {processes: {max: 6, min_energy: 0}}"})
	require.NoError(t, err)
	variants, err := o.variants(programs{})
	require.NoError(t, err)
	assert.Equal(t, []string{"bpf 1s series: {processes: {max: 5}}", "bpf 1s series: {processes: {max: 6, min_energy: 0}}"}, names(variants))
	assert.Contains(t, variants[1].command[2], "max_power: 120}, series: {processes: {max: 6, min_energy: 0}}, attribution: {preset: kepler}}\n")
}

func TestADividedMachineRunsTheProgramOfTheVariant(t *testing.T) {
	p := programs{collector: "bin/collector"}
	divided, err := settings{divided: true}.collector(p)
	require.NoError(t, err)
	plain, err := settings{}.collector(p)
	require.NoError(t, err)
	assert.Equal(t, append(slices.Clone(onDividedMachine), plain.command...), divided.command)
}

func TestConfigurationsTakeThePlaceOfSettings(t *testing.T) {
	o, err := parse(strings.Fields("-config a/one.yaml,two.yaml -source bpf,procfs"))
	require.NoError(t, err)
	variants, err := o.variants(programs{})
	require.NoError(t, err)
	assert.Equal(t, []string{"one.yaml", "two.yaml"}, names(variants))
	assert.Equal(t, []string{"build/otelcol-energy", "--config", "a/one.yaml"}, variants[0].command)
}

func TestScenariosAreChosenByName(t *testing.T) {
	reach, err := chosen("reach")
	require.NoError(t, err)
	all, err := chosen("all")
	require.NoError(t, err)
	assert.Len(t, all, len(scenarios))
	assert.Less(t, len(reach), len(all))
	some, err := chosen("start,exits")
	require.NoError(t, err)
	require.Len(t, some, 2)
	assert.Equal(t, []string{"exits", "start"}, []string{some[0].name, some[1].name}, "in the order of the table")
	_, err = chosen("start,warm")
	assert.ErrorContains(t, err, `no scenario "warm"`)
}

func TestUnitsOfFiguresAreVariantsOfTheScenario(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range scenarios {
		assert.False(t, seen[c.name], c.name)
		seen[c.name] = true
		all, err := (&session{programs: allPrograms(t)}).variants(c)
		require.NoError(t, err)
		if c.name != "profiles" {
			assert.Len(t, all, len(c.rows))
		}
		for _, v := range all {
			for _, g := range v.goals {
				assert.True(t, g.times == "" || slices.Contains(names(all), g.times), "%s: %s", c.name, g.times)
			}
		}
	}
}

// allPrograms returns the programs of all scenarios, except for the profiler.
func allPrograms(t *testing.T) programs {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "energy"), nil, 0o700))
	return programs{collector: filepath.Join(dir, "collector"), kepler: "kepler", dir: dir}
}

func TestMissingProgramsAreLeftOut(t *testing.T) {
	p := allPrograms(t)
	c := scenario{rows: []row{{emptyCollector, idling(0, 0, 0)}, {kepler(0), nil}, {measure10ms, nil}, {profiler("profiler", profilesPipeline), nil}}}
	all, err := (&session{programs: p}).variants(c)
	require.NoError(t, err)
	assert.Equal(t, []string{"empty collector", "kepler", "energy measure"}, names(all))
	assert.Len(t, all[0].goals, 3)
	all, err = (&session{programs: programs{collector: "elsewhere/collector", dir: p.dir}, base: p.collector}).variants(c)
	require.NoError(t, err)
	assert.Equal(t, []string{"empty collector", "base energy measure"}, names(all), "the base has no references")
}

func TestALineOfAScenarioHasTheFigureItsSpreadAndWhetherItIsReached(t *testing.T) {
	share := func(shares ...float64) (turns []turn) {
		for _, s := range shares {
			turns = append(turns, turn{share: s, outside: 0.01, memory: memory{resident: 10 << 20}})
		}
		return turns
	}
	bpf := share(0.01, 0.03, 0.02) // 2, 4 and 3 % with hooks
	others := []result{
		{variant{name: "floor", isReference: true, goals: []goal{{figure: resident}}}, share(0.01, 0.01, 0.01)},
		{variant{name: "base bpf"}, share(0.03, 0.07, 0.03)},
	}
	for want, g := range map[string]goal{
		"% of a CPU | at most 3 | 3.000 [2.000, 4.000] | yes | floor 1.50 [1.00, 2.00] | 0.50 [0.50, 0.75]": {figure: cpuAll, most: 3},
		"% of a CPU | at most 2 | 3.000 [2.000, 4.000] | no | floor 1.50 [1.00, 2.00] | 0.50 [0.50, 0.75]":  {figure: cpuAll, most: 2},
		"% of a CPU, times floor | at most 1.5 | 1.50 [1.00, 2.00] | yes |  | ":                             {figure: cpuAll, most: 1.5, times: "floor"},
		"wakeups per second |  | 0.000 [0.000, 0.000] |  |  | ":                                             {figure: wakeups},
	} {
		var b bytes.Buffer
		writeScenario(&b, "s", append([]result{{variant{name: "bpf", goals: []goal{g}}, bpf}}, others...), true, newMeasured("2 x CPU"))
		assert.Equal(t, "| s | bpf | "+want+" |\n| s | floor | MiB resident |  | 10.0 [10.0, 10.0] |  |  |  |\n", b.String())
	}
}

func TestAVariantIsMeasuredInTurnWithTheOthers(t *testing.T) {
	order := filepath.Join(t.TempDir(), "order")
	program := func(name string) variant {
		return variant{name: name, interval: time.Second, command: []string{"sh", "-c", "echo " + name + ">>" + order + "; exec sleep 60"}}
	}
	results, err := measureTurns([]variant{program("a"), program("b")}, 2, pace{warmup: 50 * time.Millisecond, measured: time.Millisecond}, price{})
	require.NoError(t, err)
	b, err := os.ReadFile(order)
	require.NoError(t, err)
	assert.Equal(t, "a\nb\na\nb\n", string(b))
	require.Len(t, results, 2)
	assert.Len(t, results[1].turns, 2)
	assert.Positive(t, results[1].turns[0].memory.resident)
}

func TestTheFirstEmissionIsALineOfTheDebugExporter(t *testing.T) {
	v := variant{name: "starts", starts: true}
	v.command = []string{"sh", "-c", `printf 'Metrics\nx\tinfo\tMetrics\t{}\n'; exec sleep 60`}
	got, err := takeTurn(v, pace{}, price{})
	require.NoError(t, err)
	assert.Positive(t, got.first.after)
	v.command = []string{"sh", "-c", "echo Metrics; exit 1"}
	_, err = takeTurn(v, pace{}, price{})
	assert.Error(t, err, "it never emitted")
}

func TestTheBaseIsAFileOrBuiltOfACommit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "collector")
	require.NoError(t, os.WriteFile(file, nil, 0o700))
	got, err := baseCollector(file, t.TempDir())
	require.NoError(t, err)
	assert.Equal(t, file, got)
	got, err = baseCollector("", t.TempDir())
	require.NoError(t, err)
	assert.Empty(t, got)

	repository := t.TempDir()
	t.Chdir(repository)
	require.NoError(t, os.WriteFile("Makefile", []byte("build:\n\tmkdir build; echo built > build/otelcol-energy\n"), 0o600))
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "One"},
	} {
		out, err := exec.Command("git", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	got, err = baseCollector("HEAD", t.TempDir())
	require.NoError(t, err)
	b, err := os.ReadFile(got)
	require.NoError(t, err)
	assert.Equal(t, "built\n", string(b))
	out, err := exec.Command("git", "worktree", "list").CombinedOutput()
	require.NoError(t, err)
	assert.Equal(t, 1, bytes.Count(out, []byte("\n")), "the worktree is gone: %s", out)
	_, err = baseCollector("nothing", t.TempDir())
	assert.ErrorContains(t, err, "nothing")
}

func TestKeplerRunsByItsFakeMeter(t *testing.T) {
	dir := t.TempDir()
	v, err := kepler(second)(programs{kepler: "/bin/kepler", dir: dir})
	require.NoError(t, err)
	assert.Equal(t, []string{"/bin/kepler", "--config.file", filepath.Join(dir, "kepler.yaml")}, v.command)
	assert.Equal(t, "http://127.0.0.1:18890/metrics", v.scrape)
	b, err := os.ReadFile(v.command[2])
	require.NoError(t, err)
	assert.Contains(t, string(b), "dev: {fake-cpu-meter: {enabled: true}}")
	v, err = kepler(0)(programs{kepler: "/bin/kepler", dir: dir})
	require.NoError(t, err)
	assert.Empty(t, v.scrape)
}
