// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/note"
	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/numa"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
	"github.com/energyreceiver/energyreceiver/internal/workload"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// Node provides the CPU times of the node and of its processes, the cgroups, and the attribution
// weights that are measured. Call Open before any other method.
type Node struct {
	cfg    *config.Config
	logger *zap.Logger
	// Probes may be replaced before Open.
	Probes   Probes
	CPU      *cpu.Reader // nil until Open
	Cgroups  *cgroup.Tree
	Keys     *claims.Keys     // nil if CPU time is the only weight
	Siblings *divide.Siblings // nil if CPU time counts in full
	Waits    *kernfs.Waits    // for files that users block, of all parts of the receiver
}

// Probes read the machine.
type Probes struct {
	Open         func(cpu.Options) (reader *cpu.Reader, rejected, err error)
	ReadCPUs     func(root string) ([]divide.CPU, error)
	OpenClock    func(root string, exponent int) (*weigh.ByRate, error)
	CountsEvents func(tree *cgroup.Tree, events ...weigh.Event) error
}

// New returns a node that reads nothing of the machine before Open. Open records in cfg what
// the machine lacks.
func New(cfg *config.Config, logger *zap.Logger) *Node {
	n := &Node{cfg: cfg, logger: logger, Waits: kernfs.NewWaits(), Probes: Probes{
		Open: cpu.OpenReader, ReadCPUs: divide.ReadCPUs, OpenClock: weigh.NewClock, CountsEvents: weigh.CountsEvents,
	}}
	n.Cgroups = cgroup.New(cgroup.Options{
		Root: cfg.RootPath, LinearWeights: cfg.Attribution.SelectedIdle() == config.IdleRequestedLinear, Waits: n.Waits,
	})
	n.selectKeys()
	return n
}

// selectKeys replaces the attribution weights by those of the configuration.
func (n *Node) selectKeys() {
	options := n.cfg.KeyOptions(n.Cgroups)
	options.Open, options.Waits = n.OpenWeigher, n.Waits
	n.Keys = claims.NewKeys(options)
}

// OpenWeigher opens the Weigher of an attribution weight.
func (n *Node) OpenWeigher(key claims.Key, o *claims.KeyOptions) (claims.Weigher, error) {
	if key == claims.KeyFrequency {
		return n.Probes.OpenClock(n.cfg.RootPath, o.FrequencyExponent)
	}
	return claims.OpenWeigher(key, o)
}

// Open opens the CPU time source, and determines which rules the machine supports. It returns an
// error only if the configuration requires a source that cannot be opened.
func (n *Node) Open() error {
	machine := &n.cfg.Attribution.Machine
	topology, err := n.openTopology()
	*machine = config.Machine{Undivided: err}
	n.findClocks()
	n.findCounters()
	n.openSiblings()
	reader, rejected, err := n.Probes.Open(cpu.Options{
		Root: n.cfg.RootPath, Kind: n.cfg.CPUTime, Window: n.cfg.WindowLength(), Topology: topology,
		Slices: n.Siblings != nil, PerCPU: n.Siblings != nil, Cgroups: n.Cgroups,
		Names: n.cfg.Series.Processes.GroupBy != config.GroupByPID, Waits: n.Waits,
	})
	if err != nil {
		return err
	}
	n.CPU = reader
	n.logSource(rejected)
	return nil
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
	n.logger.Info("CPU time source selected", fields...)
}

// openTopology returns the CPU packages if attribution is by zone, or the reason why the CPUs are
// not divided.
func (n *Node) openTopology() (*divide.Topology, error) {
	if n.cfg.Attribution.SelectedScope() != config.ScopeZone {
		return nil, nil
	}
	topology, err := kernfs.Within(n.cfg.RootPath, n.cpuDirectory(), func() (*divide.Topology, error) {
		return divide.OpenTopology(n.cfg.RootPath)
	}, func(t *divide.Topology) { _ = t.Close() }) // it was only read from
	if err != nil {
		return nil, err
	}
	return topology, nil
}

// cpuDirectory returns the directory in which the kernel describes the CPUs.
func (n *Node) cpuDirectory() string {
	return filepath.Join(n.cfg.RootPath, "sys/devices/system/cpu")
}

// findClocks selects CPU time in place of the preset's frequency weight if clock rates cannot be
// read.
func (n *Node) findClocks() {
	if !n.cfg.UsesClocks() {
		return
	}
	err := n.probe(func() error {
		clock, err := n.Probes.OpenClock(n.cfg.RootPath, 1)
		if err != nil {
			return err
		}
		return clock.Close()
	})
	if n.cfg.Attribution.Machine.Unclocked = err; err != nil {
		n.selectKeys()
	}
}

// probe returns the error of a check of the devices, or an error if the check hangs.
func (n *Node) probe(check func() error) error {
	_, err := kernfs.Within(n.cfg.RootPath, filepath.Join(n.cfg.RootPath, "sys/devices"), func() (struct{}, error) {
		return struct{}{}, check()
	}, nil)
	return err
}

// findCounters selects CPU time in place of the preset's weights that require hardware events if
// these cannot be counted.
func (n *Node) findCounters() {
	events := n.cfg.Attribution.CountedEvents(n.cfg.Zones)
	if len(events) == 0 {
		return
	}
	err := n.probe(func() error { return n.Probes.CountsEvents(n.Cgroups, events...) })
	if n.cfg.Attribution.Machine.Uncounted = err; err != nil {
		n.logger.Info("Hardware events cannot be counted: the preset's weights are CPU time", zap.Error(err))
		n.selectKeys()
	}
}

// openSiblings opens the list of the threads of each core if the SMT weight applies. A configured
// weight applies as soon as threads come online, and a preset's only if they are online.
func (n *Node) openSiblings() {
	a := &n.cfg.Attribution
	if !slices.ContainsFunc(n.cfg.Zones, a.WeighsCores) {
		return
	}
	siblings, err := kernfs.Within(n.cfg.RootPath, n.cpuDirectory(), func() (*divide.Siblings, error) {
		return divide.OpenSiblings(n.cfg.RootPath)
	}, func(s *divide.Siblings) { _ = s.Close() }) // it was only read from
	if err == nil && !siblings.Shared() {
		err = divide.ErrUnshared
	}
	a.Machine.Unshared = err
	if err == nil || a.SMTWeight > 0 {
		n.Siblings = siblings
		return
	}
	_ = siblings.Close() // it was only read from
	n.selectKeys()
}

// CPUs returns the node's CPUs.
func (n *Node) CPUs() []divide.CPU {
	found, err := n.Probes.ReadCPUs(n.cfg.RootPath)
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
	return note.About(selected, selected+"; rejected: "+reason+" (docs/permissions.md)", rejected).Field()
}

// LogKeys logs the attribution weights that were selected since the last call.
func (n *Node) LogKeys() {
	for _, selected := range n.Keys.Selected() {
		n.logger.Info("Allocation key selected", zap.String("key", string(selected.Key)), zap.String("by", selected.By))
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
