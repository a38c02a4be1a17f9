// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	model "github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// release is the part of a kernel's release that does not name its builder.
var release = regexp.MustCompile(`^\d+(\.\d+)*`)

const fullCapacity = 1024

// readMachine describes the machine below root. allowed are the CPUs that may be used, nil for all.
func readMachine(root string, allowed []int) (Machine, error) {
	known, err := model.Read(root, os.Getenv)
	if err != nil && known.Threads == 0 {
		return Machine{}, err
	}
	version, _ := os.ReadFile(filepath.Join(root, "proc/sys/kernel/osrelease"))
	m := Machine{
		CPU: known.CPU, Arch: known.Arch, Kernel: release.FindString(string(version)), Virtual: known.Virtual,
		Sockets: known.Sockets, Cores: known.Cores, Threads: known.Threads, MemoryGiB: float64(known.Memory) / (1 << 30),
	}
	// Intel's efficient cores, whose capacity is not reported, get half of the largest.
	list, _ := os.ReadFile(filepath.Join(root, "sys/devices/cpu_atom/cpus"))
	var efficient []int
	_ = kernfs.ParseList(list, func(n int) { efficient = append(efficient, n) }) // empty unless cores differ
	dirs, _ := filepath.Glob(filepath.Join(root, "sys/devices/system/cpu/cpu[0-9]*"))
	for _, dir := range dirs {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "cpu"))
		socket, ok := readInt(filepath.Join(dir, "topology/physical_package_id"))
		if err != nil || !ok || allowed != nil && !slices.Contains(allowed, number) { // offline ones have no topology
			continue
		}
		c := CPU{Number: number, Socket: max(socket, 0), Capacity: fullCapacity}
		c.Core, _ = readInt(filepath.Join(dir, "topology/core_id"))
		if capacity, ok := readInt(filepath.Join(dir, "cpu_capacity")); ok {
			c.Capacity = capacity
		} else if slices.Contains(efficient, number) {
			c.Capacity /= 2
		}
		m.CPUs = append(m.CPUs, c)
	}
	if len(m.CPUs) == 0 {
		return m, errors.New("this machine shows no CPUs")
	}
	slices.SortFunc(m.CPUs, func(a, b CPU) int { return a.Number - b.Number })
	m.Sockets = max(m.Sockets, len(m.sockets()))
	return m, nil
}

func readInt(path string) (int, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return n, err == nil
}

// sockets returns the numbers of the CPUs of each socket.
func (m *Machine) sockets() map[int][]int {
	cpus := map[int][]int{}
	for _, c := range m.CPUs {
		cpus[c.Socket] = append(cpus[c.Socket], c.Number)
	}
	return cpus
}

// all returns the numbers of all CPUs.
func (m *Machine) all() (cpus []int) {
	for _, c := range m.CPUs {
		cpus = append(cpus, c.Number)
	}
	return cpus
}

// cpu returns the place of a CPU.
func (m *Machine) cpu(number int) CPU {
	return m.CPUs[slices.IndexFunc(m.CPUs, func(c CPU) bool { return c.Number == number })]
}

// localMeters returns the local meters, which are read whether or not the receiver uses them.
func localMeters(ctx context.Context, cfg *energyreceiver.Config) (meters []power.Member, err error) {
	for _, driver := range drivers.All {
		if !driver.Local || driver.OptIn && !slices.Contains(cfg.Meters.Use, driver.Name) {
			continue
		}
		meter, err := driver.Open(ctx, &cfg.Meters, &drivers.Env{Root: cfg.RootPath})
		if err != nil {
			return nil, err
		}
		if meter != nil {
			meters = append(meters, driver.Member(meter))
		}
	}
	return meters, nil
}

// socketOf returns the socket that a zone measures, -1 if it measures several.
func socketOf(z *power.Zone) int {
	rest, ok := strings.CutPrefix(string(z.Domain), "package-")
	number, _, _ := strings.Cut(rest, "-")
	if socket, err := strconv.Atoi(number); ok && err == nil {
		return socket
	}
	return -1
}

// publicID returns the ID of a zone without a name that the user chose, or a serial number: such
// zones are numbered.
func publicID(meter string, z *power.Zone, known []*Zone) string {
	if drivers.Lookup(meter).Local {
		return z.ID
	}
	number := 1
	for _, k := range known {
		if k.Meter == meter {
			number++
		}
	}
	return fmt.Sprintf("%s %d", z.Kind, number)
}

// maxThermometers is how many temperature sensors are read.
const maxThermometers = 16

// processorSensors are the hwmon drivers of processors' temperatures. Other sensors, such as
// sensors of disks, may be slow to read.
var processorSensors = []string{"coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz", "soc_thermal"}

// thermometers returns the files with temperatures in m°C.
func thermometers(root string) []string {
	found, _ := filepath.Glob(filepath.Join(root, "sys/class/thermal/thermal_zone*/temp"))
	chips, _ := filepath.Glob(filepath.Join(root, "sys/class/hwmon/hwmon*"))
	for _, chip := range chips {
		name, _ := os.ReadFile(filepath.Join(chip, "name"))
		if slices.Contains(processorSensors, strings.TrimSpace(string(name))) {
			inputs, _ := filepath.Glob(filepath.Join(chip, "temp*_input"))
			found = append(found, inputs...)
		}
	}
	return found[:min(len(found), maxThermometers)]
}
