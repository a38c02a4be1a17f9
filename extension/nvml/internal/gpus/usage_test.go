// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	noList    error             // result of listing processes
	since     []uint64          // arguments of the calls of ProcessUtilization

	err     error         // result of all calls
	delay   time.Duration // of reading the energy
	counted *uint64       // energy counter; nil for a counter of 100 W
	power   func() (uint32, bool, error)
}

func newScript(id int) *script {
	s := &script{gpu: newGPU(func(time.Duration) uint32 { return 0 }), memory: map[uint32]uint64{1: 3, 2: 1}}
	s.idle, s.uuid, s.address = 100, fmt.Sprintf("GPU-%d", id), fmt.Sprintf("0000:%02x:00.0", id)
	return s
}

func (s *script) UUID() (string, error) { return s.uuid, s.err }
func (s *script) MIG() (bool, error)    { return s.mig, s.err }

func (s *script) TotalEnergy() (uint64, error) {
	time.Sleep(s.delay)
	counter, err := s.gpu.TotalEnergy()
	if s.counted != nil {
		counter = *s.counted
	}
	return counter, cmp.Or(s.err, err)
}

func (s *script) Power() (uint32, bool, error) {
	if s.power == nil {
		return 0, false, nvml.NotSupported
	}
	return s.power()
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
		s := newScript(1)
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

// polling is a reader of scripted GPUs.
type polling struct {
	t       *testing.T
	reader  gpulibrary.Reader
	driver  *driver
	devices []gpulibrary.Device // of the last poll
}

func poller(t *testing.T, devices ...nvml.Device) *polling {
	d := &driver{devices: devices}
	return &polling{t: t, reader: New(d.open), driver: d}
}

// after polls so long after the last time.
func (p *polling) after(d time.Duration) *gpulibrary.Device {
	p.t.Helper()
	time.Sleep(d)
	var err error
	p.devices, err = p.reader.Poll(p.t.Context())
	require.NoError(p.t, err)
	for i := range p.devices {
		checkDevice(p.t, &p.devices[i])
	}
	return &p.devices[0]
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
		s := newScript(1)
		time.Sleep(10 * time.Second)
		for i := range 10 {
			s.second(i+1, 100)
		}
		s.entries = []nvml.Sample{{PID: 7, Timestamp: s.seconds(10), SM: 100}}
		p := poller(t, s)
		d := p.after(0)
		assert.True(t, d.Elapsed == 0 && len(d.Users) == 0 && d.Busy == 0 && d.Energy == 1_000_000_000, "first poll: %+v", d)
		s.second(11, 50)
		s.entries = []nvml.Sample{{PID: 7, Timestamp: s.seconds(11), SM: 50}}
		d = p.after(time.Second)
		assert.Equal(t, s.seconds(10), s.since[1], "samples since the last poll")
		assert.True(t, d.Elapsed == time.Second && about(d.Busy, time.Second/2) && about(usedBy(d, 7), time.Second/2) && d.Unattributed == 0, "second poll: %+v", d)
		last := d.Users[0].Last
		assert.True(t, last.Equal(s.began.Add(11*time.Second)), "used last at %v", last)
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
				assert.True(t, about(one, tc.one) && about(two, tc.two) && about(d.Unattributed, tc.unattributed) && about(d.Busy, time.Second), "used %v and %v, unattributed %v of %v; want %v, %v, %v of 1s", one, two, d.Unattributed, d.Busy, tc.one, tc.two, tc.unattributed)
			})
		})
	}
}

func TestWeightIsTheBusiestPart(t *testing.T) {
	begun(t, func(s *script, p *polling) {
		s.second(2, 10)
		s.entries = []nvml.Sample{{PID: 1, Timestamp: s.seconds(2), SM: 0, Encoder: 60, Decoder: 30}, {PID: 2, Timestamp: s.seconds(2), SM: 10}}
		d := p.after(time.Second)
		assert.True(t, about(usedBy(d, 1), 600*time.Millisecond) && about(usedBy(d, 2), 100*time.Millisecond) && about(d.Busy, 700*time.Millisecond), "%+v", d)
		t.Attr("gpu-utilization", fmt.Sprint(usedBy(d, 1).Round(time.Millisecond), ", ", usedBy(d, 2).Round(time.Millisecond)))
	})
}

