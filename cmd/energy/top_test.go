// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/screen"
)

// The test binary acts as the collector, or as energy itself, if this variable is set.
const standIn = "ENERGY_TOP_TEST_STAND_IN"

func TestMain(m *testing.M) {
	switch os.Getenv(standIn) {
	case "":
		os.Exit(m.Run())
	case "energy":
		main()
	case "panics":
		t, err := screen.Open()
		if err == nil {
			err = runScreen(context.Background(), options{interval: time.Second}, t, func(context.Context, options) (*opened, error) { panic("out of order") })
		}
		fmt.Fprintln(os.Stderr, "it did not panic:", err)
	case "hangs":
		top, _, _ := rootCommand().Find([]string{"top"})
		os.Exit(printError(top, untilDone(func(ctx context.Context) error {
			t, err := screen.Open()
			if err != nil {
				return err
			}
			return runScreen(ctx, options{interval: time.Second, endpoint: defaultEndpoint}, t, openHanging)
		})(top, nil)))
	case "dies":
		fmt.Fprintln(os.Stderr, "Error: no such receiver")
		os.Exit(1)
	case "serves":
		file := os.Getenv("ENERGY_TOP_TEST_FILE")
		fmt.Fprintf(os.Stderr, "%d\twarn\tx.go:1\tsomething is odd\t{\"a\": 1, \"error\": \"this and that\"}\n", os.Getpid())
		err := http.ListenAndServe(os.Getenv("ENERGY_TOP_TEST_ADDRESS"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.ServeFile(w, r, file)
		}))
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func load(t *testing.T, name string) *snapshot {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return parseText(t, string(data))
}

func parse(r io.Reader) (*snapshot, error) {
	found, err := families(r)
	if err != nil {
		return nil, err
	}
	return snapshotOf(found), nil
}

func parseText(t *testing.T, text string) *snapshot {
	t.Helper()
	s, err := parse(strings.NewReader(text))
	require.NoError(t, err)
	return s
}

func TestTables(t *testing.T) {
	for _, tt := range []struct {
		name string
		rows int
	}{
		{"measured", 3},
		{"modeled", 10},
		{"mixed", 10}, // package is modeled, two GPUs are measured, and one process used both
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := load(t, tt.name+".prom")
			l := ledger{strict: true}
			sums := l.add(s)
			require.NoError(t, sums.err())
			got := render(s, sums, tt.rows, time.Date(2026, 1, 2, 14, 3, 5, 0, time.UTC))
			golden.Equal(t, tt.name+".golden", got)
			assert.NotContains(t, got, "\x1b", "a process's name must not steer the terminal")
		})
	}
}

func TestAProcessThatEndedHasNoPower(t *testing.T) {
	for _, p := range load(t, "measured.prom").processes {
		if p.labels["process_executable_name"] == "cc1plus" {
			assert.True(t, p.ended)
			assert.Zero(t, p.power)
			assert.Equal(t, microjoules(15_500_000), p.energy)
			return
		}
	}
	t.Fatal("cc1plus is missing")
}

func exposition(active, unattributed float64, processes map[string]float64) string {
	var b strings.Builder
	b.WriteString("# TYPE system_energy_joules_total counter\n")
	fmt.Fprintf(&b, "system_energy_joules_total{energy_state=\"active\",energy_zone=\"package\"} %v\n", active)
	b.WriteString("# TYPE system_unattributed_energy_joules_total counter\n")
	fmt.Fprintf(&b, "system_unattributed_energy_joules_total{energy_zone=\"package\"} %v\n", unattributed)
	b.WriteString("# TYPE process_energy_joules_total counter\n")
	for name, energy := range processes {
		fmt.Fprintf(&b, "process_energy_joules_total{energy_zone=\"package\",process_executable_name=%q,process_pid=\"1\"} %v\n", name, energy)
	}
	return b.String()
}

