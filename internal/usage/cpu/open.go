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

// Open returns a source that reads the processes below root. With Auto it never fails, and rejected says
// why BPF was not taken.
func Open(kind Kind, root string) (source Source, rejected, err error) {
	if kind == KindProcfs {
		return NewProcfs(root), nil, nil
	}
	bpf, err := OpenBPF(root)
	switch {
	case err == nil:
		return bpf, nil, nil
	case kind == KindBPF:
		return nil, nil, fmt.Errorf("read CPU times by BPF: %w", err)
	}
	return NewProcfs(root), err, nil
}
