// SPDX-License-Identifier: Apache-2.0

//go:build linux

package series

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// Prometheus is the query API of Prometheus, or of a database with the same API. It ends in
// /api/v1.
type Prometheus string

// Row is a row of an answer. The database determines the names of labels.
type Row struct {
	Labels map[string]string
	Value  float64
}

// Query returns the result of an instant query:
// https://prometheus.io/docs/prometheus/latest/querying/api/
func (p Prometheus) Query(text string, at time.Time) (rows []Row, err error) {
	answer, err := http.PostForm(string(p)+"/query", url.Values{
		"query": {text}, "time": {strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)},
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var decoded struct {
		Error string
		Data  struct {
			ResultType string
			Result     []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&decoded); err != nil {
		return nil, fmt.Errorf("%s: %w", answer.Status, err)
	}
	if decoded.Error != "" || decoded.Data.ResultType != "vector" {
		return nil, fmt.Errorf("%s: %s %s", answer.Status, decoded.Data.ResultType, decoded.Error)
	}
	for _, r := range decoded.Data.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		rows = append(rows, Row{r.Metric, value})
	}
	return rows, nil
}

// StartPrometheus starts Prometheus, which accepts OTLP below the address of its API. Its blocks
// are long enough to accept an hour of the past.
func StartPrometheus(binary, dir, config string, flags ...string) (*Program, Prometheus, error) {
	address := FreeAddress()
	p := &Program{Log: filepath.Join(dir, "prometheus.log"), Command: exec.Command(binary, append(flags, "--config.file="+config,
		"--web.enable-otlp-receiver", "--web.enable-remote-write-receiver", "--web.listen-address="+address,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--query.max-samples=500000000",
		"--storage.tsdb.min-block-duration=4d", "--storage.tsdb.max-block-duration=4d", "--storage.tsdb.retention.time=100y")...)}
	return p, Prometheus("http://" + address + "/api/v1"), p.Start("http://" + address + "/-/ready")
}

// StartMimir starts n processes of Mimir that form a cluster below dir, each with all parts of
// Mimir and one of at most three copies of a sample. It returns their addresses. root is the
// checkout. Resource attributes become labels as in the shipped configuration of Prometheus.
func StartMimir(root, binary, dir string, n int, flags ...string) (programs []*Program, addresses []string, err error) {
	promoted, err := promotedAttributes(root)
	if err != nil {
		return nil, nil, err
	}
	config, err := filepath.Abs(filepath.Join(root, "receiver/test/stores/mimir/mimir.yaml"))
	if err != nil {
		return nil, nil, err
	}
	var members []string
	for range n {
		addresses, members = append(addresses, FreeAddress()), append(members, FreeAddress())
	}
	started := make(chan error)
	for i, address := range addresses {
		name := fmt.Sprintf("store-%d", i+1)
		cmd := exec.Command(binary, append(flags, "-config.file="+config, "-config.expand-env=true")...)
		cmd.Dir = filepath.Join(dir, name)
		if err := os.MkdirAll(cmd.Dir, 0o700); err != nil {
			return nil, nil, err
		}
		cmd.Env = append(os.Environ(), "PORT="+PortOf(address), "GRPC_PORT="+PortOf(FreeAddress()), "GOSSIP_PORT="+PortOf(members[i]),
			"PROMOTED="+promoted, "MIMIR_NAME="+name, "MIMIR_MEMBERS="+strings.Join(members, ","),
			"MIMIR_COPIES="+strconv.Itoa(min(n, 3)), "MIMIR_SHARED="+filepath.Join(dir, "blocks"))
		p := &Program{Command: cmd, Log: filepath.Join(dir, name+".log")}
		programs = append(programs, p)
		go func() { started <- p.Start("http://" + address + "/ready") }()
	}
	for range programs { // they wait for each other
		err = errors.Join(err, <-started)
	}
	return programs, addresses, err
}

// PortOf returns the port of an address.
func PortOf(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

var promotedItem = regexp.MustCompile(`(?m)^    - ([a-z0-9._]+)`)

// promotedAttributes returns the resource attributes that the shipped configuration of Prometheus
// converts to labels, separated by commas.
func promotedAttributes(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/prometheus/prometheus.yaml"))
	var names []string
	for _, item := range promotedItem.FindAllSubmatch(text, -1) {
		names = append(names, string(item[1]))
	}
	return strings.Join(names, ","), err
}

// Export sends a packed request of OTLP over HTTP, and returns the number of rejected points. An
// error after which exporters do not retry is permanent:
// https://opentelemetry.io/docs/specs/otlp/#otlphttp-response
func Export(ctx context.Context, client *http.Client, url string, packed []byte) (rejected int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(packed))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "gzip")
	answer, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	switch answer.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		response := pmetricotlp.NewExportResponse()
		err := response.UnmarshalProto(text)
		return int(response.PartialSuccess().RejectedDataPoints()), err
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 0, fmt.Errorf("%s: %q", answer.Status, text)
	}
	return 0, consumererror.NewPermanent(fmt.Errorf("%s: %q", answer.Status, text))
}
