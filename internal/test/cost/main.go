// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command cost measures what whole processes cost beside a crowd of others: collectors with other settings or of other
// commits, programs that do only what cannot be done without, and Kepler. They take turns, A B A B, and the figures are
// medians over the turns, with quartiles. It takes root, for BPF and for cgroups:
//
//	go run ./internal/test/cost -processes 10000 -active 100 -interval 1s -source bpf,procfs
//	go run ./internal/test/cost -processes 10000 -base /tmp/old/otelcol-energy
//
// docs/performance.md has the figures.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/test/crowd"
)

// plan is what is measured.
type plan struct {
	machine  crowd.Machine
	evict    float64
	pace     pace
	turns    int
	variants []variant
}

func main() {
	p, child, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err == nil && child != nil:
		err = child()
	case err == nil:
		err = p.run(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cost:", err)
		os.Exit(1)
	}
}

// options are the command line's.
type options struct {
	binary, base, config    string
	interval                time.Duration
	windows, sources, floor string
	receiver                string
	scraped                 bool
	be                      string
	every                   time.Duration
}

// parse parses the command line. child is set if this program is to be one of its own floors.
func parse(args []string) (p plan, child func() error, err error) {
	var o options
	flags := flag.NewFlagSet("cost", flag.ContinueOnError)
	flags.IntVar(&p.machine.Processes, "processes", 1000, "processes beside the variants")
	flags.IntVar(&p.machine.Active, "active", -1, "how many of them run ten times a second; -1 is one in a hundred")
	flags.IntVar(&p.machine.Containers, "containers", 0, "cgroups among which they are divided")
	flags.IntVar(&p.machine.Exits, "exits", 0, "more processes that start and end each second")
	flags.IntVar(&p.machine.Spinning, "spinning", 0, "more processes that always run")
	flags.Float64Var(&p.evict, "evict", 0, "how often a second, on each CPU, a neighbor walks a buffer larger than the last-level cache")
	flags.StringVar(&o.binary, "binary", "build/otelcol-energy", "the collector")
	flags.StringVar(&o.base, "base", "", "another collector, the first variant, to which ratios are")
	flags.StringVar(&o.config, "config", "", "configurations to compare, separated by commas, in place of the settings below")
	flags.DurationVar(&o.interval, "interval", time.Second, "collection_interval")
	flags.StringVar(&o.windows, "window", "0s", "sampling_interval; several are variants")
	flags.StringVar(&o.sources, "source", "bpf", "cpu_time; several are variants")
	flags.StringVar(&o.receiver, "receiver", "", "more settings of the receiver, as YAML: 'processes: {max: 10000}'")
	flags.BoolVar(&o.scraped, "scraped", false, "export to Prometheus, and be scraped every second")
	flags.StringVar(&o.floor, "floor", "", "floors to compare with: procfs, library, wake, collector")
	flags.IntVar(&p.turns, "turns", 5, "turns of each variant")
	flags.DurationVar(&p.pace.warmup, "warmup", 0, "time before each measurement; 0 is three collections and a half, at least 4.5 s")
	flags.DurationVar(&p.pace.measured, "for", 0, "time of each measurement; 0 is ten collections, at least 10 s and at most a minute")
	flags.DurationVar(&p.pace.hooks, "hooks", 3*time.Second, "time after it in which the calls of BPF hooks are measured")
	flags.StringVar(&o.be, "be", "", "be a floor, and measure nothing")
	flags.DurationVar(&o.every, "every", time.Second, "how often the floor does its work")
	if err := flags.Parse(args); err != nil {
		return p, nil, err
	}
	if o.be != "" {
		return p, func() error { return be(o.be, o.every) }, nil
	}
	if p.machine.Active < 0 {
		p.machine.Active = p.machine.Processes / 100
	}
	p.pace = p.pace.of(o.interval)
	p.variants, err = o.variants()
	return p, nil, err
}

// of sets what is not set, to a multiple of the collection interval and half of one, so that no collection is at an end.
func (p pace) of(interval time.Duration) pace {
	const least, most = 10 * time.Second, time.Minute
	if p.warmup == 0 {
		p.warmup = max(3*interval, 4*time.Second) + min(interval, time.Second)/2
	}
	if p.measured == 0 {
		p.measured = min(max(10*interval, least), max(most, 2*interval))
	}
	return p
}

