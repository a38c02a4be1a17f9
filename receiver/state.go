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

	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/pack"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
)

// totals keeps the ledger over restarts, if a storage extension is configured. Its state is stored in each collection, before the
// collection is handed on: whatever ends the receiver and when, no restored total is below one that was sent. Whatever is wrong
// with the store costs that, never the measuring.
type totals struct {
	in       *keeper // nil where nothing is stored
	boot     string  // identifier of the machine's boot
	settings string
	kept     keptTotals
	trouble  error // what is wrong with the store, nil if nothing
	resuming bool  // the next window is the first after a state
	buffer   []byte
}

// keptTotals is what is stored.
type keptTotals struct {
	boot     string // identifier of the machine's boot
	settings string // on which totals depend
	// readAt is when the meters were read, by the clock of this process, and clocks are the machine's clocks then.
	readAt time.Time
	clocks clocks
	// bootTime is when the machine booted, as the creation times of processes are told by it.
	bootTime time.Time
	claims   claims.State
	meters   power.Past
	cpu      cpu.Past
	phases   []emit.Phase
}

const (
	totalsKey = "totals"
	// maxDown is how old a state may be.
	maxDown = 7 * 24 * time.Hour
)

// Why a state is not used.
var (
	errOtherBoot = errors.New("it is of another boot")
	errSetBack   = errors.New("it is of a later time than now: the machine was set back to an earlier state")
	errOld       = fmt.Errorf("it is older than %v", maxDown)
	errVersion   = errors.New("it is of a version that this receiver does not know")
)

// resume continues the totals of an earlier process of the same boot, if there is a state of it. It must precede the first window.
func (s *energyScraper) resume(ctx context.Context) {
	t := &s.totals
	if s.storage == nil {
		return
	}
	now := s.now()
	clocks, err := s.readClocks()
	if err == nil {
		t.boot, err = kernfs.BootID(s.cfg.RootPath)
	}
	if err != nil {
		t.trouble = fmt.Errorf("totals are not stored, because nothing tells one boot of the machine from another: %w", err)
		return
	}
	t.in, t.settings = s.storage, s.cfg.settingsOfTotals()
	stored, err := t.in.get(ctx, totalsKey)
	if err != nil {
		t.trouble = fmt.Errorf("%s: totals of before the start cannot be read and start at 0: %w", t.in.setting, err)
		return
	}
	if stored == nil {
		return
	}
	k := &t.kept
	switch err := k.decode(stored, t.boot, now, clocks); {
	case errors.Is(err, errOtherBoot):
		s.set.Logger.Info("State of another boot not used: totals start at 0")
	case err != nil:
		s.set.Logger.Warn("State not used: totals start at 0", zap.Error(err))
	default:
		s.restoreTotals(now.Sub(k.readAt))
	}
	*k = keptTotals{}
}

// restoreTotals continues what is kept, which ends so long ago.
func (s *energyScraper) restoreTotals(down time.Duration) {
	k := &s.totals.kept
	if k.settings != s.totals.settings {
		k.claims.Engine.StartOver()
		k.phases = nil
		s.set.Logger.Info("Totals start at 0 because the settings have changed. The energy since the last collection is in them", zap.Duration("down", down))
	} else {
		s.set.Logger.Info("Totals continue", zap.Duration("down", down))
	}
	s.timeline = timeline{reading: k.readAt, stamp: k.claims.Engine.At}
	s.meters.set.Resume(&k.meters)
	past := k.cpu // the reader keeps it for a while
	s.cpu.Resume(&past)
	s.ledger = s.newLedger(k.claims.Engine.At, k.bootTime)
	s.ledger.Restore(&k.claims, k.readAt, k.cpu.Node, slices.Clone(s.cpu.Domains()))
	for i := range k.phases {
		k.phases[i].Energy = renumbered(k.phases[i].Energy, k.claims.Kinds, s.ledger.kinds)
	}
	s.phases.resume(s.ledger, k.phases, s.ledger.Last())
	s.totals.resuming = true
}

