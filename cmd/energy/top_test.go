// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/screen"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
)

// The test binary acts as energy itself, if this variable is set.
const standIn = "ENERGY_TOP_TEST_STAND_IN"

func TestMain(m *testing.M) {
	onScreen := func(open opener) error {
		t, err := screen.Open()
		if err != nil {
			return err
		}
		return untilDone(func(ctx context.Context) error {
			return runScreen(ctx, options{interval: time.Second, endpoint: defaultEndpoint}, t, open)
		})(nil, nil)
	}
	switch os.Getenv(standIn) {
	case "":
		time.Local = time.UTC
		os.Exit(m.Run())
	case "energy":
		main()
	case "panics":
		err := onScreen(func(context.Context, options) (*source, error) { panic("out of order") })
		fmt.Fprintln(os.Stderr, "it did not panic:", err)
	case "hangs":
		top, _, _ := rootCommand().Find([]string{"top"})
		os.Exit(printError(top, onScreen(openHanging)))
	}
}

// exposition is the response of an exporter without timestamps.
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

func onceOptions(endpoint string) options {
	return options{
		endpoint: endpoint, given: endpoint != defaultEndpoint, rows: 10, interval: 20 * time.Millisecond, wait: 200 * time.Millisecond,
		once: true, plain: true,
	}
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL + "/metrics"
}

// serveTexts serves texts one after the other, and the last one from then on.
func serveTexts(t *testing.T, texts ...string) string {
	t.Helper()
	var calls atomic.Int32
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, texts[min(int(calls.Add(1)), len(texts))-1])
	})
}

// freeAddress returns a loopback address that only this process uses, so that no other takes the
// port in between.
func freeAddress(t *testing.T) string {
	t.Helper()
	own := net.IPv4(127, byte(1+os.Getpid()>>16), byte(os.Getpid()>>8), byte(os.Getpid()))
	l, err := net.Listen("tcp", net.JoinHostPort(own.String(), "0"))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}

var clock = regexp.MustCompile(`\d\d:\d\d:\d\d`)

// once returns the output of top for an endpoint.
func once(t *testing.T, endpoint string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), onceOptions(endpoint), &out)
	return out.String(), err
}

func TestTablesOfAnEndpoint(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	for _, name := range []string{"measured", "mixed", "kepler"} {
		got, err := once(t, serveTexts(t, read(t, "testdata/"+name+".prom")))
		require.NoError(t, err)
		got = clock.ReplaceAllString(strings.Replace(got, "  "+host+"  ", "  HOST  ", 1), "HH:MM:SS")
		golden.Equal(t, name+".golden", got)
		requireVisible(t, got)
	}
}

func TestOnceWaitsForFigures(t *testing.T) {
	o := onceOptions(serveTexts(t, "", "", read(t, "testdata/modeled.prom")))
	o.wait = time.Minute
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), o, &out))
	assert.Contains(t, out.String(), "12345")
}

func TestNotesAreRepeatedOnlyAfterAFailure(t *testing.T) {
	var out bytes.Buffer
	p := &printer{to: &out}
	require.NoError(t, p.explain(t.Context(), "Measuring", false, []string{"modeled"}))
	require.NoError(t, p.explain(t.Context(), "No figures", true, []string{"modeled"}))
	assert.Equal(t, "Measuring\nNo figures\nmodeled\n", out.String())
}

func TestOnlyAContradictionIsAnError(t *testing.T) {
	whole := exposition(10, 1, map[string]float64{"a": 4, "b": 5})
	_, err := once(t, serveTexts(t, exposition(10, 1, map[string]float64{"b": 5})))
	require.NoError(t, err, "a has ended before")
	_, err = once(t, serveTexts(t, exposition(9.999999, 1, map[string]float64{"a": 4, "b": 5}), whole))
	require.NoError(t, err, "the exporter was read while a collection arrived")
	out, err := once(t, serveTexts(t, exposition(9.999999, 1, map[string]float64{"a": 4, "b": 5})))
	require.ErrorContains(t, err, "10.000000 J, more than the active energy of 9.999999 J")
	assert.Contains(t, out, "the sums are wrong")
}

