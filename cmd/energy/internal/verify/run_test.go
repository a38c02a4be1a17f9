// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/receiverconfig"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// host is a simulated host in whose time a run takes place. It implements Loader.
type host struct {
	sync.Mutex
	machine *hostsim.Machine
	running []*hostsim.Task
}

func (*host) CPUs() []int { return nil }

func (h *host) Start(load Load, cpus []int) (pids []int, err error) {
	h.Lock()
	defer h.Unlock()
	for _, cpu := range cpus {
		task := h.machine.Init().Spawn()
		task.Socket, task.Demand = cpu/8, 1
		task.Pin(cpu % 8)
		if load == Memory {
			task.Memory, task.Intensity = 1.5, 0.8
		}
		h.running, pids = append(h.running, task), append(pids, task.PID)
	}
	return pids, nil
}

func (h *host) Pause() {
	h.Lock()
	defer h.Unlock()
	for _, task := range h.running {
		task.Demand = 0
	}
}

func (h *host) End() (times []time.Duration, err error) {
	h.Lock()
	defer h.Unlock()
	for _, task := range h.running {
		times = append(times, task.Used)
		task.Exit()
		task.Reap(false)
	}
	h.running = nil
	return times, nil
}

// pass lets time pass on the host until the test ends.
func (h *host) pass(t *testing.T) {
	const step = 100 * time.Millisecond
	time.Sleep(step / 2) // the recorder reads between two renders
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-t.Context().Done():
			return
		}
		h.Lock()
		h.machine.Step(step)
		assert.NoError(t, h.machine.Render())
		h.Unlock()
	}
}

func TestARunOnASimulatedServerFindsNoFault(t *testing.T) {
	curve := model.Curve{{Utilization: 0, Watts: 40}, {Utilization: 0.5, Watts: 90}, {Utilization: 1, Watts: 130}}
	socket := func() *hostsim.Socket {
		return &hostsim.Socket{CPUs: 8, Threads: 2, Siblings: 1.2, Idle: 40, DRAMIdle: 4, Curve: curve}
	}
	h := &host{machine: hostsim.NewMachine(t.TempDir(), socket(), socket())}
	h.machine.AddPlatform(30)
	h.machine.SetRegisters(hostsim.Registers{Every: time.Millisecond, Unit: 1e6 / 16384})
	require.NoError(t, h.machine.Render())
	cfg := energyreceiver.DefaultConfig()
	var err error
	cfg.Model, err = receiverconfig.Model("auto")
	require.NoError(t, err)
	cfg.RootPath, cfg.CPUTime = h.machine.Host.Root(), "procfs"
	var observed *Observation
	synctest.Test(t, func(t *testing.T) {
		go h.pass(t)
		observed, err = Run(t.Context(), Options{
			Config: cfg, Length: 100 * time.Second, Loader: h, Say: func(string, ...any) {}, CanCount: func(string) error { return nil },
		})
		assert.NoError(t, err)
	})
	mixed := (&analysis{Observation: observed}).steps(Mixed)
	require.Len(t, mixed, 1)
	for _, load := range []Load{Memory, Spin} {
		assert.InDelta(t, 4*(mixed[0].To-mixed[0].From), cpuSeconds(mixed[0], load), 2, "%s on two cores of each socket", load)
	}
	assert.True(t, observed.NoClocks, "the files are not of this kernel")
	for class, energy := range mixed[0].Programs[0].ByEvents {
		assert.Positive(t, energy, class)
	}
	r := NewReport(observed, "v0")
	for _, v := range r.Verdicts {
		assert.NotEqual(t, Fault, v.Status, "%+v", v)
	}
	dir := t.TempDir()
	require.NoError(t, r.Write(dir))
	page, err := os.ReadFile(filepath.Join(dir, "verify.md"))
	require.NoError(t, err)
	for _, check := range []string{"load", "sums", "totals", "sockets", "symmetry", "load following", "parts and whole", "wrap", "cpu time"} {
		assert.Contains(t, string(page), "\nOK "+check+": ")
	}
	assert.Contains(t, string(page), "powercap (used for package, dram, psys): it is the first of")
	assert.Regexp(t, `\npowercap +intel-rapl:0 +package +40 W +1[23]\d W +0.2 s +61 µJ +0 s `, string(page))
	document, err := os.ReadFile(filepath.Join(dir, "verify.json"))
	require.NoError(t, err)
	var again struct{ Zones []map[string]any }
	require.NoError(t, json.Unmarshal(document, &again))
	assert.InDelta(t, 6.104e-05, again.Zones[0]["unit_joules"], 1e-12, "four digits")
	assert.Zero(t, again.Zones[0]["socket"])
	assert.Contains(t, string(document), `"socket": null`)
}

func TestACollectionWithoutANewReadingOfAMeterIsNoFault(t *testing.T) {
	machine := hostsim.NewMachine(t.TempDir(), &hostsim.Socket{CPUs: 2})
	require.NoError(t, machine.Render())
	cfg := energyreceiver.DefaultConfig()
	cfg.RootPath, cfg.CPUTime, cfg.Meters.Use = machine.Host.Root(), "procfs", nil
	var err error
	cfg.Model, err = receiverconfig.Model("10-50")
	require.NoError(t, err)
	r := &recorder{began: time.Now(), o: &Observation{Sums: map[power.Class][]Sums{}}}
	r.attributed, err = startReceiver(t.Context(), cfg, energyreceiver.EmbeddedID)
	require.NoError(t, err)
	defer func() { assert.NoError(t, r.attributed.close()) }()
	machine.Step(time.Second)
	require.NoError(t, machine.Render())
	r.collect(t.Context())
	r.collect(t.Context()) // CPU times have not advanced, so a model has no new energy
	class := power.Class{Zone: power.Package, Method: power.Modeled}
	require.Len(t, r.o.Sums[class], 2)
	assert.Positive(t, r.o.Sums[class][0].Zones)
	for _, v := range Check(r.o) {
		assert.NotEqual(t, Fault, v.Status, "%+v", v)
	}
}
