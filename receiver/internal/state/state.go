// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/pack"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/window"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/training"
)

// State stores the trained models and the totals in each collection, before the collection is
// passed to the next consumer, and restores them at the next start. No restored total is below a
// total that was sent with the same start timestamp, even if the receiver crashed or the storage
// failed; see lease. If storage fails, the state is lost but measurement continues.
type State struct {
	Training *training.Training

	cfg      *config.Config
	logger   *zap.Logger
	clocks   func() (boot, suspended time.Duration)
	open     Opener
	in       *Storage // nil without storage
	lease    lease
	boot     string // ID of the machine's boot, empty until it is read
	settings string
	err      error // why the state cannot be restored or stored, or nil
	saved    Totals
	buffer   []byte
}

// New returns a State. It does not access the machine before Open. clocks returns the time since
// boot and the time in suspend, by the kernel's clocks.
func New(cfg *config.Config, logger *zap.Logger, clocks func() (boot, suspended time.Duration), open Opener) *State {
	return &State{
		Training: training.New(cfg, logger), cfg: cfg, logger: logger, clocks: clocks, open: open,
		lease: lease{length: leaseTime + cfg.CollectionInterval},
	}
}

// Open finds the configured storage.
func (t *State) Open(host component.Host, receiver component.ID) (err error) {
	t.in, err = t.open(t.cfg, host, receiver)
	return err
}

// Err returns the reason why the state cannot be restored or stored.
func (t *State) Err() error { return t.err }

// Close closes the storage.
func (t *State) Close(ctx context.Context) {
	if err := t.in.close(ctx); err != nil {
		t.logger.Warn("Storage not closed", zap.Error(err))
	}
}

// Totals are the totals of a state.
type Totals struct {
	boot     string // ID of the machine's boot
	settings string // the settings that totals depend on
	clocks   Clocks // of the machine at ReadAt
	// Lease is the time after ReadAt before which no newer totals were sent; see lease.
	Lease time.Duration
	// ReadAt is when the meters were read, by the clock of this process.
	ReadAt time.Time
	// BootTime is when the machine booted. The creation times of processes refer to it.
	BootTime time.Time
	Window   window.State
	Meters   power.Past
	CPU      cpu.Past
}

// maxDown is the maximum age of totals that are restored.
const maxDown = 7 * 24 * time.Hour

// Reasons not to restore an intact state.
var (
	errOtherBoot = errors.New("the machine has booted since")
	errSetBack   = errors.New("its time is in the future: the machine was reset to an earlier snapshot")
	errOld       = fmt.Errorf("it is older than %v", maxDown)
	ErrNoTotals  = errors.New("it has no totals")
	ErrVersion   = errors.New("it has a format that this version does not support")
)

var errChecksum = errors.New("its checksum is wrong")

// Restore restores the trained models, and returns the totals to be continued, or nil if totals
// start at 0. It must precede the first window. now is the time by the clock of this process.
func (t *State) Restore(ctx context.Context, now time.Time) *Totals {
	if t.in == nil {
		return nil
	}
	clocks, err := t.readClocks()
	if err != nil {
		t.err = fmt.Errorf("storage: totals cannot be restored: %w", err)
	} else if !t.in.readOnly {
		t.boot, _ = kernfs.BootID(t.cfg.RootPath) // Save reports the error
	}
	t.settings = t.cfg.SettingsOfTotals()
	stored, err := t.in.get(ctx)
	if t.lease.renews = err == nil; err == nil && stored == nil && !t.in.readOnly {
		t.logger.Info("No state stored: totals start at 0")
	}
	var totals Totals
	if err == nil && stored != nil {
		err = Decode(stored, &t.Training.Trained, &totals, Moment{Boot: t.boot, At: now, Clocks: clocks})
	}
	switch {
	case err == nil && totals.boot != "":
		return t.continueTotals(ctx, &totals, now)
	case err == nil:
	case errors.Is(err, errOtherBoot):
		t.logger.Info("State of another boot: totals start at 0")
	case errors.Is(err, errSetBack), errors.Is(err, errOld), errors.Is(err, ErrNoTotals), errors.Is(err, ErrVersion):
		t.logger.Warn("State not restored: totals start at 0", zap.Error(err))
	default:
		t.err = fmt.Errorf("storage: the state cannot be restored, and totals start at 0: %w", err)
	}
	return nil
}

// continueTotals stores the totals with a new lease, and returns them. It resets totals of other
// settings and totals whose lease has ended. If the stored totals can be neither replaced nor
// removed, it returns nil, because the next start would restore the same totals again.
func (t *State) continueTotals(ctx context.Context, totals *Totals, now time.Time) *Totals {
	message, down := "Totals continue", now.Sub(totals.ReadAt)
	if totals.settings != t.settings || down > totals.Lease {
		message = "Totals start at 0 because the settings have changed. They include the energy since the last collection"
		if totals.settings == t.settings {
			message = "Totals start at 0 because newer totals may have been sent. They include the energy since the stored state"
		}
		totals.Window.Ledger.StartOver()
	}
	totals.settings = t.settings
	totals.Lease = t.lease.grant(now) + down
	older, err := t.in.replace(ctx, Encode(nil, &t.Training.Trained, totals))
	t.lease.replaced(older, err)
	if older {
		t.lease.until = time.Time{}
		t.err = fmt.Errorf("storage: the state can be neither replaced nor removed, and totals start at 0: %w", err)
		return nil
	}
	t.logger.Info(message, zap.Duration("down", down))
	return totals
}

