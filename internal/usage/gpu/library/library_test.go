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
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
)

const (
	watts = 100
	pci   = "0000:65:00.0"
)

// script is a library whose polls are a function.
type script func() ([]gpulibrary.Device, error)

func (s script) Poll(context.Context) ([]gpulibrary.Device, error) { return s() }
func (script) Close() error                                        { return nil }

// scripted returns a function that opens a library whose polls are a function of the time since now.
func scripted(poll func(at time.Duration) ([]gpulibrary.Device, error)) func() gpulibrary.Reader {
	began := time.Now()
	return func() gpulibrary.Reader {
		return script(func() ([]gpulibrary.Device, error) { return poll(time.Since(began)) })
	}
}

// board is a GPU that has used 100 W since it was made.
type board struct {
	made, known time.Time // known is the time up to which usage was reported
}

func newBoard() *board { return &board{made: time.Now()} }

// device returns the GPU at this moment, and users that used parts of the time since known.
func (b *board) device(parts map[int32]float64) gpulibrary.Device {
	now := time.Now()
	d := gpulibrary.Device{
		ID: "GPU-1", Name: "NVIDIA H100", Vendor: "NVIDIA", PCIAddress: pci, MaxWatts: 700, At: now,
		Energy: uint64(watts * now.Sub(b.made).Microseconds()),
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

// withoutUsage is like device, but the library fails to read the usage since known.
func (b *board) withoutUsage() gpulibrary.Device {
	known := b.known
	d := b.device(nil)
	d.UsageErr, d.Elapsed, d.Busy, b.known = errors.New("unknown error"), 0, 0, known
	return d
}

// node reads a meter and its source as the receiver does, and adds up energy and usage of GPU-1 since
// the first new reading.
type node struct {
	*Meter
	t              *testing.T
	usage          gpu.Source
	began, at      time.Time // of the first and the last new reading
	base, energy   units.Energy
	total, unowned units.CPUTime
	used           map[string]units.CPUTime // by PIDs
	powers         bool                     // the library reports powers, whose energy ends with an error
	failed         error                    // of the meter
	unknown        error                    // of the source
}

// start starts libraries.
func start(t *testing.T, root string, open ...func() gpulibrary.Reader) *node {
	var libraries []Library
	for i, o := range open {
		libraries = append(libraries, Library{Name: fmt.Sprint("nvml", i), Open: o})
	}
	m := New(libraries, Options{Root: root, Every: time.Second})
	return &node{Meter: m, t: t, usage: m.Usage(), used: map[string]units.CPUTime{}}
}

// read reads once. isNew reports whether there is a reading of another moment than before.
func (n *node) read() (r power.Reading, u gpu.Usage, isNew bool) {
	var readings []power.Reading
	readings, n.failed = n.Read(n.t.Context(), power.Sample{At: time.Now()})
	var usage []gpu.Usage
	usage, n.unknown = n.usage.Read(time.Now(), nil)
	if i := slices.IndexFunc(usage, func(u gpu.Usage) bool { return u.Domain == units.GPU(pci) }); i >= 0 {
		u = usage[i]
		require.Equal(n.t, u.Total, u.Busy, "the GPU of all tests is busy")
		n.total, n.unowned = n.total+u.Total, n.unowned+u.Unattributed
		for _, user := range u.Users {
			n.used[fmt.Sprint(user.PIDs)] += user.Used
		}
	}
	i := slices.IndexFunc(readings, func(r power.Reading) bool { return r.Zone.ID == "GPU-1" })
	if i < 0 {
		return r, u, false
	}
	r = readings[i]
	if isNew = r.Err == nil && !r.At.Equal(n.at); isNew {
		if n.began.IsZero() {
			n.began, n.base, n.total, n.unowned = r.At, r.Total, 0, 0
			clear(n.used)
		}
		n.at, n.energy = r.At, r.Total-n.base
	}
	return r, u, isNew
}

// run reads at the end of each of some intervals.
func (n *node) run(times int, interval time.Duration) (u gpu.Usage) {
	for range times {
		time.Sleep(interval)
		synctest.Wait()
		_, u, _ = n.read()
	}
	return u
}

// requireMet requires that energy and usage cover the same time.
func (n *node) requireMet() {
	n.t.Helper()
	require.Equal(n.t, units.CPUTime(n.at.Sub(n.began)), n.total)
	if !n.powers {
		require.InDelta(n.t, watts*n.at.Sub(n.began).Microseconds(), uint64(n.energy), 2*watts, "the counter has whole microjoules")
	}
}

func (n *node) close() { require.NoError(n.t, n.Close()) }

func TestALibraryThatHangsDelaysNoRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		n := start(t, "none", scripted(func(at time.Duration) ([]gpulibrary.Device, error) {
			if at > 5*time.Second && at < 5*time.Minute {
				time.Sleep(5 * time.Minute)
			}
			return []gpulibrary.Device{b.device(map[int32]float64{10: 1})}, nil
		}))
		defer n.close()
		var failed error
		for range 300 {
			before := time.Now()
			if r, _, _ := n.read(); r.Err != nil {
				failed = r.Err
			}
			require.Equal(t, before, time.Now())
			time.Sleep(time.Second)
		}
		require.EqualError(t, failed, "nvml0 meter: no answer within 10s")
		n.run(2, 2*time.Minute)
		n.requireMet()
		assert.Equal(t, n.total, n.used["[10]"], "no usage is lost")
		ctx := t.Context()
		assert.Zero(t, allocs.Count(100, func() {
			_, _ = n.Read(ctx, power.Sample{At: time.Now()})
			_, _ = n.usage.Read(time.Now(), nil)
		}), "Reads without a poll between them allocate nothing")
	})
}

