// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var nvmlID = component.MustNewID("nvml")

// scriptedGPU is an extension that reads a GPU of 100 W. It is used all the time: users says in which parts.
type scriptedGPU struct {
	component.StartFunc
	component.ShutdownFunc
	users  []gpulibrary.User // Used is the part of a second that each uses
	change func(*gpulibrary.Device)
	err    error
	panics string

	began, last time.Time
}

func (s *scriptedGPU) Open() gpulibrary.Reader {
	if s.panics == "open" {
		panic("no such symbol")
	}
	return s
}

func (s *scriptedGPU) Poll(context.Context) ([]gpulibrary.Device, error) {
	if s.panics == "poll" {
		panic("index out of range")
	}
	if s.err != nil {
		return nil, s.err
	}
	now := time.Now()
	if s.began.IsZero() {
		s.began, s.last = now, now
	}
	d := gpulibrary.Device{
		ID: "GPU-1", Name: "NVIDIA H100", Vendor: "NVIDIA", PCIAddress: "0000:65:00.0", MaxWatts: 700,
		At: now, Energy: uint64(100 * now.Sub(s.began).Microseconds()), Elapsed: now.Sub(s.last), Busy: now.Sub(s.last),
	}
	s.last = now
	for _, u := range s.users {
		u.Used = time.Duration(float64(d.Elapsed) * u.Used.Seconds())
		d.Users = append(d.Users, u)
	}
	if s.change != nil {
		s.change(&d)
	}
	return []gpulibrary.Device{d}, nil
}

func (s *scriptedGPU) Close() error {
	if s.panics == "close" {
		panic("double free")
	}
	return nil
}

// withGPU runs f with a node that has a GPU which the extension reads.
func withGPU(t *testing.T, s *scriptedGPU, f func(n *testNode), edit ...func(*Config)) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNode(t, append(edit, func(c *Config) { c.Meters.GPU.Extensions = []component.ID{nvmlID} })...)
		n.extensions = map[component.ID]component.Component{nvmlID: s}
		n.addNVIDIA()
		f(n)
	})
}

// addNVIDIA adds a GPU that NVIDIA's driver drives, with its audio function, and a switch of GPUs.
func (n *testNode) addNVIDIA() {
	const pci = "sys/bus/pci/"
	for address, of := range map[string]struct{ class, driver string }{
		"0000:65:00.0": {"0x030200", "nvidia"}, "0000:65:00.1": {"0x040300", "snd_hda_intel"}, "0000:70:00.0": {"0x068000", "nvidia"},
	} {
		n.host.Files[pci+"devices/"+address+"/class"] = of.class + "\n"
		n.host.Files[pci+"devices/"+address+"/vendor"] = "0x10de\n"
		n.host.Links[pci+"drivers/"+of.driver+"/"+address] = "../../../../bus/pci/devices/" + address
	}
	n.host.Files[pci+"drivers/nvidia/bind"] = ""
}

// pass lets ten seconds pass in which the processes use CPU time, and scrapes.
func (n *testNode) pass(times int, used map[int]int64) {
	for range times {
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		n.run(0, used)
	}
}

func TestTheEnergyOfAGPUIsSharedByTheTimeThatALibraryReports(t *testing.T) {
	for id, users := range map[string][]gpulibrary.User{
		"gpu": {{PIDs: []int32{10}, Used: 600 * time.Millisecond}, {PIDs: []int32{20}, Used: 200 * time.Millisecond}, {PIDs: []int32{30}}},
		"gpu-memory": { // without samples
			{PIDs: []int32{10, 20, 30}, Used: 800 * time.Millisecond, Memory: []uint64{3 << 30, 1 << 30, 0}},
		},
	} {
		t.Run(id, func(t *testing.T) { testEnergyOfAGPU(t, id, users) })
	}
}

// testEnergyOfAGPU tests a GPU that is busy for 80 % of the time: 60 % by a process, 20 % by another.
func testEnergyOfAGPU(t *testing.T, id string, users []gpulibrary.User) {
	s := &scriptedGPU{users: users, change: func(d *gpulibrary.Device) { d.Busy = d.Elapsed * 8 / 10 }}
	withGPU(t, s, func(n *testNode) {
		n.process(10, "train", docker(idA))
		n.process(20, "serve", docker(idB))
		n.process(30, "holds")
		n.process(40, "other")
		n.start()
		n.pass(8, map[int]int64{10: 1, 20: 900, 40: 900})
		const zone = "energy.zone=gpu"
		all := n.one("hw.energy", "hw.type=gpu").value
		// Start does not wait for the library, so the first interval counts only if its first answer was there.
		assert.Contains(t, []float64{7000, 8000}, math.Round(all*1e6)/1e6)
		assert.Equal(t, "GPU-1", n.one("hw.energy", "hw.type=gpu").attributes["hw.id"])
		assert.InDelta(t, 100, n.one("hw.power", "hw.type=gpu").value, 1)
		assert.InDelta(t, 0.8*all, n.one("system.energy", zone, "energy.state=active").value, 1e-6)
		assert.InDelta(t, 0.2*all, n.one("system.energy", zone, "energy.state=idle").value, 1e-6)
		assert.InDelta(t, 0.6*all, n.one("process.energy", zone, pid(10)).value, 1e-6)
		assert.InDelta(t, 0.2*all, n.one("process.energy", zone, pid(20)).value, 1e-6)
		assert.InDelta(t, 0.6*all, n.one("container.energy", zone, "container.id="+idA).value, 1e-6)
		assert.InDelta(t, 0.2*all, n.one("container.energy", zone, "container.id="+idB).value, 1e-6)
		t.Attr(id, fmt.Sprintf("%.3g, %.3g", n.one("process.energy", zone, pid(10)).value/all, n.one("process.energy", zone, pid(20)).value/all))
		assert.Zero(t, n.sum("process.energy", nil, zone, pid(30)))
		assert.Zero(t, n.sum("process.energy", nil, zone, pid(40)))
		assert.Zero(t, n.sum("system.unattributed.energy", nil, zone))
		assert.Empty(t, n.logged())
		assert.Empty(t, n.logs.FilterMessageSnippet("GPU").All())
	})
}

