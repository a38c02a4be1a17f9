// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package tasks

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Samples reads the values of MPERF and APERF that the kernel records for each CPU at the
// scheduler's tick (Linux 5.19, arch/x86/kernel/cpu/aperfmperf.c). Unlike a read of the counters,
// this does not interrupt the CPUs. It needs CAP_BPF and CAP_PERFMON.
type Samples struct {
	loaded *programs
	run    runAttr
	values [][2]uint64
}

// perCPUFields locates two fields of a per-CPU structure of the kernel.
type perCPUFields struct {
	variable btf.TypeID
	offsets  [2]int16
}

// clockSamples locates MPERF and APERF in the kernel's samples. Reading the kernel's types takes
// 9 ms, so this is done once.
var clockSamples = sync.OnceValues(func() (perCPUFields, error) {
	return locate("cpu_samples", [2]string{"mperf", "aperf"})
})

// locate locates two fields of a per-CPU variable. It returns an error if the kernel has no such
// variable or fields.
func locate(variable string, fields [2]string) (found perCPUFields, err error) {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return found, err
	}
	var v *btf.Var
	if err := types.TypeByName(variable, &v); err != nil {
		return found, err
	}
	of, ok := btf.As[*btf.Struct](v.Type)
	if !ok {
		return found, fmt.Errorf("%s is not a structure", variable)
	}
	located := 0
	for _, m := range of.Members {
		for i, name := range fields {
			if m.Name == name {
				found.offsets[i] = int16(m.Offset.Bytes())
				located++
			}
		}
	}
	if located != len(fields) {
		return found, fmt.Errorf("%s lacks fields", variable)
	}
	found.variable, err = types.TypeID(v)
	return found, err
}

// OpenSamples loads the program.
func OpenSamples() (*Samples, error) {
	from, err := clockSamples()
	if err != nil {
		return nil, fmt.Errorf("clock samples of the scheduler: %w", err)
	}
	return openSamples(from)
}

func openSamples(from perCPUFields) (*Samples, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	const name, size = "clock_samples", 16
	p, err := load(&ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{name: {
			Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size * cpus), MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE,
		}},
		Programs: map[string]*ebpf.ProgramSpec{name: {
			Name: name, Type: ebpf.Syscall, Flags: unix.BPF_F_SLEEPABLE, License: "Dual BSD/GPL",
			Instructions: from.instructions(name, size, cpus),
		}},
	}, "clock samples of the scheduler", ebpf.CollectionOptions{})
	if err != nil {
		return nil, err
	}
	s := &Samples{loaded: p, run: runOf[struct{}](p.Programs[name], nil), values: arrayOf[[2]uint64](p, name)}
	if p.err != nil {
		return nil, errors.Join(p.err, s.Close())
	}
	return s, nil
}

// instructions returns a program that copies the two fields of each CPU to the only element of an
// array, which has size bytes for each CPU.
func (f *perCPUFields) instructions(array string, size int32, cpus int) asm.Instructions {
	const pseudoBTFID = asm.R3 // BPF_PSEUDO_BTF_ID (linux/bpf.h)
	variable := asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Dst: asm.R1, Src: pseudoBTFID, Constant: int64(f.variable)}
	return asm.Instructions{
		asm.Mov.Imm(asm.R6, 0), // CPU
		asm.LoadMapValue(asm.R7, 0, 0).WithReference(array),
		variable.WithSymbol("copy"),
		asm.Mov.Reg(asm.R2, asm.R6),
		asm.FnPerCpuPtr.Call(),
		asm.JEq.Imm(asm.R0, 0, "next"),
		asm.LoadMem(asm.R1, asm.R0, f.offsets[0], asm.DWord),
		asm.LoadMem(asm.R2, asm.R0, f.offsets[1], asm.DWord),
		asm.StoreMem(asm.R7, 0, asm.R1, asm.DWord),
		asm.StoreMem(asm.R7, 8, asm.R2, asm.DWord),
		asm.Add.Imm(asm.R7, size).WithSymbol("next"),
		asm.Add.Imm(asm.R6, 1),
		asm.JLT.Imm(asm.R6, int32(cpus), "copy"),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}
}

// Read returns the values of MPERF and APERF at the last tick of each CPU, by the number of the CPU.
// They are valid until the next call. Before the first tick they are 0. If a CPU updates its
// values during the call, they may be of two successive ticks.
func (s *Samples) Read() ([][2]uint64, error) {
	if err := s.run.run(unix.RawSyscall); err != nil {
		return nil, fmt.Errorf("read the clock samples of the scheduler: %w", err)
	}
	return s.values, nil
}

// Close unloads the program.
func (s *Samples) Close() error { return s.loaded.Close() }
