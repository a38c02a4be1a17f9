// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
)

// script is a GPU that answers what a test says. Its energy counter counts 100 W.
type script struct {
	*gpu
	instants  []nvml.Utilization
	entries   []nvml.Sample
	processes []uint32
	memory    map[uint32]uint64 // of the processes, in GiB
	noList    error             // of processes
	since     []uint64          // that ProcessUtilization was called with
}

func newScript() *script {
	s := &script{gpu: newGPU(func(time.Duration) uint32 { return 0 })}
	s.idle = 100
	return s
}

func (s *script) UtilizationSamples(since uint64) ([]nvml.Utilization, error) {
	if s.noSamples != nil {
		return nil, s.noSamples
	}
	var list []nvml.Utilization
	for _, i := range s.instants {
		if i.Timestamp > since {
			list = append(list, i)
		}
	}
	return list, nil
}

func (s *script) ProcessUtilization(since uint64) ([]nvml.Sample, error) {
	s.since = append(s.since, since)
	return append([]nvml.Sample(nil), s.entries...), s.noProcesses
}

func (s *script) Processes() (list []nvml.Process, err error) {
	for _, pid := range s.processes {
		list = append(list, nvml.Process{PID: pid, Memory: s.memory[pid] << 30})
	}
	return list, s.noList
}

// begun takes a second in which the GPU was idle as the baseline of a poller.
func (s *script) begun(t *testing.T) *polling {
	s.second(1, 0)
	time.Sleep(time.Second)
	p := poller(t, s)
	p.after(0)
	return p
}

// begun runs a test in a bubble, with a scripted GPU and a poller that has its baseline.
func begun(t *testing.T, test func(s *script, p *polling)) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		test(s, s.begun(t))
	})
}

// seconds is a timestamp so long after the start of the test.
func (s *script) seconds(at float64) uint64 {
	return uint64(s.began.Add(time.Duration(at * float64(time.Second))).UnixMicro())
}

// second adds ten instants of the second that ends at a time, in which the GPU was so busy.
func (s *script) second(end int, percent uint32) {
	for i := range 10 {
		at := s.seconds(float64(end-1) + float64(i+1)/10)
		s.instants = append(s.instants, nvml.Utilization{Timestamp: at, Percent: percent})
	}
}

// polling is a reader of one scripted GPU.
type polling struct {
	t      *testing.T
	reader gpulibrary.Reader
	driver *driver
}

func poller(t *testing.T, devices ...nvml.Device) *polling {
	d := &driver{devices: devices}
	return &polling{t, New(d.open), d}
}

// after polls so long after the last time.
func (p *polling) after(d time.Duration) *gpulibrary.Device {
	p.t.Helper()
	time.Sleep(d)
	devices, err := p.reader.Poll(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	for i := range devices {
		checkDevice(p.t, &devices[i])
	}
	return &devices[0]
}

func usedBy(d *gpulibrary.Device, pid int32) time.Duration {
	for _, u := range d.Users {
		if u.PIDs[0] == pid {
			return u.Used
		}
	}
	return -1
}

func about(got, want time.Duration) bool { return (got - want).Abs() <= 2*time.Millisecond }

func TestFirstPollIsTheBaseline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		time.Sleep(10 * time.Second)
		for i := range 10 {
			s.second(i+1, 100)
		}
		s.entries = []nvml.Sample{{PID: 7, Timestamp: s.seconds(10), SM: 100}}
		p := poller(t, s)
		if d := p.after(0); d.Elapsed != 0 || len(d.Users) != 0 || d.Busy != 0 || d.Energy != 1_000_000_000 {
			t.Errorf("first poll: %+v", d)
		}
		s.second(11, 50)
		s.entries = []nvml.Sample{{PID: 7, Timestamp: s.seconds(11), SM: 50}}
		d := p.after(time.Second)
		if s.since[1] != s.seconds(10) {
			t.Errorf("asked for samples since %d, want %d", s.since[1], s.seconds(10))
		}
		if d.Elapsed != time.Second || !about(d.Busy, time.Second/2) || !about(usedBy(d, 7), time.Second/2) || d.Unattributed != 0 {
			t.Errorf("second poll: %+v", d)
		}
		if last := d.Users[0].Last; !last.Equal(s.began.Add(11 * time.Second)) {
			t.Errorf("used last at %v", last)
		}
	})
}

