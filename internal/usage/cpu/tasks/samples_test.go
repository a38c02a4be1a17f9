// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package tasks

import (
	"errors"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openFields skips the test if the kernel does not export the addresses of variables to BPF.
func openFields(t *testing.T, from perCPUFields, err error) *Samples {
	t.Helper()
	skipUnlessPossible(t, err)
	s, err := openSamples(from)
	if errors.Is(err, unix.ENOENT) {
		t.Skip("the kernel lacks CONFIG_KALLSYMS_ALL:", err)
	}
	skipUnlessPossible(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestTheKernelsClockSamplesCanBeRead(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("only x86 has MPERF and APERF")
	}
	from, err := clockSamples()
	if errors.Is(err, btf.ErrNotFound) {
		t.Skip("needs Linux 5.19:", err)
	}
	values, err := openFields(t, from, err).Read()
	require.NoError(t, err)
	require.Len(t, values, ebpf.MustPossibleCPU())
}

// Virtual machines have no APERF. The test copies fields of each CPU's run queue, which have the same
// type.
func TestFieldsOfEachCPUAreCopied(t *testing.T) {
	from, err := locate("runqueues", [2]string{"nr_switches", "clock"})
	s := openFields(t, from, err)
	before, err := s.Read()
	require.NoError(t, err)
	require.Len(t, before, ebpf.MustPossibleCPU())
	first := append([][2]uint64(nil), before...)
	end(t)
	after, err := s.Read()
	require.NoError(t, err)
	moved := false
	for cpu := range after {
		assert.Positive(t, after[cpu][0])
		assert.GreaterOrEqual(t, after[cpu][0], first[cpu][0])
		assert.GreaterOrEqual(t, after[cpu][1], first[cpu][1])
		moved = moved || after[cpu][0] > first[cpu][0] && after[cpu][1] > first[cpu][1]
	}
	assert.True(t, moved)
}

func TestAKernelWithoutTheFieldsIsAnError(t *testing.T) {
	_, err := locate("runqueues", [2]string{"nr_switches", "no_such_field"})
	require.Error(t, err)
	_, err = locate("no_such_variable", [2]string{})
	require.Error(t, err)
}

// BenchmarkSamples measures a read, whose cost grows with the number of CPUs.
func BenchmarkSamples(b *testing.B) {
	from, err := locate("runqueues", [2]string{"nr_switches", "clock"})
	require.NoError(b, err)
	s, err := openSamples(from)
	if err != nil {
		b.Skip(err)
	}
	defer func() { require.NoError(b, s.Close()) }()
	for b.Loop() {
		if _, err := s.Read(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(ebpf.MustPossibleCPU()), "CPUs")
}
