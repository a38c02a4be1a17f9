// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// statText returns a /proc/<pid>/stat as a kernel writes it, with the fields that are parsed.
func statText(comm, state string, fields ...any) string {
	// parent, flags, utime, stime, cutime, cstime, threads, start, pages, CPU
	f := []any{1, 0x400000, 3, 4, 5, 6, 7, 89, 200, 63}
	copy(f, fields)
	return fmt.Sprintf("42 (%s) %s %v 42 42 0 -1 %v 100 200 300 400 %v %v %v %v 20 0 %v 0 %v 1000 "+
		"%v 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 %v 0 0 0 0 0 1 2 3 4 5 6 7 0\n",
		append([]any{comm, state}, f...)...)
}

func mustParse(t *testing.T, text string) proc.Sight {
	t.Helper()
	var p proc.Sight
	require.NoError(t, ParseProcess([]byte(text), &p))
	return p
}

func TestEveryFieldOfAProcessIsRead(t *testing.T) {
	assert.Equal(t, proc.Sight{
		ID:       proc.ID{Start: 890 * time.Millisecond},
		Parent:   1,
		Threads:  7,
		CPU:      70 * ms,
		ChildCPU: 110 * ms,
		Comm:     proc.Comm{'c', 'a', 't'},
		LastCPU:  63,
		Resident: 200 * pageSize,
	}, mustParse(t, statText("cat", "S")))
}

func TestTimesAreParsedWithoutCPUAndSize(t *testing.T) {
	whole := statText("cat", "S")
	for name, text := range map[string]string{
		"a negative size":           strings.Replace(whole, " 200 1844", " -200 1844", 1),
		"a size beyond all memory":  strings.Replace(whole, " 200 1844", " 9223372036854775807 1844", 1),
		"a CPU below the first":     strings.Replace(whole, " 63 ", " -1 ", 1),
		"a word where the CPU was":  strings.Replace(whole, " 63 ", " none ", 1),
		"a word where the size was": strings.Replace(whole, " 200 1844", " large 1844", 1),
	} {
		p := mustParse(t, text)
		assert.Equal(t, 70*ms, p.CPU, name)
		assert.Equal(t, int32(-1), p.LastCPU, name)
		assert.Zero(t, p.Resident, name)
	}
}

func TestNamesMayHoldAnything(t *testing.T) {
	p := mustParse(t, statText("a long name", "S"))
	for comm, want := range map[string]string{
		"":                       "",
		"a) S 1 2 3 4 5":         "a) S 1 2 3 4 5",
		") Z (":                  ") Z (",
		"new\nline":              "new\nline",
		"\xff\xfe\x80":           "\uFFFD",
		"caf\xc3\xa9":            "café",
		"fifteen bytes..":        "fifteen bytes..",
		"kworker/u16:3-events_u": "kworker/u16:3-e",
		"fourteen bytesé":        "fourteen bytes\uFFFD",
	} {
		require.NoError(t, ParseProcess([]byte(statText(comm, "S")), &p))
		assert.Equal(t, want, p.Comm.String(), "%q", comm)
		assert.Equal(t, 70*ms, p.CPU, "%q", comm)
		assert.Equal(t, int32(1), p.Parent, "%q", comm)
	}
}

func TestStates(t *testing.T) {
	for state, zombie := range map[string]bool{"R": false, "S": false, "D": false, "T": false, "I": false, "Z": true, "X": true} {
		p := mustParse(t, statText("cat", state, 1, 0, 0, 0, 0, 0, 1))
		assert.Equal(t, zombie, p.Is(proc.Zombie), state)
	}
	threads := mustParse(t, statText("java", "Z", 1, 0, 0, 0, 0, 0, 2))
	assert.False(t, threads.Is(proc.Zombie), "its first thread ended, another runs")
}