func TestEntriesThatCannotBeTrue(t *testing.T) {
	type entry struct {
		pid         uint32
		at          float64 // seconds
		sm, decoder uint32
	}
	const never, ms = -1, time.Millisecond // never: not listed
	two := entry{2, 2, 60, 0}
	for name, tc := range map[string]struct {
		entries                []entry
		one, two, unattributed time.Duration
	}{
		"over 100 %":                 {[]entry{{1, 2, 101, 0}, two}, never, 600 * ms, 400 * ms},
		"over 100 % of another part": {[]entry{{1, 2, 40, math.MaxUint32}, two}, never, 600 * ms, 400 * ms},
		"all":                        {[]entry{{1, 2, 4e9, 0}, {2, 2, 2e9, 0}}, never, never, 1000 * ms},
		"together over 100 %":        {[]entry{{1, 2, 100, 0}, {2, 2, 100, 0}}, 500 * ms, 500 * ms, 0},
		"stale":                      {[]entry{{1, 1, 40, 0}, two}, never, 600 * ms, 400 * ms},
		"of the future":              {[]entry{{1, 3600, 40, 0}, two}, never, 600 * ms, 400 * ms},
		"of the end of time":         {[]entry{{1, math.Inf(1), 40, 0}, two}, never, 600 * ms, 400 * ms},
		"two means of a process":     {[]entry{{1, 2, 30, 0}, {1, 1.7, 10, 0}, two}, 400 * ms, 600 * ms, 0},
		"twice":                      {[]entry{{1, 2, 40, 0}, {1, 2, 40, 0}, two}, 400 * ms, 600 * ms, 0},
		"of no process":              {[]entry{{0, 2, 40, 0}, two}, never, 600 * ms, 400 * ms},
		"of no PID":                  {[]entry{{math.MaxUint32, 2, 40, 0}, two}, never, 600 * ms, 400 * ms},
		"missing":                    {nil, never, never, 1000 * ms},
		"rounded":                    {[]entry{{1, 2, 49, 0}, {2, 2, 50, 0}}, 490 * ms, 500 * ms, 0},
	} {
		t.Run(name, func(t *testing.T) {
			begun(t, func(s *script, p *polling) {
				s.second(2, 100)
				for _, e := range tc.entries {
					at := uint64(math.MaxUint64)
					if !math.IsInf(e.at, 1) {
						at = s.seconds(e.at)
					}
					s.entries = append(s.entries, nvml.Sample{PID: e.pid, Timestamp: at, SM: e.sm, Decoder: e.decoder})
				}
				d := p.after(time.Second)
				one, two := usedBy(d, 1), usedBy(d, 2)
				if !about(one, tc.one) || !about(two, tc.two) || !about(d.Unattributed, tc.unattributed) || !about(d.Busy, time.Second) {
					t.Errorf("used %v and %v, unattributed %v of %v; want %v, %v, %v of 1s", one, two, d.Unattributed, d.Busy, tc.one, tc.two, tc.unattributed)
				}
			})
		})
	}
}

func TestWeightIsTheBusiestPart(t *testing.T) {
	begun(t, func(s *script, p *polling) {
		s.second(2, 10)
		s.entries = []nvml.Sample{{PID: 1, Timestamp: s.seconds(2), SM: 0, Encoder: 60, Decoder: 30}, {PID: 2, Timestamp: s.seconds(2), SM: 10}}
		d := p.after(time.Second)
		if !about(usedBy(d, 1), 600*time.Millisecond) || !about(usedBy(d, 2), 100*time.Millisecond) || !about(d.Busy, 700*time.Millisecond) {
			t.Errorf("%+v", d)
		}
		t.Attr("gpu-utilization", fmt.Sprint(usedBy(d, 1).Round(time.Millisecond), ", ", usedBy(d, 2).Round(time.Millisecond)))
	})
}