// As an H200 with driver 580 answers: once a process has ended, none of its samples is listed.
func TestTimeOfNoProcessIsOfThoseThatEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		atOnce        bool // in the poll after the baseline
		before, after []uint32
		entries       []nvml.Sample
		noList        error
		users         []int32
		used          time.Duration
	}{
		"one":                                {before: []uint32{7}, users: []int32{7}, used: 600 * time.Millisecond},
		"one of the baseline":                {before: []uint32{7}, users: []int32{7}, used: 600 * time.Millisecond, atOnce: true},
		"several":                            {before: []uint32{7, 8, 9}, after: []uint32{8}, users: []int32{7, 9}, used: 600 * time.Millisecond},
		"none":                               {before: []uint32{7}, after: []uint32{7}},
		"none if processes cannot be listed": {before: []uint32{7}, noList: nvml.GPUIsLost},
		"one that no poll has seen":          {},
		"what others did not use": {
			before: []uint32{7, 8}, after: []uint32{8}, entries: []nvml.Sample{{PID: 8, SM: 20}},
			users: []int32{7}, used: 400 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, end := newScript(1), 2
				s.processes = tc.before
				p := s.begun(t)
				if !tc.atOnce {
					s.second(end, 0)
					p.after(time.Second)
					end++
				}
				s.processes, s.entries, s.noList = tc.after, tc.entries, tc.noList
				for i := range s.entries {
					s.entries[i].Timestamp = s.seconds(float64(end))
				}
				s.second(end, 60)
				d := p.after(time.Second)
				ended := slices.IndexFunc(d.Users, func(u gpulibrary.User) bool { return slices.Equal(u.PIDs, tc.users) })
				if tc.users == nil {
					assert.Equal(t, 600*time.Millisecond, d.Unattributed)
					return
				}
				require.GreaterOrEqual(t, ended, 0, "%+v", d.Users)
				assert.True(t, about(d.Users[ended].Used, tc.used) && d.Users[ended].Memory == nil && d.Unattributed == 0, "%+v", d)
			})
		})
	}
}

func TestProcessesOfAnIdleGPUThatNoneHasOpenAreNotAskedFor(t *testing.T) {
	begun(t, func(s *script, p *polling) {
		asked := len(s.since)
		s.second(2, 0)
		p.after(time.Second)
		assert.Len(t, s.since, asked, "the processes of an idle GPU were queried")
		s.processes = []uint32{7}
		s.second(3, 0)
		p.after(time.Second)
		assert.Len(t, s.since, asked+1, "the processes of an open GPU were not queried")
	})
}

func TestWithoutSamplesOfProcesses(t *testing.T) {
	const gib, ms = 1 << 30, time.Millisecond
	for name, tc := range map[string]struct {
		processes    []uint32
		noSamples    error
		users        []gpulibrary.User
		unattributed time.Duration
	}{
		"one process":    {[]uint32{1}, nil, []gpulibrary.User{{PIDs: []int32{1}, Used: 400 * ms, Memory: []uint64{3 * gib}}}, 0},
		"several":        {[]uint32{1, 2, 0}, nil, []gpulibrary.User{{PIDs: []int32{1, 2}, Used: 400 * ms, Memory: []uint64{3 * gib, gib}}}, 0},
		"none":           {nil, nil, nil, 400 * ms},
		"and no samples": {[]uint32{1}, nvml.NotSupported, []gpulibrary.User{{PIDs: []int32{1}, Used: 600 * ms, Memory: []uint64{3 * gib}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			begun(t, func(s *script, p *polling) {
				s.processes, s.noSamples, s.noProcesses, s.rate = tc.processes, tc.noSamples, nvml.NotSupported, 60
				s.second(2, 40)
				d := p.after(time.Second)
				assert.Equal(t, tc.users, d.Users)
				assert.True(t, d.Unattributed == tc.unattributed && d.UsageErr == nil, "%+v", d)
			})
		})
	}
}

func TestProcessesThatHaveTheGPUOpenAreUsersOfNothing(t *testing.T) {
	begun(t, func(s *script, p *polling) {
		s.second(2, 30)
		s.processes, s.entries = []uint32{1, 2, 0, math.MaxUint32}, []nvml.Sample{{PID: 2, Timestamp: s.seconds(2), SM: 30}}
		d := p.after(time.Second)
		assert.True(t, len(d.Users) == 2 && usedBy(d, 1) == 0 && about(usedBy(d, 2), 300*time.Millisecond), "users %+v", d.Users)
	})
}

func TestSamplesBeforeTheBaselineAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1)
		s.second(1, 100)
		time.Sleep(1500 * time.Millisecond)
		p := poller(t, s)
		p.after(0)
		s.second(2, 100) // half of it is from before the poll
		for i := range s.instants[15:] {
			s.instants[15+i].Percent = 0
		}
		s.second(3, 0)
		assert.Zero(t, p.after(1500*time.Millisecond).Busy)
	})
}

