// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/scan"
)

// unattributed makes the node use CPU time that no process shows.
func (w *watched) unattributed(n int64) { w.CPU.User += n }

func TestAChildThatLivedBetweenScansShowsInItsParentsChildTime(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 1, Comm: "make"})
	w.add(43, hostsim.Process{Parent: 1})
	w.scan()
	w.Run(10*time.Second, map[int]int64{42: 5, 43: 100})
	w.spend(42, 400)
	w.scan()
	assert.Equal(t, 400*Tick, w.process(42).ShortLived)
	assert.Equal(t, 5*Tick, w.used(42))
	assert.Zero(t, w.process(43).ShortLived, "not at a visible process")
	assert.Zero(t, w.process(1).ShortLived)
	assert.Zero(t, w.table.Untraced)

	w.Run(10*time.Second, nil)
	w.scan()
	assert.Zero(t, w.process(42).ShortLived, "once")
}

func TestChildrenOfAProcessBornInTheIntervalShowToo(t *testing.T) {
	w := watch(t)
	w.scan()
	w.add(42, hostsim.Process{Parent: 1})
	w.Run(10*time.Second, map[int]int64{42: 5})
	w.spend(42, 400)
	w.scan()
	assert.Equal(t, 400*Tick, w.process(42).ShortLived)
}

func TestLastSliceOfAProcessThatEndedIsItsOwn(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 1})
	w.add(43, hostsim.Process{Parent: 42})
	w.Run(100*time.Second, map[int]int64{43: 500})
	w.scan()
	w.Run(10*time.Second, map[int]int64{42: 1, 43: 300})
	w.reap(43)
	w.scan()
	assert.Equal(t, 300*Tick, w.ended(43).LastSlice)
	assert.Equal(t, 1*Tick, w.used(42))
	assert.Zero(t, w.process(42).ShortLived, "neither the last slice nor the life before")
	assert.Zero(t, w.table.Untraced)
}

func TestProcessThatEndedWithoutALastSlice(t *testing.T) {
	w := watch(t)
	w.add(43, hostsim.Process{Parent: 1})
	w.Run(100*time.Second, map[int]int64{43: 500})
	w.scan()
	w.Run(10*time.Second, nil)
	w.reap(43)
	w.unattributed(1000) // CPU time that could be attributed to it
	w.scan()
	assert.Zero(t, w.ended(43).LastSlice)
	assert.Zero(t, w.process(1).ShortLived)
	assert.Zero(t, w.table.Untraced)
}

func TestEndedSiblingsShareTheirParentsChildTime(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 1})
	for pid := 43; pid < 46; pid++ {
		w.add(pid, hostsim.Process{Parent: 42})
	}
	w.Run(100*time.Second, nil)
	w.scan()
	w.Run(10*time.Second, map[int]int64{43: 100, 44: 200, 45: 300})
	for pid := 43; pid < 46; pid++ {
		w.reap(pid)
	}
	w.scan()
	var sum units.CPUTime
	for pid := int32(43); pid < 46; pid++ {
		assert.InDelta(t, float64(200*Tick), float64(w.ended(pid).LastSlice), 1, "the division is unknown")
		sum += w.ended(pid).LastSlice
	}
	assert.InDelta(t, float64(600*Tick), float64(sum+w.process(42).ShortLived), 3)
}

func TestDescendantsThatAllEndedShowAtTheNearestThatRuns(t *testing.T) {
	w := watch(t)
	w.add(10, hostsim.Process{Parent: 1})
	w.add(20, hostsim.Process{Parent: 10})
	w.add(30, hostsim.Process{Parent: 20})
	w.add(40, hostsim.Process{Parent: 30})
	w.Run(100*time.Second, map[int]int64{20: 50, 30: 60, 40: 70})
	w.scan()
	w.Run(10*time.Second, map[int]int64{10: 1, 20: 20, 30: 30, 40: 40})
	w.reap(40)
	w.reap(30)
	w.reap(20)
	w.scan()
	sum := w.ended(20).LastSlice + w.ended(30).LastSlice + w.ended(40).LastSlice + w.process(10).ShortLived
	assert.InDelta(t, float64(90*Tick), float64(sum), 3)
	assert.Zero(t, w.process(1).ShortLived)
	assert.Zero(t, w.table.Untraced)
}

