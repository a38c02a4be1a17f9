// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"context"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// The acts of a history, in addition to those of hostsim.
const (
	actStop     hostsim.Act = 200 + iota // the receiver is stopped
	actCrash                             // the receiver is killed; A: at which moment, B: how long after the last interval
	actStart                             // the receiver is started, if it is down; B: how long it was down before that
	actBoot                              // the machine boots again; A: how
	actStore                             // something happens to the store; A: what, B: how often
	actSettings                          // the next run has other settings; A: which
)

var acts = map[hostsim.Act]struct {
	name   string
	weight int
	apply  func(*world, hostsim.Event)
}{
	actStop:     {"stop", 4, (*world).actStop},
	actCrash:    {"kill", 5, (*world).actCrash},
	actStart:    {"start", 14, (*world).actStart},
	actBoot:     {"boot the machine", 1, (*world).actBoot},
	actStore:    {"the store", 4, func(w *world, e hostsim.Event) { w.store.happen(e) }},
	actSettings: {"settings", 1, (*world).actSettings},

	hostsim.Advance: {apply: (*world).advance},
}

// weights returns the weights of a world's acts.
func (p *plan) weights() hostsim.Weights {
	w := hostsim.CommonWeights()
	switch {
	case p.restarts:
		w.AddFaults(1)
		w[hostsim.ZoneWrapsTwice], w[hostsim.Refuse] = 0, 2
		for act, a := range acts {
			w[act] += a.weight
		}
	case p.faulty():
		w.AddFaults(1)
	}
	return w
}

// apply applies an event.
func (w *world) apply(e hostsim.Event) {
	switch act, ours := acts[e.Act]; {
	case ours:
		act.apply(w, e)
	case e.Act >= hostsim.FirstFault:
		w.fault(e)
	default:
		w.life.Apply(e)
	}
	w.backend.meet()
}

var intervals = [...]time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, 10 * time.Second, 10 * time.Second,
	10 * time.Second, time.Minute, 10 * time.Minute,
}

// advance lets an interval pass, and has the receiver observe it: as a window, or as the last one
// of a collection.
func (w *world) advance(e hostsim.Event) {
	w.run.passed = max(intervals[e.A%uint32(len(intervals))], w.shortest())
	w.life.Step(w.run.passed)
	switch {
	case w.run.s == nil:
		return
	case e.B%3 == 0:
		w.window()
	default:
		w.collect()
	}
	if w.run.onDemand && e.A/16%3 != 0 && w.run.s.endWindow(context.Background()) {
		w.observed()
	}
}

func (w *world) actStop(hostsim.Event) {
	if w.run.s == nil {
		return
	}
	w.life.Step(w.shortest())
	w.fired["stopped"]++
	w.stop()
}

// crash is the moment in a collection at which the receiver is killed.
type crash int

const (
	noCrash         crash = iota
	beforeStored          // the state is not stored
	whileStored           // a part of it is
	beforeDelivered       // it is stored, and the collection is not sent
	afterDelivered        // the collection was sent, and the receiver does not know that it was taken
	betweenTwo            // nothing is under way
	numCrashes
)

var crashes = [numCrashes]string{
	beforeStored: "killed before the state was stored", whileStored: "killed while it was stored",
	beforeDelivered: "killed between the state and the collection", afterDelivered: "killed after the collection",
	betweenTwo: "killed between two collections",
}

func (w *world) actCrash(e hostsim.Event) {
	if w.run.s != nil {
		w.life.Step(max(time.Duration(e.B%12_000)*time.Millisecond, w.shortest()))
		w.kill(crash(1 + e.A%uint32(numCrashes-1)))
	}
}

// kill kills the receiver at a moment.
func (w *world) kill(when crash) {
	w.fired[crashes[when]]++
	if w.store.hung != nil {
		w.fired[killedWrite]++
	}
	if w.run.dying = when; when != betweenTwo {
		w.collect()
	}
	w.run.cut = true
	w.stop()
}

// actStart starts the receiver, at once or after up to hours.
func (w *world) actStart(e hostsim.Event) {
	if w.run.s != nil {
		return
	}
	switch e.B % 8 {
	case 0:
		w.life.Step(time.Duration(e.B/8%20_000) * time.Second)
		w.fired["down for hours"]++
	case 1, 2, 3:
		w.life.Step(time.Duration(e.B/8%100) * time.Second)
	case 4:
		w.life.Step(time.Duration(e.B/8%1000) * time.Second)
	default: // started again at once, not at the time of the last reading
		w.life.Step(time.Millisecond)
	}
	w.start()
}

func (w *world) actBoot(e hostsim.Event) {
	if w.run.s != nil {
		w.kill(betweenTwo)
	}
	w.bootMachine(int(e.A % numBoots))
}

func (w *world) actSettings(e hostsim.Event) {
	if change := uint32(1) << (e.A % numSettings); change != fewerZones || !w.plan.modeled() { // a model has one zone
		w.run.next ^= change
	}
}

// fault applies a fault. If the receiver restarts, faults that hide energy from the meters belong
// to faulty worlds only.
func (w *world) fault(e hostsim.Event) {
	if w.plan.restarts {
		switch e.Act {
		case hostsim.MeterLate, hostsim.MeterFails, hostsim.MeterRejects, hostsim.MeterVanishes, hostsim.MeterReplaced:
			return // there is no slow meter
		case hostsim.Suspend:
			if !w.plan.faulty() {
				e.B |= 1 // counters go on
			}
		case hostsim.Steal, hostsim.ClockStep, hostsim.ExitMidScan, hostsim.Refuse, hostsim.ExitsLate, hostsim.ExitsLost, hostsim.ListFails:
		default:
			if !w.plan.faulty() {
				return
			}
		}
	}
	if e.Act == hostsim.ClockStep {
		w.backend.clock.stepped = true
	}
	w.faults.Apply(e)
}
