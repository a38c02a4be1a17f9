// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/note"
	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/numa"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/internal/workload"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/receiver/internal/rules"
)

// Node provides the CPU times of the node and of its processes, the cgroups, the rules that the
// machine supports, and the attribution weights that are measured.
type Node struct {
	cfg      *config.Config
	logger   *zap.Logger
	machine  *machine.Machine
	examined rules.Machine
	// uncounted is the reason if hardware events are not counted, or only in a part of the time, as
	// last logged.
	uncounted error

	Rules    rules.Rules
	CPU      *cpu.Reader
	Cgroups  *cgroup.Tree
	Keys     *window.Keys     // without a weight if plain CPU time is the only one
	Siblings *divide.Siblings // nil if CPU time counts in full
	Waits    *kernfs.Waits    // for files that users block, of all parts of the receiver
}

// Open examines the machine, resolves the rules, and opens the CPU time source. It returns an error
// only if the configuration requires a source that cannot be opened.
func Open(cfg *config.Config, logger *zap.Logger, m *machine.Machine, waits *kernfs.Waits) (*Node, error) {
	n := &Node{cfg: cfg, logger: logger, machine: m, Waits: waits}
	wanted, _ := rules.Resolve(cfg, rules.Machine{})
	n.Cgroups = cgroup.New(cgroup.Options{
		Root: cfg.RootPath, LinearWeights: wanted.Idle == config.IdleRequestedLinear, Waits: waits,
	})
	found := m.Examine(cfg, &wanted, n.Cgroups)
	if weight := wanted.SetCounted(); weight != "" && errors.Is(found.Uncounted, perfevent.ErrOldKernel) {
		return nil, errors.Join(fmt.Errorf("attribution::weight %s: %w", weight, found.Uncounted), found.Close())
	}
	n.examined = found.Machine
	n.Rules, _ = rules.Resolve(cfg, n.examined)
	if !n.Rules.IsCounted {
		found.Hardware = nil
	}
	if n.Rules.WeighsCores {
		n.Siblings = found.Siblings
	} else {
		_ = found.Siblings.Close() // it was only read from
	}
	reader, rejected, err := m.OpenCPU(cpu.Options{
		Root: cfg.RootPath, Kind: cfg.CPUTime, Window: n.Rules.Window, Topology: found.Topology,
		Slices: n.Siblings != nil, PerCPU: n.Siblings != nil, Cgroups: n.Cgroups,
		Names: cfg.Series.Processes.GroupBy != config.GroupByPID, Hardware: found.Hardware, Waits: waits,
	})
	if err != nil {
		return nil, err
	}
	n.CPU = reader
	n.examined.Inexact = !reader.Exact()
	n.uncounted = reader.Traits().Uncounted
	if n.Rules.IsCounted && n.examined.Uncounted == nil {
		n.examined.Uncounted = n.uncounted
		n.Rules, _ = rules.Resolve(cfg, n.examined)
	}
	options := n.Rules.KeyOptions(n.Cgroups)
	options.Open, options.Waits = m.OpenWeigher, waits
	options.Uncounted, options.Unmissed = n.examined.Uncounted, n.examined.Unmissed
	if found.Hardware != nil {
		options.Cache = found.Hardware.Cache
	}
	n.Keys = window.NewKeys(options)
	n.logSource(rejected)
	return n, nil
}

// Notes returns the notes on the settings. zones are the zones whose energy is attributed.
func (n *Node) Notes(zones []power.Class) []rules.Note {
	m := n.examined
	m.Zones = zones
	_, notes := rules.Resolve(n.cfg, m)
	return notes
}

// Want returns the values of processes that a window must read for the attribution weights.
func (n *Node) Want(all bool) cpu.Want {
	return cpu.Want{All: all, Resident: n.Keys.Sleepers(), LastCPU: n.Keys.OfClockRates()}
}

// logSource logs the CPU time source, what it lacks, and why a preferred one was rejected.
func (n *Node) logSource(rejected error) {
	source := n.CPU.Traits()
	fields := []zap.Field{zap.String("source", source.Name)}
	if rejected != nil {
		fields = append(fields, zap.NamedError("rejected", rejected), rejection("CPU time source selected: "+source.Name, rejected))
	}
	if source.Lacks != nil {
		fields = append(fields, zap.NamedError("lacks", source.Lacks))
	}
	if source.Uncounted != nil {
		fields = append(fields, zap.NamedError("uncounted", source.Uncounted))
	}
	n.logger.Info("CPU time source selected", fields...)
	if reason := n.examined.Uncounted; reason != nil && n.cfg.Attribution.Preset != "" {
		n.logger.Info("Hardware events cannot be counted: the preset's weights are CPU time", zap.Error(reason))
	}
}

// LogCounting logs whether hardware events of processes are counted, when that changes.
func (n *Node) LogCounting() {
	reason := n.CPU.Traits().Uncounted
	if oneline.Text(reason) == oneline.Text(n.uncounted) {
		return
	}
	if n.uncounted = reason; reason == nil {
		n.logger.Info("Hardware events are counted in all windows")
	} else {
		n.logger.Info("Hardware events are not counted in all windows", zap.NamedError("reason", reason))
	}
}

// CPUs returns the node's CPUs.
func (n *Node) CPUs() []divide.CPU {
	found, err := n.machine.ReadCPUs(n.cfg.RootPath)
	if err != nil {
		n.logger.Warn("CPU information not read", zap.Error(err))
	}
	return found
}

// Places returns the places of the memory of cgroups by CPU package, or nil if they make no
// difference.
func (n *Node) Places() *numa.Places {
	topology := n.CPU.Topology()
	if topology == nil || !n.Keys.OfMemory() {
		return nil
	}
	return numa.New(n.Cgroups, len(topology.Domains()), topology.Of)
}

// rejection attaches a note on a rejected preference, with the first of several errors.
func rejection(selected string, rejected error) zap.Field {
	reason, _, _ := strings.Cut(oneline.Text(rejected), "; ")
	return note.About(selected, selected+"; rejected: "+reason+" ("+note.Pages+"permissions.md)", rejected).Field()
}

// LogKeys logs the attribution weights that were selected since the last call.
func (n *Node) LogKeys() {
	for _, selected := range n.Keys.Selected() {
		n.logger.Info("Attribution weight selected", zap.String("weight", string(selected.Key)), zap.String("source", selected.By))
	}
}

// Unread returns an error if processes block reads of their files, or if these reads are slow. The
// error is on one line, and covers the CPU time source and the identifier.
func (n *Node) Unread(identifier *workload.Identifier) error {
	return oneline.Join(n.CPU.Traits().Unread, identifier.Unread())
}

// Close closes everything that Open opened.
func (n *Node) Close() error {
	return errors.Join(n.CPU.Close(), n.Keys.Close(), n.Siblings.Close(), n.Cgroups.Close())
}