func TestMemoryIsAWeightOnlyOnAGPUThatNeverHadSamplesOfProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1)
		s.processes = []uint32{1, 2}
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
			assert.Equal(t, time.Second, busy().Unattributed, "samples may still appear")
		}
		assert.Equal(t, byMemory, busy().Users)
		end++
		s.second(end, 0)
		p.after(time.Second)
		assert.Equal(t, byMemory, busy().Users, "after a pause")
		assert.Equal(t, time.Second, usedBy(busy(nvml.Sample{PID: 2, Timestamp: s.seconds(float64(end + 1)), SM: 100}), 2))
		for range 20 {
			assert.Equal(t, time.Second, busy().Unattributed, "the driver samples processes")
		}
	})
}

func TestMemoryIsNoWeightIfTheDriverMaySampleProcesses(t *testing.T) {
	sample := func(s *script, end int, percent uint32) []nvml.Sample {
		return []nvml.Sample{{PID: 2, Timestamp: s.seconds(float64(end)), SM: percent}}
	}
	for name, tc := range map[string]struct {
		baseline bool // has a sample
		next     func(s *script, end int) (busy uint32)
	}{
		"jobs that no poll sees": {next: func(s *script, _ int) uint32 {
			s.processes = nil
			return 100
		}},
		"processes that come and go": {next: func(s *script, end int) uint32 {
			s.processes = []uint32{1, uint32(end)}
			return 100
		}},
		"short jobs next to idle processes": {next: func(*script, int) uint32 { return 80 }},
		"jobs with pauses":                  {next: func(_ *script, end int) uint32 { return 100 * uint32(min(end%10, 1)) }},
		"a sample of the baseline":          {baseline: true, next: func(*script, int) uint32 { return 100 }},
		"samples of 0 %": {next: func(s *script, end int) uint32 {
			s.entries = sample(s, end, 0)
			return 100
		}},
		"samples before MIG mode": {next: func(s *script, end int) uint32 {
			s.entries, s.mig = nil, end == 3
			if end == 2 {
				s.entries = sample(s, end, 100)
			}
			return 100
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(1)
				s.processes = []uint32{1, 2}
				if tc.baseline {
					s.entries = sample(s, 1, 100)
				}
				p := s.begun(t)
				s.entries = nil
				for end := 2; end < 60; end++ {
					s.second(end, tc.next(s, end))
					for _, u := range p.after(time.Second).Users {
						assert.Empty(t, u.Memory, "second %d", end)
					}
				}
			})
		})
	}
}

func TestUsersAreUnknownIfTheFunctionForSamplesFailsAfterASample(t *testing.T) {
	begun(t, func(s *script, p *polling) {
		s.processes = []uint32{1, 2}
		s.second(2, 100)
		s.entries = []nvml.Sample{{PID: 2, Timestamp: s.seconds(2), SM: 100}}
		p.after(time.Second)
		s.second(3, 100)
		s.entries, s.noProcesses = nil, nvml.NotSupported
		d := p.after(time.Second)
		assert.ErrorIs(t, d.UsageErr, nvml.NotSupported)
		assert.Empty(t, d.Users)
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
		got := usedBy(d, 1)
		assert.True(t, (got-10*time.Second).Abs() <= time.Second && (d.Unattributed-20*time.Second).Abs() <= time.Second && d.Busy == d.Elapsed, "used %v, unattributed %v, busy %v of %v", got, d.Unattributed, d.Busy, d.Elapsed)
		d = p.after(time.Second)
		assert.True(t, d.Unattributed == 0 && (usedBy(d, 1)-time.Second).Abs() <= 200*time.Millisecond, "afterwards used %v, unattributed %v", usedBy(d, 1), d.Unattributed)
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
				assert.True(t, a.busy <= a.elapsed && a.elapsed >= 117*time.Second && a.used[1] >= 100*time.Second, "used %v, busy %v of %v, unattributed %v", a.used[1], a.busy, a.elapsed, a.unattributed)
			})
		})
	}
}

