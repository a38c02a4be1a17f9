// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	_ "embed"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/machine"
)

// The lists are searched line by line in place, without copies in memory.
var (
	//go:embed data/cpus.csv
	cpuList string
	//go:embed data/instances.csv
	instanceList string
	//go:embed data/families.csv
	familyList string
)

// lines returns the fields of each line of a list, without comments and the title line. Fields
// contain no commas or quotes. The fields are valid until the next line.
func lines(list string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		fields := make([]string, 0, 16)
		titles := true
		for line := range strings.Lines(list) {
			line = strings.TrimRight(line, "\r\n")
			if line == "" || line[0] == '#' {
				continue
			}
			if titles {
				titles = false
				continue
			}
			fields = fields[:0]
			for more := true; more; {
				var field string
				field, line, more = strings.Cut(line, ",")
				fields = append(fields, field)
			}
			if !yield(fields) {
				return
			}
		}
	}
}

// numberOf returns the number of a field, or 0 for an empty field.
func numberOf(field string) float64 {
	f, _ := strconv.ParseFloat(field, 64) // a test reads every line
	return f
}

// cpu is a line of the list of CPUs.
type cpu struct {
	name   string
	tdp    float64 // watts
	cores  int     // 0 if not available
	family string  // empty if not available
}

func cpuOf(fields []string) cpu {
	return cpu{name: fields[0], tdp: numberOf(fields[1]), cores: int(numberOf(fields[2])), family: fields[3]}
}

// lookupCPU returns the CPU with a name, or the zero cpu if it is not listed.
func lookupCPU(name string) (found cpu) {
	wanted := machine.Key(name)
	if wanted == "" {
		return cpu{}
	}
	// Most lines differ in one of these, so that their key need not be computed.
	last, numbered := wanted[strings.LastIndexByte(wanted, ' ')+1:], hasDigit(wanted)
	for fields := range lines(cpuList) {
		if hasDigit(fields[0]) == numbered && hasWord(fields[0], last) && machine.Key(fields[0]) == wanted {
			return cpuOf(fields)
		}
	}
	return cpu{}
}

// hasDigit reports whether a name contains a digit. The key of a listed CPU has a digit if its name
// has one.
func hasDigit(name string) bool { return strings.ContainsAny(name, "0123456789") }

// hasWord reports whether an ASCII name contains a word. word is in lower case.
func hasWord(name, word string) bool {
	for i := 0; i+len(word) <= len(name); i++ {
		if name[i]|0x20 == word[0]|0x20 && strings.EqualFold(name[i:i+len(word)], word) {
			return true
		}
	}
	return false
}

// perCore is the typical CPU of a family.
type perCore struct {
	name     string
	watts    float64 // median TDP of a core
	ofFamily bool
}

// typicalCore returns the typical CPU of the family. If the list has no CPU of the family, it
// returns the typical CPU of all Arm servers or of all other servers.
func typicalCore(family string) perCore {
	if family != "" {
		if tdp := tdpPerCore(func(f string) bool { return f == family }); len(tdp) > 0 {
			return perCore{name: "a CPU of the family " + family, watts: median(tdp), ofFamily: true}
		}
	}
	name, arm := "an unknown CPU", isArm(family)
	if arm {
		name = "an unknown Arm CPU"
	}
	return perCore{name: name, watts: median(tdpPerCore(func(f string) bool { return f != "" && isArm(f) == arm }))}
}

// tdpPerCore returns the TDP per core, in watts, of the CPUs of the wanted families.
func tdpPerCore(wanted func(family string) bool) (watts []float64) {
	for fields := range lines(cpuList) {
		if c := cpuOf(fields); c.cores > 0 && wanted(c.family) {
			watts = append(watts, c.tdp/float64(c.cores))
		}
	}
	return watts
}

// instance is a cloud instance type. The zero instance is not listed.
type instance struct {
	name string
	// cpu is empty if it is not available, or if the type runs on several CPUs.
	cpu         string
	hostThreads int // 0 if not available
}

// lookupInstance returns the instance type with a name in a cloud.
func lookupInstance(cloud, name string) (found instance) {
	name = strings.TrimPrefix(name, "Standard_") // prefix of Azure's types
	for fields := range lines(instanceList) {
		if fields[0] != cloud || !strings.EqualFold(fields[1], name) {
			continue
		}
		next := instance{name: fields[1], cpu: fields[2], hostThreads: int(numberOf(fields[3]))}
		if found.name != "" && found.cpu != next.cpu {
			next.cpu = ""
		}
		found = next
	}
	return found
}

// systems is the power of whole systems of a family at the wall, per chip.
type systems struct {
	name       string
	idle, full float64 // watts
	threads    int     // threads of a chip
	listed     bool
	// spread is half of the range of the middle 80 % of the systems, relative to the median. It is
	// the mean of both at idle and at full load.
	spread float64
}

// lookupSystems returns the systems of the family, or the median of all families if it is not
// listed.
func lookupSystems(family string) systems {
	var all []systems
	for f := range lines(familyList) {
		s := systems{listed: true, name: "family " + f[0], idle: numberOf(f[2]), full: numberOf(f[5]), threads: int(numberOf(f[8]))}
		s.spread = ((numberOf(f[4])-numberOf(f[3]))/s.idle + (numberOf(f[7])-numberOf(f[6]))/s.full) / 4
		if f[0] == family {
			return s
		}
		all = append(all, s)
	}
	return medianSystems(all)
}

// medianSystems returns the median power per thread of all families. Its spread is the mean
// deviation of the families' powers from the median.
func medianSystems(all []systems) systems {
	var idle, full []float64
	for _, s := range all {
		idle = append(idle, s.idle/float64(s.threads))
		full = append(full, s.full/float64(s.threads))
	}
	const threads = 64
	s := systems{name: "an unknown family", idle: median(idle) * threads, full: median(full) * threads, threads: threads}
	for _, values := range [...][]float64{idle, full} {
		for _, v := range values {
			s.spread += math.Abs(median(values)/v-1) / float64(2*len(values))
		}
	}
	return s
}
