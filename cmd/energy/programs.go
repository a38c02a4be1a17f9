// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// unnamed is the name of a program whose series has no executable.
const unnamed = "(unnamed)"

// ofOneProcess are the labels by which the processes of a program differ.
var ofOneProcess = []string{labelPID, labelCreated, labelPath, labelCommandLine, labelParent}

// programLabels returns the labels of a process without those of the process itself.
func programLabels(of map[string]string) map[string]string {
	labels := maps.Clone(of)
	for _, name := range ofOneProcess {
		delete(labels, name)
	}
	return labels
}

// programName returns the name of a process's program.
func programName(c *consumer) string {
	name := cmp.Or(c.labels[labelExecutable], unnamed)
	if c.labels[labelDescendants] == "true" {
		name += " (descendants)"
	}
	return name
}

// processName returns the name of a process, or of the processes of a program that have no series each.
func processName(c *consumer) string {
	name := programName(c)
	if c.labels[labelPID] == "" && c.labels[labelDescendants] == "" {
		name += " (small or exited)"
	}
	return name
}

// programsOf returns the sum of the processes of each program, by descending power. A program has
// ended if all of its processes have. The overflow series is none.
func programsOf(processes []*consumer) []*consumer {
	byKey := map[string]*consumer{}
	for _, c := range processes {
		if isOverflow(c) {
			continue
		}
		labels := programLabels(c.labels)
		key := keyOf(labels)
		p := byKey[key]
		if p == nil {
			p = &consumer{key: key, labels: labels, ended: true}
			byKey[key] = p
		}
		p.ended = p.ended && c.ended
		p.energy += c.energy
		p.power += c.power
		p.gpu += c.gpu
		switch {
		case c.ended:
		case c.cpuTime < 0 || p.cpuTime < 0: // the sum is unknown
			p.cpuTime = -1
		default:
			p.cpuTime += c.cpuTime
		}
	}
	all := slices.Collect(maps.Values(byKey))
	sortByPower(all)
	return all
}

// sortByPower sorts consumers by descending power, then energy.
func sortByPower(all []*consumer) {
	slices.SortFunc(all, func(a, b *consumer) int {
		return cmp.Or(cmp.Compare(b.power, a.power), cmp.Compare(b.energy, a.energy), strings.Compare(a.key, b.key))
	})
}

// isOverflow reports whether a series is that of consumers without a series of their own, and of no program.
func isOverflow(c *consumer) bool {
	return c.labels[labelOverflow] == "true" && c.labels[labelExecutable] == ""
}
