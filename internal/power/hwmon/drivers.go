// SPDX-License-Identifier: Apache-2.0

package hwmon

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// meaning describes the quantity that sensors of a driver with a given name or label measure. In
// driver, sensor and label, # matches a number. An empty sensor or label matches any.
type meaning struct {
	driver string
	sensor string // "power1"
	label  string
	// kind of the zones, or notUsed.
	kind power.Kind
	// domain returns the domain of a sensor, and false if the sensor is not used. number is the
	// number in the label.
	domain domainFunc

	// only reports whether the meaning applies to a chip. If nil, it applies to all chips.
	only func(m *finder, c *chip, chips []*chip) bool
	// parent is the label of the sensor with the same number that contains this sensor. If there is
	// no such sensor, the kind is whole.
	parent string
	whole  power.Kind

	wrapAt units.Energy  // of an energy counter, 0 if it does not wrap
	every  time.Duration // how often it is read by a goroutine; 0 means energies with each collection, powers each second
	// maxUnchanged is how long a counter that is polled may show the same value. 0 means forever.
	maxUnchanged time.Duration
	instant      bool // powerN_input is read although there is a powerN_average
}

// notUsed is the kind of limits, and of parts of hardware that another sensor measures.
const notUsed power.Kind = ""

type domainFunc func(m *finder, c *chip, number uint64) (units.Domain, bool)

// meanings lists the sensors that are used. If chips of several drivers measure a kind, only the
// driver that is listed first is used, but each graphics card is a zone. Unused returns all other
// sensors, such as sensors whose meaning depends on the board: ina2xx, ina3221 of most boards,
// ltc2947, lineage_pem, pmbus (pin, pout), corsairpsu, scmi_sensors, vexpress. The meaning of the
// two counters of aem2 is not documented.
var meanings = []meaning{
	// drivers/hwmon/amd_energy.c, Linux 5.8 to 5.12 and AMD's own module. It multiplies its count
	// of 2^-16 J by 10^6 in 64 bits before it divides by 2^16, so its counters wrap after 2^48 µJ.
	{driver: "amd_energy", label: "Esocket#", kind: power.Package, domain: (*finder).domainOfNode, wrapAt: 1 << 48},
	{driver: "amd_energy", label: "Ecore#", kind: notUsed},

	// github.com/BoukeHaarsma23/zenergy, the maintained fork of amd_energy for Ryzen and
	// Threadripper. Any user may read its counters.
	{driver: "zenergy", label: "Esocket#", kind: power.Package, domain: (*finder).domainOfNode, wrapAt: 1 << 48},
	{driver: "zenergy", label: "Ecore#", kind: notUsed},

	// drivers/platform/x86/amd/hsmp/hwmon.c, Linux 6.16: the power of one EPYC socket. A chip does
	// not report the number of its socket.
	{driver: "amd_hsmp_hwmon", sensor: "power1", kind: power.Package, domain: node},

	// drivers/hwmon/ibmpowernv.c, POWER8 and 9. The labels are the firmware's (skiboot, hw/occ-sensor.c).
	{driver: "ibmpowernv", label: "System", kind: power.Platform, domain: node},
	{driver: "ibmpowernv", label: "Chip #", kind: power.Package, domain: packageOf},
	{driver: "ibmpowernv", label: "Chip # Memory", kind: power.DRAM, domain: packageOf},

	// drivers/hwmon/ibmaem.c, version 1: one counter of the machine. A read queries the BMC and may
	// take 30 s. If the BMC does not answer, the driver repeats the last value.
	{driver: "aem1", sensor: "energy1", kind: power.Platform, domain: node, only: oneOfItsDriver, every: 5 * time.Second, maxUnchanged: time.Minute},
	{driver: "aem2", sensor: "power#", kind: notUsed}, // limits, and the powers of the counters

	// drivers/hwmon/acpi_power_meter.c. NVIDIA's firmware identifies sockets by the text of
	// power1_oem_info (edk2-nvidia, power meter SSDT). Grace contains CPU and SysIO; Module
	// contains Grace and the GPU.
	{driver: "power_meter", label: "Grace Power Socket #", kind: power.Package, domain: packageOf},
	{driver: "power_meter", label: "CPU Power Socket #", kind: power.Core, domain: packageOf, parent: "Grace Power Socket #", whole: power.Package},
	{driver: "power_meter", label: "SysIO Power Socket #", kind: power.Uncore, domain: packageOf, parent: "Grace Power Socket #", whole: power.Package},
	{driver: "power_meter", kind: power.Platform, domain: node, only: oneMeterOfTheMachine},

	// drivers/hwmon/macsmc-hwmon.c. Labels: arch/arm64/boot/dts/apple/hwmon-common.dtsi.
	{driver: "macsmc_hwmon", label: "Total System Power", kind: power.Platform, domain: node},

	// drivers/hwmon/ina3221.c on NVIDIA's Jetson modules. VDD_IN is the module's input
	// (tegra*-p*.dtsi). It contains the other rails, and these overlap.
	{driver: "ina3221", label: "VDD_IN", kind: power.Platform, domain: node, only: onJetson},
	{driver: "ina3221", kind: notUsed, only: besideVDDIn},

	// drivers/hwmon/xgene-hwmon.c, APM X-Gene, Ampere Altra. The package is the sum of the cores
	// and the rest of the chip.
	{driver: "apm_xgene", label: "CPU power", kind: power.Package, domain: node},
	{driver: "apm_xgene", label: "IO power", kind: power.Package, domain: node},
	{driver: "altra_hwmon", label: "Core Energy #", kind: notUsed}, // of Ampere's own kernel; the rest of the chip is not measured

	// drivers/hwmon/fam15h_power.c: power1_input is the processor. power1_average is the cores, and
	// a read of it sleeps.
	{driver: "fam15h_power", sensor: "power1", kind: power.Package, domain: node, instant: true},

	// Graphics cards. drivers/gpu/drm/xe/xe_hwmon.c: energy1 is the card and energy2 the package on
	// it. i915 has the card (i915_gt#: tiles). Both have counters for discrete cards only. They add
	// up a register of 32 bits with each read, which would wrap in four minutes at 1 kW. The power that
	// amdgpu reports of an APU includes the CPU. The energy accumulator in gpu_metrics is not used.
	// It is invalid on SMU 13.0, and stays 0 on some cards.
	{driver: "xe", sensor: "energy#", kind: power.GPU, domain: card, every: time.Second},
	{driver: "i915", sensor: "energy1", kind: power.GPU, domain: card, every: time.Second},
	{driver: "i915_gt#", kind: notUsed},
	{driver: "amdgpu", sensor: "power1", kind: power.GPU, domain: amdCard, only: isCard},
	{driver: "nouveau", sensor: "power1", kind: power.GPU, domain: card},
}