func TestKernelThreadsAreKnownByTheirFlag(t *testing.T) {
	for flags, kernel := range map[uint32]bool{0x208040: true, 0x200000: true, math.MaxUint32: true, 0x400000: false, 0x1fffff: false, 0: false} {
		p := mustParse(t, statText("kthreadd", "S", 0, flags))
		assert.Equal(t, kernel, p.Is(proc.Kernel), "%#x", flags)
	}
}

func TestNumbersAtTheirLimits(t *testing.T) {
	const most = uint64(math.MaxUint64)
	for name, c := range map[string]struct {
		fields        []any
		cpu, childCPU units.CPUTime
	}{
		"nothing used":              {[]any{1, 0, 0, 0, 0, 0}, 0, 0},
		"negative child times":      {[]any{1, 0, 1, 0, -1, int64(-math.MaxInt64)}, Tick, 0},
		"one negative child time":   {[]any{1, 0, 1, 0, -5, 3}, Tick, 3 * Tick},
		"an hour on each of 64":     {[]any{1, 0, 64 * 360_000, 0, 0, 0}, 64 * 3600 * units.Second, 0},
		"more than can be":          {[]any{1, 0, most, 0, 0, 0}, math.MaxInt64, 0},
		"twice more than can be":    {[]any{1, 0, most, most, 0, 0}, 2 * math.MaxInt64, 0},
		"children's more than can":  {[]any{1, 0, 0, 0, int64(math.MaxInt64), 0}, 0, math.MaxInt64},
		"the last that is not much": {[]any{1, 0, int64(math.MaxInt64 / 10_000_000), 0, 0, 0}, math.MaxInt64 / 10_000_000 * Tick, 0},
	} {
		p := mustParse(t, statText("cat", "S", c.fields...))
		assert.Equal(t, c.cpu, p.CPU, name)
		assert.Equal(t, c.childCPU, p.ChildCPU, name)
	}
	p := mustParse(t, statText("cat", "S", 4194304, 0, 0, 0, 0, 0, int64(math.MaxInt64)))
	assert.Equal(t, int32(4194304), p.Parent)
	assert.Equal(t, int32(math.MaxInt32), p.Threads)
	p = mustParse(t, statText("cat", "S", -1))
	assert.Equal(t, int32(0), p.Parent)
}

func TestMalformedStatsAreErrors(t *testing.T) {
	whole := statText("cat", "S")
	for name, text := range map[string]string{
		"empty":                    "",
		"blank":                    "\n",
		"no brackets":              strings.NewReplacer("(", "", ")", "").Replace(whole),
		"brackets the wrong way":   strings.NewReplacer("(", ")", ")", "(").Replace(whole),
		"only a name":              "42 (cat)",
		"a word for a parent":      statText("cat", "S", "one"),
		"a word for flags":         statText("cat", "S", 1, "0x400"),
		"negative user time":       statText("cat", "S", 1, 0, -3),
		"a fraction for user time": statText("cat", "S", 1, 0, "3.5"),
		"a number of 70 bits":      statText("cat", "S", 1, 0, "1180591620717411303424"),
		"a child time of 64 bits":  statText("cat", "S", 1, 0, 0, 0, uint64(math.MaxUint64)),
		"only a sign":              statText("cat", "S", 1, 0, 0, 0, "-"),
		"a start beyond all time":  statText("cat", "S", 1, 0, 0, 0, 0, 0, 1, uint64(math.MaxUint64)),
		"a start that just is not": statText("cat", "S", 1, 0, 0, 0, 0, 0, 1, uint64(math.MaxInt64)/10_000_000+1),
		"bytes of 0":               strings.Repeat("\x00", 100),
	} {
		assert.Error(t, ParseProcess([]byte(text), &proc.Sight{}), name)
	}
}

