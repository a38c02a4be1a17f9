// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/pack"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// state stores the trained models and the totals in each collection, before the collection is passed to the next consumer, and
// restores them at the next start. No restored total is below a total that was sent, whenever and however the receiver ended.
// If storage fails, the state is lost but measurement continues.
type state struct {
	in       *keeper // nil without storage
	readOnly bool
	boot     string // ID of the machine's boot, empty while it is unknown
	settings string
	err      error // why the state cannot be restored or stored, nil if nothing is wrong
	restored bool  // totals were restored, and the next window is the first one since
	saved    savedTotals
	buffer   []byte
}

// savedTotals are the totals of a state.
type savedTotals struct {
	boot     string // ID of the machine's boot
	settings string // on which totals depend
	// readAt is when the meters were read, by the clock of this process, and clocks are the machine's clocks then.
	readAt time.Time
	clocks clocks
	// bootTime is when the machine booted, which the creation times of processes refer to.
	bootTime time.Time
	claims   claims.State
	meters   power.Past
	cpu      cpu.Past
}

// maxDown is the maximum age of totals that are restored.
const maxDown = 7 * 24 * time.Hour

// Reasons not to restore an intact state.
var (
	errOtherBoot = errors.New("it is of another boot")
	errSetBack   = errors.New("it is of a later time than now: the machine was set back to an earlier state")
	errOld       = fmt.Errorf("it is older than %v", maxDown)
	errNoTotals  = errors.New("it has no totals")
	errVersion   = errors.New("it has a format that this version does not support")
)

var errChecksum = errors.New("its checksum is wrong")

// restoreState restores the trained models, and the totals if they are of the same boot. It must precede the first window.
func (s *energyScraper) restoreState(ctx context.Context) {
	t := &s.state
	if t.in == nil {
		return
	}
	now := s.now()
	clocks, err := s.readClocks()
	if err != nil {
		t.err = fmt.Errorf("storage: totals cannot be restored: %w", err)
	} else if !t.readOnly {
		t.boot, _ = kernfs.BootID(s.cfg.RootPath) // noteTotals reports the error
	}
	t.settings = s.cfg.settingsOfTotals()
	stored, err := t.in.get(ctx)
	if err == nil && stored == nil && !t.readOnly {
		s.set.Logger.Info("No state stored: totals start at 0")
	}
	if err == nil && stored != nil {
		err = decodeState(stored, &s.training.trained, &t.saved, t.boot, now, clocks)
	}
	switch {
	case err == nil && t.saved.boot != "":
		s.restoreTotals(now.Sub(t.saved.readAt))
	case err == nil:
	case errors.Is(err, errOtherBoot):
		s.set.Logger.Info("State of another boot: totals start at 0")
	case errors.Is(err, errSetBack), errors.Is(err, errOld), errors.Is(err, errNoTotals), errors.Is(err, errVersion):
		s.set.Logger.Warn("State not restored: totals start at 0", zap.Error(err))
	default:
		t.err = fmt.Errorf("storage: the state cannot be restored, and totals start at 0: %w", err)
	}
	t.saved = savedTotals{}
}

// restoreTotals continues the saved totals, whose last interval ended the given time ago.
func (s *energyScraper) restoreTotals(down time.Duration) {
	k := &s.state.saved
	if k.settings != s.state.settings {
		k.claims.Engine.StartOver()
		s.set.Logger.Info("Totals start at 0 because the settings have changed. The energy since the last collection is in them", zap.Duration("down", down))
	} else {
		s.set.Logger.Info("Totals continue", zap.Duration("down", down))
	}
	s.timeline = timeline{reading: k.readAt, stamp: k.claims.Engine.At}
	s.meters.set.Resume(&k.meters)
	past := k.cpu // the reader uses the copy beyond this call
	s.cpu.Resume(&past)
	s.ledger = s.newLedger(k.claims.Engine.At, k.bootTime)
	s.ledger.Restore(&k.claims, k.readAt, k.cpu.Node, slices.Clone(s.cpu.Domains()))
	s.state.restored = true
}

// saveState stores the state after a measurement that ends a collection, nil if there was none. It must be called before the
// ledger is emitted.
func (s *energyScraper) saveState(ctx context.Context, m *claims.Measurement) {
	t := &s.state
	if m == nil || t.in == nil || t.readOnly {
		return
	}
	s.noteTrained()
	totals := &t.saved
	if t.err = s.noteTotals(m); t.err != nil {
		totals = nil
	}
	t.buffer = encodeState(t.buffer[:0], &s.training.trained, totals)
	value := slices.Clone(t.buffer) // a store may keep the slice
	err := t.in.set(ctx, value)
	if err != nil && t.in.store != nil { // the store could be opened
		// Totals sent since may exceed those of the stored state, so it must not be restored. Without it a disk may have room.
		_ = t.in.remove(ctx)
		err = t.in.set(ctx, value)
	}
	if err != nil {
		t.err = fmt.Errorf("storage: the state cannot be stored, and totals will start at 0 after a restart: %w", err)
	}
}