// panics is a library that panics when it is closed.
type panics struct{ gpulibrary.Reader }

func (panics) Close() error { panic("index out of range") }

func TestALibraryThatPanicsIsNotCalledAgain(t *testing.T) {
	for _, at := range []string{"open", "poll", "close"} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			n := start(t, "none", func() gpulibrary.Reader {
				if at == "open" {
					calls++
					panic("index out of range")
				}
				return panics{script(func() ([]gpulibrary.Device, error) {
					if at == "poll" {
						calls++
						panic("index out of range")
					}
					return []gpulibrary.Device{newBoard().device(nil)}, nil
				})}
			})
			n.run(100, 10*time.Second)
			err := n.Close()
			if at != "close" {
				require.NoError(t, err)
				assert.Equal(t, 1, calls)
				err = n.failed
			}
			assert.EqualError(t, err, "nvml0 panicked and is not used again: index out of range", at)
		})
	}
}

func TestUsageThatIsUnknownForAWhileIsAsExactAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		n := start(t, "none", scripted(func(at time.Duration) ([]gpulibrary.Device, error) {
			other := newBoard().withoutUsage()
			other.ID, other.PCIAddress, other.Err = "GPU-2", "0000:66:00.0", errors.New("lost")
			if at > 6*time.Second && at < 14*time.Second || at > 20*time.Second && at < 120*time.Second {
				return []gpulibrary.Device{b.withoutUsage(), other}, nil
			}
			return []gpulibrary.Device{b.device(map[int32]float64{10: .5}), other}, nil
		}))
		defer n.close()
		n.run(17, 1100*time.Millisecond)
		n.requireMet()
		assert.Zero(t, n.unowned)

		known := n.total
		assert.True(t, n.run(90, 1100*time.Millisecond).Assumed, "it is no utilization")
		require.EqualError(t, n.unknown, "nvml0: cannot read the users of GPU-1, whose energy is unattributed: unknown error",
			"the zone of GPU-2 reports its error")
		n.requireMet()
		assert.InDelta(t, (n.total - known).Seconds(), n.unowned.Seconds(), 3, "it is unattributed, not lost")
		assert.Equal(t, n.total-n.unowned, 2*n.used["[10]"], "no process has a share in it")
		assert.False(t, n.run(3, 1100*time.Millisecond).Assumed)
		require.NoError(t, n.unknown)
		n.requireMet()
	})
}

// found returns what a library reports of a GPU at a second.
func found(began time.Time, second int, energy uint64, unknown error) *gpulibrary.Device {
	return &gpulibrary.Device{
		ID: "GPU-1", At: began.Add(time.Duration(second) * time.Second), Energy: energy, Elapsed: time.Second, Busy: time.Second, UsageErr: unknown,
	}
}

