// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

const (
	askWithin = 10 * time.Second
	maxAnswer = 4 << 20
)

// victoria is the metric with the version of VictoriaMetrics, whose build information claims to be
// a Prometheus.
var victoria = regexp.MustCompile(`vm_app_version\{[^}]*short_version="v?([0-9.]+)`)

// AskBackend asks a metrics database at a URL for its version.
func AskBackend(ctx context.Context, url string) *Backend {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	url = strings.TrimSuffix(url, "/")
	text, _ := ask(ctx, url+"/metrics") // Prometheus need not have it
	if found := victoria.FindSubmatch(text); found != nil {
		return &Backend{Name: "VictoriaMetrics", Version: string(found[1])}
	}
	text, problem := ask(ctx, url+"/api/v1/status/buildinfo")
	if problem != "" {
		return &Backend{Err: "it has no Prometheus API: " + problem}
	}
	var info struct {
		Data struct {
			Application string `json:"application"` // of Mimir
			Version     string `json:"version"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &info); err != nil || info.Data.Version == "" {
		return &Backend{Err: "its build information has another format"}
	}
	name := figure.Fit(cmp.Or(info.Data.Application, "Prometheus"), figure.Columns)
	return &Backend{Name: name, Version: figure.Fit(info.Data.Version, figure.Columns)}
}

// ask returns the answer to a request, or the problem without the address, which a report does not
// contain.
func ask(ctx context.Context, url string) (text []byte, problem string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, "it is not a valid URL"
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, "no response"
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Sprintf("HTTP status %d", response.StatusCode)
	}
	if text, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer)); err != nil {
		return nil, "the response is incomplete"
	}
	return text, ""
}
