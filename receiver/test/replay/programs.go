// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"math"
	"os"
)

// Program is a measurement of a program that ran alone on a machine: the means of its run, or of a
// part of the run.
type Program struct {
	Machine, Name string
	// CPU is the number of busy CPUs. Events are per second.
	CPU, Cycles, Instructions, References, Misses float64
	// Watts is the power of memory in an extract of Energy-Languages, and the power above the power
	// at rest in an extract of power-modelling.
	Watts float64
}

// ReadPrograms reads an extract of Energy-Languages or of power-modelling.
func ReadPrograms(path string) (all []Program, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var c cells
	columns, rows := c.table(text)
	for _, row := range rows {
		var p Program
		for i, column := range columns {
			switch column {
			case "machine":
				p.Machine = row[i]
			case "program":
				p.Name = row[i]
			case "busy":
				p.CPU = c.number(row[i])
			case "cycles":
				p.Cycles = c.number(row[i])
			case "instructions":
				p.Instructions = c.number(row[i])
			case "references":
				p.References = c.number(row[i])
			case "misses":
				p.Misses = c.number(row[i])
			case "watts":
				p.Watts = c.number(row[i])
			}
		}
		all = append(all, p)
	}
	return all, c.err
}

// Misattributed is the energy that a weight attributes to the wrong one of two programs, relative
// to the active energy of both: for each pair, and for all pairs together.
type Misattributed struct {
	Pairs      []float64
	Wrong, All float64
}

func (m *Misattributed) add(wrong, all float64) {
	m.Pairs = append(m.Pairs, wrong/all)
	m.Wrong, m.All = m.Wrong+wrong, m.All+all
}

// Part is the misattributed part of the energy of all pairs.
func (m Misattributed) Part() float64 { return m.Wrong / m.All }

// DRAMPairs rates a weight by its division of the active power of memory. Each program runs next to
// each other program, and draws the same power as alone. The power at rest is the 1st percentile of
// the programs' power. Pairs with less than half a watt are left out.
func DRAMPairs(programs []Program, weight func(*Program) float64) (m Misattributed) {
	rest := quantile(each(programs, func(p Program) float64 { return p.Watts }), 0.01)
	for i := range programs {
		for j := range programs[:i] {
			a, b := &programs[i], &programs[j]
			active, other := max(a.Watts-rest, 0), max(b.Watts-rest, 0)
			if all := active + other; a.Name != b.Name && all >= 0.5 {
				m.add(math.Abs(weight(a)/(weight(a)+weight(b))*all-active), all)
			}
		}
	}
	return m
}

// Predicted returns the coefficient of determination (R²) of the power of programs over a weight,
// by straight lines that are fitted to all other programs.
func Predicted(programs []Program, weight func(*Program) float64) float64 {
	var mean, wrong, squares float64
	for i := range programs {
		mean += programs[i].Watts / float64(len(programs))
	}
	for i := range programs {
		var others line
		for j := range programs {
			if p := &programs[j]; p.Name != programs[i].Name {
				others.add(weight(p), p.Watts)
			}
		}
		watts := programs[i].Watts
		off := others.at(weight(&programs[i])) - watts
		wrong, squares = wrong+off*off, squares+(watts-mean)*(watts-mean)
	}
	return 1 - wrong/squares
}
