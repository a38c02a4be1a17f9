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
	quiet    float64
	out      io.Writer

	machine crowd.Machine // that runs
	stop    func() error  // ends it; nil if none runs
}

// chosen returns the scenarios of those names, in the order of the table. "reach" are those that
// have a bound, "all" are all.
func chosen(names string) (kept []scenario, err error) {
	wanted := strings.Split(names, ",")
	known := func(name string) bool {
		return slices.ContainsFunc(scenarios, func(s scenario) bool { return s.name == name })
	}
	for _, name := range wanted {
		if name != "all" && name != "reach" && !known(name) {
			return nil, fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(scenarioNames(), ", "))
		}
	}
	for _, s := range scenarios {
		if slices.Contains(wanted, s.name) || slices.Contains(wanted, "all") || slices.Contains(wanted, "reach") && !s.extra {
			kept = append(kept, s)
		}
	}
	return kept, nil
}

func scenarioNames() (names []string) {
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

// run measures scenarios and writes a line for each goal.
func (s *session) run(all []scenario) (err error) {
	defer func() { err = errors.Join(err, s.end()) }()
	writeScenarioHead(s.out, s.base != "")
	for _, c := range all {
		variants, err := c.variants(s.programs)
		if err != nil {
			return err
		}
		if len(variants) == 0 {
			fmt.Fprintf(s.out, "| %s | left out: no Kepler |\n", c.name)
			continue
		}
		if variants, err = s.withBase(c, variants); err != nil {
			return err
		}
		results, err := s.measure(c, variants)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		writeScenario(s.out, c, results, s.base != "")
	}
	return nil
}

// withBase adds the variants of the base's collector, in the same order, behind the others.
func (s *session) withBase(c scenario, variants []variant) ([]variant, error) {
	if s.base == "" {
		return variants, nil
	}
	base := s.programs
	base.collector = s.base
	others, err := c.variants(base)
	for _, v := range others {
		if v.isCollector {
			v.name = "base " + v.name
			variants = append(variants, v)
		}
	}
	return variants, err
}

// measure starts the scenario's machine unless it runs, and measures the variants in turn.
func (s *session) measure(c scenario, variants []variant) (results []result, err error) {
	if s.stop == nil || s.machine != c.machine {
		if err := s.begin(c.machine); err != nil {
			return nil, err
		}
	}
	if c.evict > 0 {
		n, err := startNeighbor(c.evict)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, n.stop()) }()
	}
	stop, err := startSink()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	quiet := s.quiet
	if c.machine.Spinning > 0 {
		quiet = 0
	}
	return measureTurns(variants, s.turns, s.pace, s.price, quiet)
}

// begin starts a machine, in place of the one that runs.
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
func measureTurns(variants []variant, turns int, pace pace, price price, quiet float64) (results []result, err error) {
	for _, v := range variants {
		results = append(results, result{variant: v})
	}
	for range turns {
		for i := range results {
			v := results[i].variant
			t, err := takeQuietTurn(v, pace.of(v.interval), price, quiet)
			if err != nil {
				return results, fmt.Errorf("%s: %w", v.name, err)
			}
			results[i].turns = append(results[i].turns, t)
		}
	}
	return results, nil
}
