// SPDX-License-Identifier: Apache-2.0

package period

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/report"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
)

// Options select the contents of a report.
type Options struct {
	By    string   // one of Groupings
	Span           // a whole number of steps
	Match []string // matchers of PromQL for all series
	Rules bool     // read the rules of deploy/prometheus/rules.yaml in place of the counters
	Rows  int      // number of rows. Rows with the largest changes are added
	Rates report.Rates
	// Progress is called after each query, unless it is nil.
	Progress func(done, all int)
}

// reading is the data of a period, and of the period before with as many steps.
type reading struct {
	Options
	queries
	server                     *Server
	both                       Span
	steps                      int       // of a period
	active, idle, unattributed []float64 // of all steps
	rows                       map[string]*total
	zones                      map[Zone]float64     // energy in the period
	nodes                      map[string][]float64 // covered share of all steps
	notes                      []string
}

// total is the energy of a row, and its steps and parts in the period.
type total struct {
	joules, before float64
	steps          []float64
	parts          map[string]float64
}

// Limits of rows and of parts of a row.
const (
	maxRows  = 2000
	maxParts = 1000
)

// Read reads a report.
func Read(ctx context.Context, s *Server, o Options) (*Document, error) {
	n := int(o.To.Sub(o.From) / StepLength)
	r := &reading{
		Options: o, server: s, both: Span{o.From.Add(o.From.Sub(o.To)), o.To}, steps: n,
		active: make([]float64, 2*n), idle: make([]float64, 2*n), unattributed: make([]float64, 2*n),
		rows: map[string]*total{}, zones: map[Zone]float64{}, nodes: map[string][]float64{},
		queries: queries{grouping: groupings[o.By], rules: o.Rules},
	}
	for _, m := range o.Match {
		r.match += "," + m
	}
	err := r.detect(ctx)
	for first, atOnce := 0, 24; first < 2*n && err == nil; first += atOnce {
		atOnce = min(atOnce, 2*n-first)
		for i, ask := range []func() (string, taker){r.ofNodes, r.ofUnattributed, r.ofRows, r.ofSlots} {
			query, take := ask()
			if err = r.read(ctx, query, first, atOnce, take); err != nil {
				break
			}
			if o.Progress != nil {
				o.Progress(4*first+atOnce*(i+1), 8*n)
			}
		}
	}
	if err == nil && len(r.nodes) == 0 {
		err = errNoData
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s, err)
	}
	return r.document(), nil
}

var errNoData = errors.New("there is no energy of nodes in these periods: " +
	"no series of system.energy, in any translation of its name, or with --rules of node:energy_joules:increase5m")

// detect finds the names of the metrics, and whether energies overlap.
func (r *reading) detect(ctx context.Context) error {
	if r.Rules && r.rule == "" {
		return fmt.Errorf("there are no recording rules for --by %s", r.By)
	}
	if r.names = translations[0]; r.Rules {
		return nil
	}
	node, vm := snapshot.NodeEnergyMetric, snapshot.VM.EnergyMetric()
	found, err := r.server.values(ctx, "__name__", r.anyOf(node, vm), r.both)
	if err != nil {
		return err
	}
	uses := slices.DeleteFunc(slices.Clone(translations), func(n names) bool {
		return !slices.Contains(found, n.metric(node))
	})
	if len(uses) == 0 {
		return errNoData
	}
	r.names, r.guests = uses[0], slices.Contains(found, uses[0].metric(vm))
	if len(uses) > 1 {
		r.note("Only %s is read. The server also has %s", uses[0].metric(node), uses[1].metric(node))
	}
	zones, err := r.server.values(ctx, r.label("energy.zone"), r.energyOf(node, ""), r.both)
	r.overlaps = slices.Contains(zones, "platform") || slices.Contains(zones, "psys")
	return err
}

func (r *reading) note(format string, args ...any) {
	if text := figure.Line(fmt.Sprintf(format, args...)); !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}

// taker returns the function that takes the energy of a series in a step.
type taker func(labels map[string]string) func(step int, value float64)

