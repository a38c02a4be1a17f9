// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	zonekind "github.com/energyreceiver/energyreceiver/internal/zone"
)

// maxBody is the most that is read of a response: 64 MiB hold about 100,000 processes.
const maxBody = 64 << 20

// microjoules is energy as the receiver's ledger keeps it, so that sums can be compared exactly.
type microjoules int64

func (e microjoules) joules() float64 { return float64(e) / 1e6 }

func fromJoules(j float64) microjoules { return microjoules(math.Round(j * 1e6)) }

// consumer is one process, container, pod or virtual machine.
type consumer struct {
	key    string // every label that identifies it
	labels map[string]string
	energy microjoules
	power  float64
	gpu    float64 // of which of GPUs
	ended  bool    // its last sample is older than the newest
	// cpuTime is the CPU time since the start of its series, negative if no metric reports it.
	cpuTime time.Duration
}

// gpu is a GPU of the node, as its meter measures it.
type gpu struct {
	id, name           string
	energy             microjoules
	power, utilization float64 // NaN where that is not known
}

// zone is one kind of energy counter of the node.
type zone struct {
	name                       string
	activePower, idlePower     float64
	active, idle, unattributed microjoules
	source                     string // measured, modeled, reported
	besides                    string // zone that it is a part of, or contains, so that it is not added up; empty if it is added
	newest                     int64
}

// snapshot is the content of one scrape.
type snapshot struct {
	zones      []*zone
	gpus       []*gpu
	processes  []*consumer
	containers []*consumer
	pods       []*consumer
	vms        []*consumer
	units      []*consumer // of systemd
	jobs       []*consumer // steps of Slurm jobs
	kepler     bool        // the figures are Kepler's, whose sums need not add up
	host       string      // what the node is called, empty where that is not known
}

// consumers returns those of all kinds.
func (s *snapshot) consumers() []*consumer {
	return slices.Concat(s.processes, s.containers, s.pods, s.vms, s.units, s.jobs)
}

// hasFigures reports whether there is something to show. Kepler may be configured to report no processes.
func (s *snapshot) hasFigures() bool {
	return len(s.zones) > 0 && (len(s.processes) > 0 || s.kepler)
}

// activePower is the power that the consumers share.
func (s *snapshot) activePower() float64 {
	sum := 0.0
	for _, z := range s.zones {
		if z.besides == "" {
			sum += z.activePower
		}
	}
	return sum
}

func scrape(ctx context.Context, endpoint string) (*snapshot, error) {
	found, err := fetch(ctx, http.DefaultClient, endpoint)
	if err != nil {
		return nil, err
	}
	found, kepler, err := fromKepler(found)
	if err != nil {
		return nil, err
	}
	s := snapshotOf(found)
	s.kepler = kepler
	return s, nil
}

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