func TestProcessesAndUnattributedAddUpToActive(t *testing.T) {
	first := exposition(10, 1, map[string]float64{"a": 4, "b": 5})
	later := exposition(13, 1, map[string]float64{"b": 8}) // a ended and its series was dropped
	wrong := exposition(13.000001, 1, map[string]float64{"a": 4, "b": 8})
	gap := exposition(10, 1, map[string]float64{"b": 5})

	t.Run("a dropped series stays in the sum", func(t *testing.T) {
		l := ledger{strict: true}
		require.NoError(t, l.add(parseText(t, first)).err())
		c := l.add(parseText(t, later))
		require.NoError(t, c.err())
		assert.Equal(t, microjoules(4_000_000), c.ended)
		require.NoError(t, l.add(parseText(t, later)).err(), "the same scrape again")
	})
	t.Run("one microjoule is seen", func(t *testing.T) {
		l := ledger{strict: true}
		require.NoError(t, l.add(parseText(t, first)).err())
		require.ErrorContains(t, l.add(parseText(t, wrong)).err(), "13.000001")
	})
	t.Run("processes that ended before the first table are shown separately", func(t *testing.T) {
		l := ledger{}
		c := l.add(parseText(t, gap))
		require.NoError(t, c.err())
		assert.Equal(t, microjoules(4_000_000), c.earlier)
		c = l.add(parseText(t, later))
		require.NoError(t, c.err())
		assert.Equal(t, microjoules(4_000_000), c.earlier)
	})
	t.Run("but not in a collector that was started here", func(t *testing.T) {
		l := ledger{strict: true}
		require.Error(t, l.add(parseText(t, gap)).err())
	})
	t.Run("a collector that starts anew", func(t *testing.T) {
		l := ledger{strict: true}
		require.NoError(t, l.add(parseText(t, first)).err())
		require.NoError(t, l.add(parseText(t, exposition(2, 0, map[string]float64{"b": 2}))).err())
	})
}

// Platform holds the GPUs: their energy is not added to it.
func TestGPUsAreNotAddedToTheWholeMachine(t *testing.T) {
	s := parseText(t, `# TYPE system_energy_joules_total counter
system_energy_joules_total{energy_state="active",energy_zone="platform"} 10
system_energy_joules_total{energy_state="active",energy_zone="gpu"} 4
# TYPE process_energy_joules_total counter
process_energy_joules_total{process_pid="7",energy_zone="platform"} 10
process_energy_joules_total{process_pid="7",energy_zone="gpu"} 4
# TYPE process_power_watts gauge
process_power_watts{process_pid="7",energy_zone="platform"} 5
process_power_watts{process_pid="7",energy_zone="gpu"} 2
`)
	l := ledger{strict: true}
	require.NoError(t, l.add(s).err())
	require.Len(t, s.processes, 1)
	assert.InDelta(t, 10, s.processes[0].energy.joules(), 1e-9)
	assert.InDelta(t, 5, s.processes[0].power, 1e-9)
	assert.InDelta(t, 2, s.processes[0].gpu, 1e-9)
	assert.Contains(t, render(s, check{}, 1, time.Now()), "gpu (not added to platform)")
}

func TestIdleEnergyIsNotShownForWorkloads(t *testing.T) {
	s := parseText(t, `# TYPE system_energy_joules_total counter
system_energy_joules_total{energy_state="active",energy_zone="package"} 10
system_energy_joules_total{energy_state="idle",energy_zone="package"} 30
# TYPE system_unattributed_energy_joules_total counter
system_unattributed_energy_joules_total{energy_state="active",energy_zone="package"} 4
system_unattributed_energy_joules_total{energy_state="idle",energy_zone="package"} 5
# TYPE process_energy_joules_total counter
process_energy_joules_total{process_pid="7",energy_state="active",energy_zone="package"} 6
process_energy_joules_total{process_pid="7",energy_state="idle",energy_zone="package"} 25
`)
	require.Len(t, s.processes, 1)
	assert.InDelta(t, 6, s.processes[0].energy.joules(), 1e-9)
	require.Len(t, s.zones, 1)
	assert.InDelta(t, 4, s.zones[0].unattributed.joules(), 1e-9)
}

func TestParseRejectsOtherText(t *testing.T) {
	for _, text := range []string{"<html>no</html>", "a{b=\"c\" 1\n", "x 1 2 3 4\n"} {
		_, err := parse(strings.NewReader(text))
		require.Error(t, err, text)
	}
	s, err := parse(strings.NewReader(""))
	require.NoError(t, err)
	assert.False(t, s.hasFigures())
}

// FuzzTable renders arbitrary responses of an endpoint, and adds them up.
func FuzzTable(f *testing.F) {
	for _, name := range []string{"measured.prom", "modeled.prom"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte(exposition(3, 1, map[string]float64{"a": 2})))
	f.Add([]byte(exposition(math.NaN(), math.Inf(1), map[string]float64{"\xff\x1b[2J": math.Inf(-1), strings.Repeat("ü", 300): 1e300})))
	f.Add([]byte("# TYPE process_power_watts gauge\nprocess_power_watts{process_pid=\"-1\",energy_zone=\"\"} NaN 9223372036854775807\n"))
	f.Add([]byte("# TYPE process_energy_joules_total histogram\nprocess_energy_joules_total_bucket{le=\"1\"} 1\n"))
	f.Add([]byte("<html>"))
	f.Add([]byte("# TYPE A \n{}0"))
	f.Add([]byte("# TYPE system_power_watts gauge\nsystem_power_watts{energy_zone=\"\x1b[2J\",energy_state=\"active\"} 1\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parse(bytes.NewReader(text))
		if err != nil {
			return
		}
		l := ledger{}
		sums := l.add(s)
		_ = sums.err() // sums that do not add up are an error, not a panic
		got := render(s, sums, 10, time.Date(2026, 1, 2, 14, 3, 5, 0, time.UTC))
		assert.True(t, utf8.ValidString(got))
		for _, r := range got {
			assert.True(t, r == '\n' || unicode.IsPrint(r), "%q steers the terminal", r)
		}
	})
}

