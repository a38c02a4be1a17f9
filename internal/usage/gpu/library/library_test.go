// SPDX-License-Identifier: Apache-2.0

package library

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
)

const (
	watts = 100
	pci   = "0000:65:00.0"
)

// script is a gpulibrary.Reader that answers what the test says. Its GPUs use 100 W.
type script struct {
	poll   func(context.Context) ([]gpulibrary.Device, error)
	close  func() error
	polls  atomic.Int32
	closed atomic.Bool
}

func (s *script) Open() gpulibrary.Reader { return s }

func (s *script) Poll(ctx context.Context) ([]gpulibrary.Device, error) {
	s.polls.Add(1)
	return s.poll(ctx)
}

func (s *script) Close() error {
	s.closed.Store(true)
	if s.close != nil {
		return s.close()
	}
	return nil
}

// board is a GPU that used 100 W since it was made.
type board struct {
	made, known time.Time
	offset      uint64 // of the counter
}

func newBoard() *board { return &board{made: time.Now()} }

// device returns the GPU now, with users that used these parts of the time since it was last known.
func (b *board) device(parts map[int32]float64) gpulibrary.Device {
	now := time.Now()
	d := gpulibrary.Device{
		ID: "GPU-1", Name: "NVIDIA H100", Vendor: "NVIDIA", PCIAddress: pci, MaxWatts: 700, At: now,
		Energy: b.offset + uint64(watts*now.Sub(b.made).Microseconds()),
	}
	if !b.known.IsZero() {
		d.Elapsed = now.Sub(b.known)
	}
	b.known = now
	d.Busy = d.Elapsed
	for pid, part := range parts {
		d.Users = append(d.Users, gpulibrary.User{PIDs: []int32{pid}, Used: time.Duration(part * float64(d.Elapsed)), Last: now})
	}
	return d
}

// node reads a meter and its source as the receiver does, and keeps what waits as the engine does.
type node struct {
	*Meter
	t       testing.TB
	usage   gpu.Source
	energy  units.Energy // from the first new reading, the baseline, to the last
	at      time.Time    // of the last new reading
	began   time.Time    // of the baseline
	base    units.Energy
	total   units.CPUTime
	used    map[string]units.CPUTime // by PIDs
	unowned units.CPUTime
	failed  error // of the meter
	unknown error // of the source
}

func start(t testing.TB, root string, every time.Duration, open ...func() gpulibrary.Reader) *node {
	var libraries []Library
	for i, o := range open {
		libraries = append(libraries, Library{Name: fmt.Sprint("nvml", i), Open: o})
	}
	m := New(libraries, Options{Root: root, Every: every})
	return &node{Meter: m, t: t, usage: m.Usage(), used: map[string]units.CPUTime{}}
}

// read reads once. isNew reports whether there was a good reading of another moment than before.
func (n *node) read() (r power.Reading, u gpu.Usage, isNew bool) {
	var readings []power.Reading
	readings, n.failed = n.Read(context.Background(), power.Sample{At: time.Now()})
	usage, unknown := n.usage.Read(time.Now(), nil)
	n.unknown = unknown
	require.LessOrEqual(n.t, len(readings), 1)
	if len(usage) > 0 {
		u = usage[0]
		n.total += u.Total
		n.unowned += u.Unattributed
		require.LessOrEqual(n.t, u.Busy, u.Total)
		for _, user := range u.Users {
			n.used[fmt.Sprint(user.PIDs)] += user.Used
		}
	}
	if len(readings) == 1 {
		r = readings[0]
		isNew = r.Err == nil && !r.At.Equal(n.at)
		if isNew {
			if n.began.IsZero() {
				n.began, n.base, n.total, n.unowned = r.At, r.Total, 0, 0
				clear(n.used)
			}
			n.at, n.energy = r.At, r.Total-n.base
		}
	}
	return r, u, isNew
}

