// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// powerPMU adds the power PMU to the node. Its counters are read from a pipe; denied is the error
// of opening them.
type powerPMU struct {
	n      *testNode
	denied error
	pipe   int // where readings are written to
	reads  uint64
}

func newPowerPMU(n *testNode) *powerPMU {
	n.t.Helper()
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(n.t, err)
	for name, text := range map[string]string{
		"proc/sys/kernel/random/boot_id":                           string(id),
		"sys/devices/power/type":                                   "24\n",
		"sys/devices/power/cpumask":                                "0\n",
		"sys/devices/power/events/energy-pkg":                      "event=0x02\n",
		"sys/devices/power/events/energy-pkg.unit":                 "Joules\n",
		"sys/devices/power/events/energy-pkg.scale":                "2.3283064365386962890625e-10\n",
		"sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
	} {
		path := filepath.Join(n.host.Root(), name)
		require.NoError(n.t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(n.t, os.WriteFile(path, []byte(text), 0o600))
	}
	p := &powerPMU{n: n, pipe: -1}
	original := perfevent.Kernel
	perfevent.Kernel = p.open
	n.t.Cleanup(func() { perfevent.Kernel = original })
	n.t.Cleanup(func() { _ = unix.Close(p.pipe) })
	return p
}

func (p *powerPMU) open(attr *unix.PerfEventAttr, pid, cpu, group, flags int) (int, error) {
	if p.denied != nil {
		return -1, p.denied
	}
	assert.Equal(p.n.t, []int{24, 2, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC}, []int{int(attr.Type), int(attr.Config), pid, cpu, group, flags})
	var fds [2]int
	require.NoError(p.n.t, unix.Pipe(fds[:]))
	p.pipe = fds[1]
	p.shows(0) // it is read at once
	return fds[0], nil
}

// shows sets what the next read finds.
func (p *powerPMU) shows(joules uint64) {
	p.reads++
	var b []byte
	for _, n := range []uint64{1, p.reads * 1e9, joules << 32} {
		b = binary.NativeEndian.AppendUint64(b, n)
	}
	_, err := unix.Write(p.pipe, b)
	require.NoError(p.n.t, err)
}

// maskPowercap makes the energy counters unreadable until the returned function is called.
func maskPowercap() (grant func()) {
	return kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if strings.HasSuffix(path, "energy_uj") {
			return nil, fs.ErrPermission
		}
		return got, err
	})
}

func byProcfs(c *Config) { c.CPUTime = cpu.KindProcfs }

func TestAutoTakesPerfWherePowercapCannotBeRead(t *testing.T) {
	n := newTestNode(t, byProcfs)
	pmu := newPowerPMU(n)
	grant := maskPowercap()
	defer func() { grant() }()
	n.start()
	pmu.shows(100)
	n.run(7*joule, map[int]int64{1: 1000})
	assert.InDelta(t, 100, n.one("process.energy", pid(1), "energy.zone=package").value, 1e-6)
	assert.InDelta(t, 100, n.one("hw.energy", "hw.id=power:energy-pkg:0", "hw.type=cpu", "hw.name=package-0").value, 1e-6)
	assert.Equal(t, 1, n.logs.FilterMessageSnippet("measured by perf events").Len())

	grant()
	grant = func() {}
	pmu.shows(100)
	n.run(7*joule, map[int]int64{1: 1000})
	n.run(9*joule, map[int]int64{1: 1000})
	assert.Equal(t, "intel-rapl:0", n.one("hw.energy", "hw.type=cpu").attributes["hw.id"], "never both")
	assert.InDelta(t, 109, n.one("process.energy", pid(1), "energy.zone=package").value, 1e-6)
}

func TestARecordedTreeHasNoPerfEvents(t *testing.T) {
	n := newTestNode(t, byProcfs)
	newPowerPMU(n).denied = unix.ENOTRECOVERABLE
	require.NoError(t, os.Remove(filepath.Join(n.host.Root(), "proc/sys/kernel/random/boot_id")))
	n.start()
	n.run(10*joule, map[int]int64{1: 1000})
	assert.InDelta(t, 10, n.one("process.energy", pid(1), "energy.zone=package").value, 1e-6)
	assert.Empty(t, n.logged())
}
