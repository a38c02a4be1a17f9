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
	"github.com/energyreceiver/energyreceiver/internal/power/model/machine"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
)

// meterZone is a zone of the collector, as hw.energy or hw.host.energy reports it, or all zones of a kind together, as
// system.energy does.
type meterZone struct {
	id    string
	kind  string // hw.type: cpu, memory, gpu, ...; host for the whole machine
	part  bool   // inside a zone of its kind: cores
	reads []calibration.Point
}

// record holds the data of a collector over some time: the energy of its zones in joules, and its
// CPU utilization.
type record struct {
	zones map[string]*meterZone
	// kinds has the zone kinds by their name and source, as in "package measured".
	kinds       map[string]*meterZone
	utilization []calibration.Point
	// machine is where the collector ran, nil if that is not known.
	machine *machine.Machine
}

func newRecord() *record {
	return &record{zones: map[string]*meterZone{}, kinds: map[string]*meterZone{}}
}

const (
	recordHeader = "time,kind,part,id,value"
	// machineMark begins the line that describes the machine.
	machineMark = "#machine "
	// ofSystem is the kind of the energy in system.energy.
	ofSystem = "system"
)

// write writes the record as lines of time, kind, whether it is a part, ID and value.
func (r *record) write(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, recordHeader)
	if r.machine != nil {
		text, err := trained.EncodeMachine(r.machine)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s%s\n", machineMark, text)
	}
	for _, p := range r.utilization {
		fmt.Fprintf(out, "%.3f,utilization,,,%s\n", p.Time, number(p.Value))
	}
	for _, zones := range []map[string]*meterZone{r.kinds, r.zones} {
		for _, id := range slices.Sorted(maps.Keys(zones)) {
			z := zones[id]
			for _, p := range z.reads {
				fmt.Fprintf(out, "%.3f,%s,%t,%q,%s\n", p.Time, z.kind, z.part, z.id, number(p.Value))
			}
		}
	}
	return out.Flush()
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

var errNoRecord = fmt.Errorf("not a record of the command energy, which begins with %q", recordHeader)

// readRecord reads what write wrote.
func readRecord(in io.Reader) (*record, error) {
	r := newRecord()
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
	if text, ok := strings.CutPrefix(line, machineMark); ok {
		m, err := trained.ParseMachine([]byte(text))
		r.machine = &m
		return err
	}
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
	zones := r.zones
	if kind == ofSystem {
		zones = r.kinds
	}
	z := zones[id]
	if z == nil {
		z = &meterZone{id: id, kind: kind, part: part}
		zones[id] = z
	}
	return z
}

// add adds a reading, unless it is one that is known.
func (z *meterZone) add(p calibration.Point) {
	if n := len(z.reads); n == 0 || p.Time > z.reads[n-1].Time {
		z.reads = append(z.reads, p)
	}
}

// take adds what a scrape at the time found. Samples without a time of their own have that of the
// scrape, if the collector has measured since the one before: then an energy or the utilization is
// another. What cannot be is left out.
func (r *record) take(families map[string]*dto.MetricFamily, now time.Time) {
	measured := r.takeKinds(families["system_energy_joules_total"].GetMetric(), now)
	for name, whole := range map[string]bool{"hw_energy_joules_total": false, "hw_host_energy_joules_total": true} {
		for _, m := range families[name].GetMetric() {
			measured = r.takeEnergy(m, whole, now) || measured
		}
	}
	for _, m := range families["system_cpu_busy_ratio"].GetMetric() {
		p := calibration.Point{Time: timeOf(m, now), Value: valueOf(m)}
		n := len(r.utilization)
		isNew := n == 0 || m.TimestampMs != nil || measured || p.Value != r.utilization[n-1].Value
		if isNew && isShare(p.Value) && (n == 0 || p.Time > r.utilization[n-1].Time) {
			r.utilization = append(r.utilization, p)
		}
	}
}

func isShare(v float64) bool { return v >= 0 && v <= 1 }