func TestASampledShortChildIsNotChargedForItsSiblings(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 1, Comm: "loop"})
	w.scan()
	w.Run(10*time.Second, nil)
	w.spend(42, 500)
	w.add(1000, hostsim.Process{Parent: 42}) // started in the tick of the scan
	w.scan()
	w.Run(10*time.Second, nil)
	w.reap(1000)
	w.spend(42, 500)
	w.scan()
	assert.LessOrEqual(t, w.ended(1000).LastSlice, 3*Tick)
	assert.Equal(t, 500*Tick, w.ended(1000).LastSlice+w.process(42).ShortLived)
}

func TestOrphanIsNotBilledForItsLifeAgainWhereItIsWaitedFor(t *testing.T) {
	for name, unattributed := range map[string]int64{"no other time": 0, "plenty of other time": 900} {
		t.Run(name, func(t *testing.T) {
			w := watch(t)
			w.add(3, hostsim.Process{Parent: 1, Comm: "containerd-shim"})
			w.add(4, hostsim.Process{Parent: 3, Comm: "sshd"})
			w.add(5, hostsim.Process{Parent: 4, Comm: "sshd-session"})
			w.add(10, hostsim.Process{Parent: 5, Comm: "bash"})
			w.add(20, hostsim.Process{Parent: 10, Comm: "nohup"})
			w.Run(100*time.Second, map[int]int64{10: 100, 20: 6000})
			w.scan()
			w.Run(10*time.Second, map[int]int64{10: 10, 20: 20})
			w.reap(10) // by 5
			w.Processes[20].Parent = 1
			w.reap(20) // by init
			w.unattributed(unattributed)
			w.scan()
			sum := w.ended(10).LastSlice + w.ended(20).LastSlice + w.process(5).ShortLived + w.process(1).ShortLived
			assert.InDelta(t, float64(30*Tick), float64(sum), 2)
			assert.Zero(t, w.table.Untraced)
		})
	}
}

func TestInferenceNeverGoesBeyondTheNodesTime(t *testing.T) {
	w := watch(t)
	w.add(5, hostsim.Process{Parent: 1})
	w.add(6, hostsim.Process{Parent: 1})
	w.scan()
	w.Run(10*time.Second, map[int]int64{5: 30})
	w.Processes[5].CUser += 3000 // twice too much
	w.Processes[6].CUser += 1000
	w.unattributed(400)
	w.scan()
	sum := w.process(5).ShortLived + w.process(6).ShortLived
	assert.InDelta(t, float64(400*Tick), float64(sum), 2)
	assert.Positive(t, w.process(6).ShortLived)
	assert.Positive(t, w.process(5).ShortLived)
}

func TestParentThatWaitsAfterItWasReadIsNotBilledForItsChildsLife(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 1})
	w.add(43, hostsim.Process{Parent: 42})
	w.Run(100*time.Second, map[int]int64{43: 9000})
	w.scan()

	// The scan comes to 42 before it waits, and to 43 after that.
	w.Run(10*time.Second, map[int]int64{43: 100})
	child := *w.Processes[43]
	delete(w.Processes, 43)
	w.scan()
	assert.Equal(t, scan.Unbounded, w.table.Untraced, "nothing shows the last slice yet")
	assert.Zero(t, w.ended(43).LastSlice)
	assert.Zero(t, w.process(42).ShortLived)

	w.Processes[43] = &child
	w.reap(43)
	w.Run(10*time.Second, nil)
	w.unattributed(1000)
	w.scan()
	assert.Equal(t, 100*Tick, w.process(42).ShortLived, "the last slice, late; not the life")
	assert.Zero(t, w.table.Untraced)

	w.Run(10*time.Second, nil)
	w.spend(42, 70)
	w.scan()
	assert.Equal(t, 70*Tick, w.process(42).ShortLived, "and nothing is owed after that")
}

func TestParentThatIgnoresSIGCHLDLeavesItsChildrensTimeUntraced(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 1})
	w.add(43, hostsim.Process{Parent: 42})
	w.Run(100*time.Second, map[int]int64{43: 500})
	w.scan()
	w.Run(10*time.Second, map[int]int64{43: 300})
	delete(w.Processes, 43) // and no child times grow
	w.scan()
	assert.Equal(t, scan.Unbounded, w.table.Untraced)
	assert.Zero(t, w.ended(43).LastSlice)
	assert.Zero(t, w.process(42).ShortLived)

	w.Run(20*time.Second, nil)
	w.scan()
	assert.Zero(t, w.table.Untraced, "that was of that interval")
	w.Run(10*time.Second, nil)
	w.spend(42, 300)
	w.scan()
	assert.Equal(t, 300*Tick, w.process(42).ShortLived, "it waits for others; what it owed is past")
}