// variants returns the product of the binaries and settings.
func (o options) variants() (variants []variant, err error) {
	for _, binary := range nonEmpty(o.base, o.binary) {
		if _, err := os.Stat(binary); err != nil {
			return nil, fmt.Errorf("%w: make build", err)
		}
		which := ""
		if o.base != "" {
			which = map[bool]string{true: "base ", false: "new "}[binary == o.base]
		}
		for _, s := range o.settings(binary) {
			name := which + filepath.Base(s.config)
			if s.config == "" {
				name = fmt.Sprintf("%s%s %s/%s", which, s.source, s.interval, s.window)
			}
			variants = append(variants, s.collector(name))
		}
	}
	for _, name := range nonEmpty(strings.Split(o.floor, ",")...) {
		v, err := o.floorOf(name)
		if err != nil {
			return nil, err
		}
		variants = append(variants, v)
	}
	return variants, nil
}

func (o options) floorOf(name string) (variant, error) {
	if name == "collector" {
		return bareCollector(o.binary), nil
	}
	every := o.interval
	if window, err := time.ParseDuration(o.windows); err == nil && window > 0 {
		every = window
	}
	return ownFloor(name, every)
}

func (o options) settings(binary string) (all []settings) {
	for _, config := range nonEmpty(strings.Split(o.config, ",")...) {
		all = append(all, settings{binary: binary, config: config, scraped: o.scraped})
	}
	if all != nil {
		return all
	}
	for _, source := range strings.Split(o.sources, ",") {
		for _, text := range strings.Split(o.windows, ",") {
			window, _ := time.ParseDuration(text) // the collector reports what is wrong
			all = append(all, settings{
				binary: binary, interval: o.interval, window: window, source: source, scraped: o.scraped, receiver: o.receiver,
			})
		}
	}
	return all
}

func nonEmpty(texts ...string) (kept []string) {
	for _, t := range texts {
		if t != "" {
			kept = append(kept, t)
		}
	}
	return kept
}

// run measures the variants in turn beside the machine, and reports.
func (p plan) run(w io.Writer) (err error) {
	price, err := priceOfCalls()
	if err != nil {
		fmt.Fprintln(w, "What BPF hooks cost is not measured:", err)
		p.pace.hooks = 0
	}
	fmt.Fprintf(w, "%s\n%s beside them, %d turns of %s after %s; a call of a hook takes %s, and its measurement %s\n", host(), p.describe(),
		p.turns, p.pace.measured, p.pace.warmup, price.call, price.stats)
	results, err := p.measure(price)
	return errors.Join(report(w, results), err)
}

func (p plan) describe() string {
	m := p.machine
	text := fmt.Sprintf("%d processes, %d active", m.Processes, m.Active)
	for _, part := range []struct {
		n    float64
		name string
	}{{float64(m.Containers), "containers"}, {float64(m.Exits), "exits a second"}, {float64(m.Spinning), "spinning"}, {p.evict, "evictions a second"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %g %s", part.n, part.name)
		}
	}
	return text
}

// measure starts what runs beside the variants, and measures them in turn.
func (p plan) measure(price price) (results []result, err error) {
	dir, err := os.MkdirTemp("", "cost")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	stop, err := crowd.Run(dir, p.machine)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if p.evict > 0 {
		n, err := startNeighbor(p.evict)
		if err != nil {
			return nil, err
		}
		defer func() { _ = n.stop() }() // an error shows as figures that are too small
	}
	for _, v := range p.variants {
		results = append(results, result{variant: v})
	}
	for range p.turns {
		for i := range results {
			t, err := takeTurn(results[i].variant, p.pace, price)
			if err != nil {
				return results, fmt.Errorf("%s: %w", results[i].variant.name, err)
			}
			results[i].turns = append(results[i].turns, t)
		}
	}
	return results, nil
}

// host describes the machine in a line.
func host() string {
	model, cpus := "CPU unknown", 0
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model, cpus = strings.TrimSpace(value), cpus+1
		}
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%d x %s, Linux %s, load %s", cpus, model, strings.TrimSpace(string(release)), strings.TrimSpace(string(load)))
}
