// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"path/filepath"

	"github.com/prometheus/procfs"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
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
}

// Examine returns which of the wanted rules the machine does not support. It reads only the devices
// that these rules require. For a device that hangs it waits two seconds.
func (m *Machine) Examine(root string, wanted *rules.Rules, cgroups *cgroup.Tree) (x Examined) {
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
	var clocks, counters []window.Key
	if wanted.Clocks {
		clocks = append(clocks, window.KeyFrequency)
	}
	for _, event := range wanted.Events {
		counters = append(counters, window.Key(event))
	}
	x.Unclocked, x.Uncounted = m.unmeasured(root, cgroups, clocks), m.unmeasured(root, cgroups, counters)
	x.Untimed = findInterrupts(root)
	return x
}

// errNoIRQ is the reason why interrupts cannot be timed.
var errNoIRQ = errors.New("the kernel does not measure the time of interrupts: the irq column of /proc/stat is 0")

// unmeasured returns an error if one of the attribution weights cannot be measured.
func (m *Machine) unmeasured(root string, cgroups *cgroup.Tree, keys []window.Key) error {
	if len(keys) == 0 {
		return nil
	}
	_, err := kernfs.Within(root, filepath.Join(root, "sys/devices"), func() (struct{}, error) {
		for _, key := range keys {
			weigher, err := m.OpenWeigher(key, &window.KeyOptions{Cgroups: cgroups, FrequencyExponent: 1})
			if err != nil {
				return struct{}{}, err
			}
			if err := weigher.Close(); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
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