// The energy of a poll without usage belongs to another time than the energy of the next poll, whose
// counter has not advanced since.
func TestACounterThatStandsStillSinceUsageWasUnknownWaits(t *testing.T) {
	d, in, began := &device{zone: power.Zone{ID: "GPU-1"}}, newCgroups("none"), time.Now()
	unknown := errors.New("unknown")
	for second, c := range []struct {
		energy  uint64
		unknown error
		want    units.Energy
	}{{100, nil, 100}, {200, nil, 200}, {300, unknown, 200}, {300, nil, 200}, {400, nil, 400}} {
		f := found(began, second, c.energy, c.unknown)
		assert.Equal(t, power.Shown{Zone: &d.zone, Counter: c.want, At: f.At}, d.show(f, d.take(f, in)), second)
	}
}

func TestUsageWaitsForTheReadingOfItsPoll(t *testing.T) {
	d, in, began := &device{}, newCgroups("none"), time.Now()
	for second := range 12 {
		d.take(found(began, second, 0, nil), in)
	}
	for _, c := range []struct {
		returned int
		want     units.CPUTime
	}{{7, 0}, {8, 8 * units.Second}, {8, 0}, {10, 2 * units.Second}, {11, units.Second}} {
		d.returned = began.Add(time.Duration(c.returned) * time.Second)
		assert.Equal(t, c.want, d.handOut().Total, c.returned)
	}
}

func TestTimeThatALibraryForgetsIsUnattributed(t *testing.T) {
	d, in, began := &device{}, newCgroups("none"), time.Now()
	for _, second := range []int{0, 1, 6, 7} {
		d.take(found(began, second, 0, nil), in)
	}
	d.returned = began.Add(7 * time.Second)
	const total = 7 * units.Second
	assert.Equal(t, gpu.Usage{Busy: total, Total: total, Unattributed: 4 * units.Second, Assumed: true}, d.handOut())
}

func TestGarbageIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		n := start(t, "none", scripted(func(time.Duration) ([]gpulibrary.Device, error) {
			d := b.device(nil)
			d.At, d.Busy, d.Elapsed, d.Unattributed = time.Time{}, math.MaxInt64, 300*time.Hour, -5
			d.Users = []gpulibrary.User{
				{Used: 300 * time.Hour}, {PIDs: []int32{0}, Used: 300 * time.Hour}, {PIDs: []int32{-7}}, {PIDs: []int32{5, 4, 5}, Used: -time.Second},
				{PIDs: []int32{4, 5}, Used: math.MaxInt64},
			}
			for pid := range int32(2 * maxUsers) {
				d.Users = append(d.Users, gpulibrary.User{PIDs: []int32{1000 + pid}, Used: time.Hour})
			}
			other := d
			other.ID = "the same GPU"
			return []gpulibrary.Device{d, d, other}, nil
		}))
		defer n.close()
		u := n.run(5, 10*time.Second)
		n.requireMet()
		assert.Len(t, n.polled[0].devices, 1)
		assert.Len(t, u.Users, maxUsers)
		assert.Equal(t, []int32{4, 5}, u.Users[0].PIDs)
		hours := maxUsers + 1 + 2*300. // of users beyond the maximum, and of users that are no process
		assert.InEpsilon(t, hours/300*n.total.Seconds(), n.unowned.Seconds(), 1e-3)
	})
}

func TestUsersWithMemoryAreDividedByIt(t *testing.T) {
	const gib = 1 << 30
	sum := tally{single: map[int32]int{}}
	sum.fill(&gpulibrary.Device{Elapsed: time.Second, Busy: time.Second, Assumed: true, Users: []gpulibrary.User{
		{PIDs: []int32{11, 10, 0}, Used: 800 * time.Millisecond, Memory: []uint64{gib, 2 * gib, gib}},
		{PIDs: []int32{11, 10}, Used: 200 * time.Millisecond, Memory: []uint64{math.MaxUint64, 0}},
	}}, time.Second, newCgroups("none"))
	assert.Equal(t, []gpu.User{
		{PIDs: []int32{11}, Used: units.Second / 5}, {PIDs: []int32{10}, Used: 2 * units.Second / 5}, {PIDs: []int32{10, 11}, Used: units.Second / 5},
	}, sum.users)
	assert.Equal(t, units.Second/5, sum.unattributed, "memory of no process")
	assert.True(t, sum.assumed)
}

