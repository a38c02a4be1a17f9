// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
)

// migDevice is a slice of a scripted GPU.
type migDevice struct {
	nvml.Device
	id              string
	multiprocessors uint32
	activity        float64
	processes       []uint32 // PIDs; each process holds PID GiB
	err, noList     error    // results of GPMSample and of Processes
	held            int      // number of samples that are not freed
}

type gpmSample struct {
	of    *migDevice
	at    time.Time
	freed bool
}

func (m *migDevice) UUID() (string, error)            { return m.id, nil }
func (m *migDevice) Multiprocessors() (uint32, error) { return m.multiprocessors, nil }
func (m *migDevice) Processes() (list []nvml.Process, err error) {
	for _, pid := range m.processes {
		list = append(list, nvml.Process{PID: pid, Memory: uint64(pid) << 30})
	}
	return list, m.noList
}

func (m *migDevice) GPMSample() (nvml.GPMSample, error) {
	if m.err != nil {
		return nil, m.err
	}
	m.held++
	return &gpmSample{of: m, at: time.Now()}, nil
}

func (s *gpmSample) Activity(earlier nvml.GPMSample) (float64, error) {
	if s.freed || earlier.(*gpmSample).freed || s.at.Sub(earlier.(*gpmSample).at) < 100*time.Millisecond {
		return 0, nvml.InvalidArgument
	}
	return s.of.activity, nil
}

func (s *gpmSample) Free() { s.freed = true; s.of.held-- }

func newMIG(devices ...nvml.Device) *script {
	s := newScript(1)
	s.mig, s.multiprocessors, s.slices = true, 100, devices
	s.noProcesses, s.noSamples = nvml.NotSupported, nvml.NotSupported
	return s
}

func TestSlicesShareByMultiprocessorsTimesActivity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := &migDevice{id: "MIG-1", multiprocessors: 60, activity: 50, processes: []uint32{1}}
		two := &migDevice{id: "MIG-2", multiprocessors: 20, activity: 100, processes: []uint32{2, 3}}
		none := &migDevice{id: "MIG-3", multiprocessors: 10, activity: 100}
		p := poller(t, newMIG(one, two, none))
		d := p.after(time.Second)
		assert.True(t, d.Elapsed == 0 && len(d.Users) == 0 && d.UsageErr == nil, "first poll: %+v", d)
		d = p.after(time.Second)
		assert.True(t, len(d.Users) == 2 && about(usedBy(d, 1), 300*time.Millisecond) && about(usedBy(d, 2), 200*time.Millisecond), "users %+v", d.Users)
		t.Attr("mig", fmt.Sprint(usedBy(d, 1).Round(time.Millisecond), ", ", usedBy(d, 2).Round(time.Millisecond)))
		assert.Equal(t, gpulibrary.User{PIDs: []int32{2, 3}, Used: 200 * time.Millisecond, Memory: []uint64{2 << 30, 3 << 30}}, d.Users[1])
		assert.True(t, about(d.Unattributed, 100*time.Millisecond) && about(d.Busy, 600*time.Millisecond) && d.Elapsed == time.Second, "%+v", d)
		assert.True(t, one.held == 1 && two.held == 1, "%d and %d samples are held", one.held, two.held)
		err := p.reader.Close()
		assert.True(t, err == nil && one.held+two.held+none.held == 0, "after Close, samples are held: %v", err)
	})
}

func TestSlicesThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := &migDevice{id: "MIG-1", multiprocessors: 50, activity: 100, processes: []uint32{1}}
		two := &migDevice{id: "MIG-2", multiprocessors: 50, activity: 40, processes: []uint32{2}}
		s := newMIG(one)
		p := poller(t, s)
		p.after(time.Second)
		p.after(time.Second)
		s.slices = []nvml.Device{two}
		d := p.after(time.Second)
		assert.True(t, len(d.Users) == 0 && about(d.Unattributed, time.Second/2) && one.held == 0, "a new slice: %+v", d)
		d = p.after(time.Second)
		assert.True(t, about(usedBy(d, 2), 200*time.Millisecond) && d.Unattributed == 0, "afterwards: %+v", d)
	})
}