// bothFiles lists the drivers that show voltages (inN_input, mV) and currents (currN_input, mA) of
// their first channels but not the powers. Their sensor powerN is the product.
var bothFiles = map[string]int{"ina3221": 3}

// find returns the meaning of a sensor and the number in its label. The meaning is nil if the table
// does not list the sensor.
func (m *finder) find(s *sensor, chips []*chip) (*meaning, uint64) {
	for i := range meanings {
		c := &meanings[i]
		if _, ok := match(c.driver, s.chip.driver); !ok {
			continue
		}
		if _, ok := match(c.sensor, s.name); !ok && c.sensor != "" {
			continue
		}
		number, ok := match(c.label, s.label)
		if !ok && c.label != "" || c.only != nil && !c.only(m, s.chip, chips) {
			continue
		}
		return c, number
	}
	return nil, 0
}

// match reports whether text matches pattern, and returns the number at the pattern's #.
func match(pattern, text string) (number uint64, ok bool) {
	before, after, hasNumber := strings.Cut(pattern, "#")
	if !hasNumber {
		return 0, pattern == text
	}
	digits, ok := strings.CutPrefix(text, before)
	if !ok {
		return 0, false
	}
	if digits, ok = strings.CutSuffix(digits, after); !ok {
		return 0, false
	}
	number, err := kernfs.ParseUint([]byte(digits))
	return number, err == nil
}

