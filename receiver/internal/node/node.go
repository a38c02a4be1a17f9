// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/note"
	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/numa"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
	"github.com/energyreceiver/energyreceiver/internal/workload"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/rules"
)

// Node provides the CPU times of the node and of its processes, the cgroups, the rules that the
// machine supports, and the attribution weights that are measured. Call Open before any other method.
type Node struct {
	cfg     *config.Config
	logger  *zap.Logger
	machine rules.Machine
	// Probes may be replaced before Open.
	Probes   Probes
	Rules    rules.Rules // until Open, the rules that the machine is examined for
	CPU      *cpu.Reader // nil until Open
	Cgroups  *cgroup.Tree
	Keys     *claims.Keys     // without a weight if plain CPU time is the only one
	Siblings *divide.Siblings // nil if CPU time counts in full
	Waits    *kernfs.Waits    // for files that users block, of all parts of the receiver
}

// Probes read the machine.
type Probes struct {
	Open         func(cpu.Options) (reader *cpu.Reader, rejected, err error)
	ReadCPUs     func(root string) ([]divide.CPU, error)
	OpenClock    func(root string, exponent int) (*weigh.ByRate, error)
	CountsEvents func(tree *cgroup.Tree, events ...weigh.Event) error
	OpenWeigher  func(claims.Key, *claims.KeyOptions) (claims.Weigher, error)
}

// New returns a node that reads nothing of the machine before Open.
func New(cfg *config.Config, logger *zap.Logger) *Node {
	n := &Node{cfg: cfg, logger: logger, Waits: kernfs.NewWaits(), Probes: Probes{
		Open: cpu.OpenReader, ReadCPUs: divide.ReadCPUs, OpenClock: weigh.NewClock, CountsEvents: weigh.CountsEvents,
	}}
	n.Probes.OpenWeigher = n.openWeigher
	n.Rules, _ = rules.Resolve(cfg, rules.Machine{})
	n.Cgroups = cgroup.New(cgroup.Options{
		Root: cfg.RootPath, LinearWeights: n.Rules.Idle == config.IdleRequestedLinear, Waits: n.Waits,
	})
	return n
}

// openWeigher opens the Weigher of an attribution weight.
func (n *Node) openWeigher(key claims.Key, o *claims.KeyOptions) (claims.Weigher, error) {
	if key == claims.KeyFrequency {
		return n.Probes.OpenClock(n.cfg.RootPath, o.FrequencyExponent)
	}
	return claims.OpenWeigher(key, o)
}

// Open examines the machine, resolves the rules, and opens the CPU time source. It returns an error
// only if the configuration requires a source that cannot be opened.
func (n *Node) Open() error {
	topology, undivided := n.openTopology()
	siblings, unshared := n.openSiblings()
	n.machine = rules.Machine{
		Undivided: undivided, Unclocked: n.findClocks(), Uncounted: n.findCounters(), Unshared: unshared, Untimed: findInterrupts(n.cfg.RootPath),
	}
	n.Rules, _ = rules.Resolve(n.cfg, n.machine)
	if n.Rules.WeighsCores {
		n.Siblings = siblings
	} else {
		_ = siblings.Close() // it was only read from
	}
	options := n.Rules.KeyOptions(n.Cgroups)
	options.Open, options.Waits = n.Probes.OpenWeigher, n.Waits
	n.Keys = claims.NewKeys(options)
	reader, rejected, err := n.Probes.Open(cpu.Options{
		Root: n.cfg.RootPath, Kind: n.cfg.CPUTime, Window: n.Rules.Window, Topology: topology,
		Slices: n.Siblings != nil, PerCPU: n.Siblings != nil, Cgroups: n.Cgroups,
		Names: n.cfg.Series.Processes.GroupBy != config.GroupByPID, Waits: n.Waits,
	})
	if err != nil {
		return err
	}
	n.CPU = reader
	n.machine.Inexact = !reader.Exact()
	n.logSource(rejected)
	return nil
}

// Notes returns the notes on the settings. zones are the zones whose energy is attributed.
func (n *Node) Notes(zones []power.Class) []rules.Note {
	m := n.machine
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
	n.logger.Info("CPU time source selected", fields...)
}

// openTopology returns the CPU packages if attribution is by zone, or the reason why the CPUs are
// not divided.
func (n *Node) openTopology() (*divide.Topology, error) {
	if n.Rules.Scope != config.ScopeZone {
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

// findClocks returns the reason why the clock rates that the preset's weights require cannot be read.
func (n *Node) findClocks() error {
	if !n.Rules.Clocks {
		return nil
	}
	return n.probe(func() error {
		clock, err := n.Probes.OpenClock(n.cfg.RootPath, 1)
		if err != nil {
			return err
		}
		return clock.Close()
	})
}

// findCounters returns the reason why the hardware events that the preset's weights require cannot be
// counted.
func (n *Node) findCounters() error {
	if len(n.Rules.Events) == 0 {
		return nil
	}
	err := n.probe(func() error { return n.Probes.CountsEvents(n.Cgroups, n.Rules.Events...) })
	if err != nil {
		n.logger.Info("Hardware events cannot be counted: the preset's weights are CPU time", zap.Error(err))
	}
	return err
}

// probe returns the error of a check of the devices, or an error if the check hangs.
func (n *Node) probe(check func() error) error {
	_, err := kernfs.Within(n.cfg.RootPath, filepath.Join(n.cfg.RootPath, "sys/devices"), func() (struct{}, error) {
		return struct{}{}, check()
	}, nil)
	return err
}

// openSiblings opens the list of the threads of each core if the SMT weight applies, and returns the
// reason why no threads share a core. Threads may come online later.
func (n *Node) openSiblings() (*divide.Siblings, error) {
	if !n.Rules.WeighsCores {
		return nil, nil
	}
	siblings, err := kernfs.Within(n.cfg.RootPath, n.cpuDirectory(), func() (*divide.Siblings, error) {
		return divide.OpenSiblings(n.cfg.RootPath)
	}, func(s *divide.Siblings) { _ = s.Close() }) // it was only read from
	if err == nil && !siblings.Shared() {
		err = divide.ErrUnshared
	}
	return siblings, err
}

var errNoIRQ = errors.New("the kernel does not measure the time of interrupts: the irq column of /proc/stat is 0")

// findInterrupts returns errNoIRQ if the kernel of a host does not measure the time of interrupts. A
// kernel that does has time in the irq column of /proc/stat soon after boot.
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