// Save stores the trained models and the totals, which note records. It must be called before the
// ledger is emitted. last marks the last collection of the receiver. Save reports whether the ledger
// may be emitted. If not, the next collection emits its energy.
func (t *State) Save(ctx context.Context, now func() time.Time, models training.Zones, note func(*Totals) error, last bool) bool {
	if t.in == nil || t.in.readOnly {
		return true
	}
	t.Training.Note(models)
	before := t.lease.until // the end of the leases of older states
	totals := &t.saved
	if t.err = t.noteTotals(now, note); t.err != nil {
		totals = nil
	} else if totals.Lease = t.lease.grant(totals.ReadAt); last {
		totals.Lease = noEnd
	}
	t.buffer = Encode(t.buffer[:0], &t.Training.Trained, totals)
	older, err := t.in.replace(ctx, slices.Clone(t.buffer)) // a store may keep the slice
	t.lease.replaced(older, err)
	switch {
	case err == nil:
	case older && now().Before(before):
		t.err = fmt.Errorf("storage: the state can be neither replaced nor removed, and collections are withheld until %v at the latest: %w",
			before.Format(time.TimeOnly), err)
		return false
	default:
		t.err = fmt.Errorf("storage: the state cannot be stored, and totals will start at 0 after a restart: %w", err)
	}
	return true
}

// noteTotals records the totals to be stored.
func (t *State) noteTotals(now func() time.Time, note func(*Totals) error) error {
	k := &t.saved
	clocks, err := t.readClocks()
	if err == nil && t.boot == "" {
		t.boot, err = kernfs.BootID(t.cfg.RootPath)
	}
	if err == nil {
		err = note(k)
	}
	if err != nil {
		return fmt.Errorf("storage: totals are not stored: %w", err)
	}
	clocks.Boot -= now().Sub(k.ReadAt)
	k.boot, k.settings, k.clocks = t.boot, t.settings, clocks
	return nil
}

// Clocks are the machine's clocks.
type Clocks struct {
	Boot      time.Duration // since boot, with time in suspend
	Suspended time.Duration // since boot
}

// Moment is a time of the machine.
type Moment struct {
	Boot   string    // ID of the machine's boot, empty if it cannot be read
	At     time.Time // by the clock of this process
	Clocks Clocks
}

// readClocks reads the machine's clocks. The kernel's clock is more exact than the file if both
// have the same time.
func (t *State) readClocks() (c Clocks, err error) {
	if c.Boot, err = cpu.SinceBoot(t.cfg.RootPath); err != nil {
		return c, err
	}
	boot, suspended := t.clocks()
	if d := boot - c.Boot; d >= 0 && d < 5*time.Duration(cpu.Tick) {
		c.Boot = boot
	}
	c.Suspended = suspended
	return c, nil
}

// Version is the version of the format. It changes with each pack function, and with the attributes
// of the entities in package identity. An exception is a further condition in a byte of conditions,
// which is false in older states.
const Version = 4

// Encode appends a state to b: a checksum of the rest, the version of the format, the trained
// models, and the totals unless they are nil.
func Encode(b []byte, trained *training.Models, totals *Totals) []byte {
	from := len(b)
	p := pack.NewWriter(append(b, 0, 0, 0, 0))
	packVersion(p)
	trained.Pack(p)
	has, ends := totals != nil, totals != nil && totals.Lease != noEnd
	if p.Bools(&has, &ends); ends {
		pack.Int(p, &totals.Lease)
	}
	if has {
		totals.packHeader(p)
		totals.packRest(p)
	}
	b = p.Bytes()
	binary.LittleEndian.PutUint32(b[from:], crc32.ChecksumIEEE(b[from+4:]))
	return b
}

// Decode decodes a state that Encode returned. After an error the trained models may be decoded,
// and the totals must not be used. Without an ID of the boot, totals are not decoded.
func Decode(stored []byte, trained *training.Models, k *Totals, now Moment) error {
	if len(stored) < 4 || binary.LittleEndian.Uint32(stored) != crc32.ChecksumIEEE(stored[4:]) {
		return errChecksum
	}
	p := pack.NewReader(stored[4:])
	if packVersion(p) != Version {
		return ErrVersion
	}
	var decoded training.Models
	decoded.Pack(p)
	has, ends := false, false
	if p.Bools(&has, &ends); p.Err() != nil {
		return p.Err()
	}
	*trained = decoded
	if now.Boot == "" {
		return nil
	}
	if !has {
		return ErrNoTotals
	}
	if k.Lease = noEnd; ends {
		pack.Int(p, &k.Lease)
	}
	k.packHeader(p)
	if p.Err() != nil {
		return p.Err()
	}
	since := now.Clocks.Boot - k.clocks.Boot
	awake := since - (now.Clocks.Suspended - k.clocks.Suspended)
	switch {
	case k.boot != now.Boot:
		return errOtherBoot
	case since < 0 || awake < 0:
		return errSetBack
	case since > maxDown:
		return errOld
	}
	k.ReadAt = now.At.Add(-awake)
	k.packRest(p)
	return p.End()
}