func TestProcessesThatHaveTheGPUOpenAreUsersOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.second(1, 0)
		s.processes = []uint32{1, 2, 0, math.MaxUint32}
		time.Sleep(time.Second)
		p := poller(t, s)
		p.after(0)
		s.second(2, 30)
		s.entries = []nvml.Sample{{PID: 2, Timestamp: s.seconds(2), SM: 30}}
		d := p.after(time.Second)
		if len(d.Users) != 2 || usedBy(d, 1) != 0 || !about(usedBy(d, 2), 300*time.Millisecond) {
			t.Errorf("users %+v", d.Users)
		}
	})
}

// As an H200 with driver 580 answers: once a process has ended, none of its samples is listed.
func TestTimeOfNoProcessIsOfThoseThatEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		atOnce        bool // in the poll after the baseline
		before, after []uint32
		entries       []nvml.Sample
		users         []int32
		used          time.Duration
	}{
		"one":                       {before: []uint32{7}, users: []int32{7}, used: 600 * time.Millisecond},
		"one of the baseline":       {before: []uint32{7}, users: []int32{7}, used: 600 * time.Millisecond, atOnce: true},
		"several":                   {before: []uint32{7, 8, 9}, after: []uint32{8}, users: []int32{7, 9}, used: 600 * time.Millisecond},
		"none":                      {before: []uint32{7}, after: []uint32{7}},
		"one that no poll has seen": {},
		"what others did not use": {
			before: []uint32{7, 8}, after: []uint32{8}, entries: []nvml.Sample{{PID: 8, SM: 20}},
			users: []int32{7}, used: 400 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript()
				s.processes = tc.before
				p := s.begun(t)
				end := 2
				if !tc.atOnce {
					s.second(end, 0)
					p.after(time.Second)
					end++
				}
				s.processes, s.entries = tc.after, tc.entries
				for i := range s.entries {
					s.entries[i].Timestamp = s.seconds(float64(end))
				}
				s.second(end, 60)
				d := p.after(time.Second)
				ended := slices.IndexFunc(d.Users, func(u gpulibrary.User) bool { return slices.Equal(u.PIDs, tc.users) })
				switch {
				case tc.users == nil && (d.Unattributed != d.Busy || d.Busy == 0):
					t.Errorf("%v of %v is unattributed", d.Unattributed, d.Busy)
				case tc.users != nil && (ended < 0 || !about(d.Users[ended].Used, tc.used) || d.Unattributed != 0):
					t.Errorf("users %+v, unattributed %v", d.Users, d.Unattributed)
				}
			})
		})
	}
}

func TestNoProcessHasEndedWhileProcessesCannotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.processes = []uint32{7}
		p := s.begun(t)
		s.second(2, 0)
		p.after(time.Second)
		s.noList = nvml.GPUIsLost
		for end := range 2 {
			s.second(3+end, 60)
			if d := p.after(time.Second); d.Unattributed != d.Busy || d.Busy == 0 {
				t.Errorf("users %+v, %v of %v is unattributed", d.Users, d.Unattributed, d.Busy)
			}
		}
	})
}

func TestProcessesOfAnIdleGPUThatNoneHasOpenAreNotAskedFor(t *testing.T) {
	begun(t, func(s *script, p *polling) {
		asked := len(s.since)
		s.second(2, 0)
		if p.after(time.Second); len(s.since) != asked {
			t.Error("an idle GPU was asked for processes")
		}
		s.processes = []uint32{7}
		s.second(3, 0)
		if p.after(time.Second); len(s.since) != asked+1 {
			t.Error("a GPU that a process has open was not asked for processes")
		}
	})
}

