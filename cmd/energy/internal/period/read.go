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

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/report"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	zonekind "github.com/energyreceiver/energyreceiver/internal/zone"
)

// Options select the contents of a report.
type Options struct {
	// By is one of Groupings.
	By string
	// From and To are the bounds of the period, which are a whole number of steps apart.
	From, To time.Time
	Step     time.Duration
	// Match has matchers of PromQL for all series.
	Match []string
	// Rules selects the recording rules of deploy/prometheus/rules.yaml in place of the counters.
	Rules bool
	// Rows is the number of rows. Rows with the largest changes are added.
	Rows  int
	Rates report.Rates
	// Progress is called after each query.
	Progress func(done, all int)
}

// reading is the data of a period and of the period before.
type reading struct {
	Options
	queries
	server                     *Server
	begin                      time.Time // of the period before
	steps                      int       // of a period
	atOnce                     int       // maximum number of steps of a query
	active, idle, unattributed []float64 // of all steps of both periods
	rows                       map[string]*total
	zones                      map[Zone]float64 // energy in the period
	nodes                      map[string][]float32
	notes                      []string
}

// total is the energy of a row.
type total struct {
	joules, before float64
	steps          []float64 // of the period
	parts          map[string]float64
}

// Limits of rows and of parts of a row.
const (
	maxRows  = 5000
	maxParts = 1000
)

// Read reads a report.
func Read(ctx context.Context, s *Server, o Options) (*Document, error) {
	length := o.To.Sub(o.From)
	n := int(length / o.Step)
	r := &reading{
		Options: o, server: s, begin: o.From.Add(-length), steps: n, atOnce: max(1, int(24*time.Hour/o.Step)),
		active: make([]float64, 2*n), idle: make([]float64, 2*n), unattributed: make([]float64, 2*n),
		rows: map[string]*total{}, zones: map[Zone]float64{}, nodes: map[string][]float32{},
		queries: queries{grouping: groupings[o.By], step: o.Step, rules: o.Rules},
	}
	for _, m := range o.Match {
		r.match += "," + m
	}
	if err := r.detect(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", s, err)
	}
	type part struct {
		query string
		take  taker
	}
	parts := []part{
		{r.queries.nodes(), r.takeNodes}, {r.queries.unattributed(), r.takeUnattributed},
		{r.queries.rows(), r.takeRow}, {r.slots(), r.takeSlots},
	}
	for first := 0; first < 2*n; {
		size := min(r.atOnce, 2*n-first)
		for i, p := range parts {
			if err := r.read(ctx, p.query, first, size, p.take); err != nil {
				return nil, err
			}
			if o.Progress != nil {
				o.Progress(len(parts)*first+size*(i+1), len(parts)*2*n)
			}
		}
		r.prune()
		first += size
	}
	return r.document(), nil
}

// detect finds the names of the metrics and which nodes overlap with others.
func (r *reading) detect(ctx context.Context) error {
	vm := snapshot.VM.EnergyMetric()
	wanted := anyOf(r.match, snapshot.NodeEnergyMetric, vm, r.grouping.energy)
	if r.Rules {
		if r.grouping.rule == "" {
			return fmt.Errorf("there are no recording rules for --by %s", r.By)
		}
		wanted = fmt.Sprintf(`{__name__=~"(node|vm|%s):energy_joules:increase5m"%s}`, r.grouping.rule, r.match)
	}
	found, err := r.server.values(ctx, "__name__", wanted, r.begin, r.To)
	if err != nil {
		return err
	}
	if r.Rules {
		r.names, r.guests = translations[0], slices.Contains(found, "vm:energy_joules:increase5m")
		if !slices.Contains(found, nodeRule) {
			return fmt.Errorf("no series of the recording rule %s in this period", nodeRule)
		}
		return nil
	}
	system := func(n names) string { return n.metric(snapshot.NodeEnergyMetric) }
	uses := slices.DeleteFunc(slices.Clone(translations), func(n names) bool { return !slices.Contains(found, system(n)) })
	if len(uses) == 0 {
		return fmt.Errorf("no matching series of %s in this period, in any translation of OTLP", system(translations[0]))
	}
	r.names, r.guests = uses[0], slices.Contains(found, uses[0].metric(vm))
	if len(uses) > 1 {
		r.note("Only %s is read. The server also has %s", system(uses[0]), system(uses[1]))
	}
	if !slices.Contains(found, r.metric(r.grouping.energy)) {
		r.note("There is no metric %s, so there are no rows by %s", r.metric(r.grouping.energy), r.By)
	}
	zones, err := r.server.values(ctx, r.label("energy.zone"), r.counter(snapshot.NodeEnergyMetric, ""), r.begin, r.To)
	r.overlaps = slices.ContainsFunc(zones, func(z string) bool {
		return zonekind.Besides(z, []string{"package", z}) != ""
	})
	return err
}