// FuzzNote reads the newest warning of arbitrary logs.
func FuzzNote(f *testing.F) {
	f.Add([]byte("2026-01-02T14:03:05.000Z\twarn\treceiver/conditions.go:1\tCollection degraded\t{\"condition\": \"energy zones\", \"error\": \"permission denied\"}\n"))
	f.Add([]byte("x\terror\ty\t\x1b[2J\xff\t{\"error\": \"\x07\n"))
	f.Add([]byte("a\twarn\tb\n"))
	f.Add([]byte("\n\t\t\t\t\n"))
	f.Fuzz(func(t *testing.T, log []byte) {
		path := filepath.Join(t.TempDir(), "log")
		require.NoError(t, os.WriteFile(path, log, 0o600))
		got := logTail{path}.note()
		if got != "" {
			kind, _, _ := strings.Cut(got, ":")
			assert.Contains(t, []string{"warn", "error"}, kind)
			assert.Contains(t, string(log), "\t"+kind+"\t")
		}
		for _, r := range strings.TrimSuffix(got, path+")") {
			assert.True(t, unicode.IsPrint(r), "%q steers the terminal", r)
		}
	})
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"--interval", "0s"}, {"--rows", "0"}, {"--wait", "-1s"}, {"-nope"}, {"--", "otelcol"}} {
		_, err := parsed[options](args)
		require.Error(t, err, args)
	}
	o, err := parsed[options]([]string{"--log", "x", "--", "otelcol", "--config", "c"})
	require.NoError(t, err)
	assert.Equal(t, []string{"otelcol", "--config", "c"}, o.command)
}

func onceOptions(endpoint string) options {
	return options{endpoint: endpoint, given: endpoint != defaultEndpoint, rows: 10, interval: 20 * time.Millisecond, wait: 200 * time.Millisecond, once: true}
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL + "/metrics"
}

// freeAddress returns a loopback address that only this process uses, so that no other takes the port in between.
func freeAddress(t *testing.T) string {
	t.Helper()
	own := net.IPv4(127, byte(1+os.Getpid()>>16), byte(os.Getpid()>>8), byte(os.Getpid()))
	l, err := net.Listen("tcp", net.JoinHostPort(own.String(), "0"))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}

func TestOnce(t *testing.T) {
	modeled, err := os.ReadFile("testdata/modeled.prom")
	require.NoError(t, err)

	t.Run("waits for the first figures", func(t *testing.T) {
		var calls atomic.Int32
		endpoint := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) > 2 {
				_, _ = w.Write(modeled)
			}
		})
		o := onceOptions(endpoint)
		o.wait = time.Minute
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), o, &out))
		assert.Contains(t, out.String(), "MODELED")
		assert.NotContains(t, out.String(), "\x1b")
	})
	t.Run("no figures", func(t *testing.T) {
		endpoint := serve(t, func(http.ResponseWriter, *http.Request) {})
		require.ErrorContains(t, run(t.Context(), onceOptions(endpoint), io.Discard), "no energy figures")
	})
	t.Run("nothing there", func(t *testing.T) {
		err := run(t.Context(), onceOptions("http://"+freeAddress(t)+"/metrics"), io.Discard)
		require.ErrorContains(t, err, "nothing listens on 127.")
		require.ErrorContains(t, err, "make run")
	})
	t.Run("something else there", func(t *testing.T) {
		endpoint := serve(t, http.NotFound)
		require.ErrorContains(t, run(t.Context(), onceOptions(endpoint), io.Discard), "404")
	})
	t.Run("a sum that is wrong", func(t *testing.T) {
		endpoint := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, exposition(1, 1, map[string]float64{"a": 1}))
		})
		var out bytes.Buffer
		require.ErrorContains(t, run(t.Context(), onceOptions(endpoint), &out), "the sum is wrong")
		assert.Contains(t, out.String(), "IS NOT")
	})
}