// run reads so many times, at the end of each interval.
func (n *node) run(times int, interval time.Duration) (u gpu.Usage) {
	for range times {
		time.Sleep(interval)
		synctest.Wait()
		_, u, _ = n.read()
	}
	return u
}

func TestEnergyAndUsersOfAPollMeetInOneInterval(t *testing.T) {
	for _, tc := range []struct{ every, interval time.Duration }{
		{time.Second, 10 * time.Second}, {500 * time.Millisecond, time.Second}, {time.Second, time.Second},
		{100 * time.Millisecond, 10 * time.Second}, {time.Second, 130 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBoard()
			s := &script{poll: func(context.Context) ([]gpulibrary.Device, error) {
				return []gpulibrary.Device{b.device(map[int32]float64{10: .75, 11: .25, 12: 0})}, nil
			}}
			n := start(t, t.TempDir(), tc.every, s.Open)
			defer func() { require.NoError(t, n.Close()) }()
			for range 200 {
				time.Sleep(tc.interval)
				n.read()
				require.Equal(t, units.CPUTime(n.at.Sub(n.began)), n.total, tc)
				require.Equal(t, units.Energy(watts*n.at.Sub(n.began).Microseconds()), n.energy)
			}
			assert.Equal(t, 3*n.used["[11]"], n.used["[10]"])
			assert.Contains(t, n.used, "[12]")
			assert.Zero(t, n.unowned)
		})
	}
}

// A poll whose usage is there and whose energy the poller has not taken yet is handed out with its
// energy.
func TestUsageWaitsForTheReadingOfItsPoll(t *testing.T) {
	d := &device{}
	at := time.Now()
	in := newCgroups(t.TempDir())
	take := func(after int) {
		d.take(&gpulibrary.Device{At: at.Add(time.Duration(after) * time.Second), Elapsed: time.Second, Busy: time.Second}, in)
	}
	for after := range 12 {
		take(after)
	}
	d.returned = at.Add(10 * time.Second)
	assert.Equal(t, 10*units.Second, d.handOut().Total)
	assert.Zero(t, d.handOut().Total)
	d.returned = at.Add(11 * time.Second)
	assert.Equal(t, units.Second, d.handOut().Total)
}

func TestACounterThatStandsStillLosesNoUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		var stands atomic.Bool
		last := uint64(0)
		s := &script{poll: func(context.Context) ([]gpulibrary.Device, error) {
			d := b.device(map[int32]float64{10: .5})
			if stands.Load() {
				d.Energy = last
			}
			last = d.Energy
			return []gpulibrary.Device{d}, nil
		}}
		n := start(t, t.TempDir(), time.Second, s.Open)
		defer func() { require.NoError(t, n.Close()) }()
		n.run(5, 1100*time.Millisecond)
		stands.Store(true)
		u := n.run(30, 1100*time.Millisecond)
		assert.Equal(t, gpu.Usage{Domain: units.GPU(pci)}, u)
		stands.Store(false)
		u = n.run(1, 1100*time.Millisecond)
		assert.Greater(t, u.Total, 30*units.Second)
		assert.Equal(t, units.CPUTime(n.at.Sub(n.began)), n.total)
		assert.Equal(t, n.total, 2*n.used["[10]"])

		stands.Store(true)
		time.Sleep(standsStill + 5*time.Second)
		r, _, _ := n.read()
		assert.ErrorContains(t, r.Err, "stands still")
	})
}

func TestALibraryThatHangsDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		var hangs atomic.Pointer[chan struct{}]
		s := &script{poll: func(context.Context) ([]gpulibrary.Device, error) {
			if c := hangs.Load(); c != nil {
				<-*c
			}
			return []gpulibrary.Device{b.device(map[int32]float64{10: 1})}, nil
		}}
		n := start(t, t.TempDir(), time.Second, s.Open)
		n.run(5, 1100*time.Millisecond)
		blocked := make(chan struct{})
		hangs.Store(&blocked)
		texts := map[string]bool{}
		for range 300 {
			before := time.Now()
			r, _, _ := n.read()
			require.Equal(t, before, time.Now())
			if r.Err != nil {
				texts[r.Err.Error()] = true
			}
			time.Sleep(time.Second)
		}
		assert.Equal(t, map[string]bool{"nvml0 meter: no answer within 10s": true}, texts)
		close(blocked)
		n.run(2, 2*time.Minute)
		assert.Equal(t, units.CPUTime(n.at.Sub(n.began)), n.total, "nothing is lost")
		assert.Equal(t, n.total, n.used["[10]"])

		again := make(chan struct{})
		hangs.Store(&again)
		time.Sleep(2 * time.Second)
		assert.ErrorContains(t, n.Close(), "still did not return")
		close(again)
		time.Sleep(time.Second)
		assert.True(t, s.closed.Load())
	})
}

func TestALibraryThatPanicsIsNotCalledAgain(t *testing.T) {
	for name, s := range map[string]*script{
		"poll": {poll: func(context.Context) ([]gpulibrary.Device, error) { panic("index out of range") }},
		"open": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			open := func() gpulibrary.Reader { panic("index out of range") }
			if s != nil {
				open = s.Open
			}
			n := start(t, t.TempDir(), time.Second, open)
			n.run(100, 10*time.Second)
			assert.EqualError(t, n.failed, "nvml0 panicked and is not used again: index out of range", name)
			if s != nil {
				assert.EqualValues(t, 1, s.polls.Load())
			}
			require.NoError(t, n.Close())
		})
	}
}

func TestALibraryThatPanicsWhenItIsClosedIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		s := &script{
			poll:  func(context.Context) ([]gpulibrary.Device, error) { return []gpulibrary.Device{b.device(nil)}, nil },
			close: func() error { panic("double free") },
		}
		n := start(t, t.TempDir(), time.Second, s.Open)
		n.run(2, time.Second)
		assert.EqualError(t, n.Close(), "nvml0 panicked and is not used again: double free")
	})
}

func TestUsageThatIsUnknownForAWhileIsAsExactAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		var failing atomic.Bool
		s := &script{poll: func(context.Context) ([]gpulibrary.Device, error) {
			known := b.known
			d := b.device(map[int32]float64{10: .5})
			if failing.Load() {
				d.UsageErr = errors.New("unknown error")
				d.Elapsed, d.Busy, d.Users, b.known = 0, 0, nil, known
			}
			return []gpulibrary.Device{d}, nil
		}}
		n := start(t, t.TempDir(), time.Second, s.Open)
		defer func() { require.NoError(t, n.Close()) }()
		n.run(5, 1100*time.Millisecond)
		failing.Store(true)
		n.run(8, time.Second)
		failing.Store(false)
		n.run(2, 1100*time.Millisecond)
		assert.Equal(t, units.CPUTime(n.at.Sub(n.began)), n.total)
		assert.Zero(t, n.unowned)

		known := n.total
		failing.Store(true)
		assert.True(t, n.run(100, time.Second).Assumed, "which is no utilization")
		require.EqualError(t, n.unknown, "nvml0: cannot read the users of GPU-1, whose energy is unattributed: unknown error")
		assert.Equal(t, units.CPUTime(n.at.Sub(n.began)), n.total)
		assert.Equal(t, n.unowned, n.total-known, "it is unattributed, not lost")
		assert.Equal(t, known, 2*n.used["[10]"], "nobody has a share in it")
		failing.Store(false)
		assert.False(t, n.run(3, 1100*time.Millisecond).Assumed)
		require.NoError(t, n.unknown)
		assert.Equal(t, units.CPUTime(n.at.Sub(n.began)), n.total, "no time counts twice")
	})
}