func (r *reading) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// taker returns the function that takes the energy of a series in a step.
type taker func(labels map[string]string) func(step int, value float64)

// read reads the values of a query in n steps. It divides the query if the server refuses it for
// its size.
func (r *reading) read(ctx context.Context, query string, first, n int, take taker) error {
	end := func(step int) time.Time { return r.begin.Add(time.Duration(step+1) * r.Step) }
	found, err := r.server.query(ctx, query, end(first), end(first+n-1), r.Step)
	var refused *apiError
	if n > 1 && errors.As(err, &refused) && refused.tooMuch {
		r.atOnce = min(r.atOnce, n/2)
		if err := r.read(ctx, query, first, n/2, take); err != nil {
			return err
		}
		return r.read(ctx, query, first+n/2, n-n/2, take)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.server, err)
	}
	for _, s := range found {
		add := take(s.Metric)
		for _, v := range s.Values {
			at, isNumber := v[0].(float64)
			text, _ := v[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			step := int(math.Round((at-float64(r.begin.Unix()))/r.Step.Seconds())) - 1
			if err != nil || math.IsNaN(value) || math.IsInf(value, 0) || !isNumber || step < first || step >= first+n {
				return fmt.Errorf("%s: the response has an invalid value: %v", r.server, v)
			}
			add(step, value)
		}
	}
	return nil
}

func (r *reading) takeNodes(labels map[string]string) func(int, float64) {
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

func (r *reading) takeUnattributed(map[string]string) func(int, float64) {
	return func(step int, value float64) { r.unattributed[step] += value }
}

func (r *reading) takeSlots(labels map[string]string) func(int, float64) {
	name := labels[r.label("host.name")]
	if r.nodes[name] == nil {
		r.nodes[name] = make([]float32, 2*r.steps)
	}
	return func(step int, value float64) {
		r.nodes[name][step] = float32(min(1, value/(float64(r.Step)/float64(slot))))
	}
}

func (r *reading) takeRow(labels map[string]string) func(int, float64) {
	var texts []string
	isNamed := false // by more than its namespace
	for i, label := range r.labels {
		if text := labels[r.label(label)]; text != "" {
			texts, isNamed = append(texts, text), isNamed || i > 0 || len(r.labels) == 1
		}
	}
	name, part := strings.Join(texts, "/"), labels[r.label(r.part)]
	if !isNamed {
		return func(int, float64) {} // an overflow series, whose energy is in the rest
	}
	row := r.rows[name]
	if row == nil {
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

// prune removes the smaller half of the rows if there are too many.
func (r *reading) prune() {
	if len(r.rows) <= maxRows {
		return
	}
	names := r.ordered(func(t *total) float64 { return t.joules + t.before })
	for _, name := range names[maxRows/2:] {
		delete(r.rows, name)
	}
	if text := fmt.Sprintf("Of more than %d rows, the smallest are in the rest", maxRows); !slices.Contains(r.notes, text) {
		r.note("%s", text)
	}
}

// ordered returns the names of rows with the largest first.
func (r *reading) ordered(size func(*total) float64) (names []string) {
	for name := range r.rows {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(size(r.rows[b]), size(r.rows[a])), cmp.Compare(a, b))
	})
	return names
}