func node(*finder, *chip, uint64) (units.Domain, bool) { return units.NodeCPUs, true }

func packageOf(_ *finder, _ *chip, number uint64) (units.Domain, bool) {
	return units.Domain("package-" + strconv.FormatUint(number, 10)), true
}

// card returns the domain of a graphics card, whose device is named by its PCI address.
func card(_ *finder, c *chip, _ uint64) (units.Domain, bool) {
	return units.GPU(c.device), true
}

// amdCard returns the domain of an AMD card. An MI250 or MI250X has two dies, each with a PCI
// address. The first die reports the power of both; the second die reports 0, and a limit of 0
// (drivers/gpu/drm/amd/pm/swsmu/smu13/aldebaran_ppt.c, aldebaran_is_primary). So the second die has
// no zone, and the zone of the first has its own domain, because the users of both dies share it.
func amdCard(m *finder, c *chip, number uint64) (units.Domain, bool) {
	switch m.text(c.path, "device") {
	case "0x7408", "0x740c": // drivers/gpu/drm/amd/amdgpu/amdgpu_drv.c, Aldebaran; 0x740f is the MI210, which has one die
		return units.Domain("gpu-module-" + c.device), m.text(c.dir, "power1_cap") != "0"
	}
	return card(m, c, number)
}

// domainOfNode returns the package that the CPUs of a NUMA node are in. The driver has a counter
// for each possible node, and reads the package's register through a CPU of the node. Counters of
// nodes without CPUs do not advance. A kernel without NUMA has one node.
func (m *finder) domainOfNode(_ *chip, node uint64) (units.Domain, bool) {
	devices := filepath.Join(m.root, "sys/devices/system")
	if _, err := os.Stat(filepath.Join(devices, "node")); err != nil {
		return units.NodeCPUs, node == 0
	}
	first := -1
	if err := kernfs.ParseList([]byte(m.text(devices, "node/node"+strconv.FormatUint(node, 10), "cpulist")), func(cpu int) {
		if first < 0 {
			first = cpu
		}
	}); err != nil {
		return "", false
	}
	number, err := kernfs.ParseUint([]byte(m.text(devices, "cpu/cpu"+strconv.Itoa(first), "topology/physical_package_id")))
	domain, _ := packageOf(m, nil, number)
	return domain, err == nil
}

// oneOfItsDriver reports whether no other chip has the same driver.
func oneOfItsDriver(_ *finder, c *chip, chips []*chip) bool {
	return !slices.ContainsFunc(chips, func(other *chip) bool { return other != c && other.driver == c.driver })
}

// oneMeterOfTheMachine reports whether a chip is the only ACPI power meter and may measure the
// whole machine. A meter of a superchip's modules does not.
func oneMeterOfTheMachine(m *finder, c *chip, chips []*chip) bool {
	module := slices.ContainsFunc(c.sensors, func(s *sensor) bool { return strings.HasPrefix(s.label, "Module Power") })
	return !module && oneOfItsDriver(m, c, chips)
}

// onJetson reports whether the board has an NVIDIA Tegra, by its device tree.
func onJetson(m *finder, _ *chip, _ []*chip) bool {
	return strings.Contains(m.text(m.root, "sys/firmware/devicetree/base/compatible"), "nvidia,tegra")
}

// besideVDDIn reports whether a chip on a Jetson board measures the module's input in addition to
// other rails.
func besideVDDIn(m *finder, c *chip, chips []*chip) bool {
	return onJetson(m, c, chips) && slices.ContainsFunc(c.sensors, func(s *sensor) bool { return s.label == "VDD_IN" })
}

// isCard reports whether an amdgpu chip is a graphics card and not an APU. All APUs except the
// MI300A have a vddnb, and no card has (drivers/gpu/drm/amd/pm/amdgpu_pm.c,
// hwmon_attributes_visible).
func isCard(m *finder, c *chip, _ []*chip) bool {
	const mi300A = "0x74a0" // drivers/gpu/drm/amd/amdgpu/aqua_vanjaram.c
	return m.text(c.path, "device") != mi300A && m.text(c.dir, "in1_label") != "vddnb"
}
