// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/rules"
)

// Examined is the result of Examine: the rules that the machine does not support, and the parts that
// were opened to find out.
type Examined struct {
	rules.Machine
	Topology *divide.Topology // nil if attribution is not by zone, or if the CPUs cannot be divided
	Siblings *divide.Siblings // nil if the SMT weight does not apply, or if the cores cannot be read
	// Hardware is nil if hardware events are not required or cannot be counted.
	Hardware *perfevent.Hardware
}

// Close closes the parts that were opened.
func (x *Examined) Close() error {
	err := x.Siblings.Close()
	if x.Topology != nil {
		err = errors.Join(err, x.Topology.Close())
	}
	return err
}

// Examine returns which of the wanted rules the machine does not support. It reads only the devices
// that these rules require. For a device that hangs it waits two seconds.
func (m *Machine) Examine(cfg *config.Config, wanted *rules.Rules, cgroups *cgroup.Tree) (x Examined) {
	root := cfg.RootPath
	cpus := filepath.Join(root, "sys/devices/system/cpu")
	if wanted.Scope == config.ScopeZone {
		x.Topology, x.Undivided = kernfs.Within(root, cpus, func() (*divide.Topology, error) {
			return divide.OpenTopology(root)
		}, func(t *divide.Topology) { _ = t.Close() }) // it was only read from
	}
	if wanted.WeighsCores {
		x.Siblings, x.Unshared = kernfs.Within(root, cpus, func() (*divide.Siblings, error) {
			return divide.OpenSiblings(root)
		}, func(s *divide.Siblings) { _ = s.Close() }) // it was only read from
		if x.Unshared == nil && !x.Siblings.Shared() { // threads may come online later
			x.Unshared = divide.ErrUnshared
		}
	}
	if wanted.Clocks {
		x.Unclocked = m.findClocks(root, cgroups)
	}
	if wanted.IsCounted {
		m.findEvents(cfg, &x)
	}
	x.Untimed = findInterrupts(root)
	return x
}

// findEvents finds the hardware events of each process, or the reasons why they are not counted.
func (m *Machine) findEvents(cfg *config.Config, x *Examined) {
	devices := filepath.Join(cfg.RootPath, "sys/devices")
	x.Hardware, x.Uncounted = kernfs.Within(cfg.RootPath, devices, func() (*perfevent.Hardware, error) {
		return m.FindHardware(cfg.RootPath)
	}, nil)
	if x.Hardware != nil {
		x.Unmissed = x.Hardware.Misses
	}
	if !cfg.Meters.HasZone(power.DRAM) {
		_, x.NoDRAM = kernfs.Within(cfg.RootPath, devices, func() (struct{}, error) { return struct{}{}, findDRAM(cfg.RootPath) }, nil)
	}
}

// dramFiles are patterns of files of sensors of memory: RAPL by powercap or perf events, and the
// counters of a Cray node.
var dramFiles = []string{
	"sys/class/powercap/*/name", "sys/bus/event_source/devices/power/events/energy-ram", "sys/cray/pm_counters/memory_energy",
}

// findDRAM returns errNoDRAM if the machine has no sensor of memory.
func findDRAM(root string) error {
	for _, pattern := range dramFiles {
		files, _ := filepath.Glob(filepath.Join(root, pattern)) // the pattern is valid
		for _, file := range files {
			name, err := os.ReadFile(file)
			if filepath.Base(file) != "name" || err == nil && strings.TrimSpace(string(name)) == "dram" {
				return nil
			}
		}
	}
	return errNoDRAM
}

var (
	// errNoIRQ is the reason why interrupts cannot be timed.
	errNoIRQ  = errors.New("the kernel does not measure the time of interrupts: the irq column of /proc/stat is 0")
	errNoDRAM = errors.New("the machine had no sensor of memory at startup")
)

// findClocks returns an error if clock rates cannot be measured.
func (m *Machine) findClocks(root string, cgroups *cgroup.Tree) error {
	_, err := kernfs.Within(root, filepath.Join(root, "sys/devices"), func() (struct{}, error) {
		weigher, err := m.OpenWeigher(window.KeyFrequency, &window.KeyOptions{Cgroups: cgroups, FrequencyExponent: 1})
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, weigher.Close()
	}, nil)
	return err
}

// findInterrupts returns errNoIRQ if the kernel of a host does not measure the time of interrupts. If
// the kernel measures it, the irq column of /proc/stat is not 0 soon after boot.
func findInterrupts(root string) error {
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return nil // a file that cannot be read is a condition
	}
	if stat, err := proc.Stat(); err != nil || stat.CPUTotal.IRQ > 0 {
		return nil
	}
	return errNoIRQ
}
