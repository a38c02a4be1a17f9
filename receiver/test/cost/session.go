// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/test/crowd"
)

// session measures scenarios one after the other.
type session struct {
	programs programs
	base     string // collector of another commit, or ""
	turns    int
	pace     pace
	price    price
	out      io.Writer
	figures  *measured // of scenarios

	machine crowd.Machine // the current machine
	stop    func() error  // ends machine; nil if no machine runs
}

// chosen returns the named scenarios, in the order of the table. "reach" selects the scenarios with
// a bound, "all" selects all.
func chosen(names string) (kept []scenario, err error) {
	wanted := strings.Split(names, ",")
	for _, name := range wanted {
		if name != "all" && name != "reach" && !slices.Contains(scenarioNames(), name) {
			return nil, fmt.Errorf("no scenario %q; the scenarios are %s", name, strings.Join(scenarioNames(), ", "))
		}
	}
	for _, s := range scenarios {
		if slices.Contains(wanted, s.name) || slices.Contains(wanted, "all") || slices.Contains(wanted, "reach") && s.isBounded() {
			kept = append(kept, s)
		}
	}
	return kept, nil
}

// isBounded reports whether a figure of the scenario has a bound.
func (c scenario) isBounded() bool {
	return slices.ContainsFunc(c.rows, func(r row) bool {
		return slices.ContainsFunc(r.goals, func(g goal) bool { return g.most > 0 })
	})
}

func scenarioNames() (names []string) {
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

// run measures scenarios and writes a line for each goal. It leaves out a scenario if all its
// programs are missing.
func (s *session) run(all []scenario) (err error) {
	defer func() { err = errors.Join(err, s.end()) }()
	writeScenarioHead(s.out, s.base != "")
	for _, c := range all {
		variants, err := s.variants(c)
		if err != nil {
			return err
		}
		if len(variants) == 0 {
			continue
		}
		results, err := s.measure(c.machine, variants)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		writeScenario(s.out, c.name, results, s.base != "", s.figures)
	}
	return nil
}

// variants returns the installed programs of a scenario, followed by the base's variants of
// programs that are not references.
func (s *session) variants(c scenario) (variants []variant, err error) {
	for _, collector := range nonEmpty(s.programs.collector, s.base) {
		p := s.programs
		p.collector = collector
		for _, r := range c.rows {
			v, err := r.program(p)
			isBase := collector != s.programs.collector
			if errors.Is(err, errMissing) || isBase && v.isReference {
				continue
			}
			if err != nil {
				return nil, err
			}
			if v.goals = r.goals; isBase {
				v.name, v.goals = baseName(v.name), nil
			}
			variants = append(variants, v)
		}
	}
	return variants, nil
}

// measure starts the machine unless it runs, and measures the variants in turn.
func (s *session) measure(m crowd.Machine, variants []variant) (results []result, err error) {
	if s.stop == nil || s.machine != m {
		if err := s.begin(m); err != nil {
			return nil, err
		}
	}
	stop, err := startSink()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return measureTurns(variants, s.turns, s.pace, s.price)
}

// begin starts a machine after ending the current one.
func (s *session) begin(m crowd.Machine) (err error) {
	if err := s.end(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.programs.dir, "machine")
	if err != nil {
		return err
	}
	s.machine = m
	s.stop, err = crowd.Run(dir, m)
	return err
}

func (s *session) end() (err error) {
	if s.stop != nil {
		err, s.stop = s.stop(), nil
	}
	return err
}

// measureTurns measures variants in turn.
func measureTurns(variants []variant, turns int, pace pace, price price) (results []result, err error) {
	for _, v := range variants {
		results = append(results, result{variant: v})
	}
	for range turns {
		for i := range results {
			v := results[i].variant
			t, err := takeTurn(v, pace.of(v.interval), price)
			if err != nil {
				return results, fmt.Errorf("%s: %w", v.name, err)
			}
			results[i].turns = append(results[i].turns, t)
		}
	}
	return results, nil
}