func TestATruncatedStatIsAnErrorOrComplete(t *testing.T) {
	for _, comm := range []string{"cat", "a) S 1 2 3", "(((", ")))", "x y\nz"} {
		text := statText(comm, "S", 12, 34, 56, 78, 90, 11, 22, 33)
		whole := mustParse(t, text)
		cut := 0
		for n := range len(text) {
			var p proc.Sight
			if err := ParseProcess([]byte(text[:n]), &p); err != nil {
				cut++
				continue
			}
			want := whole
			if p.LastCPU < 0 { // truncated after the times
				want.LastCPU, want.Resident = -1, 0
			}
			require.Equal(t, want, p, "cut to %q", text[:n])
		}
		assert.GreaterOrEqual(t, cut, strings.Index(text, " 33 ")+len(" 33"), "every cut in front of the end of the start time")
	}
}

func TestNodeLines(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want cpuTicks
	}{
		"ten columns":       {"cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n", cpuTicks{1, 2, 3, 4, 5, 6, 7, 8}},
		"four columns":      {"cpu  1 2 3 4\n", cpuTicks{1, 2, 3, 4}},
		"one space":         {"cpu 1 2 3 4 5 6 7 8 9 10\n", cpuTicks{1, 2, 3, 4, 5, 6, 7, 8}},
		"the largest":       {"cpu  18446744073709551615 0 0 0\n", cpuTicks{math.MaxUint64}},
		"blanks at the end": {"cpu  1 2 3 4 5  \n", cpuTicks{1, 2, 3, 4, 5}},
	} {
		got, err := parseNode([]byte(c.text))
		require.NoError(t, err, name)
		assert.Equal(t, c.want, got, name)
	}
	for name, text := range map[string]string{
		"empty":                "",
		"no newline":           "cpu  1 2 3 4 5 6 7 8 9 10",
		"three columns":        "cpu  1 2 3\n",
		"only the name":        "cpu \n",
		"one CPU's line":       "cpu0 1 2 3 4 5 6 7 8 9 10\n",
		"another line first":   "intr 1\ncpu  1 2 3 4\n",
		"a word":               "cpu  1 2 three 4\n",
		"a negative number":    "cpu  1 2 3 -4\n",
		"a word in column six": "cpu  1 2 3 4 5 x\n",
		"a number of 65 bits":  "cpu  18446744073709551616 2 3 4\n",
	} {
		_, err := parseNode([]byte(text))
		assert.Error(t, err, name)
	}
}

func TestUptimes(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1000.00 500.25\n":  1000 * time.Second,
		"0.01 0.00\n":       10 * time.Millisecond,
		"12.34":             12340 * time.Millisecond,
		"315360000.99 1.0 ": 10*365*24*time.Hour + 990*time.Millisecond,
	} {
		got, err := ParseUptime([]byte(text))
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "\n", " ", "1000", "1000.", "1000.5 1", ".50", "-1.00", "1.000", "1e3.00", "1.0x", "99999999999999999999.00", "9223372036854775807.00"} {
		_, err := ParseUptime([]byte(text))
		assert.Error(t, err, "%q", text)
	}
}

func TestTasksOfTheSystem(t *testing.T) {
	got, newest, err := parseTasks([]byte("0.20 0.18 0.12 1/4194304 11206\n"))
	require.NoError(t, err)
	assert.Equal(t, uint64(4194304), got)
	assert.Equal(t, uint64(11206), newest)
	for _, text := range []string{"", "0.20 0.18 0.12", "0.20 0.18 0.12 1", "0.20 0.18 0.12 1/", "0.20 0.18 0.12 1/80",
		"0.20 0.18 0.12 1/80 11206", "0.20 0.18 0.12 1/80 -5\n",
		"0.20 0.18 0.12 1/x 5\n", "0.20 0.18 0.12 /-5 5\n"} {
		_, _, err := parseTasks([]byte(text))
		assert.Error(t, err, "%q", text)
	}
}

