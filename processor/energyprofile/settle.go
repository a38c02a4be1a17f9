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
	d := p.divide(ctx, n, end)
	p.conditions.Set("sums", d.err)
	// The complete batches may have other senders than the client of the current batch.
	ctx = client.NewContext(ctx, client.Info{})
	var errs []error
	for _, b := range d.complete {
		if b.energy == 0 {
			continue
		}
		p.intake.lock() // the next window changes processes
		pd, err := b.finish(d.method, p.cfg.ServiceName)
		p.intake.unlock()
		if err == nil {
			err = p.send(ctx, pd, b.energy)
		}
		errs = append(errs, err)
	}
	for pd, energy := range d.frames.parts() {
		errs = append(errs, p.send(ctx, pd, energy))
	}
	if checked, err := p.coverage.settled(p.until, p.cfg.Wait); checked {
		p.conditions.Set("samples", err)
	}
	return errors.Join(errs...)
}

// send sends profiles with an energy, in µJ.
func (p *energyProfile) send(ctx context.Context, pd pprofile.Profiles, energy uint64) error {
	p.telemetry.send(ctx, energy)
	p.coverage.sent += energy
	return p.next.ConsumeProfiles(feed.WithEnergy(ctx, energy), pd)
}

// division is the result of divide.
type division struct {
	method   string
	complete []*batch // batches whose samples all have energy
	frames   *frames
	err      error // reason why no profiles are sent
}

// divide settles the first n pending windows.
func (p *energyProfile) divide(ctx context.Context, n int, end bool) division {
	w := p.intake.lock()
	defer p.intake.unlock()
	due := w.due(n)
	from := p.until
	if from.IsZero() {
		from, p.reported = w.start, w.start.UnixNano()
	}
	if n > 0 {
		p.until = due[n-1].end
	}
	span := intervals{start: p.reported}
	w.merge(due, &span)
	w.recycle(due)
	if i := len(span.ends); i > 0 {
		p.reported = span.ends[i-1]
	}
	p.shareAmongSamples(p.hits(&span, end))
	d := division{method: strings.Join(slices.Sorted(maps.Keys(w.methods)), ",")} // such as measured and modeled
	d.frames = newFrames(from, p.until, d.method)
	d.frames.named = p.cfg.ServiceName
	p.addFrames(ctx, d.frames, end)
	d.complete = p.release(end)
	d.close(w)
	return d
}

// close sums the energy of all profiles. If the sum exceeds the energy of the receiver's windows,
// close drops the profiles and sets err.
func (d *division) close(w *windows) {
	sum := d.frames.sum
	for _, b := range d.complete {
		for i := range b.resources {
			for j := range b.resources[i].samples {
				b.energy += b.resources[i].samples[j].energy
			}
		}
		sum = units.AddSaturating(sum, b.energy)
	}
	if sum > w.owed {
		d.err = fmt.Errorf("profiles not sent: their energy is %d µJ, and the energy of the receiver's windows is %d µJ", sum, w.owed)
		d.complete, d.frames = nil, &frames{}
		sum = 0
	}
	w.owed -= sum
}

// complete reports whether all energy of the time of a batch is settled.
func (p *energyProfile) complete(b *batch) bool { return b.mark <= p.intake.windows.settled }

// hits finds the process and the price of each sample that is due. It returns the processes that
// have samples, and the samples of processes that no window named.
func (p *energyProfile) hits(span *intervals, end bool) (sampled []*process, unknown []hit) {
	limit := p.until.UnixNano()
	for _, b := range p.held {
		upTo, final := limit, end || p.complete(b)
		if final {
			upTo = math.MaxInt64
		}
		for i := range b.resources {
			r := &b.resources[i]
			p.assign(r, upTo)
			switch {
			case r.process != nil:
				if len(r.process.hits) == 0 {
					sampled = append(sampled, r.process)
				}
				r.process.hits = p.hitsOf(b, r, upTo, span, r.process.hits)
			case final:
				unknown = p.hitsOf(b, r, upTo, span, unknown)
			}
		}
	}
	return sampled, unknown
}

// assign finds the process of a resource, by the latest of its samples that are due.
func (p *energyProfile) assign(r *resource, upTo int64) {
	if r.process != nil || r.pid == 0 {
		return
	}
	if latest, ok := r.latest(upTo); ok {
		r.process = p.intake.windows.find(r.pid, latest)
	}
}

// hitsOf appends a hit for each sample of a resource that is due.
func (p *energyProfile) hitsOf(b *batch, r *resource, upTo int64, span *intervals, hits []hit) []hit {
	for i := range r.samples {
		s := &r.samples[i]
		h := hit{sample: s}
		before, place := len(s.times), p.intake.windows.placeOf(s.cpu)
		s.upTo(upTo, func(t int64) {
			h.count += s.count
			if r.process != nil {
				h.price += r.process.priceAt(span.at(t), place) * float64(s.count)
			}
		})
		b.times -= before - len(s.times)
		if h.count > 0 {
			hits = append(hits, h)
		}
	}
	return hits
}

// shareAmongSamples divides the energy of each process among its samples, and the energy of
// short-lived processes among the samples of other processes.
func (p *energyProfile) shareAmongSamples(sampled []*process, unknown []hit) {
	for _, of := range sampled {
		if len(of.hits) > 0 {
			divide(of.cpu, of.hits)
			of.cpu, of.unsampled = 0, 0
		}
	}
	if len(unknown) > 0 {
		divide(p.intake.windows.rest.shortLived, unknown)
		p.intake.windows.rest.shortLived = 0
	}
}

// addFrames adds the energy that has no samples, and drops processes without any left.
func (p *energyProfile) addFrames(ctx context.Context, f *frames, end bool) {
	w := &p.intake.windows
	var notSampled uint64
	for _, of := range w.processes {
		f.add(frameGPU, of.gpu, of)
		clear(of.hits) // of pointers to samples
		of.gpu, of.hits, of.prices = 0, of.hits[:0], of.prices[:0]
		of.waiting = earlier(of.waiting, p.until)
		if of.cpu > 0 && (end || p.until.Sub(of.waiting) >= p.cfg.Wait) {
			f.add(frameNotSampled, of.cpu, of)
			notSampled += of.cpu
			p.coverage.miss(of)
			of.cpu, of.unsampled = 0, 0
		}
		if of.cpu == 0 && of.last <= w.settled && (end || p.until.Sub(earlier(of.seen, p.until)) > p.cfg.Wait) {
			w.forget(of)
		}
	}
	f.add(frameNotSampled, w.rest.shortLived, &process{executable: shortLived})
	notSampled += w.rest.shortLived
	if p.cfg.Idle {
		f.add(frameIdle, w.rest.idle, &process{executable: frameIdle})
	} else {
		w.owed -= w.rest.idle
	}
	if p.cfg.Unattributed {
		f.add(frameUnattributed, w.rest.unattributed, &process{executable: frameUnattributed})
	} else {
		w.owed -= w.rest.unattributed
	}
	w.rest = totals{}
	clear(w.methods)
	p.telemetry.notSampled(ctx, notSampled)
}

// release removes the batches that are complete.
func (p *energyProfile) release(end bool) (done []*batch) {
	p.held = slices.DeleteFunc(p.held, func(b *batch) bool {
		isDone := end || p.complete(b)
		if isDone {
			done, p.since = append(done, b), b.arrived
		}
		return isDone
	})
	return done
}
