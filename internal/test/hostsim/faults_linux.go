// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package hostsim

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The faults. Each comment explains A and B of the Event.
const (
	ReadFails      Act = FirstFault + iota // reads fail; A: target file, B: error and number of reads
	ReadShort                              // reads are cut off; A: target file, B: number of reads
	ReadTorn                               // a read mixes new and old fields; A: target file
	ZoneVanishes                           // A: which zone
	ZoneReturns                            // A: which of the vanished zones
	ZoneResets                             // a counter restarts at 0; A: which zone
	ZoneStepsBack                          // a counter steps back a little; A: which zone, B: how far
	ZoneWrapsTwice                         // a counter wraps twice before the next read; A: which zone
	CPUOffline                             // a CPU disappears with its times, or returns
	Suspend                                // the machine sleeps; B: how long, and counter restart
	Steal                                  // other machines use a share of the CPUs; B: how much
	ClockStep                              // the wall clock is set; B: by how much
	ExitMidScan                            // a process exits before the scan reads it; A: which
	Refuse                                 // the consumer refuses collections; B: how many
	ListFails                              // the kernel's list cannot be read; B: how often
	ExitsLate                              // exits are reported late; B: how many reads later
	ExitsLost                              // exits do not fit in the kernel's buffer; B: how many
	MeterLate                              // a slow meter reports late; B: how often
	MeterFails                             // a slow meter cannot be read; B: how often
	MeterRejects                           // a slow meter's readings are impossible; B: how often
	MeterVanishes                          // a slow meter's zone is no longer listed, or is again
	MeterReplaced                          // a slow meter's zone is read in another way
	HidePID                                // processes but init are hidden (hidepid=2); B: scans
	numFaults
)

var names = map[Act]string{
	Advance: "advance", Pass: "pass", Demand: "demand", Fork: "fork", Exit: "exit", Wait: "wait", Exec: "exec", Rename: "rename",
	Contain: "contain", Restart: "restart", Stop: "stop", Enter: "enter", Boot: "boot", Flicker: "flicker",
	OpenGPU: "open GPU", LoadGPU: "load GPU", CloseGPU: "close GPU",

	ReadFails: "reads that fail", ReadShort: "short read", ReadTorn: "torn read", ZoneVanishes: "zone vanishes",
	ZoneReturns: "zone returns", ZoneResets: "zone resets", ZoneStepsBack: "zone steps back",
	ZoneWrapsTwice: "zone wraps twice", CPUOffline: "CPU unplugged or back", Suspend: "suspend", Steal: "steal",
	ClockStep: "clock step", ExitMidScan: "exit mid-scan", Refuse: "consumer refuses", ListFails: "list fails",
	ExitsLate: "exits late", ExitsLost: "exits lost",
	MeterLate: "slow meter late", MeterFails: "slow meter fails", MeterRejects: "slow meter rejects",
	MeterVanishes: "slow meter vanishes or is back", MeterReplaced: "slow meter replaced",
	HidePID: "processes hidden",
}

// String returns the act's name.
func (a Act) String() string { return names[a] }

// AddFaults adds faults to the weights of a history.
func (w Weights) AddFaults(each int) Weights {
	for a := FirstFault; a < numFaults; a++ {
		w[a] = each
	}
	w[ReadFails] = 4 * each
	w[ReadShort] = 2 * each
	w[ZoneReturns] = 2 * each
	return w
}

// Errors are the errors that reads fail with.
var Errors = [...]syscall.Errno{syscall.EIO, syscall.EACCES, syscall.ENOENT, syscall.ESRCH}

// targets are suffixes of the paths that may fail.
var targets = [...]string{
	"/energy_uj", "/energy_uj", "/energy_uj", "/proc/stat", "/proc", "/powercap", "/cpu.stat", "/loadavg", "/uptime",
	"/max_energy_range_uj", "/name", "/cmdline", "/cgroup", "/exe", "/stat", "/stat", "/stat", "/online", "/fdinfo/3", "/fdinfo/3", "/fd",
}

// Faults applies faults to a Life and to the results of reads. It counts the faults that took
// effect.
type Faults struct {
	Life   *Life
	Kernel *Kernel // nil if no BPF source reads it
	Slow   *SlowMeter
	// Fired counts faults by name, and failed reads by error.
	Fired map[string]int
	// Refusals is how many collections the consumer still refuses.
	Refusals int
	// OnRead is called with the result of every read, after faults were applied.
	OnRead func(path string, got []byte, err error)

	armed   []armed
	old     map[string][]byte // content of the last read, by path
	hidden  []hiddenZone
	leaving *Task
	offline *CPU
	hidePID int // number of scans left
}