// read reads the values of a query in n steps. It divides the query if the server refuses it.
func (r *reading) read(ctx context.Context, query string, first, n int, take taker) error {
	start := r.both.From.Add(time.Duration(first) * StepLength)
	found, err := r.server.query(ctx, query, Span{start, start.Add(time.Duration(n) * StepLength)}, StepLength)
	if n > 1 && errors.Is(err, errTooMuch) {
		if err := r.read(ctx, query, first, n/2, take); err != nil {
			return err
		}
		return r.read(ctx, query, first+n/2, n-n/2, take)
	}
	for _, s := range found {
		add := take(s.Metric)
		for _, v := range s.Values {
			at, _ := v[0].(float64)
			text, _ := v[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			step := int(math.Round((at-float64(r.both.From.Unix()))/StepLength.Seconds())) - 1
			if err != nil || math.IsNaN(value) || math.IsInf(value, 0) || step < first || step >= first+n {
				return fmt.Errorf("the response has an invalid value: %v", v)
			}
			add(step, value)
		}
	}
	return err
}

// ofNodes returns the query of the energy of all nodes, and its taker.
func (r *reading) ofNodes() (string, taker) {
	return r.queries.nodes(), func(labels map[string]string) func(int, float64) {
		to := r.active
		if labels[r.label("energy.state")] == "idle" {
			to = r.idle
		}
		zone := Zone{Zone: cmp.Or(labels[r.label("energy.zone")], "all"), Source: labels[r.label("energy.method")]}
		return func(step int, value float64) {
			to[step] += value
			if step >= r.steps {
				r.zones[zone] += value
			}
		}
	}
}

func (r *reading) ofUnattributed() (string, taker) {
	return r.queries.unattributed(), func(map[string]string) func(int, float64) {
		return func(step int, value float64) { r.unattributed[step] += value }
	}
}

func (r *reading) ofSlots() (string, taker) {
	return r.slots(), func(labels map[string]string) func(int, float64) {
		name := labels[r.label("host.name")]
		if r.nodes[name] == nil {
			r.nodes[name] = make([]float64, 2*r.steps)
		}
		return func(step int, value float64) { r.nodes[name][step] = min(1, value*float64(slot)/float64(StepLength)) }
	}
}

func (r *reading) ofRows() (string, taker) {
	return r.perRow(), func(labels map[string]string) func(int, float64) {
		var texts []string
		isNamed := false // by more than its namespace
		for i, label := range r.labels {
			if text := labels[r.label(label)]; text != "" {
				texts, isNamed = append(texts, text), isNamed || i > 0 || len(r.labels) == 1
			}
		}
		if !isNamed {
			return func(int, float64) {} // an overflow series, whose energy is in the rest
		}
		name, part := figure.Line(strings.Join(texts, "/")), figure.Line(labels[r.label(r.part)])
		row := r.rows[name]
		if row == nil {
			r.prune()
			row = &total{steps: make([]float64, r.steps), parts: map[string]float64{}}
			r.rows[name] = row
		}
		return func(step int, value float64) {
			if step < r.steps {
				row.before += value
				return
			}
			row.joules += value
			row.steps[step-r.steps] += value
			if _, isKnown := row.parts[part]; part != "" && (isKnown || len(row.parts) < maxParts) {
				row.parts[part] += value
			}
		}
	}
}

// prune removes the smaller half of the rows if there are too many.
func (r *reading) prune() {
	if len(r.rows) < maxRows {
		return
	}
	r.note("Of at least %d rows, the smallest are in the rest", maxRows)
	for _, name := range r.largest(len(r.rows), func(t *total) float64 { return t.joules + t.before })[maxRows/2:] {
		delete(r.rows, name)
	}
}

// largest returns the names of at most n rows with the largest first.
func (r *reading) largest(n int, size func(*total) float64) (names []string) {
	for name := range r.rows {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(size(r.rows[b]), size(r.rows[a])), cmp.Compare(a, b))
	})
	return names[:min(n, len(names))]
}