func TestUsersOfSeveralPollsAreAddedUp(t *testing.T) {
	at, sum := time.Now(), tally{single: map[int32]int{}}
	for i, cgroup := range []string{"", "/a"} {
		next := tally{at: at.Add(time.Duration(i)), assumed: true}
		for _, pids := range [][]int32{{10}, {10, 11}} {
			next.users = append(next.users, gpu.User{PIDs: pids, Used: units.Second, Last: next.at, Cgroup: cgroup})
		}
		sum.add(&next)
	}
	last := at.Add(1)
	assert.Equal(t, []gpu.User{
		{PIDs: []int32{10}, Used: 2 * units.Second, Last: last, Cgroup: "/a"},
		{PIDs: []int32{10, 11}, Used: 2 * units.Second, Last: last, Cgroup: "/a"},
	}, sum.users)
	assert.True(t, sum.assumed)
}

func TestTheErrorOfALibraryThatIsMissingIsNotExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := func(err error) func() gpulibrary.Reader {
			return scripted(func(time.Duration) ([]gpulibrary.Device, error) { return nil, err })
		}
		missing := fails(fmt.Errorf("libnvidia-ml.so.1: %w", fs.ErrNotExist))
		n := start(t, "none", missing, fails(nil))
		n.run(3, 10*time.Second)
		require.ErrorIs(t, n.failed, fs.ErrNotExist)
		require.ErrorIs(t, n.failed, power.ErrNoZones)
		n.close()

		there := func() gpulibrary.Reader {
			b := newBoard()
			return script(func() ([]gpulibrary.Device, error) { return []gpulibrary.Device{b.device(nil)}, nil })
		}
		n = start(t, "none", missing, there, there)
		n.run(3, 10*time.Second)
		require.NoError(t, n.failed, "another library reads the GPU")
		readings, _ := n.Read(t.Context(), power.Sample{At: time.Now()})
		usage, _ := n.usage.Read(time.Now(), nil)
		assert.Len(t, readings, 1, "and only one")
		assert.Len(t, usage, 1)
		n.close()

		n = start(t, "none", fails(fs.ErrPermission))
		n.run(3, 10*time.Second)
		require.ErrorContains(t, n.failed, "nvml0: permission denied")
		require.NotErrorIs(t, n.failed, fs.ErrPermission, "it does not concern the files of energy counters")
		n.close()
	})
}

func TestTheCgroupOfAShortLivedUserIsReadAtItsFirstPoll(t *testing.T) {
	root := t.TempDir()
	const first, second = "0::/docker-1.scope\n", "0::/docker-2.scope\n"
	dividetest.Put(t, root, map[string]string{"proc/10/cgroup": first, "proc/12/cgroup": first, "proc/13/cgroup": second})
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		n := start(t, root, scripted(func(at time.Duration) ([]gpulibrary.Device, error) {
			d := b.device(nil)
			if at < 15*time.Second {
				d.Users = []gpulibrary.User{{PIDs: []int32{10}}, {PIDs: []int32{11, 10}}, {PIDs: []int32{10, 12}}, {PIDs: []int32{10, 13}}}
			}
			return []gpulibrary.Device{d}, nil
		}))
		defer n.close()
		n.read()
		n.run(1, 1500*time.Millisecond)
		require.NoError(t, os.RemoveAll(filepath.Join(root, "proc/10")))
		u := n.run(1, 10*time.Second)
		var cgroups []string
		for _, user := range u.Users {
			cgroups = append(cgroups, user.Cgroup)
		}
		assert.Equal(t, []string{"/docker-1.scope", "", "/docker-1.scope", ""}, cgroups, "of all PIDs of a user")
		assert.Equal(t, []int32{10, 11}, u.Users[1].PIDs)
		n.run(1, 10*time.Second)
		assert.Empty(t, n.polled[0].cgroups.paths)
	})
}