// A power has no counter that could stand still while the usage is not known.
func TestAPowerIsHandedOutWithTheUsageOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		polls := 0
		s := &script{poll: func(context.Context) ([]gpulibrary.Device, error) {
			polls++
			known := b.known
			d := b.device(map[int32]float64{10: .5})
			d.HasPower, d.Power = true, watts*1e6
			if polls%3 != 0 && polls > 5 {
				d.UsageErr, d.Elapsed, b.known = errors.New("unknown"), 0, known
			}
			return []gpulibrary.Device{d}, nil
		}}
		n := start(t, t.TempDir(), time.Second, s.Open)
		defer func() { require.NoError(t, n.Close()) }()
		for range 100 {
			time.Sleep(1900 * time.Millisecond)
			synctest.Wait()
			if _, u, isNew := n.read(); isNew && u.Total > 0 {
				require.Equal(t, units.CPUTime(n.at.Sub(n.began)), n.total)
				require.Equal(t, units.Energy(watts*n.at.Sub(n.began).Microseconds()), n.energy)
			}
		}
		assert.Greater(t, n.total, 90*units.Second)
	})
}

// Drivers expose samples late: usage that a poll does not report is reported by the next one.
func TestUsageThatIsToldLateCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		lags := time.Duration(0)
		polls := 0
		s := &script{poll: func(context.Context) ([]gpulibrary.Device, error) {
			d := b.device(nil)
			lag := time.Duration(polls%3) * 300 * time.Millisecond
			polls++
			if d.Elapsed > 0 {
				d.Elapsed += lags - lag
				lags = lag
			}
			d.Users = []gpulibrary.User{{PIDs: []int32{10}, Used: d.Elapsed}}
			return []gpulibrary.Device{d}, nil
		}}
		n := start(t, t.TempDir(), time.Second, s.Open)
		defer func() { require.NoError(t, n.Close()) }()
		n.run(100, time.Second)
		assert.InDelta(t, n.at.Sub(n.began).Seconds(), n.total.Seconds(), .61)
		assert.Equal(t, n.total, n.used["[10]"])
		assert.Zero(t, n.unowned)
	})
}

// The energy of a poll without known usage is not that of the next one, whose counter has not moved
// since.
func TestACounterThatStandsStillSinceUsageWasUnknownWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &device{zone: power.Zone{ID: "GPU-1"}}
		in, began := newCgroups(t.TempDir()), time.Now()
		told := func(second int, energy uint64, unknown error) power.Value {
			found := gpulibrary.Device{
				At: began.Add(time.Duration(second) * time.Second), Energy: energy, Elapsed: time.Second, UsageErr: unknown,
			}
			return d.value(&found, d.take(&found, in))
		}
		at := func(second int, energy units.Energy) power.Value {
			return power.EnergyValue(&d.zone, energy, began.Add(time.Duration(second)*time.Second))
		}
		assert.Equal(t, at(0, 100), told(0, 100, nil))
		assert.Equal(t, at(1, 200), told(1, 200, nil))
		assert.Equal(t, at(2, 200), told(2, 300, errors.New("unknown")))
		assert.Equal(t, at(3, 200), told(3, 300, nil))
		assert.Equal(t, at(4, 400), told(4, 400, nil))
	})
}

func TestTimeThatALibraryForgetsIsUnattributed(t *testing.T) {
	d := &device{}
	in, began := newCgroups(t.TempDir()), time.Now()
	for _, second := range []time.Duration{0, 1, 6, 7} {
		d.take(&gpulibrary.Device{At: began.Add(second * time.Second), Elapsed: time.Second}, in)
	}
	d.returned = began.Add(7 * time.Second)
	u := d.handOut()
	assert.Equal(t, 7*units.Second, u.Total)
	assert.Equal(t, 4*units.Second, u.Unattributed)
	assert.Equal(t, 4*units.Second, u.Busy)
}

