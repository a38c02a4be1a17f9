// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
)

// SourceKind is a way to read CPU times, as the configuration names it.
type SourceKind string

// The kinds of sources.
const (
	Auto       SourceKind = "auto" // BPF if the kernel and the permissions allow it, otherwise KindClocks
	KindBPF    SourceKind = "bpf"
	KindClocks SourceKind = "clocks" // procfs if the receiver does not share the PID namespace of the host
	KindProcfs SourceKind = "procfs"
)

// TickWindow is the shortest interval that the ticks of procfs resolve: 100 ticks of a CPU, so that
// rounding is 1 % of the time of one busy CPU.
const TickWindow = time.Second

// Options configures a Reader and its Source.
type Options struct {
	// Root is the root directory of the host: "/", or its mount point in a container.
	Root string
	// Kind is the CPU time source to use.
	Kind SourceKind
	// Window is the length of a window. If it is shorter than TickWindow, the node's CPU time is
	// also computed from the scans of an exact source.
	Window time.Duration
	// Topology, if set, also divides CPU time by its domains. The Reader closes it.
	Topology *divide.Topology
	// Slices makes an exact source record the CPUs of the threads of each process, for
	// Table.Splits. A Topology implies it.
	Slices bool
	// Names makes an exact source add the names and users of short-lived processes to
	// Table.Charges.
	Names bool
	// Hardware, if set, makes an exact source count the hardware events of each process.
	// Traits.Uncounted is the reason if the source cannot count them.
	Hardware *perfevent.Hardware
	// PerCPU makes the Reader also count the busy time of each CPU.
	PerCPU bool
	// Cgroups, if set, is the tree whose CPU counters a source that is not exact reads right before
	// the processes. It remains the caller's.
	Cgroups *cgroup.Tree
	// Clock, if set, counts the node's CPU time instead of /proc/stat. The Reader does not close
	// it.
	Clock NodeClock
	// Waits limits the time spent waiting for files that users block. If it is nil, each source
	// creates one.
	Waits *kernfs.Waits
}

// OpenReader opens a CPU time source and returns a Reader of it. With the kind Auto it never fails,
// and rejected is the reason if BPF is not used.
func OpenReader(o Options) (r *Reader, rejected, err error) {
	source, rejected, err := Open(o)
	if err != nil {
		if o.Topology != nil {
			err = errors.Join(err, o.Topology.Close())
		}
		return nil, nil, err
	}
	return NewReader(source, o), rejected, nil
}

// Open returns the CPU time source that the options select. rejected is the reason if CPU clocks or
// procfs replace another source. With the kinds Auto and KindClocks, Open never fails.
func Open(o Options) (source Source, rejected, err error) {
	switch o.Kind {
	case KindProcfs:
		return NewProcfs(o), nil, nil
	case KindClocks:
		source, rejected = openClocks(o)
		return source, rejected, nil
	}
	bpf, err := OpenBPF(o)
	switch {
	case err == nil:
		return bpf, nil, nil
	case o.Kind == KindBPF:
		return nil, nil, fmt.Errorf("read CPU times by BPF: %w", err)
	}
	source, unclocked := openClocks(o)
	if unclocked != nil {
		err = fmt.Errorf("%w; %w", err, unclocked)
	}
	return source, err, nil
}

// openClocks returns a source that reads CPU clocks. If the clocks cannot be read, it returns
// procfs and the reason.
func openClocks(o Options) (source Source, rejected error) {
	clocks, err := OpenClocks(o)
	if err != nil {
		return NewProcfs(o), fmt.Errorf("read CPU clocks: %w", err)
	}
	return clocks, nil
}
