// SPDX-License-Identifier: Apache-2.0

package hwmon

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// meaning is what the energy counters of a driver with a label measure.
type meaning struct {
	driver string
	label  string // # stands for a number
	kind   power.Kind
	// domain returns the domain of the counter with the number, and reports whether it counts anything.
	domain func(m *Meter, number uint64) (units.Domain, bool)
	wrapAt units.Energy // 0 if that is not known
}

// meanings lists the counters that are used. Left out on purpose:
//   - amd_energy's counters of single cores, Ecore#: there may be hundreds.
//   - aem1 and aem2 (drivers/hwmon/ibmaem.c): a read asks the BMC and may take 30 s.
//   - i915 and xe: graphics cards.
//   - ltc2947, ltc4282, ina238, scmi_sensors, vexpress and the like: what is connected differs from board to board.
var meanings = []meaning{
	// drivers/hwmon/amd_energy.c, Linux 5.8 to 5.12 and AMD's own module. It multiplies its count of 2^-16 J by 10^6 in
	// 64 bits before it divides by 2^16, and so starts again after 2^48 µJ.
	{"amd_energy", "Esocket#", power.Package, (*Meter).domainOfNode, 1 << 48},
	// drivers/hwmon/ibmpowernv.c, POWER9. The labels are the firmware's (skiboot, hw/occ-sensor.c).
	{"ibmpowernv", "System", power.Platform, wholeMachine, 0},
	{"ibmpowernv", "Chip #", power.Package, domainOfPackage, 0},
	{"ibmpowernv", "Chip # Memory", power.DRAM, domainOfPackage, 0},
}

// isKnown reports whether the driver has counters that are used.
func isKnown(driver string) bool {
	return slices.ContainsFunc(meanings, func(c meaning) bool { return c.driver == driver })
}

// find returns the meaning of a driver's counter and the number in its label, nil if the meaning is not known.
func find(driver, label string) (*meaning, uint64) {
	for i := range meanings {
		if c := &meanings[i]; c.driver == driver {
			if number, ok := match(c.label, label); ok {
				return c, number
			}
		}
	}
	return nil, 0
}

// match reports whether the label is as the pattern says, and returns the number at the pattern's #.
func match(pattern, label string) (number uint64, ok bool) {
	before, after, hasNumber := strings.Cut(pattern, "#")
	if !hasNumber {
		return 0, pattern == label
	}
	digits, ok := strings.CutPrefix(label, before)
	if !ok {
		return 0, false
	}
	if digits, ok = strings.CutSuffix(digits, after); !ok {
		return 0, false
	}
	number, err := kernfs.ParseUint([]byte(digits))
	return number, err == nil
}

func wholeMachine(*Meter, uint64) (units.Domain, bool) { return units.NodeCPUs, true }

func domainOfPackage(_ *Meter, number uint64) (units.Domain, bool) {
	return units.Domain("package-" + strconv.FormatUint(number, 10)), true
}

// domainOfNode returns the package that the CPUs of a NUMA node are in. The driver has a counter for each node that is
// possible, and reads the package's register through a CPU of the node. It reads nothing for a node without CPUs. A kernel
// without NUMA has one node.
func (m *Meter) domainOfNode(node uint64) (units.Domain, bool) {
	devices := filepath.Join(m.root, "sys/devices/system")
	if _, err := os.Stat(filepath.Join(devices, "node")); err != nil {
		return units.NodeCPUs, node == 0
	}
	text, err := m.readText(filepath.Join(devices, "node/node"+strconv.FormatUint(node, 10), "cpulist"))
	if err != nil {
		return "", false
	}
	first := -1
	if err := kernfs.ParseList([]byte(text), func(cpu int) {
		if first < 0 {
			first = cpu
		}
	}); err != nil {
		return "", false
	}
	text, err = m.readText(filepath.Join(devices, "cpu/cpu"+strconv.Itoa(first), "topology/physical_package_id"))
	if err != nil {
		return "", false
	}
	number, err := kernfs.ParseUint([]byte(text))
	if err != nil {
		return "", false
	}
	return domainOfPackage(m, number)
}