func TestAGPUThatLeavesAndReturns(t *testing.T) {
	for _, away := range []time.Duration{20 * time.Second, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			first, second := newBoard(), newBoard()
			var lost atomic.Bool
			s := &script{poll: func(context.Context) ([]gpulibrary.Device, error) {
				b := second.device(nil)
				b.ID, b.PCIAddress = "GPU-2", "0000:66:00.0"
				if lost.Load() {
					first.known = time.Time{} // the library forgets it
					return []gpulibrary.Device{b}, nil
				}
				return []gpulibrary.Device{first.device(map[int32]float64{10: 1}), b}, nil
			}}
			n := start(t, t.TempDir(), time.Second, s.Open)
			defer func() { require.NoError(t, n.Close()) }()
			var total, unowned units.CPUTime
			var began, at time.Time
			read := func(times int) {
				for range times {
					time.Sleep(1100 * time.Millisecond)
					readings, err := n.Read(t.Context(), power.Sample{At: time.Now()})
					require.NoError(t, err)
					usage, err := n.usage.Read(time.Now(), nil)
					require.NoError(t, err)
					fresh := false
					for _, r := range readings {
						if r.Zone.ID == "GPU-1" && r.Err == nil {
							if at = r.At; began.IsZero() {
								began, fresh = at, true
							}
						}
					}
					for _, u := range usage {
						if u.Domain == units.GPU(pci) && !fresh {
							total, unowned = total+u.Total, unowned+u.Unattributed
						}
					}
				}
			}
			read(10)
			lost.Store(true)
			read(int(away / (1100 * time.Millisecond)))
			lost.Store(false)
			read(10)
			assert.Equal(t, units.CPUTime(at.Sub(began)), total)
			assert.InDelta(t, away.Seconds(), float64(unowned)/float64(units.Second), 3, "who used it meanwhile is not known")
		})
	}
}

func TestGarbageIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		s := &script{poll: func(context.Context) ([]gpulibrary.Device, error) {
			d := b.device(nil)
			d.Busy, d.Elapsed = math.MaxInt64, 300*time.Hour
			d.Unattributed = -5
			d.Users = []gpulibrary.User{
				{Used: time.Second}, {PIDs: []int32{0}, Used: math.MaxInt64}, {PIDs: []int32{-7}}, {PIDs: []int32{5, 4, 5}, Used: -time.Second},
				{PIDs: []int32{4, 5}, Used: math.MaxInt64},
			}
			for pid := range int32(2 * maxUsers) {
				d.Users = append(d.Users, gpulibrary.User{PIDs: []int32{1000 + pid}, Used: math.MaxInt64})
			}
			other := d
			other.ID = "the same GPU"
			return []gpulibrary.Device{d, d, other}, nil
		}}
		n := start(t, t.TempDir(), time.Second, s.Open)
		defer func() { require.NoError(t, n.Close()) }()
		u := n.run(5, 10*time.Second)
		assert.LessOrEqual(t, n.total, units.CPUTime(n.at.Sub(n.began)))
		assert.Len(t, u.Users, maxUsers)
		assert.Equal(t, []int32{4, 5}, u.Users[0].PIDs)
	})
}

func TestTheErrorOfALibraryThatIsMissingIsNotExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing := &script{poll: func(context.Context) ([]gpulibrary.Device, error) {
			return nil, fmt.Errorf("libnvidia-ml.so.1: %w", fs.ErrNotExist)
		}}
		none := &script{poll: func(context.Context) ([]gpulibrary.Device, error) { return nil, nil }}
		n := start(t, t.TempDir(), time.Second, missing.Open, none.Open)
		n.run(3, 10*time.Second)
		require.ErrorIs(t, n.failed, fs.ErrNotExist)
		require.ErrorIs(t, n.failed, power.ErrNoZones)
		require.NoError(t, n.Close())

		there := func() gpulibrary.Reader {
			b := newBoard()
			return &script{poll: func(context.Context) ([]gpulibrary.Device, error) { return []gpulibrary.Device{b.device(nil)}, nil }}
		}
		n = start(t, t.TempDir(), time.Second, missing.Open, there, there)
		n.run(3, 10*time.Second)
		require.NoError(t, n.failed, "another one reads the GPUs, and only one")
		require.NoError(t, n.Close())
	})
}

