// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// acpiMeters are two ACPI power meters of a virtual machine, sensors/powermeters.asl. Their
// readings are in the machine's memory, which is a file of the test.
type acpiMeters struct {
	tables   string
	memory   *os.File
	consumed *consumption

	mu     sync.Mutex
	errors uint32
}

const (
	guestMemory = 1 << 30
	// acpiRegion is the address of the readings: see sensors/powermeters.asl. QEMU puts the initial
	// file system at the end of memory.
	acpiRegion = 0x20000000
	// cpuShare is the power of the second meter, of the CPU, relative to the power of the first
	// meter, of the socket.
	cpuShare = 0.625
)

// Errors of the meters.
const (
	acpiFirstUnknown  = 1 << 0
	acpiFirstFails    = 1 << 4
	acpiSecondUnknown = 1 << 1
)

// newACPIMeters returns meters that show the average power of the last second until the test ends.
func newACPIMeters(t *testing.T, consumed *consumption) *acpiMeters {
	t.Helper()
	m := &acpiMeters{tables: filepath.Join(t.TempDir(), "powermeters"), consumed: consumed}
	run(t, exec.Command(program(t, "iasl", "acpica-tools"), "-p", m.tables, "sensors/powermeters.asl"))
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	m.memory = os.NewFile(uintptr(fd), "guest")
	require.NoError(t, m.memory.Truncate(guestMemory))
	require.NoError(t, m.write())
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		ticks := time.NewTicker(20 * time.Millisecond)
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				done <- m.memory.Close()
				return
			case <-ticks.C:
				if err := m.write(); err != nil {
					done <- err
					return
				}
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		assert.NoError(t, <-done)
	})
	return m
}

func (m *acpiMeters) write() error {
	watts := m.consumed.average(time.Now(), time.Second)
	m.mu.Lock()
	defer m.mu.Unlock()
	region := binary.LittleEndian.AppendUint32(nil, uint32(watts*1e3))
	region = binary.LittleEndian.AppendUint32(region, uint32(cpuShare*watts*1e3))
	region = binary.LittleEndian.AppendUint32(region, m.errors)
	_, err := m.memory.WriteAt(region, acpiRegion)
	return err
}

// fails sets the errors of both meters.
func (m *acpiMeters) fails(errors uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errors = errors
}

// qemu returns the options of QEMU for a machine with these meters. Its memory is /dev/fd/3.
func (m *acpiMeters) qemu() []string {
	return []string{
		"-m", "1G", "-acpitable", "file=" + m.tables + ".aml",
		"-object", "memory-backend-file,id=ram,size=1G,mem-path=/dev/fd/3,share=on", "-machine", "memory-backend=ram",
	}
}

// kernelArguments reserves the meters' memory.
func (*acpiMeters) kernelArguments() string { return "memmap=0x1000$0x20000000" }