// renumbered returns what a phase has by the index of a kind in the ledger now. before are the kinds of the ledger before.
func renumbered(energy []emit.PhaseEnergy, before, now []claims.Kind) []emit.PhaseEnergy {
	out := make([]emit.PhaseEnergy, len(now))
	for i := range min(len(energy), len(before)) {
		if to := slices.Index(now, before[i]); to >= 0 {
			out[to] = energy[i]
		}
	}
	return out
}

// keepTotals stores the state of the ledger after a measurement that ends a collection, nil if there was none. It must be called before
// the ledger is emitted.
func (s *energyScraper) keepTotals(ctx context.Context, m *claims.Measurement) {
	t := &s.totals
	if m == nil || !t.in.usable() {
		return
	}
	err := s.noteTotals(m)
	if err == nil {
		t.buffer = t.kept.encode(t.buffer[:0])
		err = t.in.set(ctx, totalsKey, slices.Clone(t.buffer)) // a store may keep the slice
	}
	if t.trouble = nil; err == nil {
		return
	}
	t.trouble = fmt.Errorf("%s: totals cannot be stored, and will not continue after a restart: %w", t.in.setting, err)
	// Totals that were sent since may be above those of the state before, so nothing must continue from there.
	if t.in.usable() {
		_ = t.in.remove(ctx, totalsKey)
	}
}

// noteTotals notes what is to be stored.
func (s *energyScraper) noteTotals(m *claims.Measurement) error {
	t := &s.totals
	k := &t.kept
	clocks, err := s.readClocks()
	if err != nil {
		return err
	}
	clocks.boot -= s.now().Sub(m.ReadAt)
	k.boot, k.settings, k.clocks, k.readAt, k.bootTime, k.phases = t.boot, t.settings, clocks, m.ReadAt, s.ledger.bootTime, s.phases.list
	s.ledger.State(&k.claims)
	s.meters.set.Past(&k.meters)
	return s.cpu.Past(&k.cpu)
}

// clocks are those of the machine.
type clocks struct {
	boot      time.Duration // since boot, time in suspend included
	suspended time.Duration // since boot
}

// readClocks reads the machine's clocks. The kernel's own is more exact than the file, where both tell the same time.
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
	own, defaults := c.Attribution, defaultAttribution()
	own.StateFile = ""
	set := map[string]any{"zones": slices.Sorted(slices.Values(c.Zones))}
	v, of := reflect.ValueOf(own), reflect.ValueOf(defaults)
	for i := range v.NumField() {
		if field := v.Type().Field(i); field.IsExported() && !reflect.DeepEqual(v.Field(i).Interface(), of.Field(i).Interface()) {
			set[field.Name] = v.Field(i).Interface()
		}
	}
	description, err := json.Marshal(set)
	if err != nil {
		return err.Error() // the same each time
	}
	return string(description)
}

// stateVersion is that of the form of a state, which is changed with it.
const stateVersion = 1

// encode appends the state to b, after its checksum and the version of its form.
func (k *keptTotals) encode(b []byte) []byte {
	from := len(b)
	p := pack.NewWriter(append(b, 0, 0, 0, 0))
	k.packVersion(p)
	k.packHeader(p)
	k.packRest(p)
	b = p.Bytes()
	binary.LittleEndian.PutUint32(b[from:], crc32.ChecksumIEEE(b[from+4:]))
	return b
}

// decode takes over what encode returned in another process of the same boot. now is the time by the clock of this process, and clocks
// are the machine's at the same moment.
func (k *keptTotals) decode(stored []byte, boot string, now time.Time, clocks clocks) error {
	if len(stored) < 4 || binary.LittleEndian.Uint32(stored) != crc32.ChecksumIEEE(stored[4:]) {
		return errChecksum
	}
	p := pack.NewReader(stored[4:])
	if k.packVersion(p) != stateVersion {
		return errVersion
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
