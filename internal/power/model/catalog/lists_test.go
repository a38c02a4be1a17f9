// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryLineOfTheListsCanBeRead checks what the code that searches them takes for granted.
func TestEveryLineOfTheListsCanBeRead(t *testing.T) {
	for name, list := range map[string]struct {
		text    string
		fields  int
		numbers []int
	}{
		"cpus":      {cpuList, 4, []int{1, 2}},
		"instances": {instanceList, 4, []int{3}},
		"families":  {familyList, 9, []int{1, 2, 3, 4, 5, 6, 7, 8}},
	} {
		n := 0
		for fields := range lines(list.text) {
			n++
			if len(fields) != list.fields || fields[0] == "" || strings.ContainsAny(strings.Join(fields, ""), "\"\r\t") {
				t.Errorf("%s: %q", name, fields)
				continue
			}
			for _, i := range list.numbers {
				if f, err := strconv.ParseFloat(fields[i], 64); fields[i] != "" && (err != nil || !(f > 0 && f < 1000)) {
					t.Errorf("%s: %q", name, fields)
				}
			}
		}
		if n < 16 {
			t.Errorf("%s has %d lines", name, n)
		}
		if !strings.HasPrefix(list.text, "# ") {
			t.Errorf("%s does not say its source", name)
		}
	}
}

func TestEveryListedCPUHasAPower(t *testing.T) {
	n := 0
	for fields := range lines(cpuList) {
		n++
		c := cpuOf(fields)
		if c.tdp <= 0 || c.tdp > 600 || c.cores > 512 {
			t.Errorf("%+v", c)
		}
		if n%10 != 0 { // a lookup takes half a millisecond
			continue
		}
		assert.InDelta(t, c.tdp, lookupCPU(c.name).tdp, 0, c.name)
	}
}

func TestFamiliesAreThoseOfTheLists(t *testing.T) {
	known := map[string]bool{"arm": true}
	for fields := range lines(cpuList) {
		known[fields[3]] = true
	}
	for _, f := range x86Families {
		assert.Contains(t, known, f.name)
	}
	for _, f := range familyWords {
		assert.Contains(t, known, f.name)
		assert.Equal(t, together.Replace(strings.ToLower(f.word)), f.word)
	}
	for fields := range lines(familyList) {
		assert.Contains(t, known, fields[0])
	}
}

func TestMeasuredMachinesAreListed(t *testing.T) {
	for i := range measured {
		m := &measured[i]
		c := lookupCPU(m.cpu)
		if c.tdp != m.tdp || c.cores > 0 && c.cores*2*m.chips != m.threads {
			t.Errorf("%s has %g W and %d threads, the list %+v", m.cpu, m.tdp, m.threads, c)
		}
		for j, p := range m.points {
			if p.packages <= 0 || (p.dram > 0) != (m.memory > 0) || p.load < 0 || p.load > 100 || j > 0 && p.load <= m.points[j-1].load {
				t.Errorf("%s: %+v", m.cpu, p)
			}
		}
	}
}

// TestMeasuredLoadsAreThoseOfTheAccuracyTables compares the curves with the receiver's own copy of them.
func TestMeasuredLoadsAreThoseOfTheAccuracyTables(t *testing.T) {
	text, err := os.ReadFile("../../../../receiver/test/accuracy/testdata/load-curves.csv")
	require.NoError(t, err)
	next := map[string]int{}
	for fields := range lines(string(text)) {
		m := lookupMeasured(fields[0])
		if m == nil {
			t.Fatalf("%s is not there", fields[0])
		}
		p := m.points[next[m.cpu]]
		next[m.cpu]++
		if p.load != numberOf(fields[2]) || p.packages != numberOf(fields[3]) {
			t.Errorf("%q, and %+v", fields, p)
		}
	}
	assert.Len(t, next, 3)
}

func TestInstancesOfSeveralHostsHaveNoCPU(t *testing.T) {
	if i := lookupInstance("gcp", "e2-standard-2"); i.name == "" || i.cpu != "" {
		t.Errorf("%+v", i)
	}
	if i := lookupInstance("aws", "M5.LARGE"); i.cpu != "Intel Xeon Platinum 8175M" || i.hostThreads != 96 {
		t.Errorf("%+v", i)
	}
	if i := lookupInstance("azure", "Standard_D16d_v4"); i.cpu != "Cascade Lake" || i.hostThreads != 0 {
		t.Errorf("%+v", i)
	}
	for _, unknown := range [][2]string{{"", ""}, {"aws", ""}, {"aws", "m5"}, {"gcp", "m5.large"}, {"aws,m5.large", ""}} {
		assert.Equal(t, (instance{}), lookupInstance(unknown[0], unknown[1]), unknown)
	}
}