// SlowMeter sets the next faults of a meter with infrequent updates.
type SlowMeter struct {
	Late, Fails, Rejects int  // number of its next values
	Vanished             bool // its zone is not listed
	Replaced             int  // how often another zone replaced its zone
}

type armed struct {
	act    Act
	target string
	err    syscall.Errno
	left   int
}

type hiddenZone struct {
	id   string
	zone *Zone
}

// NewFaults returns the faults of a life.
func NewFaults(l *Life) *Faults {
	return &Faults{Life: l, Slow: &SlowMeter{}, Fired: map[string]int{}, old: map[string][]byte{}}
}

// Apply applies an event that is a fault.
func (f *Faults) Apply(e Event) {
	l := f.Life
	switch e.Act {
	case ReadFails, ReadShort, ReadTorn:
		a := armed{act: e.Act, target: targets[e.A%uint32(len(targets))], err: Errors[e.B%4], left: 1 + int(e.B/4%5)}
		if e.Act == ReadTorn {
			a.left = 1
		}
		// Half of the faults in process files affect a single process.
		if t := l.pick(e.A/64, runs); t != nil && a.target == "/stat" && e.A/32%2 == 0 {
			a.target = filepath.Join("/proc", strconv.Itoa(t.PID), "stat")
		}
		f.armed = append(f.armed, a)
	case ZoneVanishes:
		if id, z := f.zone(e.A); z != nil {
			f.hidden = append(f.hidden, hiddenZone{id, z})
			delete(l.Host.Zones, id)
			f.fired(e.Act)
		}
	case ZoneReturns:
		if n := len(f.hidden); n > 0 {
			i := int(e.A) % n
			l.Host.Zones[f.hidden[i].id] = f.hidden[i].zone
			f.hidden = append(f.hidden[:i], f.hidden[i+1:]...)
			f.fired(e.Act)
		}
	case ZoneResets:
		if _, z := f.zone(e.A); z != nil {
			z.Energy = uint64(e.B % 1000)
			f.fired(e.Act)
		}
	case ZoneStepsBack:
		if _, z := f.zone(e.A); z != nil {
			z.Energy -= min(z.Energy, uint64(e.B%10_000_000))
			f.fired(e.Act)
		}
	case ZoneWrapsTwice:
		if _, z := f.zone(e.A); z != nil {
			f.wrapTwice(z)
		}
	case CPUOffline:
		f.plug()
		f.fired(e.Act)
	case Suspend:
		d := time.Duration(e.B%100_000) * time.Second
		l.Host.Uptime += d
		l.Host.Suspended += d
		if e.B%2 == 0 {
			for _, z := range l.Host.Zones {
				z.Energy = uint64(e.B % 5000)
			}
		}
		f.fired(e.Act)
	case Steal:
		l.Steal = float64(e.B%4) / 5
		f.fired(e.Act)
	case ClockStep:
		l.Host.ClockStep += time.Duration(int32(e.B)) * time.Microsecond // at most 36 minutes
		f.fired(e.Act)
	case ExitMidScan:
		if t := l.pick(e.A, runs); t != nil {
			f.leaving = t
		}
	case Refuse:
		f.Refusals += int(1 + e.B%5)
	case ListFails:
		if f.Kernel != nil {
			f.Kernel.Fails += int(1 + e.B%2)
			f.fired(e.Act)
		}
	case ExitsLate:
		if f.Kernel != nil {
			f.Kernel.Late += int(1 + e.B%3)
			f.fired(e.Act)
		}
	case ExitsLost:
		if f.Kernel != nil {
			f.Kernel.Loses += int(1 + e.B%3)
			f.fired(e.Act)
		}
	case HidePID:
		f.hidePID += int(2 + e.B%8)
	default:
		f.Slow.apply(e)
		f.fired(e.Act)
	}
}

func (m *SlowMeter) apply(e Event) {
	more := int(1 + e.B%3)
	switch e.Act {
	case MeterLate:
		m.Late += more
	case MeterFails:
		m.Fails += more
	case MeterRejects:
		m.Rejects += more
	case MeterVanishes:
		m.Vanished = !m.Vanished
	case MeterReplaced:
		m.Replaced++
	}
}

func (f *Faults) fired(a Act) { f.Fired[a.String()]++ }

// Refused reports whether the consumer refuses this collection.
func (f *Faults) Refused() bool {
	if f.Refusals == 0 {
		return false
	}
	f.Refusals--
	f.fired(Refuse)
	return true
}

// zone returns an existing zone.
func (f *Faults) zone(a uint32) (string, *Zone) {
	var ids []string
	for _, s := range [...]string{"intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl:1", "intel-rapl:1:0", "intel-rapl:1:1"} {
		if f.Life.Host.Zones[s] != nil {
			ids = append(ids, s)
		}
	}
	if len(ids) == 0 {
		return "", nil
	}
	id := ids[int(a)%len(ids)]
	return id, f.Life.Host.Zones[id]
}