// Children of less than a tick show no time when they are scanned, so nothing is missing when they
// end.
func TestShortChildrenOfAParentThatIgnoresSIGCHLDAreUntraced(t *testing.T) {
	for _, ignores := range []bool{true, false} {
		w := watch(t)
		w.add(42, hostsim.Process{Parent: 1, IgnoresSIGCHLD: ignores})
		w.add(43, hostsim.Process{Parent: 42})
		w.scan()
		untraced := func() {
			t.Helper()
			want := units.CPUTime(0)
			if ignores {
				want = scan.Unbounded
			}
			assert.Equal(t, want, w.table.Untraced)
		}
		assert.Zero(t, w.table.Untraced, "no child has ended yet")
		w.Run(10*time.Second, nil)
		delete(w.Processes, 43)
		w.unattributed(500)
		w.scan()
		untraced()
		w.Run(10*time.Second, nil)
		w.unattributed(500)
		w.scan()
		untraced() // as long as it lives, whether or not a scan sees a child

		w.Run(10*time.Second, nil)
		w.spend(42, 5)
		w.scan()
		assert.Zero(t, w.table.Untraced, "it waits now")
	}
}

func TestIgnoresSIGCHLD(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tx\nSigIgn:\t0000000000010000\nSigCgt:\t0\n": true,
		"Name:\tx\nSigIgn:\tffffffffffffffff\n":             true,
		"Name:\tx\nSigIgn:\tfffffffffffeffff\n":             false,
		"Name:\tx\nSigIgn:\t0000000000000000\n":             false,
		"Name:\tx\nSigIgn:\t10000":                          true,
		"Name:\tx\nSigIgn:\t1000":                           false,
		"Name:\tx\nSigIgn:\tx0000\n":                        false,
		"Name:\tSigIgn:\t0000000000010000\n":                false,
		"":                                                  false,
	} {
		assert.Equal(t, want, IgnoresSIGCHLD([]byte(status)), status)
	}
}

func TestProcessWithoutAParentInSightIsUntraced(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 0}) // its parent is outside the PID namespace
	w.Run(100*time.Second, map[int]int64{42: 10})
	w.scan()
	w.Run(10*time.Second, map[int]int64{42: 300})
	w.reap(42)
	w.scan()
	assert.Equal(t, scan.Unbounded, w.table.Untraced)
	assert.Zero(t, w.ended(42).LastSlice)
}

func TestAnEndedKernelThreadIsUntracedUpToItsPossibleTime(t *testing.T) {
	w := watch(t)
	w.add(2, hostsim.Process{Kernel: true, Comm: "kthreadd"})
	w.add(60, hostsim.Process{Parent: 2, Kernel: true, Comm: "kworker/0:1"})
	w.Run(3*time.Second, nil)
	w.add(61, hostsim.Process{Parent: 2, Kernel: true, Comm: "kworker/0:2"})
	w.Run(100*time.Second, map[int]int64{60: 1000})
	w.scan()
	w.Run(10*time.Second, nil)
	delete(w.Processes, 60)
	w.scan()
	assert.Equal(t, 10*units.Second+2*Tick, w.table.Untraced, "the interval")
	assert.Zero(t, w.process(2).ShortLived)

	w.Run(10*time.Minute, nil)
	delete(w.Processes, 61)
	w.scan()
	assert.Equal(t, 110*units.Second+2*Tick, w.table.Untraced, "no longer than it had lived")
}

func TestUntracedNeverExceedsUnbounded(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 0})
	w.add(60, hostsim.Process{Parent: 2, Kernel: true})
	w.add(61, hostsim.Process{Parent: 2, Kernel: true})
	w.Run(time.Minute, nil)
	w.scan()
	w.Run(time.Minute, nil)
	for _, pid := range []int{42, 60, 61} {
		delete(w.Processes, pid)
	}
	w.scan()
	assert.Equal(t, scan.Unbounded, w.table.Untraced)
}

