// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/receiverconfig"
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

func (h *host) Start(load Load, cpus []int) (Programs, error) {
	h.Lock()
	defer h.Unlock()
	h.running = nil
	for _, cpu := range cpus {
		task := h.machine.Init().Spawn()
		task.Socket, task.Demand = cpu/8, 1
		task.Pin(cpu % 8)
		if load == Memory {
			task.Memory, task.Intensity = 1.5, 0.8
		}
		h.running = append(h.running, task)
	}
	return h, nil
}

func (h *host) PIDs() (pids []int) {
	for _, task := range h.running {
		pids = append(pids, task.PID)
	}
	return pids
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

// runOn returns the report of a run on a server with two sockets.
func runOn(t *testing.T, length time.Duration, plant func(*hostsim.Machine)) *Report {
	curve := model.Curve{{Utilization: 0, Watts: 40}, {Utilization: 0.5, Watts: 90}, {Utilization: 1, Watts: 130}}
	socket := func() *hostsim.Socket {
		return &hostsim.Socket{CPUs: 8, Threads: 2, Siblings: 1.2, Idle: 40, DRAMIdle: 4, Curve: curve}
	}
	h := &host{machine: hostsim.NewMachine(t.TempDir(), socket(), socket())}
	h.machine.AddPlatform(30)
	h.machine.SetRegisters(hostsim.Registers{Every: time.Millisecond, Unit: 1e6 / 16384})
	if plant != nil {
		plant(h.machine)
	}
	require.NoError(t, h.machine.Render())
	cfg := energyreceiver.DefaultConfig()
	var err error
	cfg.Model, err = receiverconfig.Model("auto")
	require.NoError(t, err)
	cfg.RootPath, cfg.CPUTime = h.machine.Host.Root(), "procfs"
	var observed *Observation
	synctest.Test(t, func(t *testing.T) {
		go h.pass(t)
		observed, err = Run(t.Context(), Options{Config: cfg, Length: length, Loader: h, Say: func(string, ...any) {}})
		assert.NoError(t, err)
	})
	return NewReport(observed, "v0")
}

func TestARunOnASimulatedServer(t *testing.T) {
	r := runOn(t, 90*time.Second, nil)
	for _, v := range r.Verdicts {
		assert.NotEqual(t, Fault, v.Status, "%+v", v)
	}
	var text, page, document bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	for _, check := range []string{"load", "sums", "totals", "sockets", "symmetry", "load following", "parts and whole", "wrap", "cpu time"} {
		assert.Contains(t, text.String(), "\nOK "+check+": ")
	}
	assert.Contains(t, text.String(), "powercap (used for package, dram, psys): it is the first of")
	require.NoError(t, r.WriteMarkdown(&page))
	assert.Regexp(t, `\npowercap +intel-rapl:0 +package +40 W +1[23]\d W +0.2 s +61 µJ +0 s `, page.String())
	require.NoError(t, r.WriteJSON(&document))
	var again Report
	require.NoError(t, json.Unmarshal(document.Bytes(), &again))
	assert.Equal(t, r.Verdicts, again.Verdicts)
}

func TestARunFindsASocketWithoutAMeterAndAWrongRange(t *testing.T) {
	r := runOn(t, 40*time.Second, func(m *hostsim.Machine) {
		for id := range m.Host.Zones {
			if strings.HasPrefix(id, "intel-rapl:1") {
				delete(m.Host.Zones, id)
			}
		}
		m.Host.Zones["intel-rapl:0:1"].Max *= 2
	})
	var faults []string
	for _, v := range r.Verdicts {
		if v.Status == Fault {
			faults = append(faults, v.Text)
		}
	}
	assert.Equal(t, []string{
		"powercap intel-rapl:0:1 wraps at the wrong range: its unit of 61.0 µJ gives a range of 262144 J, but it states 524287 J. Energy is wrong after each wrap",
		"powercap package lacks socket [1] of 2",
	}, faults)
}

func TestARunWithoutMetersChecksTheRest(t *testing.T) {
	r := runOn(t, 40*time.Second, func(m *hostsim.Machine) { clear(m.Host.Zones) })
	status := map[string]Status{}
	for _, v := range r.Verdicts {
		status[v.Check] = v.Status
	}
	assert.Zero(t, r.Faults(), "%v", r.Verdicts)
	for check, want := range map[string]Status{"load": OK, "sums": OK, "symmetry": OK, "cpu time": OK, "unit": Unchecked, "sockets": Unchecked, "totals": Unchecked} {
		assert.Equal(t, want, status[check], check)
	}
	assert.Contains(t, strings.Join(strings.Fields(r.text()), " "), "This machine has no meter that can be read")
}

func TestFiguresOfAReportAreRounded(t *testing.T) {
	assert.InDelta(t, 130.5, *rounded(130.4567), 1e-9)
	assert.Nil(t, rounded(math.NaN()))
	assert.InDelta(t, 0, *rounded(0), 0)
}