func TestTheCgroupOfAShortLivedUserIsReadAtItsFirstPoll(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "proc", "10")
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		var gone atomic.Bool
		s := &script{poll: func(context.Context) ([]gpulibrary.Device, error) {
			d := b.device(nil)
			if !gone.Load() {
				d.Users = []gpulibrary.User{{PIDs: []int32{10}}, {PIDs: []int32{11, 10}}}
			}
			return []gpulibrary.Device{d}, nil
		}}
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::/system.slice/docker-1.scope\n"), 0o600))
		n := start(t, root, time.Second, s.Open)
		defer func() { require.NoError(t, n.Close()) }()
		_, _, _ = n.read()
		n.run(1, 1500*time.Millisecond)
		require.NoError(t, os.RemoveAll(dir))
		u := n.run(1, 10*time.Second)
		assert.Equal(t, "/system.slice/docker-1.scope", u.Users[0].Cgroup)
		assert.Equal(t, []int32{10, 11}, u.Users[1].PIDs)
		assert.Empty(t, u.Users[1].Cgroup, "not that of all of them is known")
		gone.Store(true)
		n.run(1, 10*time.Second)
		assert.Empty(t, n.polled[0].cgroups.paths)
	})
}

func TestUsersAreUnknownWhereProcessesHaveOtherNumbers(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "proc"), 0o755))
	require.NoError(t, checkPIDs(root), "a recorded tree")
	require.NoError(t, checkPIDs("/"))
	require.NoError(t, os.Symlink("1234567", filepath.Join(root, "proc", "self")))
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		s := &script{poll: func(context.Context) ([]gpulibrary.Device, error) {
			return []gpulibrary.Device{b.device(map[int32]float64{10: 1})}, nil
		}}
		n := start(t, root, time.Second, s.Open)
		defer func() { require.NoError(t, n.Close()) }()
		n.run(30, time.Second)
		require.ErrorIs(t, n.unknown, errElsewhere)
		assert.Equal(t, n.total, n.unowned)
		assert.Empty(t, n.used)
	})
}

func TestReadingAllocatesNothingInTheSteadyState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		parts := map[int32]float64{}
		for pid := range int32(200) {
			parts[pid+1] = .001
		}
		s := &script{poll: func(context.Context) ([]gpulibrary.Device, error) { return []gpulibrary.Device{b.device(parts)}, nil }}
		n := start(t, t.TempDir(), time.Second, s.Open)
		defer func() { require.NoError(t, n.Close()) }()
		n.run(20, 10*time.Second)
		m, ctx := n.Meter, t.Context()
		var users int
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			_, _ = m.Read(ctx, power.Sample{At: time.Now()})
			usage, _ := n.usage.Read(time.Now(), nil)
			users += len(usage[0].Users)
		}), "without a poll")

		// The same with tallies in place of polls: the script itself allocates.
		d := m.polled[0].devices[0]
		in := m.polled[0].cgroups
		found := b.device(parts)
		at := d.counted
		hand := func() {
			at = at.Add(time.Second)
			found.At, found.Elapsed = at, time.Second
			d.take(&found, in)
			at = at.Add(time.Second)
			found.At = at
			d.take(&found, in)
			d.returned = at
			users += len(d.handOut().Users)
		}
		for range 5 {
			hand()
		}
		assert.Zero(t, testing.AllocsPerRun(100, hand))
		assert.NotZero(t, users)
	})
}

// A history of polls and reads that come at any time, with every failure that a library may have.
// Of each moment the energy and the usage meet: where a reading is new, the usage that was handed
// out is that of the time of its energy.
func TestNoUsageIsLostOverALongHistory(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) { longHistory(t, seed) })
	}
}