func TestZombieHasNoLastSlice(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 1})
	w.add(43, hostsim.Process{Parent: 42})
	w.Run(10*time.Second, map[int]int64{43: 500})
	w.Processes[43].State = 'Z'
	w.scan()
	w.Run(10*time.Second, nil)
	w.reap(43)
	w.spend(42, 30) // time of another child
	w.scan()
	assert.Zero(t, w.ended(43).LastSlice)
	assert.Equal(t, 30*Tick, w.process(42).ShortLived)
	assert.Zero(t, w.table.Untraced)
}

func TestAZombieWithAnInvisibleParentLeavesNothingUntraced(t *testing.T) {
	w := watch(t)
	w.add(43, hostsim.Process{Parent: 0, State: 'Z'})
	w.scan()
	w.Run(10*time.Second, nil)
	w.reap(43)
	w.scan()
	assert.Zero(t, w.table.Untraced)
}

func TestZombieUnderAParentThatNeverWaitsGoesToInit(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 1})
	w.add(43, hostsim.Process{Parent: 42})
	w.Run(10*time.Second, map[int]int64{42: 100, 43: 500})
	w.Processes[43].State = 'Z'
	w.scan()
	w.Run(10*time.Second, map[int]int64{42: 20})
	w.Processes[43].Parent = 1
	w.reap(42)
	w.reap(43)
	w.unattributed(800)
	w.scan()
	assert.Equal(t, 20*Tick, w.ended(42).LastSlice)
	assert.Zero(t, w.process(1).ShortLived)
}

func TestProcessWhoseFirstThreadEndedGoesOn(t *testing.T) {
	w := watch(t)
	w.add(43, hostsim.Process{Parent: 1, State: 'Z', Threads: 3})
	w.Run(100*time.Second, map[int]int64{43: 500})
	w.scan()
	w.Run(10*time.Second, map[int]int64{43: 700})
	w.reap(43)
	w.scan()
	assert.Equal(t, 700*Tick, w.ended(43).LastSlice)
}

func TestReusedPidOfAParentIsNotTheParent(t *testing.T) {
	w := watch(t)
	w.add(10, hostsim.Process{Parent: 1})
	w.add(42, hostsim.Process{Parent: 10})
	w.add(43, hostsim.Process{Parent: 42})
	w.Run(100*time.Second, map[int]int64{42: 100, 43: 500})
	w.scan()
	w.Run(10*time.Second, map[int]int64{43: 300})
	w.reap(43)
	w.reap(42)
	w.add(42, hostsim.Process{Parent: 1, Comm: "stranger"})
	w.spend(42, 40)
	w.scan()
	assert.Equal(t, 40*Tick, w.process(42).ShortLived, "its own children's")
	assert.Equal(t, 300*Tick, w.ended(42).LastSlice+w.ended(43).LastSlice+w.process(10).ShortLived)
	assert.Zero(t, w.table.Untraced)
}

func TestProcessThatReapedItsChildAndEndedIsBilledForBoth(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 1})
	w.Run(100*time.Second, map[int]int64{42: 100})
	w.scan()
	w.Run(10*time.Second, map[int]int64{42: 50})
	w.spend(42, 200) // by children that lived in the interval
	w.reap(42)
	w.scan()
	assert.Equal(t, 250*Tick, w.ended(42).LastSlice+w.process(1).ShortLived)
}

func TestChildrenThatAProcessHadBeforeAreNotBilledAgainWhenItEnds(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 1})
	w.Run(100*time.Second, map[int]int64{42: 100})
	w.spend(42, 5000)
	w.scan()
	w.Run(10*time.Second, map[int]int64{42: 50})
	w.reap(42)
	w.unattributed(900)
	w.scan()
	assert.Equal(t, 50*Tick, w.ended(42).LastSlice)
	assert.Zero(t, w.process(1).ShortLived)
}

func TestUnusedTimeIsNotCarriedToTheNextInterval(t *testing.T) {
	w := watch(t)
	w.add(42, hostsim.Process{Parent: 1})
	w.scan()
	w.Run(10*time.Second, nil)
	w.unattributed(900)
	w.scan()
	w.Run(10*time.Second, nil)
	w.unattributed(30)
	w.Processes[42].CUser += 500
	w.scan()
	assert.Equal(t, 30*Tick, w.process(42).ShortLived)
}

func TestLastSliceOfAProcessWithManyThreads(t *testing.T) {
	w := watch(t)
	w.CPUs = 64
	w.add(42, hostsim.Process{Parent: 1, Threads: 64})
	w.Run(100*time.Second, nil)
	w.scan()
	w.Run(10*time.Second, map[int]int64{42: 64_000})
	w.reap(42)
	w.scan()
	assert.Equal(t, 64_000*Tick, w.ended(42).LastSlice)
}