// snapshotOf reads the receiver's metrics under the names that the Prometheus exporter gives them.
func snapshotOf(families map[string]*dto.MetricFamily) *snapshot {
	s := &snapshot{}
	zones := map[string]*zone{}
	for _, f := range []struct {
		name string
		add  func(z *zone, state string, v float64)
	}{
		{"system_energy_joules_total", func(z *zone, state string, v float64) {
			if state == "active" {
				z.active += fromJoules(v)
			} else {
				z.idle += fromJoules(v)
			}
		}},
		{"system_power_watts", func(z *zone, state string, v float64) {
			if state == "active" {
				z.activePower += v
			} else {
				z.idlePower += v
			}
		}},
		{"system_unattributed_energy_joules_total", func(z *zone, state string, v float64) {
			if state != "idle" {
				z.unattributed += fromJoules(v)
			}
		}},
	} {
		for _, m := range families[f.name].GetMetric() {
			labels := labelsOf(m)
			name := labels[labelZone]
			if zones[name] == nil {
				zones[name] = &zone{name: name}
			}
			f.add(zones[name], labels[labelState], valueOf(m))
			zones[name].newest = max(zones[name].newest, m.GetTimestampMs())
			s.host = cmp.Or(s.host, labels[labelHost])
			if source := labels[labelSource]; source != "" {
				zones[name].source = source
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(zones), zonekind.Compare)
	for _, name := range names {
		zones[name].besides = zonekind.Besides(name, names)
		s.zones = append(s.zones, zones[name])
	}
	s.gpus = gpusOf(families)
	s.processes = consumersOf(families, "process", zones)
	s.containers = consumersOf(families, "container", zones)
	s.pods = consumersOf(families, "k8s_pod", zones)
	s.vms = consumersOf(families, "vm", zones)
	s.units = consumersOf(families, "systemd_unit", zones)
	s.jobs = consumersOf(families, "slurm_step", zones)
	return s
}

// gpusOf returns the node's GPUs, by their hw.id.
func gpusOf(families map[string]*dto.MetricFamily) []*gpu {
	byID := map[string]*gpu{}
	for _, m := range families["hw_energy_joules_total"].GetMetric() {
		if labels := labelsOf(m); labels["hw_type"] == "gpu" {
			byID[labels["hw_id"]] = &gpu{
				id: labels["hw_id"], name: labels["hw_name"], energy: fromJoules(valueOf(m)), power: math.NaN(), utilization: math.NaN(),
			}
		}
	}
	for _, m := range families["hw_power_watts"].GetMetric() {
		if g := byID[labelsOf(m)["hw_id"]]; g != nil {
			g.power = valueOf(m)
		}
	}
	for _, m := range families["hw_gpu_utilization_ratio"].GetMetric() {
		if g := byID[labelsOf(m)["hw_id"]]; g != nil {
			g.utilization = valueOf(m)
		}
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b *gpu) int { return strings.Compare(a.id, b.id) })
}

// consumersOf adds up the zones of each consumer of a kind, by descending power. Shares of idle energy are left out.
func consumersOf(families map[string]*dto.MetricFamily, kind string, zones map[string]*zone) []*consumer {
	energy, power := families[kind+"_energy_joules_total"].GetMetric(), families[kind+"_power_watts"].GetMetric()
	newest := map[string]int64{}
	for _, m := range slices.Concat(energy, power) {
		name := labelsOf(m)[labelZone]
		newest[name] = max(newest[name], m.GetTimestampMs())
		if z := zones[name]; z != nil {
			newest[name] = max(newest[name], z.newest)
		}
	}
	byKey := map[string]*consumer{}
	add := func(m *dto.Metric) (c *consumer, name string, counts bool) {
		labels := labelsOf(m)
		name = labels[labelZone]
		idle := labels[labelState] == "idle"
		for _, label := range []string{labelZone, labelSource, labelState} {
			delete(labels, label)
		}
		key := keyOf(labels)
		c = byKey[key]
		if c == nil {
			c = &consumer{key: key, labels: labels, ended: true, cpuTime: -1}
			byKey[key] = c
		}
		if m.GetTimestampMs() >= newest[name] {
			c.ended = false
		}
		if idle {
			return &consumer{}, "", false // not shown
		}
		z := zones[name]
		return c, name, z == nil || z.besides == ""
	}
	for _, m := range energy {
		if c, _, counts := add(m); counts {
			c.energy += fromJoules(valueOf(m))
		}
	}
	for _, m := range power {
		c, name, counts := add(m)
		if counts {
			c.power += valueOf(m)
		}
		if name == "gpu" {
			c.gpu += valueOf(m)
		}
	}
	for _, m := range families[kind+"_cpu_time_seconds_total"].GetMetric() {
		if c := byKey[keyOf(labelsOf(m))]; c != nil {
			c.cpuTime = time.Duration(valueOf(m) * float64(time.Second))
		}
	}
	all := slices.Collect(maps.Values(byKey))
	for _, c := range all {
		if c.ended {
			c.power, c.gpu = 0, 0
		}
	}
	sortByPower(all)
	return all
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := make(map[string]string, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

func keyOf(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "%s=%q,", name, labels[name])
	}
	return b.String()
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