func FuzzParseProcess(f *testing.F) {
	for _, comm := range []string{"cat", "a) S 1 2", "(x", "\xff\n", ""} {
		f.Add([]byte(statText(comm, "S")))
		f.Add([]byte(statText(comm, "Z", 4194304, 0x208040, uint64(math.MaxUint64), 5, -6, 7, 1, 1)))
	}
	f.Add([]byte("1 (init) S 0 1 1 0 -1 4194560"))
	f.Add([]byte(""))
	f.Add([]byte(")("))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p proc.Sight
		if ParseProcess(b, &p) != nil {
			return
		}
		if p.Parent < 0 || p.Threads < 0 || p.Threads == 0 && !bytes.Contains(b, []byte("-")) || p.Start < 0 || p.Start%time.Duration(Tick) != 0 {
			t.Fatalf("%q is %+v", b, p)
		}
		if p.CPU > 2*math.MaxInt64 || p.ChildCPU > 2*math.MaxInt64 || p.Comm[len(p.Comm)-1] != 0 {
			t.Fatalf("%q is %+v", b, p)
		}
		// Formatting a parsed process and parsing it again gives the same process.
		flags, state := 0, "S"
		if p.Is(proc.Kernel) {
			flags = pfKthread
		}
		if p.Is(proc.Zombie) {
			state = "Z"
		}
		if p.CPU > math.MaxInt64 || p.ChildCPU > math.MaxInt64 || p.CPU%Tick != 0 || p.ChildCPU%Tick != 0 || p.Threads == 0 {
			return // the sum of two times, or out of range in ticks
		}
		comm, _, _ := bytes.Cut(p.Comm[:], []byte{0})
		q := mustParse(t, statText(string(comm), state, p.Parent, flags, uint64(p.CPU/Tick), 0, 0, uint64(p.ChildCPU/Tick), p.Threads, int64(p.Start)/int64(Tick),
			p.Resident/pageSize, p.LastCPU))
		p.Comm = q.Comm // ends at the first NUL
		if q != p {
			t.Fatalf("%q is %+v, and again %+v", b, p, q)
		}
	})
}

func FuzzParseNode(f *testing.F) {
	f.Add([]byte("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4\n"))
	f.Add([]byte("cpu  1 2 3 4\n"))
	f.Add([]byte("cpu  18446744073709551615 1 1 18446744073709551615 18446744073709551615\n"))
	f.Add([]byte("cpu  1 2 3"))
	f.Fuzz(func(t *testing.T, b []byte) {
		now, err := parseNode(b)
		if err != nil {
			return
		}
		var n Node
		n.add(&cpuTicks{}, &now, now.measuresInterrupts())
		if n.Process+n.Interrupt > n.Busy || n.Busy > n.Total {
			t.Fatalf("%q is %+v", b, n)
		}
		if again, err := parseNode(append(b, "cpu0 9 9 9 9\n"...)); err != nil || again != now {
			t.Fatalf("%q is %v, with another line %v, %v", b, now, again, err)
		}
	})
}

func FuzzParsePID(f *testing.F) {
	for _, s := range []string{
		"1", "4194304", "2147483647", "2147483648", "18446744073709551617", "", "0", "01", "-1", "+1", "1 ", " 1", "1a", "self", "..", "१",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, name []byte) {
		pid, ok := parsePID(name)
		n, err := strconv.ParseInt(string(name), 10, 32)
		canonical := err == nil && n > 0 && strconv.FormatInt(n, 10) == string(name)
		if ok != canonical || ok && int64(pid) != n {
			t.Fatalf("%q is %d, %v", name, pid, ok)
		}
	})
}

func TestIgnoresSIGCHLD(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tx\nSigIgn:\t0000000000010000\nSigCgt:\t0\n": true,
		"Name:\tx\nSigIgn:\tffffffffffffffff\n":             true,
		"Name:\tx\nSigIgn:\tfffffffffffeffff\n":             false,
		"Name:\tx\nSigIgn:\t0000000000000000\n":             false,
		"Name:\tx\nSigIgn:\t10000":                          true,
		"Name:\tx\nSigIgn:\t1000":                           false,
		"Name:\tx\nSigIgn:\tx0000\n":                        false,
		"Name:\tSigIgn:\t0000000000010000\n":                false,
		"":                                                  false,
	} {
		assert.Equal(t, want, IgnoresSIGCHLD([]byte(status)), status)
	}
}
