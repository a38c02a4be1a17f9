// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// window is the time range of the queries to the backend. It begins between two collections of each
// node.
type window struct{ begin, end time.Time }

// answer is the data of one series in the backend.
type answer struct {
	points   int
	last     float64 // joules or watts
	increase float64 // joules in the window
}

// comparison compares the series of a metric in the backend with the sent series.
type comparison struct {
	metric                       string
	series, missing, extra       int
	otherLast, otherIncrease     int // series with a different last value, or increase in the window
	points, lost, twice          int
	made, stored                 float64 // joules of the last values
	madeInWindow, storedInWindow float64 // joules
}

// isWrong reports whether joules were lost, or samples stored twice. Samples may be lost.
func (c comparison) isWrong() bool { return math.Abs(c.made-c.stored) > microjoule || c.twice > 0 }

const microjoule = 1e-6

// compare adds the series of a node.
func (c *comparison) compare(made map[string]*series.Series, stored map[string]answer, w window) {
	for key, m := range made {
		if m.Stored != c.metric {
			continue
		}
		s, found := stored[key]
		if !found {
			c.missing++
		}
		c.series++
		c.points += len(m.Points)
		c.lost += max(0, len(m.Points)-s.points)
		c.twice += max(0, s.points-len(m.Points))
		if found && s.last != m.Last().Value {
			c.otherLast++
		}
		if !m.Counter {
			continue
		}
		increase := m.Increase(w.begin, w.end)
		c.made, c.stored = c.made+m.Last().Value, c.stored+s.last
		c.madeInWindow, c.storedInWindow = c.madeInWindow+increase, c.storedInWindow+s.increase
		if math.Abs(s.increase-increase) > microjoule {
			c.otherIncrease++
		}
	}
	for key := range stored {
		if made[key] == nil {
			c.extra++
		}
	}
}

// compareAll asks the backend for all series of the nodes and compares them.
func compareAll(api series.Prometheus, nodes []*agent, w window) (table []comparison, err error) {
	metrics := map[string]bool{}
	for _, n := range nodes {
		for _, s := range n.truth.Series {
			metrics[s.Stored] = s.Counter
		}
	}
	for _, metric := range slices.Sorted(maps.Keys(metrics)) {
		c := comparison{metric: metric}
		for chunk := range slices.Chunk(nodes, 20) {
			stored, err := askFor(api, metric, metrics[metric], chunk, w)
			if err != nil {
				return nil, err
			}
			for _, n := range chunk {
				c.compare(n.truth.Series, stored[n.name], w)
			}
		}
		table = append(table, c)
	}
	return table, nil
}

// askFor returns the backend's series of a metric by node.
func askFor(api series.Prometheus, metric string, counter bool, nodes []*agent, w window) (map[string]map[string]answer, error) {
	var names []string
	stored := map[string]map[string]answer{}
	for _, n := range nodes {
		names = append(names, n.name)
		stored[n.name] = map[string]answer{}
	}
	selector := fmt.Sprintf("%s{host_name=~%q}", metric, strings.Join(names, "|"))
	queries := map[string]func(*answer, float64){
		"last_over_time(" + selector + "[2h])":  func(a *answer, v float64) { a.last = v },
		"count_over_time(" + selector + "[2h])": func(a *answer, v float64) { a.points = int(v) },
	}
	if counter {
		length := fmt.Sprintf("%dms", w.end.Sub(w.begin).Milliseconds())
		queries[series.Increase(selector, length)] = func(a *answer, v float64) { a.increase = v }
	}
	for text, keep := range queries {
		rows, err := api.Query(text, w.end)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			of, key := stored[r.Labels["host_name"]], series.Key(metric, r.Labels)
			a := of[key]
			keep(&a, r.Value)
			of[key] = a
		}
	}
	return stored, nil
}

// printComparison writes the table of comparisons.
func printComparison(out io.Writer, table []comparison) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "metric\tseries\tmissing\textra\tother last\tother increase\tpoints\tlost\ttwice\tjoules\tlost\tincrease\tlost\t")
	for _, c := range append(table, sumOf(table)) {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t", c.metric, c.series, c.missing, c.extra, c.otherLast, c.otherIncrease,
			c.points, c.lost, c.twice)
		if c.made > 0 {
			_, _ = fmt.Fprintf(w, "%.3f\t%.6f\t%.3f\t%.6f\t\n", c.made, c.made-c.stored, c.madeInWindow, c.madeInWindow-c.storedInWindow)
		} else {
			_, _ = fmt.Fprintln(w, "\t\t\t\t")
		}
	}
	_ = w.Flush()
}

// sumOf adds up the series and points of all metrics. It leaves out joules: each metric has all of
// them.
func sumOf(table []comparison) comparison {
	all := comparison{metric: "all"}
	for _, c := range table {
		all.series, all.missing, all.extra = all.series+c.series, all.missing+c.missing, all.extra+c.extra
		all.otherLast, all.otherIncrease = all.otherLast+c.otherLast, all.otherIncrease+c.otherIncrease
		all.points, all.lost, all.twice = all.points+c.points, all.lost+c.lost, all.twice+c.twice
	}
	return all
}