func TestPollsCloserThanThePerformanceMonitors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poller(t, newMIG(&migDevice{id: "MIG-1", multiprocessors: 50, activity: 100, processes: []uint32{1}}))
		p.after(time.Second)
		at := p.after(time.Second).At
		d := p.after(100 * time.Millisecond)
		assert.True(t, d.At.Equal(at) && d.Elapsed == 0 && d.UsageErr == nil, "after 100 ms: %+v", d)
		d = p.after(100 * time.Millisecond)
		assert.True(t, d.Elapsed == 200*time.Millisecond && about(usedBy(d, 1), 100*time.Millisecond), "after 200 ms: %+v", d)
	})
}

func TestSlicesOfUnknownActivity(t *testing.T) {
	for name, tc := range map[string]struct {
		slice           *migDevice
		multiprocessors uint32
	}{
		"not permitted":      {&migDevice{id: "MIG-1", multiprocessors: 50, err: nvml.NoPermission}, 100},
		"before Hopper":      {&migDevice{id: "MIG-1", multiprocessors: 50, err: nvml.NotSupported, noList: nvml.Unknown}, 100},
		"not a number":       {&migDevice{id: "MIG-1", multiprocessors: 50, activity: math.NaN()}, 100},
		"no multiprocessors": {&migDevice{id: "MIG-1", multiprocessors: 50, activity: 50}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMIG(tc.slice)
				s.multiprocessors = tc.multiprocessors
				p := poller(t, s)
				p.after(time.Second)
				first := p.after(time.Second).UsageErr
				d := p.after(time.Second)
				assert.True(t, d.UsageErr != nil && first.Error() == d.UsageErr.Error() && d.Err == nil && d.Energy == 300_000_000 && len(d.Users) == 0, "%+v", d)
			})
		})
	}
}

func TestSlicesBeforeHopperShareByMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := &migDevice{id: "MIG-1", multiprocessors: 50, err: nvml.NotSupported}
		two := &migDevice{id: "MIG-2", multiprocessors: 50, err: nvml.NotSupported, processes: []uint32{3}}
		p := poller(t, newMIG(one, two))
		p.after(time.Second)
		one.processes = []uint32{1}
		d := p.after(time.Second)
		assert.Equal(t, []gpulibrary.User{{PIDs: []int32{1, 3}, Used: time.Second, Memory: []uint64{1 << 30, 3 << 30}}}, d.Users)
		assert.True(t, d.Assumed, "the GPU does not report how busy it is")
		one.processes, two.processes = nil, nil
		d = p.after(time.Second)
		assert.Equal(t, []time.Duration{time.Second, 0}, []time.Duration{d.Elapsed, d.Busy})
		assert.False(t, d.Assumed, "no process holds memory")
	})
}

func TestActivityIsAtMostAllOfTheSlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poller(t, newMIG(
			&migDevice{id: "MIG-1", multiprocessors: 80, activity: 250, processes: []uint32{1}},
			&migDevice{id: "MIG-2", multiprocessors: 80, activity: math.Inf(1), processes: []uint32{2}},
			&migDevice{id: "MIG-3", multiprocessors: 80, activity: -5, processes: []uint32{3}}))
		p.after(time.Second)
		d := p.after(time.Second)
		assert.True(t, about(usedBy(d, 1), 800*time.Millisecond) && about(usedBy(d, 2), 200*time.Millisecond) && usedBy(d, 3) == 0, "users %+v", d.Users)
	})
}

func TestMIGThatIsTurnedOnAndOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1)
		p := s.begun(t)
		s.mig, s.multiprocessors = true, 100
		s.slices = []nvml.Device{&migDevice{id: "MIG-1", multiprocessors: 50, activity: 80, processes: []uint32{1}}}
		d := p.after(time.Second)
		assert.True(t, d.Elapsed == time.Second && d.Unattributed == time.Second && d.Busy == time.Second && d.UsageErr == nil, "turned on: %+v", d)
		d = p.after(time.Second)
		assert.True(t, about(usedBy(d, 1), 400*time.Millisecond) && d.Unattributed == 0, "on: %+v", d)
		s.mig, s.slices = false, nil
		s.second(3, 20)
		d = p.after(time.Second)
		assert.True(t, d.Elapsed == time.Second && d.Unattributed == time.Second, "turned off: %+v", d)
		s.second(5, 70)
		s.entries = []nvml.Sample{{PID: 4, Timestamp: s.seconds(5), SM: 70}}
		d = p.after(time.Second)
		assert.True(t, about(usedBy(d, 4), 700*time.Millisecond), "off: %+v", d)
	})
}