func TestWithoutSamplesOfProcesses(t *testing.T) {
	for name, tc := range map[string]struct {
		processes    []uint32
		noSamples    error
		users        []gpulibrary.User
		unattributed time.Duration
	}{
		"one process":    {[]uint32{1}, nil, []gpulibrary.User{{PIDs: []int32{1}, Used: 400 * time.Millisecond, Memory: []uint64{3 << 30}}}, 0},
		"several":        {[]uint32{1, 2, 0}, nil, []gpulibrary.User{{PIDs: []int32{1, 2}, Used: 400 * time.Millisecond, Memory: []uint64{3 << 30, 1 << 30}}}, 0},
		"none":           {nil, nil, nil, 400 * time.Millisecond},
		"and no samples": {[]uint32{1}, nvml.NotSupported, []gpulibrary.User{{PIDs: []int32{1}, Used: 600 * time.Millisecond, Memory: []uint64{3 << 30}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript()
				s.second(1, 0)
				s.processes, s.noSamples, s.noProcesses, s.rate = tc.processes, tc.noSamples, nvml.NotSupported, 60
				s.memory = map[uint32]uint64{1: 3, 2: 1}
				time.Sleep(time.Second)
				p := poller(t, s)
				p.after(0)
				s.second(2, 40)
				d := p.after(time.Second)
				assert.Equal(t, tc.users, d.Users)
				assert.Equal(t, tc.unattributed, d.Unattributed)
				assert.NoError(t, d.UsageErr)
			})
		})
	}
}

func TestMemoryIsAWeightOnlyOnAGPUThatNeverHadSamplesOfProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.processes, s.memory = []uint32{1, 2}, map[uint32]uint64{1: 3, 2: 1}
		p := s.begun(t)
		byMemory := []gpulibrary.User{{PIDs: []int32{1, 2}, Used: time.Second, Memory: []uint64{3 << 30, 1 << 30}}}
		end := 1
		busy := func(entries ...nvml.Sample) *gpulibrary.Device {
			end++
			s.second(end, 100)
			s.entries = entries
			return p.after(time.Second)
		}
		for range 10 {
			assert.Equal(t, time.Second, busy().Unattributed, "samples may still show")
		}
		assert.Equal(t, byMemory, busy().Users)
		assert.Equal(t, time.Second, usedBy(busy(nvml.Sample{PID: 2, Timestamp: s.seconds(float64(end + 1)), SM: 100}), 2))
		for range 20 {
			assert.Equal(t, time.Second, busy().Unattributed, "the driver samples processes")
		}
	})
}

func TestMemoryIsNoWeightWhileProcessesComeAndGo(t *testing.T) {
	begun(t, func(s *script, p *polling) {
		for end := 2; end < 60; end++ {
			s.second(end, 100)
			if s.processes = []uint32{7, uint32(end)}; end < 30 { // jobs that no poll sees
				s.processes = nil
			}
			for _, u := range p.after(time.Second).Users {
				assert.Empty(t, u.Memory)
			}
		}
	})
}

func TestWithoutInstants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGPU(bursts(1, 3, 500*time.Millisecond, 5*time.Second))
		g.noSamples = nvml.NotSupported
		a := watch(t, g, 20*time.Minute)
		worst, all := misattributed(g, a.joules)
		t.Logf("worst process %.2f %%, of all energy %.2f %%", 100*worst, 100*all)
		if all > 0.05 {
			t.Errorf("%.1f %% of the energy did not get to its process", 100*all)
		}
	})
}

func TestSamplesOfAnIdleGPURunDry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGPU(bursts(1, 1, 100*time.Millisecond, 20*time.Second))
		g.dry = true
		a := watch(t, g, 20*time.Minute)
		worst, _ := misattributed(g, a.joules)
		if used := a.used[1].Seconds() / g.used[1].Seconds(); worst > 0.05 || math.Abs(used-1) > 0.02 || a.busy > a.elapsed*3/4 {
			t.Errorf("energy %.1f %% off, GPU time %.3f of the true, busy %v of %v", 100*worst, used, a.busy, a.elapsed)
		}
		if a.elapsed < 19*time.Minute {
			t.Errorf("only %v are known", a.elapsed)
		}
	})
}

func TestSamplesThatWereLostAreOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGPU(func(time.Duration) uint32 { return 1 })
		g.keeps = 60 // ten seconds
		time.Sleep(20 * time.Second)
		p := poller(t, g)
		p.after(0)
		d := p.after(30 * time.Second)
		if got := usedBy(d, 1); (got-10*time.Second).Abs() > time.Second || (d.Unattributed-20*time.Second).Abs() > time.Second || d.Busy != d.Elapsed {
			t.Errorf("used %v, unattributed %v, busy %v of %v", got, d.Unattributed, d.Busy, d.Elapsed)
		}
		if d = p.after(time.Second); d.Unattributed != 0 || (usedBy(d, 1)-time.Second).Abs() > 200*time.Millisecond {
			t.Errorf("afterwards used %v, unattributed %v", usedBy(d, 1), d.Unattributed)
		}
	})
}

func TestClockThatIsSet(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour, -3 * time.Second} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGPU(func(time.Duration) uint32 { return 1 })
				g.clock = func(at time.Time) uint64 {
					if at.Sub(g.began) > 30*time.Second {
						at = at.Add(by)
					}
					return uint64(at.UnixMicro())
				}
				a := watch(t, g, 2*time.Minute)
				if a.busy > a.elapsed || a.elapsed < 117*time.Second || a.used[1] < 100*time.Second {
					t.Errorf("used %v, busy %v of %v, unattributed %v", a.used[1], a.busy, a.elapsed, a.unattributed)
				}
			})
		})
	}
}

func TestUsageThatCannotBeRead(t *testing.T) {
	begun(t, func(s *script, p *polling) {
		s.noProcesses, s.processes = nvml.NoPermission, []uint32{1}
		first := p.after(time.Second).UsageErr
		d := p.after(time.Second)
		if !errors.Is(d.UsageErr, nvml.NoPermission) || d.UsageErr.Error() != first.Error() || d.Err != nil || d.Energy != 300_000_000 {
			t.Errorf("%+v", d)
		}
		s.noProcesses = nil
		for end := 2; end <= 4; end++ {
			s.second(end, 50)
		}
		s.entries = []nvml.Sample{{PID: 1, Timestamp: s.seconds(4), SM: 50}}
		if d = p.after(time.Second); d.Elapsed != 3*time.Second || !about(usedBy(d, 1), 1500*time.Millisecond) || d.UsageErr != nil {
			t.Errorf("what was missed is not told: %+v", d)
		}
	})
}

func TestRandomSamplesKeepWithinTheTime(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 4))
			randomPolls(t, 30, func() uint64 { return rng.Uint64() })
		})
	}
}

// randomPolls polls a GPU that answers anything.
func randomPolls(t *testing.T, polls int, next func() uint64) {
	s := newScript()
	p := poller(t, s)
	wall := func() uint64 {
		switch n := next(); n % 8 {
		case 0:
			return next()
		case 1:
			return 0
		default:
			return uint64(time.Now().UnixMicro()) - n%3_000_000
		}
	}
	errs := []error{nil, nil, nil, nil, nvml.NotSupported, nvml.Timeout, nvml.NotFound}
	for range polls {
		s.instants, s.entries = s.instants[:0], s.entries[:0]
		for range next() % 20 {
			s.instants = append(s.instants, nvml.Utilization{Timestamp: wall(), Percent: uint32(next() % 110)})
		}
		for range next() % 20 {
			s.entries = append(s.entries, nvml.Sample{
				PID: uint32(next() % 4), Timestamp: wall(), SM: uint32(next() % 110), Encoder: uint32(next() % 110),
			})
		}
		s.processes = []uint32{uint32(next()), 2}
		s.noProcesses, s.noSamples = errs[next()%uint64(len(errs))], errs[next()%uint64(len(errs))]
		s.rate = uint32(next() % 200)
		before := p.after(0).At
		if d := p.after(time.Duration(next() % uint64(20*time.Second))); d.At.Before(before) {
			t.Fatalf("At went back by %v", before.Sub(d.At))
		}
	}
}

func TestSamplesThatShowBeforeTheBaselineAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.second(1, 100)
		time.Sleep(1500 * time.Millisecond)
		p := poller(t, s)
		p.after(0)
		s.second(2, 100) // half of it is from before the poll
		s.instants = s.instants[:15]
		for i := range 10 {
			s.instants = append(s.instants, nvml.Utilization{Timestamp: s.seconds(1.6 + float64(i)/10), Percent: 0})
		}
		if d := p.after(time.Second); d.Busy != 0 || d.Elapsed != time.Second {
			t.Errorf("busy %v of %v", d.Busy, d.Elapsed)
		}
	})
}

