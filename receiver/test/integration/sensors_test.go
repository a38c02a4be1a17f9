// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The kernel's drivers for ACPI power meters, a BMC, IBM's Active Energy Manager and PMBus are
// tested on devices that the test emulates. The truth is a consumption that changes while
// collectors read the sensors and the sensors fail.
//
// An ACPI meter with unknown power fails with ENODATA. If the firmware's method fails, Linux 6.18
// returns ENODEV, and 6.1 repeats the last value. While the BMC is disconnected, ibmaem repeats its
// last energy without an error, and QEMU answers with completion code 0xd2 (initialization in
// progress). A PMBus chip returns under the same hwmonN.
func TestSensorsInAGuest(t *testing.T) {
	need(t)
	collector := collectorBinary(t)
	t.Parallel() // in parallel with the ARM guest, because both mostly wait for sensors
	for _, version := range []string{"6.1.", "6.18."} {
		t.Run("Linux"+strings.TrimSuffix(version, "."), func(t *testing.T) {
			k := guestKernel(t, version, "amd64")
			t.Parallel()
			s := &sensors{consumed: newConsumption(idleWatts), isOld: version == "6.1."}
			s.boots(t, k, collector)
			s.measures(t)
			s.compares(t)
		})
	}
}

// idleWatts is the power before the first readings and after the last ones. A BMC that reports 0 W
// has no sensor.
const idleWatts = 2

// sensors are a guest with emulated sensors and the collectors that read them.
type sensors struct {
	*guest
	consumed *consumption
	acpi     *acpiMeters
	bmc      *bmc
	chip     *usbChip // nil if the kernel has no driver

	hwmon, ipmi, named *guestCollector
	// isOld reports whether the kernel is 6.1. Its ACPI driver drops the error of the firmware's
	// method. In its guest the BMC is disconnected for a minute, until its energy counter, which
	// the driver repeats, counts as no longer updated.
	isOld bool

	unknown, failing during // of the first ACPI meter, in emissions of hwmon
	gone             during // of the BMC, in emissions of ipmi
	unplugged        during // of the chip, in emissions of named
}

// IDs of the sensors.
const (
	grace = "ACPI000D:00:Grace Power Socket 0"
	cpu   = "ACPI000D:01:CPU Power Socket 0"
	aem   = "aem.0:energy1"
	dcmi  = "ipmi0"
	pmbus = "0-0058:pin"
)

// sensor is the expected reading of a sensor: a share of the consumption, within a bound.
type sensor struct {
	id           string
	share, bound float64
}

// read returns the sensors that each collector reads.
func (s *sensors) read() map[*guestCollector][]sensor {
	all := map[*guestCollector][]sensor{
		s.hwmon: {{grace, 1, 0.01}, {cpu, cpuShare, 0.01}, {aem, 1, 0.005}},
		s.ipmi:  {{dcmi, 1, 0.02}},
	}
	if s.chip != nil {
		all[s.named] = []sensor{{pmbus, 1, 0.02}}
	}
	return all
}

func (s *sensors) boots(t *testing.T, k kernel, collector string) {
	t.Helper()
	s.acpi, s.bmc = newACPIMeters(t, s.consumed), newBMC(t, s.consumed, 5) // with an average of 5 s
	o := &guestOptions{
		name: "sensors-" + k.release, kernel: k, files: map[string]string{"otelcol-energy": collector},
		modules: []string{"acpi_power_meter", "ipmi_si", "ipmi_devintf", "ibmaem"}, arguments: s.acpi.kernelArguments(),
		qemu: append(s.acpi.qemu(), s.bmc.qemu()...), inherit: []*os.File{s.acpi.memory},
	}
	if k.modules(t)["pmbus"] != "" {
		s.chip = newUSBChip(t, s.consumed)
		o.modules, o.qemu = append(o.modules, chipModules...), append(o.qemu, s.chip.qemu()...)
	}
	if s.guest = startGuest(t, o); s.chip != nil {
		s.addsChip(t)
	}
	eventually(t, "the drivers have found their devices", func() bool {
		return len(s.finds(t, "/dev/ipmi0")) == 1 && len(s.finds(t, "/sys/class/hwmon/hwmon*/device/energy1_input")) == 1 &&
			len(s.finds(t, "/sys/bus/acpi/devices/ACPI000D:*/power1_average"))+len(s.finds(t, "/sys/class/hwmon/hwmon*/power1_average")) >= 2
	})
}

// measures runs the collectors while the power changes and sensors fail.
func (s *sensors) measures(t *testing.T) {
	t.Helper()
	s.hwmon = s.startsCollector(t, "hwmon", "meters: {use: [hwmon]}", "zones: [package, core, platform]", "cpu_time: procfs")
	s.ipmi = s.startsCollector(t, "ipmi", "meters: {use: [ipmi]}", "zones: [platform]", "cpu_time: procfs")
	if s.chip != nil {
		s.named = s.startsCollector(t, "pmbus", "meters: {use: [hwmon], hwmon: {sensors: {pmbus/pin: dram}}}",
			"zones: [dram]", "cpu_time: procfs")
	}
	s.readings(t, 1)
	reach(t, s.consumed, 300, 5*time.Second)
	reach(t, s.consumed, 180, 5*time.Second)
	reach(t, s.consumed, 250, 3*time.Second)
	s.readings(t, 2) // while the power is constant
	s.breaksACPI(t)
	s.breaksBMC(t)
	reach(t, s.consumed, idleWatts, 4*time.Second)
	s.readings(t, 2)
	for c := range s.read() {
		c.stops(t)
	}
	s.powersOff(t)
}

