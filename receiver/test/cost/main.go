// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command cost measures the cost of whole processes on a machine with a crowd of other processes:
// collectors with different settings or of other commits, floors that do a minimum of work, and
// Kepler. The programs take turns, A B A B. The figures are medians over the turns, with the
// minimum and the maximum. Root is required, for BPF and cgroups:
//
//	go run ./receiver/test/cost -processes 10000 -active 100 -interval 1s -source bpf,procfs
//	go run ./receiver/test/cost -processes 10000 -base /tmp/old/otelcol-energy
//
// dev/results/cost.csv has the figures.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/test/crowd"
)

func main() {
	o, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err == nil && o.be != "":
		err = be(o.be, o.every)
	case err == nil:
		watchSignals()
		err = o.run(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cost:", err)
		os.Exit(1)
	}
}

// watchSignals makes an interrupt end the run.
func watchSignals() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals) // a second signal ends the program at once
		close(interrupted)
	}()
}

// options are the command line's.
type options struct {
	scenarios string
	pages     string
	// The other options describe a scenario. They are ignored if scenarios is set.
	machine              crowd.Machine
	binary, base, kepler string
	configs              string
	interval             time.Duration
	windows, sources     string
	floors               string
	receivers            string
	scraped              time.Duration
	sends, starts        bool

	turns int
	pace  pace
	be    string // the floor that this program runs as
	every time.Duration
}

// parse parses the command line.
func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("cost", flag.ContinueOnError)
	flags.StringVar(&o.scenarios, "scenarios", "", "scenarios, separated by commas, instead of the scenario of the other flags: "+
		"reach (those with a bound), all, "+strings.Join(scenarioNames(), ", "))
	flags.StringVar(&o.pages, "write", "", "files, separated by commas: CSV files get a row for each figure, pages the medians at their marks")
	flags.IntVar(&o.machine.Processes, "processes", 1000, "processes in addition to the variants")
	flags.IntVar(&o.machine.Active, "active", -1, "how many of them run ten times a second; -1 is one in a hundred")
	flags.IntVar(&o.machine.Containers, "containers", 0, "cgroups among which they are divided")
	flags.IntVar(&o.machine.ActiveIn, "active-in", 0, "how many of them the active processes are in; 0 is all")
	flags.IntVar(&o.machine.Exits, "exits", 0, "more processes that start and end each second")
	flags.StringVar(&o.binary, "binary", "build/otelcol-energy", "the collector")
	flags.StringVar(&o.base, "base", "", "another collector to compare with, or a commit to build it from")
	flags.StringVar(&o.kepler, "kepler", "", "Kepler's binary")
	flags.StringVar(&o.configs, "config", "", "configurations to compare, separated by commas, instead of the settings below")
	flags.DurationVar(&o.interval, "interval", time.Second, "collection_interval")
	flags.StringVar(&o.windows, "window", "0s", "length of the windows; several are variants")
	flags.StringVar(&o.sources, "source", "bpf", "cpu_time; several are variants")
	flags.StringVar(&o.receivers, "receiver", "", "more settings of the receiver, as YAML: 'series: {processes: {max: 10000}}'; several, separated by semicolons, are variants")
	flags.DurationVar(&o.scraped, "scraped", 0, "export to Prometheus, with this time between two scrapes; 0 is no export")
	flags.BoolVar(&o.sends, "otlp", false, "export by OTLP over HTTP, to nowhere")
	flags.BoolVar(&o.starts, "starts", false, "run each turn until the first emission")
	flags.StringVar(&o.floors, "floor", "", "references to compare with: procfs, library, wake, collector (without the receiver)")
	flags.IntVar(&o.turns, "turns", 2, "turns of each variant")
	flags.DurationVar(&o.pace.warmup, "warmup", 0, "time before each measurement; 0 is a collection, at least 4 s, and half a second")
	flags.DurationVar(&o.pace.measured, "for", 0, "time of each measurement; 0 is two collections, at least 10 s")
	flags.DurationVar(&o.pace.hooks, "hooks", 3*time.Second, "time after each measurement to measure the calls of BPF hooks")
	flags.StringVar(&o.be, "be", "", "run as a floor, without measuring")
	flags.DurationVar(&o.every, "every", time.Second, "how often the floor does its work")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.machine.Active < 0 {
		o.machine.Active = o.machine.Processes / 100
	}
	return o, nil
}

// of replaces zero values by multiples of the collection interval. No collection is at a boundary.
func (p pace) of(interval time.Duration) pace {
	const least, warm, half = 10 * time.Second, 4 * time.Second, 500 * time.Millisecond
	if p.warmup == 0 {
		p.warmup = max(interval, warm) + half
	}
	if p.measured == 0 {
		p.measured = max(2*interval, least)
	}
	return p
}