func longHistory(t *testing.T, seed uint64) {
	random, faults := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2)) // of the reads and of the polls
	b := newBoard()
	one := func(of *rand.Rand, in int) bool { return of.IntN(in) == 0 }
	told := map[string]units.CPUTime{} // the reported usage of each PID
	var stale uint64
	fault := 0
	var ends atomic.Bool
	s := &script{poll: func(context.Context) ([]gpulibrary.Device, error) {
		if one(faults, 20) {
			fault = faults.IntN(12)
		}
		if one(faults, 30) && !ends.Load() {
			time.Sleep(time.Duration(faults.Int64N(int64(30 * time.Second))))
		}
		known := b.known
		d := b.device(nil)
		switch {
		case fault == 1 && one(faults, 3):
			b.known = known
			return nil, errors.New("refused")
		case fault == 2 && !known.IsZero():
			b.known = known
			return []gpulibrary.Device{}, nil
		case fault == 3:
			d.UsageErr, d.Elapsed, b.known = errors.New("unknown"), 0, known
			d.Busy = 0
		case fault == 4:
			d.Err = errors.New("lost")
		case fault == 5:
			d.Energy = stale
		case fault == 6 && one(faults, 5):
			d.Elapsed, d.Busy, b.known = 0, 0, known // the driver has no new sample
		}
		if d.Err == nil {
			stale = d.Energy
		}
		rest := d.Elapsed
		for rest > 0 && len(d.Users) < 5 {
			u := gpulibrary.User{PIDs: []int32{1 + faults.Int32N(20)}, Used: time.Duration(faults.Int64N(int64(rest) + 1))}
			if one(faults, 4) {
				u.PIDs = append(u.PIDs, 100+faults.Int32N(3))
			}
			rest -= u.Used
			d.Users = append(d.Users, u)
			told[fmt.Sprint(u.PIDs)] += units.CPUTime(u.Used)
		}
		d.Unattributed = max(rest, 0)
		return []gpulibrary.Device{d}, nil
	}}
	n := start(t, t.TempDir(), time.Second, s.Open)
	for range 1500 {
		time.Sleep(time.Duration(random.Int64N(int64(4 * time.Second))))
		if one(random, 100) {
			time.Sleep(time.Duration(random.Int64N(int64(5 * time.Minute))))
		}
		_, u, isNew := n.read()
		if isNew && u.Total > 0 { // else the energy waits in the engine
			require.Equal(t, units.CPUTime(n.at.Sub(n.began)), n.total)
			require.InDelta(t, watts*n.at.Sub(n.began).Microseconds(), uint64(n.energy), 2*watts, "the script's counter is of whole µs")
		}
		var used units.CPUTime
		for _, user := range n.used {
			used += user
		}
		require.InDelta(t, float64(n.total), float64(used+n.unowned), 1e4, "each moment is somebody's, or unattributed, to rounding")
	}
	ends.Store(true)
	time.Sleep(time.Minute)
	require.NoError(t, n.Close())
	for pids, used := range n.used {
		require.LessOrEqual(t, used, told[pids], pids)
	}
	require.GreaterOrEqual(t, len(n.used), 50)
}

// bursts is a GPU that two processes use by turns, at 340 W and 190 W, with pauses at 40 W.
var bursts = []struct {
	lasts time.Duration
	watts uint64 // beside the 40 W at rest
	pid   int32  // 0 in pauses
}{
	{4300 * time.Millisecond, 300, 10}, {2700 * time.Millisecond, 150, 11}, {1900 * time.Millisecond, 0, 0}, {6100 * time.Millisecond, 300, 10},
	{400 * time.Millisecond, 0, 0}, {7300 * time.Millisecond, 150, 11}, {3 * time.Second, 0, 0}, {5100 * time.Millisecond, 150, 11},
}

const restWatts = 40

