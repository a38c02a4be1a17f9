// SPDX-License-Identifier: Apache-2.0

package cpu

import "fmt"

// Kind is a way to read CPU times, as the configuration names it.
type Kind string

// The kinds of sources.
const (
	Auto       Kind = "auto" // BPF where the kernel and the permissions allow it, else procfs
	KindBPF    Kind = "bpf"
	KindProcfs Kind = "procfs"
)

// Open returns the CPU time source that the options select. With the kind Auto it never fails, and rejected tells why BPF
// is not used.
func Open(o Options) (source Source, rejected, err error) {
	if o.Kind == KindProcfs {
		return openProcfs(o), nil, nil
	}
	bpf, err := OpenBPF(o)
	switch {
	case err == nil:
		return bpf, nil, nil
	case o.Kind == KindBPF:
		return nil, nil, fmt.Errorf("read CPU times by BPF: %w", err)
	}
	return openProcfs(o), err, nil
}

func openProcfs(o Options) *Procfs {
	p := NewProcfs(o.Root)
	if o.Topology != nil {
		p.divide(o.Topology)
	}
	return p
}