// readings waits for a number of new readings of every sensor.
func (s *sensors) readings(t *testing.T, more int) {
	t.Helper()
	for c, all := range s.read() {
		for _, of := range all {
			c.measures(t, more, of.id)
		}
	}
}

// reach changes the power and waits for the end of the change.
func reach(t *testing.T, consumed *consumption, watts float64, over time.Duration) {
	t.Helper()
	consumed.changes(watts, over)
	end := time.Now().Add(over)
	eventually(t, "the power is reached", func() bool { return time.Now().After(end) })
}

// breaksACPI makes the first power meter fail in two ways while the power is constant.
func (s *sensors) breaksACPI(t *testing.T) {
	t.Helper()
	s.acpi.fails(acpiFirstUnknown)
	s.hwmon.says(t, degraded, 0)
	s.unknown = s.hwmon.lasts(t, 3)
	s.acpi.fails(0)
	s.hwmon.says(t, recovered, 0)

	s.acpi.fails(acpiFirstFails)
	if !s.isOld {
		s.hwmon.says(t, degraded, 1)
	}
	s.failing = s.hwmon.lasts(t, 3)
	s.acpi.fails(0)
	if !s.isOld {
		s.hwmon.says(t, recovered, 1)
	}
}

// breaksBMC makes the BMC and the chip disappear and return while the power is constant.
func (s *sensors) breaksBMC(t *testing.T) {
	t.Helper()
	s.bmc.vanishes()
	if s.chip != nil {
		s.chip.vanishes()
	}
	s.ipmi.says(t, degraded, 0)
	s.gone = s.ipmi.lasts(t, 3)
	if s.isOld {
		s.hwmon.says(t, "cannot read "+aem+": the energy counter is no longer updated", 0)
	}
	s.bmc.appears(t)
	if s.chip != nil {
		s.named.says(t, "cannot read "+pmbus, 0)
		s.unplugged = s.named.lasts(t, 3)
		s.chip.appears(t)
		s.addsChip(t)
		s.named.says(t, recovered, 0)
	}
	s.ipmi.says(t, recovered, 0)
	s.hwmon.measures(t, 1, aem)
	if s.isOld {
		s.hwmon.says(t, recovered, 1)
	}
}

const degraded, recovered = "Collection degraded", "Collection recovered"

func (s *sensors) compares(t *testing.T) {
	t.Helper()
	for c, all := range s.read() {
		for _, of := range all {
			c.requireEnergy(t, of.id, s.consumed, of.share, of.bound)
		}
	}
	assert.Zero(t, s.hwmon.gained(grace, s.unknown), "energy of a meter with unknown power")
	assert.Positive(t, s.hwmon.gained(cpu, s.unknown), "energy of the other meter")
	assert.Equal(t, s.isOld, s.hwmon.gained(grace, s.failing) > 0, "energy of a meter whose method fails")
	assert.Zero(t, s.ipmi.gained(dcmi, s.gone), "energy without the BMC")
	assert.Contains(t, s.hwmon.degraded(), "cannot read "+grace)
	assert.Contains(t, s.hwmon.degraded(), "no data available")
	assert.Contains(t, s.ipmi.degraded(), "completion code 0xd2")
	requireBalance(t, s.hwmon.emissions, "package", "core", "platform")
	requireBalance(t, s.ipmi.emissions, "platform")
	if s.named != nil {
		s.named.requireEnergy(t, pmbus, s.consumed, 1, 0.02)
		assert.Zero(t, s.named.gained(pmbus, s.unplugged), "energy of an unplugged chip")
		requireBalance(t, s.named.emissions, "dram")
	}
}

// chipModules are the drivers of a usbChip.
var chipModules = []string{"xhci_pci", "i2c_tiny_usb", "pmbus"}

// addsChip makes the kernel use the chip after its bus exists: the kernel does not detect PMBus
// devices.
func (g *guest) addsChip(t *testing.T) {
	t.Helper()
	var bus string
	eventually(t, "the USB adapter's bus exists", func() bool {
		for _, name := range g.finds(t, "/sys/bus/i2c/devices/i2c-*/name") {
			if text, err := g.reads(t, name); err == nil && strings.HasPrefix(text, "i2c-tiny-usb") {
				bus = filepath.Dir(name)
			}
		}
		return bus != ""
	})
	g.writes(t, bus+"/new_device", "pmbus 0x58")
	require.NotEmpty(t, g.finds(t, bus+"/*-0058/hwmon/hwmon*"), "the driver has the chip")
}