// burstsUntil returns the energy of the GPU, and each process's GPU time and energy, in some time
// of bursts, in µJ.
func burstsUntil(end time.Duration) (energy uint64, used map[int32]time.Duration, truth map[int32]uint64) {
	used, truth = map[int32]time.Duration{}, map[int32]uint64{}
	energy = restWatts * uint64(end.Microseconds())
	for i := 0; end > 0; i++ {
		b := bursts[i%len(bursts)]
		lasts := min(b.lasts, end)
		end -= lasts
		energy += b.watts * uint64(lasts.Microseconds())
		used[b.pid] += lasts
		truth[b.pid] += b.watts * uint64(lasts.Microseconds())
	}
	return energy, used, truth
}

func TestBurstsAreWithinFivePercentAtWindowsOfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		last, lastUsed := began, map[int32]time.Duration{}
		s := &script{poll: func(context.Context) ([]gpulibrary.Device, error) {
			now := time.Now()
			energy, used, _ := burstsUntil(now.Sub(began))
			d := gpulibrary.Device{ID: "GPU-1", PCIAddress: pci, At: now, Energy: energy, Elapsed: now.Sub(last)}
			for _, pid := range []int32{10, 11} {
				d.Users = append(d.Users, gpulibrary.User{PIDs: []int32{pid}, Used: used[pid] - lastUsed[pid]})
				d.Busy += used[pid] - lastUsed[pid]
			}
			last, lastUsed = now, used
			return []gpulibrary.Device{d}, nil
		}}
		n := start(t, t.TempDir(), 500*time.Millisecond, s.Open)
		defer func() { require.NoError(t, n.Close()) }()
		shares := map[int32]float64{}
		var energy units.Energy
		windows := 0
		n.read() // starts the polls
		for range 600 {
			time.Sleep(time.Second + 7*time.Millisecond)
			synctest.Wait()
			_, u, isNew := n.read()
			require.True(t, isNew && (u.Total > 0), "no window is without a poll")
			active := float64(n.energy-energy) - restWatts*float64(u.Total)/1000
			energy = n.energy
			var sum units.CPUTime
			for _, user := range u.Users {
				sum += user.Used
			}
			for _, user := range u.Users {
				if windows > 0 && sum > 0 {
					shares[user.PIDs[0]] += active * float64(user.Used) / float64(sum)
				}
			}
			windows++
		}
		_, _, before := burstsUntil(n.began.Sub(began))
		_, _, truth := burstsUntil(n.at.Sub(began))
		for _, pid := range []int32{10, 11} {
			used := float64(truth[pid] - before[pid])
			t.Logf("PID %d: %.1f J of %.1f J", pid, shares[pid]/1e6, used/1e6)
			assert.InEpsilon(t, used, shares[pid], .05)
		}
	})
}

func TestAGPUInAModuleNamesTheNearestSocket(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, "sys", path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
	}
	assert.Equal(t, units.NodeCPUs, socketOf(root, pci), "sysfs does not show it")
	write("bus/pci/devices/"+pci+"/numa_node", "1")
	write("devices/system/node/node1/cpulist", "72-143")
	write("devices/system/cpu/cpu72/topology/physical_package_id", "1")
	assert.Equal(t, units.Domain("package-1"), socketOf(root, pci))
	write("bus/pci/devices/"+pci+"/numa_node", "-1")
	assert.Equal(t, units.NodeCPUs, socketOf(root, pci), "the firmware does not say")

	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		s := &script{poll: func(context.Context) ([]gpulibrary.Device, error) {
			d := b.device(nil)
			d.Module = true
			return []gpulibrary.Device{d}, nil
		}}
		n := start(t, root, time.Second, s.Open)
		defer func() { require.NoError(t, n.Close()) }()
		n.run(2, time.Second)
		r, _, _ := n.read()
		assert.Equal(t, units.NodeCPUs, r.Zone.Includes)
		assert.Equal(t, "NVIDIA H100, derived from its module", r.Zone.Name)
	})
}