// Inconsistent tables must neither hang nor create CPU time.
func TestParentsInACircleDoNotHang(t *testing.T) {
	for name, parents := range map[string][]int32{
		"its own parent":   {1, 2, 3, 4},
		"two in a circle":  {2, 1, 4, 3},
		"all in a circle":  {2, 3, 4, 1},
		"into a circle":    {0, 3, 2, 3},
		"parents nowhere":  {90, 91, 92, 93},
		"negative parents": {-1, -2, -3, -4},
	} {
		t.Run(name, func(t *testing.T) {
			for dies := range 16 {
				var table scan.Table
				row := func(i int, cpu units.CPUTime) scan.Process {
					return scan.Process{PID: int32(i + 1), Parent: parents[i], Threads: 1, CPU: cpu, ChildCPU: cpu}
				}
				tableOf(&table, 10*time.Second, 0, row(0, 5), row(1, 5), row(2, 5), row(3, 5))
				var rest []scan.Process
				for i := range 4 {
					if dies>>i&1 == 0 {
						rest = append(rest, row(i, 7))
					}
				}
				const node = 100
				tableOf(&table, 20*time.Second, node, rest...)
				require.LessOrEqual(t, inferred(&table), units.CPUTime(node))
			}
		})
	}
}

func inferred(t *scan.Table) (sum units.CPUTime) {
	for i := range t.Processes {
		sum += t.Processes[i].ShortLived
	}
	for i := range t.Ended {
		sum += t.Ended[i].LastSlice
	}
	return sum
}

func TestTablesOfGarbageStayWithinTheNodesTime(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	number := func() units.CPUTime {
		switch r.IntN(4) {
		case 0:
			return units.CPUTime(r.Uint64())
		case 1:
			return math.MaxInt64
		default:
			return units.CPUTime(r.Uint64N(uint64(100 * units.Second)))
		}
	}
	for range 300 {
		var table scan.Table
		var now time.Duration
		for range 6 {
			now += time.Duration(r.Int64N(int64(time.Hour)))
			node := units.CPUTime(r.Uint64N(uint64(units.Second) * 1000))
			var rows []scan.Process
			for pid := range int32(20) {
				if r.IntN(3) == 0 {
					continue
				}
				rows = append(rows, scan.Process{
					PID: pid + 1, Parent: r.Int32N(22) - 1, Threads: r.Int32() - r.Int32N(2)<<30, Kernel: r.IntN(5) == 0,
					Zombie: r.IntN(5) == 0, Start: time.Duration(r.Int64N(3)) * time.Hour, CPU: number(), ChildCPU: number(),
				})
			}
			tableOf(&table, now, node, rows...)
			require.LessOrEqual(t, inferred(&table), node)
			require.LessOrEqual(t, table.Untraced, scan.Unbounded)
		}
	}
}

// world is a host whose processes live at random, and whose true CPU time is known.
type world struct {
	*watched
	r       *rand.Rand
	living  []int
	nextPid int
	truth   int64 // ticks used by all processes but kernel threads
}

func (w *world) spawn(parent int) int {
	pid := w.nextPid
	w.nextPid++
	if w.nextPid > 1500 { // numbers are soon reused
		w.nextPid = 100
	}
	if w.Processes[pid] != nil {
		return 0
	}
	w.add(pid, hostsim.Process{Parent: parent, Comm: "p" + strconv.Itoa(pid), Threads: 1 + w.r.IntN(4)})
	w.living = append(w.living, pid)
	return pid
}

// running returns a running process other than init.
func (w *world) running() int {
	for range 20 {
		if len(w.living) == 0 {
			break
		}
		if pid := w.living[w.r.IntN(len(w.living))]; w.Processes[pid].State == 0 {
			return pid
		}
	}
	return 0
}

// exit ends a process. Init adopts its children, and its parent waits for it, now or later.
func (w *world) exit(pid int) {
	for _, q := range w.living {
		if w.Processes[q].Parent == pid {
			w.Processes[q].Parent = 1
			if w.Processes[q].State == 'Z' { // init waits at once
				w.collect(q)
			}
		}
	}
	w.Processes[pid].State = 'Z'
	w.Processes[pid].Threads = 1
	if w.Processes[pid].Parent == 1 || w.r.IntN(4) > 0 {
		w.collect(pid)
	}
}

