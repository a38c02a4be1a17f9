// SPDX-License-Identifier: Apache-2.0

package machine

import "fmt"

// armName returns the name of an implementer of Arm CPUs, and the name of a CPU by the implementer
// and the part in MIDR_EL1. If an implementer or CPU has no name, armName returns its number. part
// is -1 if it is not available.
func armName(implementer, part int) (vendor, cpu string) {
	vendor = implementers[implementer]
	if vendor == "" {
		vendor = fmt.Sprintf("Arm implementer 0x%02x", implementer)
	}
	if name := parts[midr{implementer, part}]; name != "" {
		return vendor, name
	}
	if part < 0 {
		return vendor, vendor + " CPU"
	}
	return vendor, fmt.Sprintf("%s part 0x%03x", vendor, part)
}

// implementers have the names of ARM_CPU_IMP_* in the kernel's arch/arm64/include/asm/cputype.h.
var implementers = map[int]string{
	0x41: "Arm", 0x42: "Broadcom", 0x43: "Cavium", 0x46: "Fujitsu", 0x48: "HiSilicon", 0x4e: "NVIDIA", 0x50: "APM", 0x51: "Qualcomm",
	0x61: "Apple", 0x6d: "Microsoft", 0x70: "Phytium", 0xc0: "Ampere",
}

// midr is the implementer and the part of MIDR_EL1.
type midr struct{ implementer, part int }

// parts are the CPUs of servers, and of boards that are used as servers, by *_CPU_PART_* in the
// kernel's arch/arm64/include/asm/cputype.h. CPUs of Apple have the name of the chip, which has two
// kinds of CPUs.
var parts = map[midr]string{
	{0x41, 0xd03}: "Arm Cortex-A53", {0x41, 0xd04}: "Arm Cortex-A35", {0x41, 0xd05}: "Arm Cortex-A55", {0x41, 0xd07}: "Arm Cortex-A57",
	{0x41, 0xd08}: "Arm Cortex-A72", {0x41, 0xd09}: "Arm Cortex-A73", {0x41, 0xd0a}: "Arm Cortex-A75", {0x41, 0xd0b}: "Arm Cortex-A76",
	{0x41, 0xd0d}: "Arm Cortex-A77", {0x41, 0xd41}: "Arm Cortex-A78", {0x41, 0xd42}: "Arm Cortex-A78AE", {0x41, 0xd46}: "Arm Cortex-A510",
	{0x41, 0xd47}: "Arm Cortex-A710", {0x41, 0xd4b}: "Arm Cortex-A78C", {0x41, 0xd4d}: "Arm Cortex-A715", {0x41, 0xd80}: "Arm Cortex-A520",
	{0x41, 0xd81}: "Arm Cortex-A720", {0x41, 0xd87}: "Arm Cortex-A725", {0x41, 0xd44}: "Arm Cortex-X1", {0x41, 0xd48}: "Arm Cortex-X2",
	{0x41, 0xd4e}: "Arm Cortex-X3", {0x41, 0xd82}: "Arm Cortex-X4", {0x41, 0xd85}: "Arm Cortex-X925",
	{0x41, 0xd0c}: "Arm Neoverse-N1", {0x41, 0xd49}: "Arm Neoverse-N2", {0x41, 0xd8e}: "Arm Neoverse-N3",
	{0x41, 0xd40}: "Arm Neoverse-V1", {0x41, 0xd4f}: "Arm Neoverse-V2", {0x41, 0xd84}: "Arm Neoverse-V3",
	{0x42, 0x516}: "Cavium ThunderX2", {0x43, 0x0af}: "Cavium ThunderX2", {0x43, 0x0a1}: "Cavium ThunderX",
	{0x46, 0x001}: "Fujitsu A64FX",
	{0x48, 0xd01}: "HiSilicon Kunpeng 920", {0x48, 0xd02}: "HiSilicon HIP09", {0x48, 0xd06}: "HiSilicon HIP12",
	{0x4e, 0x004}: "NVIDIA Carmel",
	{0x50, 0x000}: "APM X-Gene",
	{0x51, 0xc00}: "Qualcomm Falkor", {0x51, 0x001}: "Qualcomm Oryon",
	{0x61, 0x022}: "Apple M1", {0x61, 0x023}: "Apple M1", {0x61, 0x024}: "Apple M1 Pro", {0x61, 0x025}: "Apple M1 Pro",
	{0x61, 0x028}: "Apple M1 Max", {0x61, 0x029}: "Apple M1 Max", {0x61, 0x032}: "Apple M2", {0x61, 0x033}: "Apple M2",
	{0x61, 0x034}: "Apple M2 Pro", {0x61, 0x035}: "Apple M2 Pro", {0x61, 0x038}: "Apple M2 Max", {0x61, 0x039}: "Apple M2 Max",
	{0x6d, 0xd49}: "Microsoft Azure Cobalt 100",
	{0xc0, 0xac3}: "Ampere-1", {0xc0, 0xac4}: "Ampere-1A",
}

// chip returns the processor of a cloud that has CPUs with the name, or "" if the cloud is not
// listed.
func chip(cloud, cpu string) string { return chips[[2]string{cloud, cpu}] }

// chips has the names of processors by cloud and CPU, from the clouds' pages about their machines.
// docs/virtual-machines.md links these pages.
var chips = map[[2]string]string{
	{"aws", "Arm Cortex-A72"}:           "AWS Graviton",
	{"aws", "Arm Neoverse-N1"}:          "AWS Graviton2",
	{"aws", "Arm Neoverse-V1"}:          "AWS Graviton3",
	{"aws", "Arm Neoverse-V2"}:          "AWS Graviton4",
	{"azure", "Arm Neoverse-N1"}:        "Ampere Altra",
	{"azure", "Arm Neoverse-N2"}:        "Azure Cobalt 100",
	{"gcp", "Arm Neoverse-N1"}:          "Ampere Altra",
	{"gcp", "Arm Neoverse-V2"}:          "Google Axion",
	{"hetzner", "Arm Neoverse-N1"}:      "Ampere Altra",
	{"oracle_cloud", "Arm Neoverse-N1"}: "Ampere Altra",
}