func TestUsersAreUnknownIfProcessesHaveOtherNumbers(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "proc"), 0o755))
	require.NoError(t, checkPIDs(root), "a recorded tree")
	require.NoError(t, checkPIDs("/"))
	require.NoError(t, os.Symlink("1234567", filepath.Join(root, "proc", "self")))
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		n := start(t, root, scripted(func(time.Duration) ([]gpulibrary.Device, error) {
			return []gpulibrary.Device{b.device(map[int32]float64{10: 1})}, nil
		}))
		defer n.close()
		n.run(30, time.Second)
		require.ErrorIs(t, n.unknown, errElsewhere)
		assert.Equal(t, n.total, n.unowned)
		assert.Empty(t, n.used)
	})
}

// A history of polls and reads at any time, with every failure that a library may have, of energy
// counters and of powers. Energy and usage meet at each moment.
func TestNoUsageIsLostOverALongHistory(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) { longHistory(t, seed) })
	}
}

func longHistory(t *testing.T, seed uint64) {
	random, faults := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2)) // of the reads and of the polls
	one := func(of *rand.Rand, in int) bool { return of.IntN(in) == 0 }
	b, fault, stale := newBoard(), 0, uint64(0)
	reported := map[string]units.CPUTime{} // by PIDs
	began, poll := time.Now(), scripted(func(at time.Duration) ([]gpulibrary.Device, error) {
		if one(faults, 20) {
			fault = faults.IntN(12)
		}
		if one(faults, 30) && at < time.Hour {
			time.Sleep(time.Duration(faults.Int64N(int64(30 * time.Second))))
		}
		known := b.known
		d := b.device(nil)
		d.HasPower, d.Power = seed%2 == 1, watts*1e6
		switch {
		case at > time.Hour:
			d.Energy = stale
		case fault == 1 && one(faults, 3):
			b.known = known
			return nil, errors.New("refused")
		case fault == 2 && !known.IsZero():
			b.known = known
			return []gpulibrary.Device{}, nil
		case fault == 3:
			d.UsageErr, d.Elapsed, d.Busy, b.known = errors.New("unknown"), 0, 0, known
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
			reported[fmt.Sprint(u.PIDs)] += units.CPUTime(u.Used)
		}
		d.Unattributed = max(rest, 0)
		return []gpulibrary.Device{d}, nil
	})
	n := start(t, "none", poll)
	n.powers = seed%2 == 1
	for time.Since(began) < time.Hour {
		time.Sleep(time.Duration(random.Int64N(int64(4 * time.Second))))
		if one(random, 100) {
			time.Sleep(time.Duration(random.Int64N(int64(5 * time.Minute))))
		}
		if _, u, isNew := n.read(); isNew && u.Total > 0 { // otherwise the energy waits in the engine
			n.requireMet()
		}
		used := n.unowned
		for _, user := range n.used {
			used += user
		}
		require.InDelta(t, float64(n.total), float64(used), 1e4, "each moment has a user or is unattributed, except for rounding")
	}
	time.Sleep(time.Minute + standsStill)
	if r, _, _ := n.read(); !n.powers {
		assert.ErrorContains(t, r.Err, "is no longer updated")
	}
	n.close()
	for pids, used := range n.used {
		require.LessOrEqual(t, used, reported[pids], pids)
	}
	require.GreaterOrEqual(t, len(n.used), 50)
}

func TestAGPUInAModuleNamesTheNearestSocket(t *testing.T) {
	root := t.TempDir()
	device := "sys/bus/pci/devices/" + pci + "/numa_node"
	assert.Equal(t, units.NodeCPUs, socketOf(root, pci), "sysfs does not show it")
	dividetest.Put(t, root, map[string]string{device: "-1\n"})
	assert.Equal(t, units.NodeCPUs, socketOf(root, pci), "the firmware does not report it")
	dividetest.Put(t, root, map[string]string{
		device: "1\n", "sys/devices/system/node/node1/cpulist": "72-143\n", dividetest.SysCPU + "cpu72/topology/physical_package_id": "1\n",
	})

	p, d := newPolled(Library{}, Options{Root: root}), newBoard().device(nil)
	d.Module = true
	here := p.device(&d)
	assert.Equal(t, units.Domain("package-1"), here.zone.Includes)
	assert.Equal(t, "NVIDIA H100, derived from its module", here.zone.Name)
	assert.Same(t, here, p.device(&d))
	d.PCIAddress = "0000:66:00.0"
	assert.NotSame(t, here, p.device(&d), "a GPU in another place")
	assert.Equal(t, units.NodeCPUs, p.device(&d).zone.Includes)
}
