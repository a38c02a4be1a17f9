// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/encoding/protodelim"
)

// maxBody is the maximum size of a response: 64 MiB hold about 100,000 processes.
const maxBody = 64 << 20

// answersWithin is the maximum duration of a request.
const answersWithin = 5 * time.Second

// Scrape reads the Prometheus exporter at an endpoint.
func Scrape(ctx context.Context, client *http.Client, endpoint string) (*Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, http.NoBody)
	if err != nil {
		return nil, err
	}
	// The text format has no start timestamps.
	req.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim))+";q=1,text/plain;version=0.0.4;q=0.5")
	res, err := client.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.Is(err, syscall.ECONNREFUSED) && errors.As(err, &op) {
			return nil, fmt.Errorf("no process listens on %s: %w", op.Addr, syscall.ECONNREFUSED)
		}
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the response is %s", res.Status)
	}
	body := io.LimitReader(res.Body, maxBody)
	if expfmt.ResponseFormat(res.Header).FormatType() == expfmt.TypeProtoDelim {
		found, err := messages(body)
		if err != nil {
			return nil, fmt.Errorf("not the Prometheus protobuf format: %w", err)
		}
		return fromFamilies(found, time.Now())
	}
	return FromPrometheus(body)
}

// AddTelemetry adds the conditions and the expected errors that a collector reports about its
// receivers at another endpoint, if there are any.
func (s *Snapshot) AddTelemetry(ctx context.Context, client *http.Client, endpoint string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if of, err := Scrape(ctx, client, endpoint); err == nil {
		s.SetExpectedErrors(of.expected)
		s.Notes = append(s.Notes, of.Notes...)
	}
}

// FromPrometheus reads the Prometheus text format. If it has no timestamps, At is the current time.
func FromPrometheus(r io.Reader) (*Snapshot, error) {
	found, err := texts(r)
	if err != nil {
		return nil, fmt.Errorf("not the Prometheus text format: %w", err)
	}
	return fromFamilies(found, time.Now())
}

// families are metric families by name.
type families map[string]*dto.MetricFamily

// texts parses the text format.
func texts(r io.Reader) (found families, err error) {
	defer func() { // the parser panics on a sample without a name after a TYPE line
		if p := recover(); p != nil {
			found, err = nil, fmt.Errorf("the parser failed: %v", p)
		}
	}()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(r)
}

// messages parses the delimited protobuf format.
func messages(r io.Reader) (families, error) {
	found, buffered := families{}, bufio.NewReader(r)
	for {
		family := &dto.MetricFamily{}
		switch err := (protodelim.UnmarshalOptions{MaxSize: maxBody}).UnmarshalFrom(buffered, family); {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, err
		}
		found[family.GetName()] = family
	}
}

func fromFamilies(found families, now time.Time) (*Snapshot, error) {
	s := read(found.own)
	if len(s.Zones) == 0 {
		switch other := read(found.kepler); {
		case len(other.Zones) > 0:
			s = other
			s.Kepler, s.Notes = true, []string{keplerNote}
		case found.isOldKepler():
			return nil, errOldKepler
		}
	}
	if s.At.IsZero() && (len(s.Zones) > 0 || !math.IsNaN(s.Busy)) {
		s.At, s.Untimed = now, true
	}
	return s, nil
}

// own calls each with the data points of a metric of the receiver.
func (f families) own(m *metric, each func(*point)) {
	for _, sample := range f[m.prometheus()].GetMetric() {
		p := pointOf(sample)
		for _, l := range sample.GetLabel() {
			if attribute, ok := prometheusAttributes[l.GetName()]; ok {
				p.labels[attribute] = strings.ToValidUTF8(l.GetValue(), "?")
			}
		}
		each(&p)
	}
}

// pointOf returns a data point without labels.
func pointOf(m *dto.Metric) (p point) {
	switch {
	case m.GetCounter() != nil:
		p.value = m.GetCounter().GetValue()
		if start := m.GetCounter().GetCreatedTimestamp(); start != nil {
			p.start = start.AsTime()
		}
	case m.GetGauge() != nil:
		p.value = m.GetGauge().GetValue()
	default:
		p.value = m.GetUntyped().GetValue()
	}
	if m.TimestampMs != nil {
		p.at = time.UnixMilli(m.GetTimestampMs()).UTC()
	}
	return p
}
