// SPDX-License-Identifier: Apache-2.0

package cpu

import "fmt"

// SourceKind is a way to read CPU times, as the configuration names it.
type SourceKind string

// The kinds of sources.
const (
	Auto       SourceKind = "auto" // BPF where the kernel and the permissions allow it, else KindClocks
	KindBPF    SourceKind = "bpf"
	KindClocks SourceKind = "clocks" // procfs where the receiver does not share the PID namespace of the host
	KindProcfs SourceKind = "procfs"
)

// Open returns the CPU time source that the options select. rejected is why CPU clocks or procfs
// take the place of another source. With the kinds Auto and KindClocks, Open never fails.
func Open(o Options) (source Source, rejected, err error) {
	switch o.Kind {
	case KindProcfs:
		return openProcfs(o), nil, nil
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

func openProcfs(o Options) *Procfs { return divided(NewProcfs(o.Root), o) }

// openClocks returns a source that reads CPU clocks, or procfs and why the clocks cannot be read.
func openClocks(o Options) (source Source, rejected error) {
	clocks, err := OpenClocks(o.Root)
	if err != nil {
		return openProcfs(o), fmt.Errorf("read CPU clocks: %w", err)
	}
	return divided(clocks, o), nil
}

// divided makes a source divide CPU time by domain if the options say so.
func divided[S interface {
	Source
	divisible
}](source S, o Options) S {
	if o.Topology != nil {
		source.divide(o.Topology)
	}
	return source
}
