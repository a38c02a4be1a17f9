// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/processor"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/conditions"
)

// maxBatches is the number of batches that wait for a meter that does not report. Then the energy that
// is known is divided.
const maxBatches = 12

// energyProfile divides the energy of a period among the CPU samples of the period. A batch of profiles
// ends a period, and the next batch settles it, since profilers send samples late.
type energyProfile struct {
	cfg        *Config
	next       xconsumer.Profiles
	conditions *conditions.Conditions
	telemetry  *telemetry
	feed       *feed.Feed
	reader     *feed.Reader

	consuming sync.Mutex // held while a batch is consumed
	held      []*batch
	samples   int       // in held
	until     time.Time // the end of the last period that was settled
	reported  int64     // until when the meters had reported then, Unix time in ns
	now       func() time.Time
	coverage  coverage

	intake intake
}

func newProcessor(cfg *Config, set processor.Settings, next xconsumer.Profiles) (*energyProfile, error) {
	t, err := newTelemetry(set)
	if err != nil {
		return nil, err
	}
	p := &energyProfile{
		cfg: cfg, next: next, telemetry: t, now: time.Now, conditions: conditions.New("Energy profiles", set.Logger), feed: feed.Of(cfg.Receiver),
	}
	p.intake.windows = windows{
		selected: selection(cfg), processes: map[key]*process{}, byPID: map[int32][]*process{}, methods: map[string]bool{},
	}
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
	p.feed.Open(p.reader)
	return nil
}

// Shutdown implements component.Component. It sends all energy until now. The energy receiver is in another
// pipeline, so it may shut down later: what it attributes then is in no profile.
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
	own := pprofile.NewProfiles()
	pd.MoveTo(own) // it is held beyond this call
	var err error
	if other, ok := splitOther(own); ok {
		err = p.next.ConsumeProfiles(ctx, other)
	}
	p.consuming.Lock()
	defer p.consuming.Unlock()
	p.feed.EndWindow(ctx)
	if !p.hold(ctx, own) {
		return err
	}
	return errors.Join(err, p.settle(ctx, p.countDue(), false))
}

// hold adds a batch. It returns false if there has never been a window to divide.
func (p *energyProfile) hold(ctx context.Context, own pprofile.Profiles) bool {
	mark := p.intake.lock().received
	p.intake.unlock()
	var missing error
	if mark == 0 {
		missing = feed.Check(p.cfg.Receiver)
	}
	p.conditions.Set("receiver", missing)
	drop := dropped{}
	if missing != nil {
		eachProfile(own, func(of pprofile.Profile) { drop[dropNoReceiver] += int64(of.Samples().Len()) })
		p.telemetry.drop(ctx, drop)
		return false
	}
	if own.ResourceProfiles().Len() == 0 {
		return true
	}
	b, n := newBatch(own, p.now(), maxHeld-p.samples, drop)
	b.mark = mark
	p.held = append(p.held, b)
	p.samples += n
	if len(p.held) > 2*maxBatches { // the receiver attributes nothing
		p.dropOldest(drop)
	}
	p.telemetry.drop(ctx, drop)
	return true
}

// dropOldest drops the samples of the batch that has been held longest.
func (p *energyProfile) dropOldest(drop dropped) {
	n := p.held[0].countTimes()
	drop[dropLimit] += int64(n)
	p.samples -= n
	p.held = slices.Delete(p.held, 0, 1)
}

// countDue returns the number of pending windows that can be settled: those before an earlier batch than
// the newest, if all meters have reported until then or too many batches wait.
func (p *energyProfile) countDue() int {
	w := p.intake.lock()
	defer p.intake.unlock()
	for i := len(p.held) - 2; i >= 0; i-- {
		n := int(p.held[i].mark - min(p.held[i].mark, w.settled))
		if n > 0 && (w.reported(n) || len(p.held) > maxBatches || p.samples >= maxHeld) {
			return n
		}
	}
	return 0
}
