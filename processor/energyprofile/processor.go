// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/processor"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/conditions"
)

const (
	// maxDelay is how long a batch waits for a meter that does not report. After that, the energy
	// that the other meters have reported is divided.
	maxDelay = 2 * time.Minute
	// maxBytes is the maximum size of all batches that are held. 25,000 samples of 50 frames have
	// about 10 MB.
	maxBytes = 64 << 20
	// maxEntries is the maximum number of entries of the dictionary of a batch. An entry of 2 bytes
	// takes about 80 when the batch is decoded again, and exporters keep batches decoded in their
	// queues.
	maxEntries = 1 << 19
)

// energyProfile divides the energy of a period among the CPU samples of the period. A batch of
// profiles ends a period, and the next batch settles it, since profilers send samples late.
type energyProfile struct {
	cfg        *Config
	next       xconsumer.Profiles
	conditions *conditions.Conditions
	telemetry  *telemetry
	feed       *feed.Feed
	reader     *feed.Reader

	consuming sync.Mutex // held while a period is ended or settled
	held      []*batch
	since     time.Time // arrival of the last batch before those in held
	until     time.Time // the end of the last period that was settled
	reported  int64     // time until which the meters had reported at until, Unix time in ns
	now       func() time.Time
	coverage  coverage

	// warnForeign warns once that samples of other processes are dropped.
	warnForeign func()

	intake intake
}

func newProcessor(cfg *Config, set processor.Settings, next xconsumer.Profiles) (*energyProfile, error) {
	t, err := newTelemetry(set)
	if err != nil {
		return nil, err
	}
	p := &energyProfile{
		cfg: cfg, next: next, telemetry: t, now: time.Now, conditions: conditions.New("Energy profiles", set.Logger), feed: feed.Of(cfg.Receiver),
		warnForeign: sync.OnceFunc(func() {
			set.Logger.Warn("Foreign samples dropped: the processor accepts energy only from the energy receiver of this collector, " +
				"and CPU samples only from the profiler of this collector, unless foreign_samples is true")
		}),
	}
	p.intake.windows = windows{cfg: cfg, processes: map[key]*process{}, byPID: map[int32][]*process{}, methods: map[string]bool{}}
	p.reader = &feed.Reader{Processes: true, Take: p.intake.take}
	return p, nil
}

// Capabilities implements consumer.Profiles.
func (*energyProfile) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: true}
}

// Start implements component.Component.
func (p *energyProfile) Start(_ context.Context, host component.Host) error {
	p.conditions.Host = host
	p.since = p.now()
	p.feed.Open(p.reader)
	return nil
}

// Shutdown implements component.Component. It sends all energy until now. The energy receiver is in
// another pipeline, so it may shut down later: energy that it attributes then is in no profile.
func (p *energyProfile) Shutdown(ctx context.Context) error {
	p.feed.EndWindow(ctx)
	p.feed.Close(p.reader)
	p.consuming.Lock()
	defer p.consuming.Unlock()
	n := len(p.intake.lock().pending)
	p.intake.unlock()
	return p.settle(ctx, n, true)
}

// ConsumeProfiles implements xconsumer.Profiles.
func (p *energyProfile) ConsumeProfiles(ctx context.Context, pd pprofile.Profiles) error {
	drop := dropped{}
	defer func() { p.telemetry.drop(ctx, drop) }()
	from := originOf(ctx)
	refuses := from.isForeign && !p.cfg.ForeignSamples
	p.refuse(pd, from, drop)
	own := ctx
	if from.isForeign {
		own = context.WithoutCancel(ctx) // the client must not cancel the sending of energy
	}
	other, ok := splitOther(pd)
	isHeld := !refuses && pd.ResourceProfiles().Len() > 0
	var err error
	if !refuses {
		err = p.endPeriod(own, pd, from, drop)
	}
	if ok {
		pd.Dictionary().MoveTo(other.Dictionary())
		err = errors.Join(err, p.next.ConsumeProfiles(ctx, other))
	}
	if isHeld && err != nil {
		err = consumererror.NewPermanent(err) // a client that sent the batch again would add its samples twice
	}
	if refuses {
		return err
	}
	// From here on, pd is not used any more, which may have much memory.
	return errors.Join(err, p.settleDue(own))
}

