// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// settle divides the energy of the first n pending windows among the samples of their time, and
// sends the batches that are complete. At the end it sends everything.
func (p *energyProfile) settle(ctx context.Context, n int, end bool) error {
	if n == 0 && !end {
		return nil
	}
	l := &p.ledger
	due := p.windows.remove(n)
	l.merge(due, true)
	from := l.until
	if n > 0 {
		l.until = due[n-1].End
	}
	complete := p.findHits(end)
	if i := len(l.ends); i > 0 {
		l.reported, l.ends = l.ends[i-1], l.ends[:0]
	}
	method := strings.Join(slices.Sorted(maps.Keys(l.methods)), ",") // such as measured and modeled
	clear(l.methods)
	rest := &frames{from: from, until: l.until, method: method, named: p.cfg.ServiceName}
	p.divideAll(ctx, rest, end)
	err := l.close(complete, rest)
	p.conditions.Set("sums", err)
	if err != nil {
		complete, rest = nil, &frames{}
	}
	// The complete batches may have other senders than the client of the current batch.
	ctx = client.NewContext(ctx, client.Info{})
	var errs []error
	for _, b := range complete {
		if b.energy == 0 {
			continue
		}
		pd, err := b.finish(method, p.cfg.ServiceName)
		if err == nil {
			err = p.send(ctx, pd, b.energy)
		}
		errs = append(errs, err)
	}
	for _, part := range rest.parts {
		errs = append(errs, p.send(ctx, part.Profiles, part.energy))
	}
	if checked, err := p.coverage.settled(l.until, p.cfg.Wait); checked {
		p.conditions.Set("samples", err)
	}
	return errors.Join(errs...)
}

// send sends profiles with an energy, in µJ.
func (p *energyProfile) send(ctx context.Context, pd pprofile.Profiles, energy uint64) error {
	p.telemetry.builder.ProcessorEnergyprofileEnergy.Add(ctx, float64(energy)/1e6, p.telemetry.own)
	p.coverage.sent += energy
	return p.next.ConsumeProfiles(feed.WithEnergy(ctx, energy), pd)
}

// close sums the energy of all profiles. The error is that the sum exceeds the energy of the
// receiver's windows: the profiles must not be sent.
func (l *ledger) close(complete []*batch, rest *frames) error {
	sum := rest.sum
	for _, b := range complete {
		for i := range b.resources {
			for j := range b.resources[i].samples {
				b.energy += b.resources[i].samples[j].energy
			}
		}
		sum = units.AddSaturating(sum, b.energy)
	}
	if sum > l.owed {
		return fmt.Errorf("profiles not sent: their energy is %d µJ, and the energy of the receiver's windows is %d µJ", sum, l.owed)
	}
	l.owed -= sum
	return nil
}

// findHits finds the process and the price of each sample that is due. It removes the batches that are
// complete, because all energy of their time is settled. Their samples of processes that no window
// named belong to short-lived processes.
func (p *energyProfile) findHits(end bool) (complete []*batch) {
	p.held = slices.DeleteFunc(p.held, func(b *batch) bool {
		upTo, final := p.ledger.until.UnixNano(), end || b.mark <= p.ledger.settled
		if final {
			upTo = math.MaxInt64
			complete, p.since = append(complete, b), b.arrived
		}
		for i := range b.resources {
			r := &b.resources[i]
			p.ledger.assign(r, upTo)
			if r.process == nil && final {
				r.process = p.ledger.processes[shortLived]
			}
			if r.process != nil {
				p.addHits(b, r, upTo)
			}
		}
		return final
	})
	return complete
}

// assign finds the process of a resource, by the latest of its samples that are due.
func (l *ledger) assign(r *resource, upTo int64) {
	if of := r.process; of != nil { // it may have been forgotten
		if again := l.processes[of.key]; again != nil {
			r.process = again
		}
	} else if latest, ok := r.latest(upTo); ok && r.pid != 0 {
		r.process = l.find(r.pid, latest)
	}
}

// addHits adds a hit for each sample of a resource that is due.
func (p *energyProfile) addHits(b *batch, r *resource, upTo int64) {
	for i := range r.samples {
		s := &r.samples[i]
		h := hit{sample: s}
		place := p.ledger.placeOf(s.cpu)
		s.times = slices.DeleteFunc(s.times, func(t int64) bool {
			if t > upTo {
				return false
			}
			b.times--
			h.count += s.count
			h.price += r.process.priceAt(p.ledger.intervalAt(t), place) * float64(s.count)
			return true
		})
		if h.count > 0 {
			r.process.hits = append(r.process.hits, h)
		}
	}
}

// divideAll divides the energy of each process among its samples. Energy that has no samples becomes
// frames. Processes without energy are forgotten.
func (p *energyProfile) divideAll(ctx context.Context, f *frames, end bool) {
	l := &p.ledger
	var notSampled uint64
	for _, of := range l.processes {
		if len(of.hits) > 0 {
			divide(of.cpu, of.hits)
			of.cpu, of.unsampled = 0, 0
		}
		clear(of.hits) // of pointers to samples
		of.hits, of.prices = of.hits[:0], of.prices[:0]
		f.add(frameGPU, of.gpu, of)
		of.gpu = 0
		of.waiting = earlier(of.waiting, l.until)
		if of.pid < 0 {
			f.add(of.executable, of.cpu, of)
			of.cpu = 0
		} else if of.cpu > 0 && (end || of.pid == 0 || l.until.Sub(of.waiting) >= p.cfg.Wait) {
			f.add(frameNotSampled, of.cpu, of)
			notSampled += of.cpu
			p.coverage.miss(of)
			of.cpu, of.unsampled = 0, 0
		}
		if of.cpu == 0 && of.pid > 0 && (end || l.until.Sub(earlier(of.seen, l.until)) > p.cfg.Wait) {
			l.forget(of)
		}
	}
	p.telemetry.builder.ProcessorEnergyprofileNotSampledEnergy.Add(ctx, float64(notSampled)/1e6, p.telemetry.own)
}

// earlier returns the earlier of two times: after the clock was set back, a time of before may be
// in the future.
func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}
