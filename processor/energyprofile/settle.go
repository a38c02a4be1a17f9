// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"errors"
	"math"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// settle divides the energy of the first n pending windows among the samples of their time, and sends the
// batches that are complete. At the end it sends everything.
func (p *energyProfile) settle(ctx context.Context, n int, end bool) error {
	if n == 0 && !end {
		return nil
	}
	out := p.divide(ctx, n, end)
	var errs []error
	for _, pd := range out {
		errs = append(errs, p.next.ConsumeProfiles(ctx, pd))
	}
	return errors.Join(errs...)
}

// divide settles the first n pending windows, and returns what is to be sent.
func (p *energyProfile) divide(ctx context.Context, n int, end bool) []pprofile.Profiles {
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
	method := methodOf(w.methods)
	f := newFrames(from, p.until, method)
	f.named = p.cfg.ServiceName
	p.addFrames(ctx, f, end)
	var out []pprofile.Profiles
	for _, b := range p.release(end) {
		if energy := b.finish(method, p.cfg.ServiceName); b.profiles.ResourceProfiles().Len() > 0 {
			p.telemetry.send(ctx, energy)
			p.coverage.sent += energy
			out = append(out, b.profiles)
		}
	}
	if checked, err := p.coverage.settled(p.until, p.cfg.Wait); checked {
		p.conditions.Set("samples", err)
	}
	if f.profiles.ResourceProfiles().Len() > 0 {
		out = append(out, f.profiles)
	}
	return out
}

// complete reports whether all energy of the time of a batch is settled.
func (p *energyProfile) complete(b *batch) bool { return b.mark <= p.intake.windows.settled }

// hits finds the process and the price of each sample that is due. It returns the processes that have
// samples, and the samples of processes that no window named.
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
				r.process.hits = p.hitsOf(r, upTo, span, r.process.hits)
			case final:
				unknown = p.hitsOf(r, upTo, span, unknown)
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
func (p *energyProfile) hitsOf(r *resource, upTo int64, span *intervals, hits []hit) []hit {
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
		p.samples -= before - len(s.times)
		if h.count > 0 {
			hits = append(hits, h)
		}
	}
	return hits
}

// shareAmongSamples divides the energy of each process among its samples, and that of short-lived
// processes among those of unknown ones.
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

// addFrames adds the energy that has no samples, and forgets processes that have none left.
func (p *energyProfile) addFrames(ctx context.Context, f *frames, end bool) {
	w := &p.intake.windows
	var sent, notSampled uint64
	add := func(frame string, energy uint64, attributes func(pcommon.Map)) {
		f.add(frame, energy, attributes)
		sent += energy
	}
	for _, of := range w.processes {
		attributes := func(to pcommon.Map) { putProcess(to, of) }
		add(frameGPU, of.gpu, attributes)
		clear(of.hits) // of pointers to samples
		of.gpu, of.hits, of.prices = 0, of.hits[:0], of.prices[:0]
		of.waiting = earlier(of.waiting, p.until)
		if of.cpu > 0 && (end || p.until.Sub(of.waiting) >= p.cfg.Wait) {
			add(frameNotSampled, of.cpu, attributes)
			notSampled += of.cpu
			p.coverage.miss(of)
			of.cpu, of.unsampled = 0, 0
		}
		if of.cpu == 0 && of.last <= w.settled && (end || p.until.Sub(earlier(of.seen, p.until)) > p.cfg.Wait) {
			w.forget(of)
		}
	}
	add(frameNotSampled, w.rest.shortLived, putName(shortLived))
	notSampled += w.rest.shortLived
	if p.cfg.Idle {
		add(frameIdle, w.rest.idle, putName(frameIdle))
	}
	if p.cfg.Unattributed {
		add(frameUnattributed, w.rest.unattributed, putName(frameUnattributed))
	}
	w.rest = totals{}
	clear(w.methods)
	p.coverage.sent += sent
	p.telemetry.send(ctx, sent)
	p.telemetry.notSampled(ctx, notSampled)
}

// release removes the batches that are complete.
func (p *energyProfile) release(end bool) (done []*batch) {
	p.held = slices.DeleteFunc(p.held, func(b *batch) bool {
		if complete := end || p.complete(b); !complete {
			return false
		}
		done = append(done, b)
		return true
	})
	return done
}
