// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// prometheusServer is a Prometheus that the test has started.
type prometheusServer struct {
	url string
	dir string // of its program and promtool
}

// promSeries is a series in an answer. In the answer to an instant query it has one sample.
type promSeries struct {
	labels  map[string]string
	samples []promSample
}

type promSample struct {
	at    time.Time
	value float64
}

// shipped returns the path of a file in deploy/.
func shipped(t *testing.T, elements ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{"../../../deploy"}, elements...)...))
	require.NoError(t, err)
	return path
}

// prometheusPrograms builds prometheus and promtool from the modules in prometheus/go.mod, once.
func prometheusPrograms(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(cache(t), "prometheus")
	built := run(t, exec.Command("../stores/build.sh", "prometheus"))
	if strings.Contains(built, "could not build") {
		t.Skipf("lacks Prometheus: %s", built)
	}
	return dir
}

var listening = regexp.MustCompile(`msg="Listening on" .*address=(127\.0\.0\.1:\d+)`)

// subqueryStep is the step of a rule's sum, the interval of the previous rule.
var subqueryStep = regexp.MustCompile(`(\[1d:)5m\]`)

var ruleInterval = regexp.MustCompile(`(?m)^(\s*(?:evaluation_)?interval:) \w+$`)

// startPrometheus starts Prometheus with the shipped configuration. Its rules are evaluated every
// second, so that the test is short.
func startPrometheus(t *testing.T) *prometheusServer {
	t.Helper()
	config := t.TempDir()
	for _, name := range []string{"prometheus.yaml", "rules.yaml", "price-fixed.yaml"} {
		text, err := os.ReadFile(shipped(t, "prometheus", name))
		require.NoError(t, err)
		text = bytes.ReplaceAll(text, []byte("rule_files: [rules.yaml]"), []byte("rule_files: [rules.yaml, price-fixed.yaml]"))
		text = subqueryStep.ReplaceAll(ruleInterval.ReplaceAll(text, []byte("$1 1s")), []byte("${1}1s]"))
		require.NoError(t, os.WriteFile(filepath.Join(config, name), text, 0o600))
	}
	return startPrometheusWith(t, filepath.Join(config, "prometheus.yaml"))
}

// startPrometheusWith starts Prometheus with a configuration and an empty database on a loopback
// port. Its blocks are long enough for a day of past samples.
func startPrometheusWith(t *testing.T, config string) *prometheusServer {
	t.Helper()
	programs := prometheusPrograms(t)
	logPath := filepath.Join(programs, strings.ToLower(t.Name())+".log")
	cmd := exec.Command(filepath.Join(programs, "prometheus"), "--config.file="+config,
		"--web.enable-otlp-receiver", "--web.listen-address=127.0.0.1:0", "--storage.tsdb.path="+t.TempDir(),
		"--storage.tsdb.min-block-duration=4d", "--storage.tsdb.max-block-duration=4d")
	ended := startDaemon(t, cmd, logPath)
	p := &prometheusServer{dir: programs}
	eventually(t, "Prometheus is ready, its log is in "+logPath, func() bool {
		select {
		case <-ended:
			t.Fatalf("Prometheus ended: %s", lastLine(logPath))
		default:
		}
		if p.url == "" {
			log, _ := os.ReadFile(logPath) // may not exist yet
			if found := listening.FindSubmatch(log); found != nil {
				p.url = "http://" + string(found[1])
			}
			return false
		}
		answer, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return p
}

// query evaluates PromQL at a time.
func (p *prometheusServer) query(t *testing.T, at time.Time, promQL string) []promSeries {
	t.Helper()
	found, err := p.ask("query", url.Values{"query": {promQL}, "time": {promTime(at)}})
	require.NoError(t, err, promQL)
	return found
}

// await waits until PromQL returns a result, and returns it.
func (p *prometheusServer) await(t *testing.T, promQL string) (found []promSeries) {
	t.Helper()
	eventually(t, "Prometheus has "+promQL, func() bool {
		found = p.query(t, time.Now(), promQL)
		return len(found) > 0
	})
	return found
}

func promTime(at time.Time) string {
	return strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)
}

// ask calls the API: https://prometheus.io/docs/prometheus/latest/querying/api/
func (p *prometheusServer) ask(what string, values url.Values) ([]promSeries, error) {
	answer, err := http.PostForm(p.url+"/api/v1/"+what, values)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	type sample [2]any
	var decoded struct {
		Error string
		Data  struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &decoded); err != nil {
		return nil, fmt.Errorf("%s: %w", answer.Status, err)
	}
	if decoded.Error != "" {
		return nil, fmt.Errorf("%s: %s", answer.Status, decoded.Error)
	}
	if kind := decoded.Data.ResultType; kind != "vector" && kind != "matrix" {
		return nil, fmt.Errorf("the result is a %s", kind)
	}
	var list []struct {
		Metric map[string]string
		Value  *sample
		Values []sample
	}
	if err := json.Unmarshal(decoded.Data.Result, &list); err != nil {
		return nil, err
	}
	var found []promSeries
	for _, l := range list {
		if l.Value != nil {
			l.Values = []sample{*l.Value}
		}
		s := promSeries{labels: l.Metric}
		for _, v := range l.Values {
			at, isTime := v[0].(float64)
			text, isText := v[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			if !isTime || !isText || err != nil {
				return nil, fmt.Errorf("not a sample: %v", v)
			}
			s.samples = append(s.samples, promSample{time.UnixMilli(int64(math.Round(at * 1000))), value})
		}
		found = append(found, s)
	}
	return found, nil
}

// value returns the only value of a query, or NaN without a result.
func (p *prometheusServer) value(t *testing.T, at time.Time, promQL string) float64 {
	t.Helper()
	found := p.query(t, at, promQL)
	if len(found) == 0 {
		return math.NaN()
	}
	require.Len(t, found, 1, promQL)
	return found[0].samples[0].value
}

// samples returns the samples of the only matching series in a half-open period.
func (p *prometheusServer) samples(t *testing.T, selector string, after, until time.Time) []promSample {
	t.Helper()
	found := p.query(t, until, fmt.Sprintf("%s[%dms]", selector, max(1, until.Sub(after).Milliseconds())))
	if len(found) == 0 {
		return nil
	}
	require.Len(t, found, 1, selector)
	return found[0].samples
}

// startShipped starts a collector with the configuration shipped for Prometheus and some replaced
// settings.
func (p *prometheusServer) startShipped(t *testing.T, name, settings string) *collector {
	t.Helper()
	overlay := filepath.Join(t.TempDir(), "settings.yaml")
	require.NoError(t, os.WriteFile(overlay, []byte(settings), 0o600))
	c := &collector{log: filepath.Join(p.dir, strings.ToLower(t.Name())+"-"+name+".log")}
	c.cmd = exec.Command(collectorBinary(t), "--config", shipped(t, "prometheus", "collector.yaml"), "--config", overlay)
	c.cmd.Env = append(os.Environ(), "PROMETHEUS="+p.url)
	c.ended = startDaemon(t, c.cmd, c.log)
	return c
}

// pipelinePower is the power of the zones, in watts.
var pipelinePower = map[string]float64{"intel-rapl:0": 120, "intel-rapl:0:0": 15}

// sensorSettings makes the collector read a sensor of startSensor every second.
const sensorSettings = `
receivers:
  energy:
    root_path: ROOT
    meters: {use: [powercap]}
    model: none
    attribution: {preset: kepler}
    collection_interval: 1s
    initial_delay: 0s
`