// endPeriod ends a period with a batch of CPU profiles.
func (p *energyProfile) endPeriod(ctx context.Context, pd pprofile.Profiles, from origin, drop dropped) error {
	p.consuming.Lock()
	defer p.consuming.Unlock()
	p.feed.EndWindow(ctx)
	return p.hold(pd, from, drop)
}

// settleDue settles the periods that are due. An error concerns the energy of earlier batches, so it
// is permanent: if the client sent the current batch again, its samples would be added twice.
func (p *energyProfile) settleDue(ctx context.Context) error {
	p.consuming.Lock()
	defer p.consuming.Unlock()
	err := p.settle(ctx, p.countDue(), false)
	if err != nil {
		err = consumererror.NewPermanent(err)
	}
	return err
}

// hold adds a batch, unless there has never been a window to divide.
func (p *energyProfile) hold(pd pprofile.Profiles, from origin, drop dropped) error {
	w := p.intake.lock()
	mark, cpus := w.received, len(w.packages)
	p.intake.unlock()
	var missing error
	if mark == 0 {
		missing = feed.Check(p.cfg.Receiver)
	}
	p.conditions.Set("receiver", missing)
	if missing != nil {
		eachProfile(pd, func(of pprofile.Profile) { drop.samples(dropNoReceiver, of) })
		return nil
	}
	if pd.ResourceProfiles().Len() == 0 {
		return nil
	}
	if entriesOf(pd.Dictionary()) > maxEntries {
		eachProfile(pd, func(of pprofile.Profile) { drop.samples(dropLimit, of) })
		return nil
	}
	now := p.now()
	elapsed := min(max(0, now.Sub(p.since)), time.Hour) + maxLate
	b, err := newBatch(pd, &indexer{
		now: now.UnixNano(), cpuTime: elapsed * time.Duration(max(cpus, runtime.NumCPU())), byPID: p.countByPID(from), drop: drop,
	})
	if err != nil {
		return err
	}
	if b.bytes > maxBytes {
		drop[dropLimit] += int64(b.times)
		return nil
	}
	b.mark, b.arrived, b.from = mark, now, from
	p.held = append(p.held, b)
	p.evict(drop)
	return nil
}

// countByPID returns the number of samples of a sender in the batches that are held, by PID.
func (p *energyProfile) countByPID(from origin) map[int32]uint64 {
	n := map[int32]uint64{}
	for _, b := range p.held {
		if b.from != from {
			continue
		}
		for i := range b.resources {
			n[b.resources[i].pid] += b.resources[i].count()
		}
	}
	return n
}

// size returns the size of the batches that are held, in bytes.
func (p *energyProfile) size() (bytes int) {
	for _, b := range p.held {
		bytes += b.bytes
	}
	return bytes
}

// evict drops batches beyond the limit. The limit is reached if the receiver stops attributing
// energy.
func (p *energyProfile) evict(drop dropped) {
	for p.size() > maxBytes {
		i := p.oldestOfLargest()
		drop[dropLimit] += int64(p.held[i].times)
		p.intake.lock().takeBack(p.held[i])
		p.intake.unlock()
		p.held = slices.Delete(p.held, i, i+1)
	}
}

// oldestOfLargest returns the index of the oldest batch of the foreign sender with the most bytes.
// It returns a batch of the profiler of this process only if no foreign batch is held.
func (p *energyProfile) oldestOfLargest() int {
	bytes := map[origin]int{}
	for _, b := range p.held {
		bytes[b.from] += b.bytes
	}
	largest := p.held[0].from
	for from, n := range bytes {
		if from.isForeign && (!largest.isForeign || n > bytes[largest]) {
			largest = from
		}
	}
	return slices.IndexFunc(p.held, func(b *batch) bool { return b.from == largest })
}

// countDue returns the number of pending windows that can be settled: the windows before the second
// newest batch, if all meters have reported until its arrival. If that takes too much time or
// memory, countDue does not wait.
func (p *energyProfile) countDue() int {
	isFull, now := p.size() > maxBytes/2, p.now()
	w := p.intake.lock()
	defer p.intake.unlock()
	for i := len(p.held) - 2; i >= 0; i-- {
		n := int(p.held[i].mark - min(p.held[i].mark, w.settled))
		if n > 0 && (isFull || w.reported(n) || now.Sub(p.held[i].arrived) >= maxDelay) {
			return n
		}
	}
	return 0
}
