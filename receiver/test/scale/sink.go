// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// sink accepts OTLP and counts the points.
type sink struct {
	away                    time.Time // it rejects requests until then
	requests, bytes, points atomic.Int64
}

// ServeHTTP implements http.Handler.
func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if time.Now().Before(s.away) {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	packed, err := io.ReadAll(r.Body)
	md, decodeErr := series.Unpack(bytes.NewReader(packed))
	if err != nil || decodeErr != nil {
		http.Error(w, fmt.Sprint(err, decodeErr), http.StatusBadRequest)
		return
	}
	s.requests.Add(1)
	s.bytes.Add(int64(len(packed)))
	s.points.Add(int64(md.DataPointCount()))
}

// report waits until all points have arrived, and writes their number.
func (s *sink) report(out io.Writer, points int) error {
	err := series.Until("all points arrive", func() (bool, error) { return s.points.Load() >= int64(points), nil })
	_, _ = fmt.Fprintf(out, "arrived at the sink: %d of %d points, in %d requests of %.1f kB\n",
		s.points.Load(), points, s.requests.Load(), float64(s.bytes.Load())/float64(s.requests.Load())/1e3)
	return err
}