func (f *Faults) wrapTwice(z *Zone) {
	for _, s := range f.Life.Sockets {
		idle := s.Idle
		if z == s.DRAM {
			idle = s.DRAMIdle
		}
		if z != s.Package && z != s.DRAM || idle == 0 || z.Max == 0 {
			continue
		}
		f.Life.Step(time.Duration(2.1 * float64(z.Max) / joule / idle * float64(time.Second)))
		f.fired(ZoneWrapsTwice)
		return
	}
}

// plug removes a CPU with all its times, or adds it again.
func (f *Faults) plug() {
	l := f.Life
	if f.offline != nil {
		l.Hidden = CPU{}
		l.Host.CPUs++
		f.offline = nil
		return
	}
	l.Show()
	n := int64(l.Host.CPUs)
	c := l.Host.CPU
	l.Hidden = CPU{User: c.User / n, System: c.System / n, Idle: c.Idle / n, IOWait: c.IOWait / n, IRQ: c.IRQ / n, Steal: c.Steal / n}
	f.offline = &l.Hidden
	l.Host.CPUs--
}

// Read is a kernfs.FaultFunc.
func (f *Faults) Read(path string, got []byte, err error) ([]byte, error) {
	rel := strings.TrimPrefix(path, f.Life.Host.Root())
	if t := f.leaving; t != nil && err == nil && rel == filepath.Join("/proc", strconv.Itoa(t.PID), "stat") {
		f.leaving = nil
		if f.Life.Find(t.PID) == t && runs(t) {
			f.fired(ExitMidScan)
			f.Life.end(t, 2)
			_ = f.Life.Render() // the next render reports the error
			got, err = nil, syscall.ESRCH
		}
	}
	if f.hidePID > 0 && rel == "/proc/stat" {
		f.hidePID--
	}
	if f.hidePID > 0 && err == nil && isHidden(rel) {
		f.Fired[syscall.ENOENT.Error()]++
		f.fired(HidePID)
		got, err = nil, syscall.ENOENT
	}
	for i := range f.armed {
		a := &f.armed[i]
		if err != nil || !strings.HasSuffix(rel, a.target) {
			continue
		}
		switch a.act {
		case ReadFails:
			f.Fired[a.err.Error()]++
			f.fired(ReadFails)
			got, err = nil, a.err
		case ReadShort:
			if len(got) < 2 || a.target == "/exe" { // links are always read whole
				continue
			}
			got = got[:1+(int(a.err)*7+len(got)/2)%(len(got)-1)]
			f.fired(ReadShort)
		default:
			torn := tear(got, f.old[rel])
			if torn == nil {
				continue
			}
			got = torn
			f.fired(ReadTorn)
		}
		if a.left--; a.left == 0 {
			f.armed = append(f.armed[:i], f.armed[i+1:]...)
		}
		break
	}
	if err == nil && len(got) > 0 {
		f.old[rel] = append(f.old[rel][:0], got...)
	}
	if f.OnRead != nil {
		f.OnRead(rel, got, err)
	}
	return got, err
}

// isHidden reports whether a path is below the directory of a process other than init.
func isHidden(path string) bool {
	rest, _ := strings.CutPrefix(path, "/proc/")
	pid, _, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(pid)
	return err == nil && n != 1
}

// tear returns the first half of the fields of got and the second half of the fields of the last
// read, as if the file changed during the read. It returns nil if the result equals got.
func tear(got, before []byte) []byte {
	fields, old := bytes.Split(got, []byte{' '}), bytes.Split(before, []byte{' '})
	if len(fields) < 2 || len(fields) != len(old) || started(got) != started(before) {
		return nil
	}
	torn := bytes.Join(slices.Concat(fields[:len(fields)/2], old[len(old)/2:]), []byte{' '})
	if bytes.Equal(torn, got) {
		return nil
	}
	return torn
}

// started returns the start time in the text of /proc/<pid>/stat, or "" if the text is too short.
func started(stat []byte) string {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return ""
	}
	return string(fields[19])
}

// Forget drops the last reads, which supply the old fields of torn reads.
func (f *Faults) Forget() { clear(f.old) }

// Disarm ends all faults. It does not undo their effects.
func (f *Faults) Disarm() {
	f.armed, f.leaving, f.Refusals, f.hidePID = nil, nil, 0, 0
	f.Life.Steal = 0
	for len(f.hidden) > 0 {
		f.Apply(Event{Act: ZoneReturns})
	}
	if f.offline != nil {
		f.plug()
	}
	if f.Kernel != nil {
		f.Kernel.Fails, f.Kernel.Late, f.Kernel.Loses = 0, 0, 0
	}
	*f.Slow = SlowMeter{Replaced: f.Slow.Replaced}
}