// takeEnergy adds the energy of a zone, and reports whether it is another than before.
func (r *record) takeEnergy(m *dto.Metric, whole bool, now time.Time) bool {
	labels := labelsOf(m)
	kind := labels["hw_type"]
	if whole || kind == "enclosure" || kind == "power_supply" {
		kind = "host"
	}
	z := r.zone(labels["hw_id"], cmp.Or(kind, "other"), kind == "cpu" && labels["hw_parent"] != "")
	return z.takeEnergy(valueOf(m), m, now)
}

// takeKinds adds the energy of each zone kind, active and idle together, and reports whether one is
// another than before.
func (r *record) takeKinds(metrics []*dto.Metric, now time.Time) bool {
	states := map[string][]*dto.Metric{}
	for _, m := range metrics {
		labels := labelsOf(m)
		id := labels[labelZone] + " " + labels[labelSource]
		states[id] = append(states[id], m)
	}
	changed := false
	for id, of := range states {
		if len(of) == 2 && of[0].GetTimestampMs() == of[1].GetTimestampMs() {
			changed = r.zone(id, ofSystem, false).takeEnergy(valueOf(of[0])+valueOf(of[1]), of[0], now) || changed
		}
	}
	return changed
}

// takeEnergy adds an energy that a metric reports, and reports whether it is another than before.
func (z *meterZone) takeEnergy(joules float64, m *dto.Metric, now time.Time) bool {
	if !(joules >= 0 && joules <= math.MaxFloat64) {
		return false
	}
	n := len(z.reads)
	changed := n > 0 && z.reads[n-1].Value != joules
	if n == 0 || changed || m.TimestampMs != nil {
		z.add(calibration.Point{Time: timeOf(m, now), Value: joules})
	}
	return changed
}

func timeOf(m *dto.Metric, now time.Time) float64 {
	if m.TimestampMs != nil {
		return float64(m.GetTimestampMs()) / 1e3
	}
	return float64(now.UnixMilli()) / 1e3
}

// longestSilence is the maximum time without an answer of the collector, and firstAnswer the
// maximum time until its first answer.
const longestSilence, firstAnswer = time.Minute, 10 * time.Second

// collect scrapes the endpoint until ctx ends, which ends the record, or the collector does not
// answer for longestSilence or reports no CPU utilization. It returns the record with the error,
// too.
func collect(ctx context.Context, client *http.Client, endpoint string, every time.Duration) (*record, error) {
	r := newRecord()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	answered, silence := time.Now(), firstAnswer
	var failed error // error of the last request, nil after an answer
	for {
		found, err := fetch(ctx, client, endpoint)
		switch {
		case err == nil:
			answered, silence = time.Now(), longestSilence
			r.take(found, answered)
			if r.hasNoUtilization() {
				return r, errNoUtilization
			}
		case ctx.Err() != nil:
			err = cmp.Or(failed, err)
		case time.Since(answered) >= silence:
			return r, fmt.Errorf("no answer from %s for %v: %w", endpoint, silence, err)
		}
		failed = err
		select {
		case <-ctx.Done():
			if silence == firstAnswer {
				return r, fmt.Errorf("no answer from %s: %w", endpoint, failed)
			}
			return r, nil
		case <-ticker.C:
		}
	}
}

var errNoUtilization = errors.New("the collector does not report system.cpu.busy: add `metrics: {system.cpu.busy: {enabled: true}}` to the receiver")

// hasNoUtilization reports whether enough collections are known to say that the collector does not
// report CPU utilization, which the first of them may lack.
func (r *record) hasNoUtilization() bool {
	const enough = 4
	known := func(z *meterZone) bool { return len(z.reads) >= enough }
	return len(r.utilization) == 0 && slices.ContainsFunc(slices.Collect(maps.Values(r.zones)), known)
}

func (r *record) isEmpty() bool {
	return len(r.utilization) == 0 && len(r.zones) == 0 && len(r.kinds) == 0
}

// check returns an error where the record cannot be used.
func (r *record) check() error {
	switch {
	case len(r.utilization) == 0 && len(r.zones) == 0:
		return errors.New("the collector reports neither energy nor CPU utilization: is the endpoint that of its Prometheus exporter?")
	case len(r.utilization) == 0:
		return errNoUtilization
	}
	for _, p := range r.utilization {
		if !isShare(p.Value) {
			return fmt.Errorf("a CPU utilization of %v is none", p.Value)
		}
	}
	return nil
}
