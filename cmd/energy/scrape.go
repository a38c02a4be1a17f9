// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// fetch reads the metrics of an endpoint.
func fetch(ctx context.Context, client *http.Client, endpoint string) (map[string]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	res, err := client.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.Is(err, syscall.ECONNREFUSED) && errors.As(err, &op) {
			return nil, fmt.Errorf("nothing listens on %s", op.Addr)
		}
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", res.Status)
	}
	found, err := families(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("not the Prometheus text format: %w", err)
	}
	return found, nil
}

// families reads the Prometheus text format.
func families(r io.Reader) (families map[string]*dto.MetricFamily, err error) {
	defer func() { // the parser panics on a sample without a name after a TYPE line
		if p := recover(); p != nil {
			families, err = nil, fmt.Errorf("the parser failed: %v", p)
		}
	}()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(r)
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := make(map[string]string, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}
func valueOf(m *dto.Metric) float64 {
	switch {
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	}
	return m.GetUntyped().GetValue()
}

// maxBody is the maximum size of a response.
const maxBody = 64 << 20

const (
	labelZone   = "energy_zone"
	labelSource = "energy_method"
)