func TestUsageThatCannotBeRead(t *testing.T) {
	begun(t, func(s *script, p *polling) {
		s.noProcesses, s.processes = nvml.NoPermission, []uint32{1}
		first := p.after(time.Second).UsageErr
		d := p.after(time.Second)
		assert.True(t, errors.Is(d.UsageErr, nvml.NoPermission) && d.UsageErr.Error() == first.Error() && d.Err == nil && d.Energy == 300_000_000, "%+v", d)
		s.noProcesses = nil
		for end := 2; end <= 4; end++ {
			s.second(end, 50)
		}
		s.entries = []nvml.Sample{{PID: 1, Timestamp: s.seconds(4), SM: 50}}
		d = p.after(time.Second)
		assert.True(t, d.Elapsed == 3*time.Second && about(usedBy(d, 1), 1500*time.Millisecond) && d.UsageErr == nil, "missed usage is not reported: %+v", d)
	})
}

func TestRandomSamplesKeepWithinTheTime(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { randomPolls(t, rand.New(rand.NewPCG(seed, 4)).Uint64) })
	}
}

// randomPolls polls a GPU that answers anything.
func randomPolls(t *testing.T, next func() uint64) {
	s := newScript(1)
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
	for range 30 {
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
		d := p.after(time.Duration(next() % uint64(20*time.Second)))
		require.False(t, d.At.Before(before), "At went back by %v", before.Sub(d.At))
	}
}

func TestInstantsThatCannotBeTrue(t *testing.T) {
	begun(t, func(s *script, p *polling) {
		s.second(2, 20)
		s.instants[15].Percent = 4_000_000_000
		s.instants = append(s.instants, nvml.Utilization{Timestamp: s.seconds(5000), Percent: 100}, nvml.Utilization{Percent: 100})
		d := p.after(time.Second)
		assert.True(t, about(d.Busy, 180*time.Millisecond) && d.Elapsed == time.Second, "busy %v of %v", d.Busy, d.Elapsed)
	})
}

func TestSamplesThatMayStillShowAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1)
		p := s.begun(t)
		at, energy := p.devices[0].At, p.devices[0].Energy
		d := p.after(time.Second)
		assert.True(t, d.At.Equal(at) && d.Energy == energy && d.Elapsed == 0 && d.UsageErr == nil, "without a new sample: %+v", d)
		s.second(2, 40)
		s.entries = []nvml.Sample{{PID: 1, Timestamp: s.seconds(2), SM: 40}}
		d = p.after(500 * time.Millisecond)
		assert.True(t, d.Elapsed == time.Second && about(usedBy(d, 1), 400*time.Millisecond) && d.Energy == energy+100_000_000, "with the samples of a second: %+v", d)
		d = p.after(2 * time.Second)
		assert.True(t, d.Elapsed == 2500*time.Millisecond && d.Busy == 0, "after samples can no longer appear: %+v", d)
	})
}

func TestEnergyDoesNotGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1)
		s.processes, s.delay = []uint32{1}, 20*time.Millisecond
		p := s.begun(t)
		s.noProcesses = nvml.Timeout
		d := p.after(time.Second) // of now
		require.Error(t, d.UsageErr)
		at, energy := d.At, d.Energy
		s.noProcesses = nil
		s.second(2, 0)
		s.instants = s.instants[:19] // until 1.9 s
		d = p.after(100 * time.Millisecond)
		assert.True(t, !d.At.Before(at) && d.Energy >= energy, "%+v, before %v %d", d, at, energy)
	})
}
