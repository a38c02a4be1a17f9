// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
)

const (
	askWithin = 10 * time.Second
	maxAnswer = 4 << 20
)

// victoria is the metric in which VictoriaMetrics reports its version. Its build information is that
// of a Prometheus.
var victoria = regexp.MustCompile(`vm_app_version\{[^}]*short_version="v?([0-9.]+)`)

// AskBackend asks a metrics database at a URL for its version.
func AskBackend(ctx context.Context, url string) *Backend {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	url = strings.TrimSuffix(url, "/")
	if text, err := ask(ctx, url+"/metrics"); err == nil {
		if found := victoria.FindSubmatch(text); found != nil {
			return &Backend{Name: "VictoriaMetrics", Version: string(found[1])}
		}
	}
	text, err := ask(ctx, url+"/api/v1/status/buildinfo")
	if err != nil {
		return &Backend{Err: "it does not answer like Prometheus: " + statusOnly(err)}
	}
	var info struct {
		Data struct {
			Application string `json:"application"` // of Mimir
			Version     string `json:"version"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &info); err != nil || info.Data.Version == "" {
		return &Backend{Err: "its build information is not understood"}
	}
	name := "Prometheus"
	if info.Data.Application != "" {
		name = info.Data.Application
	}
	return &Backend{Name: name, Version: info.Data.Version}
}

// statusError is an answer that is not a success.
type statusError int

func (s statusError) Error() string { return fmt.Sprintf("HTTP status %d", int(s)) }

// statusOnly returns an error without the address, which a report does not contain.
func statusOnly(err error) string {
	if s, ok := err.(statusError); ok { //nolint:errorlint // ask returns it as it is
		return s.Error()
	}
	return "no answer"
}

func ask(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	if response.StatusCode != http.StatusOK {
		return nil, statusError(response.StatusCode)
	}
	return io.ReadAll(io.LimitReader(response.Body, maxAnswer))
}