// noteTotals records the totals to be stored.
func (s *energyScraper) noteTotals(m *claims.Measurement) error {
	t := &s.state
	k := &t.saved
	clocks, err := s.readClocks()
	if err == nil && t.boot == "" {
		t.boot, err = kernfs.BootID(s.cfg.RootPath)
	}
	if err == nil {
		err = s.cpu.Past(&k.cpu)
	}
	if err != nil {
		return fmt.Errorf("storage: totals are not stored: %w", err)
	}
	clocks.boot -= s.now().Sub(m.ReadAt)
	k.boot, k.settings, k.clocks, k.readAt, k.bootTime = t.boot, t.settings, clocks, m.ReadAt, s.ledger.bootTime
	s.ledger.State(&k.claims)
	s.meters.set.Past(&k.meters)
	return nil
}

// clocks are those of the machine.
type clocks struct {
	boot      time.Duration // since boot, time in suspend included
	suspended time.Duration // since boot
}

// readClocks reads the machine's clocks. The kernel's clock is more exact than the file if both have the same time.
func (s *energyScraper) readClocks() (c clocks, err error) {
	if c.boot, err = cpu.SinceBoot(s.cfg.RootPath); err != nil {
		return c, err
	}
	boot, suspended := s.kernelClocks()
	if d := boot - c.boot; d >= 0 && d < 5*time.Duration(cpu.Tick) {
		c.boot = boot
	}
	c.suspended = suspended
	return c, nil
}

// settingsOfTotals describes the settings without which totals mean something else, whatever the order of zones. Those that have their
// defaults are left out, so that a later version with more settings describes them alike.
func (c *Config) settingsOfTotals() string {
	own, defaults := c.Attribution, createDefaultConfig().(*Config).Attribution
	set := map[string]any{"zones": slices.Sorted(slices.Values(c.Zones))}
	v, of := reflect.ValueOf(own), reflect.ValueOf(defaults)
	for i := range v.NumField() {
		if field := v.Type().Field(i); field.IsExported() && !reflect.DeepEqual(v.Field(i).Interface(), of.Field(i).Interface()) {
			set[field.Name] = v.Field(i).Interface()
		}
	}
	if c.Series.Processes.GroupBy != "" {
		set["GroupBy"] = c.Series.Processes.GroupBy
	}
	if !c.ResourceAttributes.ProcessOwner.Enabled { // programs are merged across users
		set["Owner"] = false
	}
	if names := c.hiddenNames(); names != (attribution.GroupNames{}) { // groups are merged across names
		set["Names"] = names
	}
	if c.Series.Processes.GroupBy != GroupByPID && !c.ResourceAttributes.SystemdUnitName.Enabled {
		set["Unit"] = false
	}
	description, err := json.Marshal(set)
	if err != nil {
		return err.Error() // the same each time
	}
	return string(description)
}

// stateVersion is the version of the format. Each change of a pack function changes it, except a further condition in
// a byte of conditions, which is false in older states.
const stateVersion = 3

// encodeState appends a state to b: a checksum of the rest, the version of the format, the trained models, and the totals unless
// they are nil.
func encodeState(b []byte, trained *trainedModels, totals *savedTotals) []byte {
	from := len(b)
	p := pack.NewWriter(append(b, 0, 0, 0, 0))
	packVersion(p)
	trained.pack(p)
	pack.Pointer(p, &totals, func(p *pack.Packer, k *savedTotals) {
		k.packHeader(p)
		k.packRest(p)
	})
	b = p.Bytes()
	binary.LittleEndian.PutUint32(b[from:], crc32.ChecksumIEEE(b[from+4:]))
	return b
}

// decodeState decodes what encodeState returned. After an error the trained models may be decoded, and the totals must not be
// used. boot is the ID of the boot, now the time by the clock of this process, and clocks are the machine's clocks now. Without
// boot, totals are not decoded.
func decodeState(stored []byte, trained *trainedModels, k *savedTotals, boot string, now time.Time, clocks clocks) error {
	if len(stored) < 4 || binary.LittleEndian.Uint32(stored) != crc32.ChecksumIEEE(stored[4:]) {
		return errChecksum
	}
	p := pack.NewReader(stored[4:])
	if packVersion(p) != stateVersion {
		return errVersion
	}
	var decoded trainedModels
	decoded.pack(p)
	has := false
	if p.Bools(&has); p.Err() != nil {
		return p.Err()
	}
	*trained = decoded
	if boot == "" {
		return nil
	}
	if !has {
		return errNoTotals
	}
	k.packHeader(p)
	if p.Err() != nil {
		return p.Err()
	}
	since := clocks.boot - k.clocks.boot
	awake := since - (clocks.suspended - k.clocks.suspended)
	switch {
	case k.boot != boot:
		return errOtherBoot
	case since < 0 || awake < 0:
		return errSetBack
	case since > maxDown:
		return errOld
	}
	k.readAt = now.Add(-awake)
	k.packRest(p)
	return p.End()
}