func TestAModuleIsNotSeparatedIfItsCPUIsNotRead(t *testing.T) {
	s := &scriptedGPU{change: func(d *gpulibrary.Device) { d.Module = true }}
	withGPU(t, s, func(n *testNode) {
		clear(n.host.Zones)
		n.start()
		n.pass(14, nil)
		assert.InDelta(t, 100, n.one("hw.power", "hw.type=gpu").value, 1)
		require.Len(t, n.reasons("GPU module"), 1)
		assert.Contains(t, n.reasons("GPU module")[0], "the energy of GPU-1 contains the energy of a CPU socket")
	})
}

// An error of a library is logged once. The measurement of everything else continues.
func TestWhatIsWrongWithAGPULibraryIsToldOnce(t *testing.T) {
	fails := func(text string, err error) *scriptedGPU { return &scriptedGPU{err: fmt.Errorf("%s: %w", text, err)} }
	lost := errors.New("GPU is lost (XID 79)")
	for name, c := range map[string]struct {
		s         *scriptedGPU
		condition string
		text      string
	}{
		"library missing": {
			fails("libnvidia-ml.so.1", fs.ErrNotExist), "GPU library", "cannot read the GPU 0000:65:00.0: nvml: libnvidia-ml.so.1: file does not exist",
		},
		"another version": {fails("driver/library version mismatch", errors.New("reboot")), "energy sensor", "nvml: driver/library version mismatch: reboot"},
		"no permission":   {fails("/dev/nvidiactl", fs.ErrPermission), "energy sensor", "nvml: /dev/nvidiactl: permission denied"},
		"opening panics":  {&scriptedGPU{panics: "open"}, "energy sensor", "nvml panicked and is not used again: no such symbol"},
		"polling panics":  {&scriptedGPU{panics: "poll"}, "energy sensor", "nvml panicked and is not used again: index out of range"},
		"lost":            {&scriptedGPU{change: func(d *gpulibrary.Device) { d.Err, d.UsageErr = lost, lost }}, "energy zones", "cannot read GPU-1: nvml: GPU is lost (XID 79)"},
		"users unknown": {
			&scriptedGPU{change: func(d *gpulibrary.Device) { d.UsageErr, d.Elapsed, d.Busy = errors.New("no permission"), 0, 0 }}, "GPU usage",
			"nvml: cannot read the users of GPU-1, whose energy is unattributed: no permission",
		},
	} {
		t.Run(name, func(t *testing.T) {
			withGPU(t, c.s, func(n *testNode) {
				n.process(10, "app")
				n.start()
				for range 30 {
					time.Sleep(10 * time.Second)
					synctest.Wait()
					n.run(100*joule, map[int]int64{10: 500})
				}
				assert.Equal(t, []string{"Degraded " + c.condition}, n.logged())
				text := n.status[len(n.status)-1].Err().Error()
				assert.True(t, strings.HasPrefix(text, c.text), text)
				assert.NotContains(t, text, "energy counters", "what these need is no help")
				assert.InDelta(t, 1500, n.one("process.energy", "energy.zone=package", pid(10)).value, 1, "the CPUs' energy is not affected")
				assert.Empty(t, n.logs.FilterMessageSnippet("NVIDIA GPUs not read").All())
			})
		})
	}
}

func TestAGPUThatNothingReadsIsLoggedOnce(t *testing.T) {
	n := newTestNode(t)
	n.addNVIDIA()
	n.start()
	n.run(100*joule, nil)
	assert.Len(t, n.logs.FilterMessageSnippet("NVIDIA GPUs not read").All(), 1, "there is nothing to wait for")
	for range 200 {
		n.run(100*joule, nil)
	}
	logged := n.logs.FilterMessageSnippet("NVIDIA GPUs not read").All()
	require.Len(t, logged, 1)
	assert.Equal(t, []any{"0000:65:00.0"}, logged[0].ContextMap()["gpus"])
	assert.Contains(t, logged[0].Message, "a collector with the extension nvml (https://")
	assert.Empty(t, n.logged())
}

// The energy of such a GPU is unattributed: its users are not reported.
func TestAGPUWhoseUsersNothingTellsIsLoggedOnce(t *testing.T) {
	n := newTestNode(t)
	m := &fakeMeter{readings: []power.Reading{{
		Zone: &power.Zone{ID: "card", Kind: power.GPU, Method: power.Measured, Domain: units.GPU("0000:03:00.0")}, At: time.Now(),
	}}}
	n.useMeters(power.Member{Name: "hwmon", Meter: m})
	n.start()
	for range 100 {
		m.readings[0].At = m.readings[0].At.Add(10 * time.Second)
		m.readings[0].Total += 1000 * joule
		n.run(0, nil)
	}
	logged := n.logs.FilterMessageSnippet("no driver or library reports their users").All()
	require.Len(t, logged, 1)
	assert.Equal(t, []any{"card"}, logged[0].ContextMap()["gpus"])
	active := n.one("system.energy", "energy.zone=gpu", "energy.state=active").value
	assert.InDelta(t, 100_000, active, 1001)
	assert.InDelta(t, active, n.one("system.unattributed.energy", "energy.zone=gpu").value, 1e-6)
}