// variants returns all combinations of binaries and settings, the base's first.
func (o options) variants(p programs) (variants []variant, err error) {
	add := func(name string, program func(programs) (variant, error)) {
		v, e := program(p)
		if name != "" {
			v.name = name
		}
		variants, err = append(variants, v), errors.Join(err, e)
	}
	for _, p.collector = range nonEmpty(o.base, o.binary) {
		which := ""
		if o.base != "" {
			which = map[bool]string{true: "base ", false: "new "}[p.collector == o.base]
		}
		for _, s := range o.settings() {
			add(which+s.String(), s.collector)
		}
	}
	for _, name := range list(o.floors) {
		if name == "collector" {
			add("", emptyCollector)
		} else {
			add("", floor(name, o.shortest()))
		}
	}
	if p.kepler != "" {
		add("", kepler(o.scraped))
	}
	return variants, err
}

// shortest returns the length of the shortest windows or collections.
func (o options) shortest() time.Duration {
	shortest := o.interval
	for _, text := range list(o.windows) {
		if window, err := time.ParseDuration(text); err == nil && window > 0 {
			shortest = min(shortest, window)
		}
	}
	return shortest
}

func (o options) settings() (all []settings) {
	s := settings{interval: o.interval, scraped: o.scraped, sends: o.sends, starts: o.starts}
	for _, s.config = range list(o.configs) {
		all = append(all, s)
	}
	if all != nil {
		return all
	}
	for _, s.source = range list(o.sources) {
		for _, text := range list(o.windows) {
			s.window, _ = time.ParseDuration(text) // the collector reports invalid durations
			for _, s.receiver = range strings.Split(o.receivers, ";") {
				all = append(all, s)
			}
		}
	}
	return all
}

// list returns the texts between commas.
func list(text string) []string { return nonEmpty(strings.Split(text, ",")...) }

func nonEmpty(texts ...string) (kept []string) {
	for _, t := range texts {
		if t != "" {
			kept = append(kept, t)
		}
	}
	return kept
}

// run measures, and writes the results.
func (o options) run(w io.Writer) (err error) {
	runtime.LockOSThread() // processes that it starts are killed when the thread ends
	dir, err := os.MkdirTemp("", "cost")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.base, err = baseCollector(o.base, dir); err != nil {
		return err
	}
	for _, binary := range nonEmpty(o.binary, o.base, o.kepler) {
		if _, err := os.Stat(binary); err != nil {
			return fmt.Errorf("%w: make build", err)
		}
	}
	if err := crowd.Compile(filepath.Join(dir, floorProgram), floorInC); err != nil {
		return err
	}
	s := &session{
		programs: programs{collector: o.binary, kepler: o.kepler, dir: dir}, base: o.base, turns: o.turns, pace: o.pace, out: w, figures: newMeasured(host()),
	}
	if s.price, err = priceOfCalls(); err != nil {
		fmt.Fprintln(w, "The cost of BPF hooks is not measured:", err)
		s.pace.hooks = 0
	}
	fmt.Fprintf(w, "%s\nA call of a BPF hook takes %s, and its measurement %s. Figures are medians of %d turns [least, most].\n\n",
		host()+", load "+load(), s.price.call, s.price.stats, s.turns)
	if o.scenarios != "" {
		all, err := chosen(o.scenarios)
		if err != nil {
			return err
		}
		if err := s.run(all); err != nil {
			return err
		}
		for _, page := range list(o.pages) {
			err = errors.Join(err, s.figures.write(page))
		}
		return err
	}
	return o.compare(s)
}

// compare measures the variants of the flags.
func (o options) compare(s *session) (err error) {
	defer func() { err = errors.Join(err, s.end()) }()
	variants, err := o.variants(s.programs)
	if err != nil {
		return err
	}
	results, err := s.measure(o.machine, variants)
	return errors.Join(report(s.out, results), err)
}

// baseCollector returns the path of a collector. If base is not a file, it is a commit, and its
// collector is built in dir.
func baseCollector(base, dir string) (path string, err error) {
	if info, err := os.Stat(base); base == "" || err == nil && info.Mode().IsRegular() {
		return base, nil
	}
	tree := filepath.Join(dir, "base")
	git := func(args ...string) error {
		out, err := exec.Command("git", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	if err := git("worktree", "add", "--detach", tree, base); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, git("worktree", "remove", "--force", tree)) }()
	if out, err := exec.Command("make", "-C", tree, "build").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", base, err, out)
	}
	built := filepath.Join(dir, "base-build")
	return filepath.Join(built, "otelcol-energy"), os.Rename(filepath.Join(tree, "build"), built)
}

// host describes the machine in a line.
func host() string {
	model, cpus := "CPU unknown", 0
	b, _ := os.ReadFile("/proc/cpuinfo") // the model stays "CPU unknown" if this fails
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model, cpus = strings.TrimSpace(value), cpus+1
		}
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease") // Linux has it
	return fmt.Sprintf("%d x %s, Linux %s", cpus, model, strings.TrimSpace(string(release)))
}

// load returns the load averages.
func load() string {
	b, _ := os.ReadFile("/proc/loadavg") // Linux has it
	return strings.TrimSpace(string(b))
}
