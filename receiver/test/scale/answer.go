// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// window is the time that the store is asked about. Its begin is between two collections of each
// node, and so is its end.
type window struct {
	begin, end time.Time
}

func (w window) length() string { return fmt.Sprintf("%dms", w.end.Sub(w.begin).Milliseconds()) }

// answer holds the data of one series in the backend.
type answer struct {
	points   int
	last     float64 // joules or watts
	increase float64 // joules in the window
}

// comparison compares the series of a metric in the backend with those that the nodes sent.
type comparison struct {
	metric                       string
	series, missing, extra       int
	otherLast, otherIncrease     int // series whose last value, and whose increase in the window, is another
	points, lost, twice          int
	made, stored                 float64 // joules of the last values
	madeInWindow, storedInWindow float64 // joules
}

// isWrong reports whether joules were lost, or samples stored twice. Samples may be lost.
func (c comparison) isWrong() bool { return math.Abs(c.made-c.stored) > microjoule || c.twice > 0 }

// compare adds the series of a node.
func (c *comparison) compare(made map[string]*track, stored map[string]answer) {
	for key, m := range made {
		if m.metric != c.metric {
			continue
		}
		c.series++
		c.points += m.points
		s, found := stored[key]
		if !found {
			c.missing++
		}
		c.lost += max(0, m.points-s.points)
		c.twice += max(0, s.points-m.points)
		if found && s.last != m.last {
			c.otherLast++
		}
		if !m.counter {
			continue
		}
		c.made, c.stored = c.made+m.last, c.stored+s.last
		c.madeInWindow, c.storedInWindow = c.madeInWindow+m.increase(), c.storedInWindow+s.increase
		if math.Abs(s.increase-m.increase()) > microjoule {
			c.otherIncrease++
		}
	}
	for key := range stored {
		if strings.HasPrefix(key, c.metric+"{") && made[key] == nil {
			c.extra++
		}
	}
}

const microjoule = 1e-6

// balance is how far the sums of one node are off in the store, in joules of the window.
type balance struct {
	meters      float64 // active and idle energy less what the node's meters counted
	attribution float64 // energy of processes and unattributed energy less active energy
}

// balanceOf adds up what the store has of a node.
func balanceOf(made map[string]*track, stored map[string]answer, metered float64) balance {
	b := balance{meters: -metered}
	for key, m := range made {
		joules := stored[key].increase
		switch m.metric {
		case "system_energy_joules_total":
			b.meters += joules
			if strings.Contains(key, "energy_state=active") {
				b.attribution -= joules
			}
		case "process_energy_joules_total", "system_unattributed_energy_joules_total":
			b.attribution += joules
		}
	}
	return b
}

// worst keeps the larger differences.
func (b *balance) worst(other balance) {
	for _, d := range []struct{ of, other *float64 }{{&b.meters, &other.meters}, {&b.attribution, &other.attribution}} {
		if math.Abs(*d.other) > math.Abs(*d.of) {
			*d.of = *d.other
		}
	}
}

// compareAll asks the store for all series of the nodes and compares them.
func compareAll(url string, nodes []*agent, w window) (table []comparison, worst balance, err error) {
	byMetric := map[string]*comparison{}
	for _, n := range nodes {
		for _, s := range n.truth.tracks {
			byMetric[s.metric] = &comparison{metric: s.metric}
		}
	}
	metrics := slices.Sorted(maps.Keys(byMetric))
	for chunk := range slices.Chunk(nodes, 20) {
		stored := map[string]answer{} // of all nodes of the chunk
		for _, metric := range metrics {
			if err := askFor(url, metric, chunk, w, stored); err != nil {
				return nil, worst, err
			}
		}
		byNode := map[string]map[string]answer{}
		for key, a := range stored {
			_, rest, _ := strings.Cut(key, "host_name=")
			name, _, _ := strings.Cut(rest, ",")
			name = strings.TrimSuffix(name, "}")
			if byNode[name] == nil {
				byNode[name] = map[string]answer{}
			}
			byNode[name][key] = a
		}
		for _, n := range chunk {
			for _, c := range byMetric {
				c.compare(n.truth.tracks, byNode[n.node.name])
			}
			worst.worst(balanceOf(n.truth.tracks, byNode[n.node.name], n.metered()))
		}
	}
	for _, metric := range metrics {
		table = append(table, *byMetric[metric])
	}
	return table, worst, nil
}

// askFor adds the store's series of a metric of some nodes.
func askFor(url, metric string, nodes []*agent, w window, stored map[string]answer) error {
	var names []string
	for _, n := range nodes {
		names = append(names, n.node.name)
	}
	selector := fmt.Sprintf("%s{host_name=~%q}", metric, strings.Join(names, "|"))
	queries := []struct {
		text string
		keep func(*answer, float64)
	}{
		{fmt.Sprintf("last_over_time(%s[2h])", selector), func(a *answer, v float64) { a.last = v }},
		{fmt.Sprintf("count_over_time(%s[2h])", selector), func(a *answer, v float64) { a.points = int(v) }},
	}
	if strings.HasSuffix(metric, "_total") {
		queries = append(queries, struct {
			text string
			keep func(*answer, float64)
		}{series.Increase(selector, w.length()), func(a *answer, v float64) { a.increase = v }})
	}
	for _, q := range queries {
		rows, err := ask(url, q.text, w.end)
		if err != nil {
			return err
		}
		for _, r := range rows {
			key := seriesKey(metric, r.labels)
			a := stored[key]
			q.keep(&a, r.value)
			stored[key] = a
		}
	}
	return nil
}

// row is one series of an answer.
type row struct {
	labels map[string]string
	value  float64
}

// ask calls https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries
func ask(api, query string, at time.Time) (rows []row, err error) {
	response, err := http.PostForm(api+"/query", url.Values{
		"query": {query}, "time": {strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)},
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var decoded struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&decoded); err != nil {
		return nil, fmt.Errorf("%s: %w", response.Status, err)
	}
	if decoded.Status != "success" {
		return nil, fmt.Errorf("%s: %s", response.Status, decoded.Error)
	}
	for _, r := range decoded.Data.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{r.Metric, value})
	}
	return rows, nil
}

// printComparison writes the table of what the store has.
func printComparison(out io.Writer, table []comparison, worst balance) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "metric\tseries\tmissing\tunknown\tother last\tother increase\tpoints\tlost\ttwice\tjoules\tlost\tincrease\tlost\t")
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
	_, _ = fmt.Fprintf(out, "largest difference of a node: %.6f J of its meters; %.6f J between active energy and that of processes with the unattributed\n",
		worst.meters, worst.attribution)
}

// sumOf adds up the series and points of all metrics. Their joules are the same joules, several times.
func sumOf(table []comparison) comparison {
	all := comparison{metric: "all"}
	for _, c := range table {
		all.series, all.missing, all.extra = all.series+c.series, all.missing+c.missing, all.extra+c.extra
		all.otherLast, all.otherIncrease = all.otherLast+c.otherLast, all.otherIncrease+c.otherIncrease
		all.points, all.lost, all.twice = all.points+c.points, all.lost+c.lost, all.twice+c.twice
	}
	return all
}
