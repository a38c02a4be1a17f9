// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// clickHouse is ClickHouse behind its HTTP interface, with the tables of the collector's exporter.
type clickHouse struct {
	relay
	address string
	waiting pmetric.Metrics
}

// batch is the number of resources per request. An insert of one takes as long as an insert of
// many.
const batch = 20_000

func openClickHouse(t *testing.T, dir string) (backend, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("%w node", errLacks)
	}
	modules, err := program(t, "clickhouse", "node_modules")
	if err != nil {
		return nil, err
	}
	server, err := filepath.Abs("clickhouse/server.mjs")
	if err != nil {
		return nil, err
	}
	endpoint := series.FreeAddress()
	cmd := exec.Command(node, server, filepath.Join(dir, "clickhouse"), series.PortOf(endpoint))
	cmd.Dir = filepath.Dir(modules)
	c := &clickHouse{address: "http://" + endpoint, waiting: pmetric.NewMetrics()}
	if err := start(t, cmd, filepath.Join(dir, "log"), c.address); err != nil {
		return nil, err
	}
	binary, err := program(t, "otelcol-stores", "otelcol-stores")
	if err != nil {
		return nil, err
	}
	c.relay, err = openRelay(t, dir, binary, "clickhouse",
		"{endpoint: "+c.address+", compress: none, async_insert: false, timeout: 1m, sending_queue: {enabled: false}, retry_on_failure: {enabled: false}}")
	return c, err
}

func (c *clickHouse) send(_ time.Time, md pmetric.Metrics) error {
	md.ResourceMetrics().MoveAndAppendTo(c.waiting.ResourceMetrics())
	if c.waiting.ResourceMetrics().Len() < batch {
		return nil
	}
	return c.settle()
}

// settle sends what waits.
func (c *clickHouse) settle() error {
	err := post(c.otlp, c.waiting)
	c.waiting = pmetric.NewMetrics()
	return err
}

var nowInSQL = regexp.MustCompile(`\bnow\(\)`)

// Query runs a query at a time, which replaces now(). The column joules is the value of a row, the
// other columns are its labels.
func (c *clickHouse) Query(text string, at time.Time) (rows []series.Row, err error) {
	sql := nowInSQL.ReplaceAllString(text, fmt.Sprintf("toDateTime(%d)", at.Unix()))
	answer, err := http.Post(c.address+"?default_format=JSONEachRow", "text/plain", strings.NewReader(sql))
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(answer.Body)
		return nil, fmt.Errorf("%s: %s", answer.Status, said)
	}
	for decoder := json.NewDecoder(answer.Body); decoder.More(); {
		var columns map[string]any
		if err := decoder.Decode(&columns); err != nil {
			return nil, err
		}
		r := series.Row{Labels: map[string]string{}}
		for name, value := range columns {
			if joules, ok := value.(float64); ok && name == "joules" {
				r.Value = joules
			} else {
				r.Labels[name] = fmt.Sprint(value)
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}
