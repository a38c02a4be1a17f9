// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/machine"
)

// x86Families maps the family and model of CPUID to families of the lists (Linux,
// arch/x86/include/asm/intel-family.h and arch/x86/kernel/cpu/amd.c). If several lines match a
// model, the first line applies whose highest stepping is at least the stepping of the machine.
var x86Families = []struct {
	vendor        string
	family        int
	model, toward int // the range of models
	stepping      int // the highest stepping
	name          string
}{
	{"GenuineIntel", 6, 42, 42, 15, "intel-sandybridge"},
	{"GenuineIntel", 6, 45, 45, 15, "intel-sandybridge"},
	{"GenuineIntel", 6, 58, 58, 15, "intel-ivybridge"},
	{"GenuineIntel", 6, 62, 62, 15, "intel-ivybridge"},
	{"GenuineIntel", 6, 60, 60, 15, "intel-haswell"},
	{"GenuineIntel", 6, 63, 63, 15, "intel-haswell"},
	{"GenuineIntel", 6, 69, 70, 15, "intel-haswell"},
	{"GenuineIntel", 6, 61, 61, 15, "intel-broadwell"},
	{"GenuineIntel", 6, 71, 71, 15, "intel-broadwell"},
	{"GenuineIntel", 6, 79, 79, 15, "intel-broadwell"},
	{"GenuineIntel", 6, 86, 86, 15, "intel-broadwell"},
	{"GenuineIntel", 6, 78, 78, 15, "intel-skylake-client"},
	{"GenuineIntel", 6, 94, 94, 15, "intel-skylake-client"},
	{"GenuineIntel", 6, 85, 85, 4, "intel-skylake"},
	{"GenuineIntel", 6, 85, 85, 15, "intel-cascadelake"}, // 10 and 11 are Cooper Lake, its successor in name only
	{"GenuineIntel", 6, 142, 142, 15, "intel-coffeelake"},
	{"GenuineIntel", 6, 158, 158, 15, "intel-coffeelake"},
	{"GenuineIntel", 6, 106, 106, 15, "intel-icelake"},
	{"GenuineIntel", 6, 108, 108, 15, "intel-icelake"},
	{"GenuineIntel", 6, 143, 143, 15, "intel-sapphirerapids"},
	{"GenuineIntel", 6, 207, 207, 15, "intel-emeraldrapids"},
	{"GenuineIntel", 6, 173, 174, 15, "intel-graniterapids"},
	{"AuthenticAMD", 23, 0, 15, 15, "amd-epyc-gen1"},
	{"AuthenticAMD", 23, 48, 63, 15, "amd-epyc-gen2"},
	{"AuthenticAMD", 25, 0, 15, 15, "amd-epyc-gen3"},
	{"AuthenticAMD", 25, 16, 31, 15, "amd-epyc-gen4"},
	{"AuthenticAMD", 25, 160, 175, 15, "amd-epyc-gen4"},
	{"AuthenticAMD", 26, 0, 31, 15, "amd-epyc-gen5"},
}

// familyWords maps words in names to the CPU family. The names are names of hypervisors' CPU models
// ("Intel Xeon Processor (Cascadelake)"), of instance types and of Arm's cores. The words have the
// form of machine.Key, without spaces.
var familyWords = []struct{ word, name string }{
	{"sandybridge", "intel-sandybridge"},
	{"ivybridge", "intel-ivybridge"},
	{"haswell", "intel-haswell"},
	{"broadwell", "intel-broadwell"},
	{"skylake", "intel-skylake"},
	{"cascadelake", "intel-cascadelake"},
	{"coffeelake", "intel-coffeelake"},
	{"icelake", "intel-icelake"},
	{"sapphirerapids", "intel-sapphirerapids"},
	{"emeraldrapids", "intel-emeraldrapids"},
	{"graniterapids", "intel-graniterapids"},
	{"epyc1st", "amd-epyc-gen1"},
	{"epycrome", "amd-epyc-gen2"},
	{"epyc2nd", "amd-epyc-gen2"},
	{"epyc7r32", "amd-epyc-gen2"},
	{"epycmilan", "amd-epyc-gen3"},
	{"epyc3rd", "amd-epyc-gen3"},
	{"epycgenoa", "amd-epyc-gen4"},
	{"epyc9r14", "amd-epyc-gen4"},
	{"epycturin", "amd-epyc-gen5"},
	{"epyc9r45", "amd-epyc-gen5"},
	{"epyc9r05", "amd-epyc-gen5"},
	{"epyc7571", "amd-epyc-gen1"},
	{"neoversen1", "arm-neoverse-n1"},
	{"graviton2", "arm-neoverse-n1"},
	{"neoversev2", "arm-neoverse-v2"},
	{"graviton4", "arm-neoverse-v2"},
	{"axion", "arm-neoverse-v2"},
	{"amperealtra", "arm-neoverse-n1"},
	{"grace", "arm-neoverse-v2"},
	{"neoverse", "arm"},
	{"graviton", "arm"},
}

// familyOf returns the family of a machine whose CPU is not listed: from the numbers of CPUID, the
// names, or the CPU of its instance type. It returns "arm" for any other Arm CPU, and "" if the
// family cannot be determined.
func familyOf(m machine.Machine, instanceCPU string) string {
	for _, f := range x86Families {
		if m.Vendor == f.vendor && m.Family == f.family && m.Model >= f.model && m.Model <= f.toward && m.Stepping <= f.stepping {
			return f.name
		}
	}
	for _, name := range [...]string{m.Chip, m.CPU, instanceCPU} {
		if len(name) > machine.MaxName {
			continue
		}
		name = together.Replace(strings.ToLower(name))
		for _, f := range familyWords {
			if strings.Contains(name, f.word) {
				return f.name
			}
		}
	}
	if strings.HasPrefix(m.Arch, "arm") {
		return "arm"
	}
	return ""
}

var together = strings.NewReplacer(" ", "", "-", "", "_", "")

// threadsPerCore returns the number of the machine's threads on one core of the host. It is 2 on
// x86, because servers have simultaneous multithreading, and 1 on Arm and for whole cores.
func (h *host) threadsPerCore() int {
	if isArm(h.family) || h.hasWholeCores() {
		return 1
	}
	return 2
}

// hasWholeCores reports whether each thread of a virtual x86 machine is a whole core of the host.
// On AWS and GCP the topology shows that (docs/virtual-machines.md lists the types). Other
// hypervisors report a topology that does not match the host.
func (h *host) hasWholeCores() bool {
	return h.Virtual && h.Arch == "amd64" && h.Threads > 1 && h.Cores == h.Threads && (h.Cloud == "aws" || h.Cloud == "gcp")
}

func isArm(family string) bool { return strings.HasPrefix(family, "arm") }

// isXeonScalable reports whether the machine's CPU is like the CPUs of the median curve: Xeon Gold
// and Platinum of two generations. The families also contain smaller CPUs (Silver, Bronze, W, D,
// E3). For a CPU that is not listed, the family decides.
func (h *host) isXeonScalable() bool {
	if h.cpu.name != "" && !strings.Contains(h.cpu.name, "Gold") && !strings.Contains(h.cpu.name, "Platinum") {
		return false
	}
	return h.family == "intel-skylake" || h.family == "intel-cascadelake"
}