func (w *world) collect(pid int) {
	w.reap(pid)
	w.living = slices.Clone(slices.DeleteFunc(slices.Clone(w.living), func(q int) bool { return q == pid }))
}

func (w *world) act() {
	switch n := w.r.IntN(10); {
	case n < 3:
		parent := 1
		if w.r.IntN(3) > 0 {
			parent = max(w.running(), 1)
		}
		if len(w.living) < 60 {
			w.spawn(parent)
		}
	case n < 5:
		if pid := w.running(); pid != 0 && len(w.living) > 10 {
			w.exit(pid)
		}
	case n < 6:
		for _, pid := range w.living {
			if w.Processes[pid].State == 'Z' {
				w.collect(pid)
				break
			}
		}
	default:
		pid := max(w.running(), 1)
		used := int64(1 + w.r.IntN(50))
		w.Processes[pid].User += used / 2
		w.Processes[pid].System += used - used/2
		w.CPU.User += used / 2
		w.CPU.System += used - used/2
		w.truth += used
	}
	if w.r.IntN(3) == 0 {
		w.Uptime += hostsim.Tick
		w.CPU.Idle++
	}
}

// shown returns the host as a scan would read it, without files.
func (w *world) shown() (rows []scan.Process) {
	for pid, p := range w.Processes {
		rows = append(rows, scan.Process{
			PID: int32(pid), Parent: int32(p.Parent), Threads: int32(max(p.Threads, 1)), Zombie: p.State == 'Z',
			Start: time.Duration(p.Start) * hostsim.Tick, CPU: ticks(uint64(p.User + p.System)),
			ChildCPU: ticks(uint64(p.CUser + p.CSystem)),
		})
	}
	return rows
}

// live runs a world for n scans and checks that all its CPU time is counted once.
func live(t *testing.T, seed uint64, scans int, viaFiles bool) { liveOn(t, seed, scans, viaFiles, 0) }

// liveOn is live with a share of scans after each of which another source and table go on, one of
// restarts on average.
func liveOn(t *testing.T, seed uint64, scans int, viaFiles bool, restarts int) {
	w := &world{watched: watch(t), r: rand.New(rand.NewPCG(seed, 99)), nextPid: 100}
	restarted, truthBefore := false, int64(0)
	rescan := func() {
		if viaFiles {
			w.scan()
			return
		}
		before := w.node.Process
		w.node.Process = ticks(uint64(w.truth - truthBefore))
		tableOf(&w.table, w.Uptime, w.node.Process-before, w.shown()...)
		w.check()
	}
	for range 30 {
		w.spawn(max(w.running(), 1))
	}
	rescan()
	var billed units.CPUTime
	rounding, ended, shortLived := 0, 0, 0
	for i := range scans {
		before := w.node.Process
		for range w.r.IntN(60) {
			w.act()
		}
		rescan()
		interval := inferred(&w.table)
		for j := range w.table.Processes {
			interval += w.table.Processes[j].Used
			if w.table.Processes[j].ShortLived > 0 {
				shortLived++
			}
		}
		require.LessOrEqual(t, interval, w.node.Process-before, "scan %d: beyond what the node used", i)
		if !restarted {
			require.Zero(t, w.table.Untraced, "scan %d: every end can be traced", i)
		}
		restarted = false
		require.False(t, w.table.Hidden)
		billed += interval
		for j := range w.table.Ended {
			rounding++ // shares of a last slice are rounded down
			if w.table.Ended[j].LastSlice > 0 {
				ended++
			}
		}
		truth := units.CPUTime(w.truth) * Tick
		require.LessOrEqual(t, billed, truth, "scan %d", i)
		require.InDelta(t, float64(truth), float64(billed), float64(rounding), "scan %d", i)
		if restarts > 0 && w.r.IntN(restarts) == 0 {
			restarted, truthBefore = true, w.truth
			w.restart()
		}
	}
	assert.Greater(t, ended, scans/5, "last slices")
	assert.Greater(t, shortLived, scans/15, "children between two scans")
	assert.Less(t, w.table.Slots(), 200)
}

func TestAllCPUTimeIsBilledOnceHoweverProcessesComeAndGo(t *testing.T) {
	t.Parallel()
	live(t, 1, 120, true)
}

func TestTableBillsAllCPUTimeOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			live(t, seed, 500, false)
		})
	}
}