func TestNothingInvisibleReachesTheTerminal(t *testing.T) {
	hostile := "a\u202eb\u200f\u2066\u3164\u2028\x1b[2J\u009b\ufe0f"
	body := strings.ReplaceAll(exposition(1, 0, map[string]float64{"NAME": 1}), "NAME", hostile)
	endpoint := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, body)
	})
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), onceOptions(endpoint), &out))
	requireVisible(t, out.String())
	assert.Contains(t, out.String(), "a?b?")
	assert.Contains(t, out.String(), "\n"+figure.Pad(hostile, 27)+"        1 ", "the name takes its column")

	body = "# TYPE " + hostile + " gauge\n" + hostile + " {1\n" // what is wrong is quoted
	o := onceOptions(endpoint)
	o.once, o.limit = false, time.Millisecond
	out.Reset()
	_ = run(t.Context(), o, &out)
	requireVisible(t, out.String())
}

// requireVisible requires that all characters of a text are visible.
func requireVisible(t *testing.T, text string) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		require.Equal(t, figure.Clean(line), line)
	}
}

func TestTablesFollowEachOther(t *testing.T) {
	modeled, err := os.ReadFile("testdata/modeled.prom")
	require.NoError(t, err)
	endpoint := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(modeled) })
	o := onceOptions(endpoint)
	o.once = false
	ctx, cancel := context.WithCancel(t.Context())
	out := &tables{enough: cancel}
	require.NoError(t, run(ctx, o, out))
	assert.NotContains(t, out.String(), "\x1b")

	o.limit = time.Millisecond
	require.NoError(t, run(t.Context(), o, io.Discard), "it ends by itself")
}

// tables calls enough once two tables have been written to it.
type tables struct {
	bytes.Buffer
	enough context.CancelFunc
}

func (w *tables) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Count(w.String(), "PROCESS") == 2 {
		w.enough()
	}
	return n, err
}

// started returns the options that make the test binary the collector.
func started(t *testing.T, role string) options {
	t.Helper()
	address := freeAddress(t)
	file, err := filepath.Abs("testdata/modeled.prom")
	require.NoError(t, err)
	t.Setenv(standIn, role)
	t.Setenv("ENERGY_TOP_TEST_ADDRESS", address)
	t.Setenv("ENERGY_TOP_TEST_FILE", file)
	o := onceOptions("http://" + address + "/metrics")
	o.wait = time.Minute
	o.logFile = filepath.Join(t.TempDir(), "collector.log")
	o.command = []string{os.Args[0]}
	return o
}

func TestACommandIsStartedAndStopped(t *testing.T) {
	check := func(t *testing.T, o options) {
		t.Helper()
		log, err := os.ReadFile(o.logFile)
		require.NoError(t, err)
		var pid int
		_, err = fmt.Sscanf(string(log), "%d", &pid)
		require.NoError(t, err)
		assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "it must not run any more")
	}
	t.Run("once", func(t *testing.T) {
		o := started(t, "serves")
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), o, &out))
		assert.Contains(t, out.String(), "12345")
		assert.Contains(t, out.String(), "warn: something is odd: this and that   (1 in ")
		check(t, o)
	})
	t.Run("until it is interrupted", func(t *testing.T) {
		o := started(t, "serves")
		o.once = false
		ctx, cancel := context.WithCancel(t.Context())
		reader, writer := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- run(ctx, o, writer)
			_ = writer.Close()
		}()
		lines := bufio.NewScanner(reader)
		for seen := false; !seen; seen = strings.HasPrefix(lines.Text(), "PROCESS") {
			if !lines.Scan() {
				t.Fatal(<-ended)
			}
		}
		cancel()
		_, _ = io.Copy(io.Discard, reader)
		require.NoError(t, <-ended)
		check(t, o)
	})
	t.Run("it dies at once", func(t *testing.T) {
		o := started(t, "dies")
		err := run(t.Context(), o, io.Discard)
		require.ErrorContains(t, err, "ended by itself")
		require.ErrorContains(t, err, "no such receiver")
	})
	t.Run("it is not there", func(t *testing.T) {
		o := started(t, "dies")
		o.command = []string{filepath.Join(t.TempDir(), "nope")}
		require.ErrorContains(t, run(t.Context(), o, io.Discard), "cannot start the collector")
	})
	t.Run("the port is taken", func(t *testing.T) {
		o := started(t, "serves")
		o.endpoint = serve(t, http.NotFound)
		require.ErrorContains(t, run(t.Context(), o, io.Discard), "is in use")
		assert.NoFileExists(t, o.logFile)
	})
}

func TestIDsAreShortenedInEachPart(t *testing.T) {
	a, b := strings.Repeat("a1", 32), strings.Repeat("b2", 32)
	for id, want := range map[string]string{
		a:                                      a[:12],
		a + "/" + b:                            a[:12] + "/" + b[:12],
		a + "/" + a + "/" + b:                  a[:12] + "/" + a[:12] + "/" + b[:12],
		"user@1000.service/" + b:               "user@1000.service/" + b[:12],
		"0a1b2c3d-0000-4000-8000-00000000000a": "0a1b2c3d",
		"web":                                  "web",
	} {
		if got := short(id); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
}