func TestInstantsThatCannotBeTrue(t *testing.T) {
	begun(t, func(s *script, p *polling) {
		s.second(2, 20)
		s.instants[15].Percent = 4_000_000_000
		s.instants = append(s.instants, nvml.Utilization{Timestamp: s.seconds(5000), Percent: 100}, nvml.Utilization{Percent: 100})
		if d := p.after(time.Second); !about(d.Busy, 180*time.Millisecond) || d.Elapsed != time.Second {
			t.Errorf("busy %v of %v", d.Busy, d.Elapsed)
		}
	})
}

func TestSamplesThatMayStillShowAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.second(1, 0)
		time.Sleep(time.Second)
		p := poller(t, s)
		before := p.after(0)
		at, energy := before.At, before.Energy
		if d := p.after(time.Second); !d.At.Equal(at) || d.Energy != energy || d.Elapsed != 0 || d.UsageErr != nil {
			t.Errorf("without a new sample: %+v", d)
		}
		s.second(2, 40)
		s.entries = []nvml.Sample{{PID: 1, Timestamp: s.seconds(2), SM: 40}}
		if d := p.after(500 * time.Millisecond); d.Elapsed != time.Second || !about(usedBy(d, 1), 400*time.Millisecond) || d.Energy != energy+100_000_000 {
			t.Errorf("with those of a second: %+v", d)
		}
		if d := p.after(2 * time.Second); d.Elapsed != 2500*time.Millisecond || d.Busy != 0 {
			t.Errorf("when none can show any more: %+v", d)
		}
	})
}

func TestClockThatWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		time.Sleep(5 * time.Second)
		s.second(5, 0)
		p := poller(t, s)
		p.after(0)
		s.instants = s.instants[:0]
		s.second(2, 100)
		if d := p.after(3 * time.Second); d.Elapsed != 3*time.Second || d.Unattributed != d.Elapsed {
			t.Errorf("%+v", d)
		}
		s.second(3, 50)
		s.entries = []nvml.Sample{{PID: 1, Timestamp: s.seconds(3), SM: 50}}
		if d := p.after(time.Second); d.Elapsed != time.Second || !about(usedBy(d, 1), time.Second/2) {
			t.Errorf("afterwards: %+v", d)
		}
	})
}

func TestMeansAfterAPauseWithoutInstants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.noSamples = nvml.NotSupported
		time.Sleep(time.Second)
		s.entries = []nvml.Sample{{PID: 1, Timestamp: s.seconds(1), SM: 50}}
		p := poller(t, s)
		p.after(0)
		for range 3 {
			p.after(time.Second)
		}
		s.entries = []nvml.Sample{{PID: 1, Timestamp: s.seconds(5), SM: 25}} // a mean over four seconds
		if d := p.after(time.Second); !about(usedBy(d, 1), time.Second) || d.Elapsed != time.Second {
			t.Errorf("%+v", d)
		}
	})
}

// slow is a GPU whose energy takes a while to read.
type slow struct{ *script }

func (s *slow) TotalEnergy() (uint64, error) {
	time.Sleep(20 * time.Millisecond)
	return s.script.TotalEnergy()
}

func TestEnergyDoesNotGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.second(1, 0)
		s.processes = []uint32{1}
		time.Sleep(time.Second)
		p := poller(t, &slow{s})
		p.after(0)
		s.noProcesses = nvml.Timeout
		d := p.after(time.Second) // of now
		if d.UsageErr == nil {
			t.Fatal("the processes of the GPU were not read")
		}
		at, energy := d.At, d.Energy
		s.noProcesses = nil
		s.second(2, 0)
		s.instants = s.instants[:19] // until 1.9 s
		if d = p.after(100 * time.Millisecond); d.At.Before(at) || d.Energy < energy {
			t.Errorf("%+v, before %v %d", d, at, energy)
		}
	})
}