func TestAJSONDocumentAddsUp(t *testing.T) {
	o := onceOptions(serveTexts(t, read(t, "testdata/measured.prom")))
	o.json = true
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), o, &out))
	var document struct {
		ActiveJoules float64 `json:"active_joules"`
		Since        *time.Time
		Views        map[string][]struct{ Joules float64 }
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &document))
	assert.InDelta(t, 93.700001, document.ActiveJoules, 1e-9)
	assert.Nil(t, document.Since, "the text format has no starts")
	for _, view := range []string{"programs", "processes", "pods", "vms"} {
		sum := 0.0
		for _, row := range document.Views[view] {
			sum += row.Joules
		}
		assert.InDelta(t, document.ActiveJoules, sum, 1e-9, view)
	}
}

func TestOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, full.Close()) }()
	for _, change := range []func(*options){func(*options) {}, func(o *options) { o.json = true }, func(o *options) { o.once = false }} {
		o := onceOptions(serveTexts(t, read(t, "testdata/measured.prom")))
		change(&o)
		require.EqualError(t, run(t.Context(), o, full), "write /dev/full: no space left on device")
	}
}

func TestOnlyAScreenIsReadFasterAtFirst(t *testing.T) {
	f := &follower{options: options{interval: 2 * time.Second}}
	assert.Equal(t, soonAgain, f.next(soonAgain), "no figures yet")
	f.frame = &top.Frame{}
	assert.Equal(t, 2*soonAgain, f.next(soonAgain))
	assert.Equal(t, f.interval, f.next(f.interval))
	f.plain = true
	assert.Equal(t, f.interval, f.next(soonAgain))
}

func TestFiguresOfAnotherEndpointCannotControlTheTerminal(t *testing.T) {
	hostile := "a\u202eb\u200f\u2066\u3164\u2028\x1b[2J\u009b\ufe0f"
	got, err := once(t, serveTexts(t, strings.ReplaceAll(exposition(1, 0, map[string]float64{"NAME": 1}), "NAME", hostile)))
	require.NoError(t, err)
	requireVisible(t, got)
	assert.Contains(t, got, "a?b?")
	_, err = once(t, serveTexts(t, "# TYPE "+hostile+" gauge\n"+hostile+" {1\n")) // the error quotes it
	require.Error(t, err)
	o := onceOptions(serveTexts(t, "# TYPE "+hostile+" gauge\n"+hostile+" {1\n"))
	o.once, o.limit = false, time.Millisecond
	var out bytes.Buffer
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

func TestATableFollowsOnlyNewFigures(t *testing.T) {
	reading := func(joules float64) string { return exposition(joules, 0, map[string]float64{"a": joules}) }
	o := onceOptions(serveTexts(t, reading(1), reading(1), reading(1), reading(2), ""))
	o.once = false
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	out := &tables{enough: cancel}
	require.NoError(t, run(ctx, o, out))
	assert.Equal(t, 2, strings.Count(out.String(), "PROCESS"))
	assert.Contains(t, out.String(), "No new figures: the response has no energy figures", "they are not shown as if they were new")

	o.endpoint, o.json = serveTexts(t, reading(1), reading(1), reading(1), reading(2), ""), true
	ctx, cancel = context.WithCancel(t.Context())
	out = &tables{enough: cancel}
	require.NoError(t, run(ctx, o, out))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	assert.Len(t, lines, 2)
	for _, line := range lines {
		assert.True(t, json.Valid([]byte(line)), line)
	}

	o.limit = time.Millisecond
	if err := run(t.Context(), o, io.Discard); err != nil { // it ends by itself
		require.ErrorContains(t, err, "no figures", "the machine is busy")
	}
}

// tables calls enough once an explanation has been written to it.
type tables struct {
	bytes.Buffer
	enough context.CancelFunc
}

func (w *tables) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), "No new figures") || strings.Count(w.String(), `"schema"`) == 2 {
		w.enough()
	}
	return n, err
}
