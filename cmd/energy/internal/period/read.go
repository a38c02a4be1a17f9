// SPDX-License-Identifier: Apache-2.0

package period

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/report"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
)

// Options select the contents of a report.
type Options struct {
	Server string      // URL
	Header http.Header // of requests
	By     string      // one of Groupings
	Span               // a whole number of steps
	Match  []string    // matchers of PromQL for all series
	Rows   int         // number of rows
	Rates  report.Rates
	// Progress is called after each query, unless it is nil.
	Progress func(done, all int)
}

// reading is the data of a period, and of the period before with as many steps.
type reading struct {
	Options
	queries
	*server
	steps int    // of a period
	all   []Step // of both periods
	rows  map[string]*Row
	zones map[Zone]number    // energy in the period
	nodes map[string][]uint8 // slots with a report in all steps
	err   error              // the first one

	hasNoNames bool // some series lack the labels of rows
}

// Limits of rows, and of parts of a row, while a report is read.
const (
	maxRows  = 2000
	maxParts = 1000
)

// Read reads a report.
func Read(ctx context.Context, o Options) (*Document, error) {
	s, err := newServer(o.Server, o.Header)
	if err != nil {
		return nil, err
	}
	r := newReading(s, o)
	if r.read(ctx); r.err != nil {
		return nil, fmt.Errorf("%s: %w", s, r.err)
	}
	return r.document(), nil
}

func newReading(s *server, o Options) *reading {
	r := &reading{
		Options: o, server: s, steps: int(o.To.Sub(o.From) / StepLength),
		queries: queries{names: translations[0], grouping: groupings[o.By]},
		rows:    map[string]*Row{}, zones: map[Zone]number{}, nodes: map[string][]uint8{},
	}
	for i := range 2 * r.steps {
		r.all = append(r.all, Step{Start: o.From.Add(time.Duration(i-r.steps) * StepLength)})
	}
	for _, m := range o.Match {
		r.match += "," + m
	}
	return r
}

// read reads both periods.
func (r *reading) read(ctx context.Context) {
	const atOnce = 24
	r.err = r.detect(ctx)
	for first := 0; first < len(r.all) && r.err == nil; first += atOnce {
		n := min(atOnce, len(r.all)-first)
		r.ask(ctx, r.ofNodes(), first, n, r.takeNodes)
		r.ask(ctx, r.ofUnattributed(), first, n, r.takeUnattributed)
		r.ask(ctx, r.ofRows(), first, n, r.takeRow)
		r.ask(ctx, r.ofSlots(), first, n, r.takeSlots)
		if r.Progress != nil {
			r.Progress(first+n, len(r.all))
		}
	}
	if r.err == nil && len(r.nodes) == 0 {
		r.err = errNoData
	}
	if errors.Is(r.err, errNoData) && r.match != "" {
		r.err = fmt.Errorf("%w. --match also selects the series of nodes", r.err)
	}
}

var errNoData = errors.New("there is no energy of nodes in these periods: " +
	"no series of system.energy, in any translation of its name")

// detect finds the names of the metrics, and whether hosts report the energy of guests.
func (r *reading) detect(ctx context.Context) error {
	node, vm := snapshot.NodeEnergyMetric, snapshot.VM.EnergyMetric()
	var found []string
	err := r.call(ctx, "label/__name__/values", url.Values{
		"match[]": {anyOf(r.match, node, vm)}, "start": {unix(r.all[0].Start)}, "end": {unix(r.To)},
	}, &found)
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
	return nil
}

// taker records the energy of a series from a step on.
type taker func(labels map[string]string, first int, values []number)

// ask reads the values of a query in n steps, unless an error has occurred. It divides the query if
// the server refuses it.
func (r *reading) ask(ctx context.Context, query string, first, n int, take taker) {
	if r.err != nil {
		return
	}
	found, err := r.query(ctx, query, r.all[first:first+n])
	if n > 1 && errors.Is(err, errTooMuch) {
		r.ask(ctx, query, first, n/2, take)
		r.ask(ctx, query, first+n/2, n-n/2, take)
		return
	}
	if r.err = err; err != nil {
		return
	}
	for _, s := range found {
		values := make([]number, n)
		for _, v := range s.Values {
			at, _ := v[0].Float64()
			value, err := v[1].Float64()
			step := int(math.Round((at-float64(r.all[first].Start.Unix()))/StepLength.Seconds())) - 1
			if err != nil || step < 0 || step >= n {
				r.err = fmt.Errorf("the response has an invalid value: %v", v)
				return
			}
			values[step] = number(value)
		}
		take(s.Metric, first, values)
	}
}

func (r *reading) takeNodes(labels map[string]string, first int, values []number) {
	zone := Zone{Zone: figure.Line(labels[r.label("energy.zone")]), Source: figure.Line(labels[r.label("energy.method")])}
	for i, value := range values {
		step := &r.all[first+i]
		if step.Joules += value; labels[r.label("energy.state")] == "idle" {
			step.Idle += value
		} else {
			step.Active += value
		}
		if first+i >= r.steps {
			r.zones[zone] += value
		}
	}
}

func (r *reading) takeUnattributed(_ map[string]string, first int, values []number) {
	for i, value := range values {
		r.all[first+i].Unattributed += value
	}
}

func (r *reading) takeSlots(labels map[string]string, first int, values []number) {
	name := figure.Line(labels[r.label("host.name")])
	if r.nodes[name] == nil {
		r.nodes[name] = make([]uint8, len(r.all))
	}
	for i, value := range values {
		r.nodes[name][first+i] = uint8(max(0, min(value, slots)))
	}
}

func (r *reading) takeRow(labels map[string]string, first int, values []number) {
	var texts []string
	isNamed := false // by more than its namespace
	for i, label := range r.labels {
		if text := labels[r.label(label)]; text != "" {
			texts, isNamed = append(texts, text), isNamed || i > 0 || len(r.labels) == 1
		}
	}
	if !isNamed {
		r.hasNoNames = true
		return // an overflow series, whose energy is in the rest
	}
	name, part := figure.Line(strings.Join(texts, "/")), figure.Line(labels[r.label(r.part)])
	row := r.rows[name]
	if row == nil {
		r.prune()
		row = &Row{Name: name, Steps: make([]number, r.steps), parts: map[string]number{}}
		r.rows[name] = row
	}
	for i, value := range values {
		if first+i < r.steps {
			row.Before += value
			continue
		}
		row.Joules += value
		row.Steps[first+i-r.steps] += value
		if _, isKnown := row.parts[part]; part != "" && (isKnown || len(row.parts) < maxParts) {
			row.parts[part] += value
		}
	}
}

// prune removes the smaller half of the rows if there are too many.
func (r *reading) prune() {
	if len(r.rows) < maxRows {
		return
	}
	r.note("There are at least %d rows: the smallest are part of (rest)", maxRows)
	for _, row := range r.largest(maxRows, func(row *Row) number { return row.Joules + row.Before })[maxRows/2:] {
		delete(r.rows, row.Name)
	}
}

// largest returns at most n rows, the largest first.
func (r *reading) largest(n int, size func(*Row) number) []*Row {
	rows := slices.SortedFunc(maps.Values(r.rows), func(a, b *Row) int {
		return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(a.Name, b.Name))
	})
	return rows[:min(n, len(rows))]
}
