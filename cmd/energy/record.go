// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/calibration"
)

// meterZone is a zone of the collector, as hw.energy or hw.host.energy reports it.
type meterZone struct {
	id    string
	kind  string // hw.type: cpu, memory, gpu, ...; host for the whole machine
	part  bool   // inside a zone of its kind: cores
	reads []calibration.Point
}

// record is what a collector said over some time: the energy of its zones in joules, and its CPU utilization.
type record struct {
	zones       map[string]*meterZone
	utilization []calibration.Point
}

const recordHeader = "time,kind,part,id,value"

// write writes the record as lines of time, kind, whether it is a part, ID and value.
func (r *record) write(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, recordHeader)
	for _, p := range r.utilization {
		fmt.Fprintf(out, "%.3f,utilization,,,%s\n", p.Time, number(p.Value))
	}
	for _, id := range slices.Sorted(maps.Keys(r.zones)) {
		z := r.zones[id]
		for _, p := range z.reads {
			fmt.Fprintf(out, "%.3f,%s,%t,%q,%s\n", p.Time, z.kind, z.part, z.id, number(p.Value))
		}
	}
	return out.Flush()
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

var errNoRecord = fmt.Errorf("not a record of energy calibrate, which begins with %q", recordHeader)

// readRecord reads what write wrote.
func readRecord(in io.Reader) (*record, error) {
	r := &record{zones: map[string]*meterZone{}}
	lines := bufio.NewScanner(in)
	if !lines.Scan() || lines.Text() != recordHeader {
		return nil, errNoRecord
	}
	for n := 2; lines.Scan(); n++ {
		if err := r.parseLine(lines.Text()); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return r, lines.Err()
}

func (r *record) parseLine(line string) error {
	head := strings.SplitN(line, ",", 4)
	at := strings.LastIndexByte(line, ',')
	if len(head) < 4 {
		return fmt.Errorf("%q is cut short", line)
	}
	seconds, err := strconv.ParseFloat(head[0], 64)
	value, err2 := strconv.ParseFloat(line[at+1:], 64)
	if err := cmp.Or(err, err2); err != nil {
		return err
	}
	if !(seconds > 0 && seconds < math.MaxInt32*2) || math.IsInf(value, 0) {
		return fmt.Errorf("%q is no time and value", line)
	}
	id := strings.TrimSuffix(head[3], line[at:])
	if id != "" {
		if id, err = strconv.Unquote(id); err != nil {
			return fmt.Errorf("the ID in %q: %w", line, err)
		}
	}
	p := calibration.Point{Time: seconds, Value: value}
	if head[1] == "utilization" {
		r.utilization = append(r.utilization, p)
		return nil
	}
	r.zone(id, head[1], head[2] == "true").add(p)
	return nil
}

func (r *record) zone(id, kind string, part bool) *meterZone {
	z := r.zones[id]
	if z == nil {
		z = &meterZone{id: id, kind: kind, part: part}
		r.zones[id] = z
	}
	return z
}

// add adds a reading, unless it is one that is known.
func (z *meterZone) add(p calibration.Point) {
	if n := len(z.reads); n == 0 || p.Time > z.reads[n-1].Time {
		z.reads = append(z.reads, p)
	}
}

// take adds what a scrape at the time found. Samples without a time of their own have that of the scrape, if the collector has
// measured since the one before: then an energy or the utilization is another.
func (r *record) take(families map[string]*dto.MetricFamily, now time.Time) {
	measured := false
	for name, whole := range map[string]bool{"hw_energy_joules_total": false, "hw_host_energy_joules_total": true} {
		for _, m := range families[name].GetMetric() {
			measured = r.takeEnergy(m, whole, now) || measured
		}
	}
	for _, m := range families["system_cpu_utilization_ratio"].GetMetric() {
		p := calibration.Point{Time: timeOf(m, now), Value: valueOf(m)}
		n := len(r.utilization)
		isNew := n == 0 || m.TimestampMs != nil || measured || p.Value != r.utilization[n-1].Value
		if isNew && (n == 0 || p.Time > r.utilization[n-1].Time) {
			r.utilization = append(r.utilization, p)
		}
	}
}

// takeEnergy adds the energy of a zone, and reports whether it has grown.
func (r *record) takeEnergy(m *dto.Metric, whole bool, now time.Time) bool {
	labels := labelsOf(m)
	kind := labels["hw_type"]
	if whole {
		kind = "host"
	}
	z := r.zone(labels["hw_id"], cmp.Or(kind, "other"), kind == "cpu" && labels["hw_parent"] != "")
	n := len(z.reads)
	grown := n > 0 && z.reads[n-1].Value != valueOf(m)
	if n == 0 || grown || m.TimestampMs != nil {
		z.add(calibration.Point{Time: timeOf(m, now), Value: valueOf(m)})
	}
	return grown
}

func timeOf(m *dto.Metric, now time.Time) float64 {
	if m.TimestampMs != nil {
		return float64(m.GetTimestampMs()) / 1e3
	}
	return float64(now.UnixMilli()) / 1e3
}

// collect scrapes the endpoint until ctx is done, which ends the record, or the collector did not answer for longer than patience.
// It returns the record with the error, too.
func collect(ctx context.Context, client *http.Client, endpoint string, every, patience time.Duration) (*record, error) {
	r := &record{zones: map[string]*meterZone{}}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	answered := time.Now()
	for {
		found, err := fetch(ctx, client, endpoint)
		switch {
		case ctx.Err() != nil:
			return r, nil
		case err == nil:
			answered = time.Now()
			r.take(found, answered)
		case time.Since(answered) >= patience:
			return r, fmt.Errorf("no answer from %s for %v: %w", endpoint, patience, err)
		}
		select {
		case <-ctx.Done():
			return r, nil
		case <-ticker.C:
		}
	}
}

var errNoUtilization = errors.New("the collector does not report system.cpu.utilization: add `metrics: {system.cpu.utilization: {enabled: true}}` to the receiver")

// check returns an error where the record cannot be used.
func (r *record) check() error {
	switch {
	case len(r.utilization) == 0 && len(r.zones) == 0:
		return errors.New("the collector reports neither energy nor CPU utilization: is the endpoint that of its Prometheus exporter?")
	case len(r.utilization) == 0:
		return errNoUtilization
	}
	for _, p := range r.utilization {
		if math.IsNaN(p.Value) || p.Value < 0 || p.Value > 1 {
			return fmt.Errorf("a CPU utilization of %v is none", p.Value)
		}
	}
	return nil
}
