// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/machine"
)

// TestNamesOfCPUInfoFindTheirCPU has names as /proc/cpuinfo shows them, with the name and TDP in the list.
func TestNamesOfCPUInfoFindTheirCPU(t *testing.T) {
	for name, want := range map[string]struct {
		listed string
		tdp    float64
	}{
		"Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz":         {"Intel Xeon Platinum 8259CL", 210},
		"Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz":              {"Intel Xeon E5-2686 v4", 145},
		"Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz":               {"Intel Xeon E5-2670", 115},
		"Intel(R) Xeon(R) CPU E3-1240 V2 @ 3.40GHz":              {"Intel Xeon E3-1240 v2", 69},
		"Intel(R) Xeon(R) CPU            5110  @ 1.60GHz":        {"Intel Xeon 5110", 65},
		"11th Gen Intel(R) Core(TM) i7-11700KF @ 3.60GHz":        {"Intel Core i7-11700KF", 125},
		"Intel(R) Core(TM) i7 CPU         960  @ 3.20GHz":        {"Intel Core i7-960", 130},
		"Intel(R) Core(TM)2 Duo CPU     E8300  @ 2.83GHz":        {"Intel Core 2 Duo E8300", 65},
		"Intel(R) Celeron(R) N5105 @ 2.00GHz":                    {"celeron n5105", 10},
		"Intel(R) Pentium(R) Gold G6405 CPU @ 4.10GHz":           {"pentium g6405", 58},
		"AMD EPYC 7713 64-Core Processor":                        {"AMD EPYC 7713", 225},
		"AMD Ryzen 7 7840U w/ Radeon  780M Graphics":             {"AMD Ryzen 7 7840U", 28},
		"AMD Ryzen Threadripper PRO 5995WX 64-Cores":             {"AMD Ryzen Threadripper PRO 5995WX", 280},
		"AMD Opteron(TM) Processor 6276                 ":        {"AMD Opteron 6276", 115},
		"Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz\x00\x00": {"Intel Xeon Platinum 8259CL", 210},
		"\tintel xeon platinum 8259cl\n":                         {"Intel Xeon Platinum 8259CL", 210},
		"Intel® Xeon® Platinum 8259CL Processor":                 {"Intel Xeon Platinum 8259CL", 210},
	} {
		if got := lookupCPU(name); got.name != want.listed || got.tdp != want.tdp {
			t.Errorf("%q: %+v, want %q with %g W", name, got, want.listed, want.tdp)
		}
	}
}

// TestNamesThatSayTooLittleFindNoCPU has names of hypervisors and clouds, and neighbors of listed names.
func TestNamesThatSayTooLittleFindNoCPU(t *testing.T) {
	for _, name := range []string{
		"", " ", "Intel(R) Xeon(R) CPU @ 2.20GHz", "Intel(R) Xeon(R) Processor @ 2.90GHz", "Intel Xeon Processor (Skylake, IBRS)",
		"Intel Xeon Processor (Cascadelake)", "Intel Core Processor (Haswell, no TSX)", "AMD EPYC", "AMD EPYC Processor",
		"AMD EPYC Processor (with IBPB)", "AMD EPYC-Rome Processor", "QEMU Virtual CPU version 2.5+", "Common KVM processor",
		"VirtualApple @ 2.50GHz processor", "Arm Neoverse-N1", "AWS Graviton2 Processor", "unknown", "0", "@", "8-Core Processor",
		"Intel(R) Xeon(R) Platinum 8259", "Intel(R) Xeon(R) Platinum 8259CLX", "Intel(R) Xeon(R) Silver 8259CL", "i7", "Intel Core",
		"Intel(R) Xeon(R) Platinum 8259CL" + strings.Repeat(" ", 1<<20), strings.Repeat("Intel Xeon ", 100_000), strings.Repeat("8259CL ", 40), strings.Repeat("\x00", 1<<20), "\x00", "\xff\xfe\xfd", "家庭",
	} {
		assert.Equal(t, (cpu{}), lookupCPU(name), name)
		if got := lookupMeasured(name); got != nil {
			t.Errorf("%.60q is taken for the measured %q", name, got.cpu)
		}
	}
}

func TestNoTwoListedCPUsHaveOneKeyAndDifferentPowers(t *testing.T) {
	seen := map[string]cpu{}
	for fields := range lines(cpuList) {
		c := cpuOf(fields)
		k := machine.Key(c.name)
		if k == "" {
			t.Errorf("%q has no key", c.name)
		}
		assert.Equal(t, hasDigit(c.name), hasDigit(k), "%v, %v", c.name, k)
		if before, ok := seen[k]; ok && before.tdp != c.tdp {
			t.Errorf("%q, %g W, and %q, %g W, are both %q", before.name, before.tdp, c.name, c.tdp, k)
		}
		seen[k] = c
	}
}

func FuzzNames(f *testing.F) {
	f.Add("Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz")
	f.Add("AMD Ryzen 7 7840U w/ Radeon  780M Graphics")
	f.Add("\x00@\xff-core (tm)")
	f.Fuzz(func(t *testing.T, name string) {
		k := machine.Key(name)
		if again := machine.Key(k); again != k && again != machine.Key(again) {
			t.Errorf("%q: the key of %q is %q", name, k, again)
		}
		for _, r := range k {
			if r < ' ' || r > '~' {
				t.Errorf("%q has the key %q", name, k)
			}
		}
		if c := lookupCPU(name); c.name != "" && machine.Key(c.name) != k {
			t.Errorf("%q found %q", name, c.name)
		}
	})
}
