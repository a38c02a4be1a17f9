// SPDX-License-Identifier: Apache-2.0

package window

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model/ridge"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// Key names an attribution weight: a claimant's share of active energy is in proportion to it.
type Key string

// The attribution weights.
const (
	KeyCPUTime      Key = "cpu_time"
	KeyFrequency    Key = "frequency" // CPU time, weighted by clock rate
	KeyCycles       Key = "cycles"
	KeyInstructions Key = "instructions"
	KeyCacheMisses  Key = "cache_misses"
	// KeyDRAMCacheMisses is cache misses that count in the domain of the memory.
	KeyDRAMCacheMisses Key = "cache_misses of dram"
	// KeyMissesOrMemory is cache misses and, in windows without counts, memory and CPU time.
	KeyMissesOrMemory Key = "cache_misses or memory_cpu_time"
	KeyMemory         Key = "memory"          // held, by processes that run or sleep
	KeyMemoryCPUTime  Key = "memory_cpu_time" // CPU time, weighted by the memory that is held
	// KeyPowerModel and KeyDRAMPowerModel are the power that models of hardware events estimate.
	// The models are fitted to the packages and to DRAM. KeySmartWatts and KeyDRAMSmartWatts are
	// the same with the model of SmartWatts.
	KeyPowerModel     Key = "power_model"
	KeyDRAMPowerModel Key = "power_model of dram"
	KeySmartWatts     Key = "smartwatts"
	KeyDRAMSmartWatts Key = "smartwatts of dram"
)

// keyLine describes an attribution weight.
type keyLine struct {
	name     Key
	open     func(Key, *KeyOptions) (w Weigher, err error)
	sleepers bool // processes that did not run have a weight
	// held reports whether a claim weighs in the domains of its memory instead of the domains of
	// its CPU time.
	held bool
	// fitted is the zone kind whose measured energy the key is fitted to.
	fitted power.Kind
}

// keyTable has a line for each attribution weight.
var keyTable = []keyLine{
	{name: KeyCPUTime, open: openCPUTime},
	{name: KeyFrequency, open: openClock},
	{name: KeyCycles, open: openEvents},
	{name: KeyInstructions, open: openEvents},
	{name: KeyCacheMisses, open: openEvents},
	{name: KeyDRAMCacheMisses, open: openEvents, held: true},
	{name: KeyMissesOrMemory, open: openEvents, held: true},
	{name: KeyMemory, open: openMemory, sleepers: true, held: true},
	{name: KeyMemoryCPUTime, open: openMemory, held: true},
	{name: KeyPowerModel, open: openEvents, fitted: power.Package},
	{name: KeyDRAMPowerModel, open: openEvents, fitted: power.DRAM},
	{name: KeySmartWatts, open: openEvents, fitted: power.Package},
	{name: KeyDRAMSmartWatts, open: openEvents, fitted: power.DRAM},
}

// KeyOptions configures Keys.
type KeyOptions struct {
	// Cgroups is the tree of the host's cgroups.
	Cgroups *cgroup.Tree
	// Keys are the weights other than plain CPU time, by their index in the weights of claims.
	// KeyCPUTime is CPU time with the discount of cores.
	Keys []Key
	// FrequencyExponent is the exponent of the clock rate in KeyFrequency, from 1 to 3.
	FrequencyExponent int
	// SmartWatts holds the parameters of KeySmartWatts and KeyDRAMSmartWatts.
	SmartWatts map[Key]weigh.SmartWattsOptions
	// Open replaces OpenWeigher if it is not nil.
	Open func(Key, *KeyOptions) (w Weigher, err error)

	// Uncounted is the reason if hardware events of processes are not counted, otherwise nil.
	Uncounted error
	// Unmissed is the reason if cache misses of processes are not counted, otherwise nil. Cache is
	// the name of the cache whose misses are counted.
	Unmissed error
	Cache    string

	// Waits bounds the waits for directories that users block. If nil, each key has its own Waits.
	Waits *kernfs.Waits

	models map[Key]*ridge.Model // of KeyPowerModel and KeyDRAMPowerModel
}

// Weigher measures one attribution weight of claims. Its methods are called from one
// goroutine.
type Weigher interface {
	// Weigh sets the Work of all shares of an interval. It is called once an interval. It reports
	// whether anything was measured; if not, CPU time is the weight. The error is the reason why a
	// part could not be measured, and may be set even if measured is true.
	Weigh(now time.Time, shares []*weigh.Share) (measured bool, err error)
	// Forget drops the previous measurements.
	Forget()
	// Name names the measured quantity and its source.
	Name() string
	// Close releases the resources. No other method is called then.
	Close() error
}

// OpenWeigher opens the Weigher of a key. It returns an error if this machine cannot measure the
// key.
func OpenWeigher(key Key, o *KeyOptions) (w Weigher, err error) {
	line := lineOf(key)
	if line.open == nil {
		return nil, fmt.Errorf("unknown attribution weight %q", key)
	}
	return line.open(key, o)
}

// lineOf returns the line of a key, or a line without open.
func lineOf(key Key) keyLine {
	for _, line := range keyTable {
		if line.name == key {
			return line
		}
	}
	return keyLine{name: key}
}

func openCPUTime(Key, *KeyOptions) (w Weigher, err error) { return weigh.CPUTime{}, nil }

func openClock(_ Key, o *KeyOptions) (w Weigher, err error) {
	return weigh.NewClock(o.Cgroups.Root(), o.FrequencyExponent)
}

func openMemory(key Key, _ *KeyOptions) (w Weigher, err error) {
	return weigh.NewMemory(key == KeyMemoryCPUTime), nil
}

// openEvents opens a key that hardware events measure.
func openEvents(key Key, o *KeyOptions) (w Weigher, err error) {
	if o.Uncounted != nil {
		return nil, o.Uncounted
	}
	if o.Unmissed != nil && (key == KeyCacheMisses || key == KeyDRAMCacheMisses || key == KeyMissesOrMemory) {
		return nil, o.Unmissed
	}
	switch key {
	case KeyCycles:
		return weigh.NewEvents(proc.Cycles), nil
	case KeyInstructions:
		return weigh.NewEvents(proc.Instructions), nil
	case KeyCacheMisses, KeyDRAMCacheMisses:
		return weigh.NewEvents(proc.CacheMisses), nil
	case KeyMissesOrMemory:
		return weigh.NewMisses(), nil
	case KeySmartWatts, KeyDRAMSmartWatts:
		return weigh.NewSmartWatts(o.SmartWatts[key]), nil
	}
	return weigh.NewModel(cmp.Or(o.models[key], &ridge.Model{})), nil
}

// calibrator is a Weigher that is fitted to measured energy, as weigh.NewModel is.
type calibrator interface {
	Calibrate(total units.Energy, zones int, at time.Time, trainable bool)
}

// Selection is a key whose measurement began.
type Selection struct {
	Key Key
	By  string // Name of the Weigher
}

// Keys computes the attribution weights other than plain CPU time. The zero Keys computes no
// weights.
type Keys struct {
	options  KeyOptions
	selected []Selection // since the last call of Selected
	weights  []weight
	retry    time.Time
}

// weight is one of the weights of claims.
type weight struct {
	keyLine
	search  kernfs.Search[openedWeigher]
	zones   []string // measured zones of the kind fitted
	weigher Weigher  // nil if it is not open
	refused error    // why it is not open
	failed  error    // why it was not measured for all rows in the interval
}

// reopenAfter is the time between attempts to open a key that cannot be measured.
const reopenAfter = time.Minute

// NewKeys returns Keys for the options. It opens no files.
func NewKeys(options KeyOptions) *Keys {
	k := &Keys{options: options}
	k.options.models = map[Key]*ridge.Model{}
	if k.options.Open == nil {
		k.options.Open = OpenWeigher
	}
	for _, key := range options.Keys {
		w := weight{keyLine: lineOf(key)}
		if key == KeyPowerModel || key == KeyDRAMPowerModel {
			k.options.models[key] = &ridge.Model{}
		}
		w.search.Drop, w.search.Waits = openedWeigher.drop, options.Waits
		if options.Cgroups != nil {
			w.search.Root, w.search.Dir = options.Cgroups.Root(), filepath.Join(options.Cgroups.Root(), "sys/devices/system/cpu")
		}
		k.weights = append(k.weights, w)
	}
	return k
}

// Sleepers reports whether processes that did not run have claims, because they hold memory or a
// part of their container's memory. If so, Keys needs the sizes of all processes.
func (k *Keys) Sleepers() bool {
	return slices.ContainsFunc(k.weights, func(w weight) bool { return w.sleepers })
}

// OfClockRates reports whether a key uses the clock rate of the last CPU of a process.
func (k *Keys) OfClockRates() bool { return slices.Contains(k.options.Keys, KeyFrequency) }

// OfMemory reports whether any key uses the memory that claimants hold.
func (k *Keys) OfMemory() bool { return k.held() != [attribution.Weights]bool{} }

// held marks the weights of memory.
func (k *Keys) held() (held [attribution.Weights]bool) {
	for i := range k.weights {
		held[i] = k.weights[i].held
	}
	return held
}

// open opens the Weighers that are not open yet.
func (k *Keys) open(now time.Time) {
	if now.Before(k.retry) {
		return
	}
	k.retry = now.Add(reopenAfter)
	for i := range k.weights {
		w := &k.weights[i]
		if w.weigher != nil {
			continue
		}
		found, ok := w.search.Run(func() openedWeigher { return k.openKey(w.name) })
		if !ok {
			found.err = errOpeningHangs
		}
		if found.err != nil {
			w.refused = fmt.Errorf("CPU time is used instead: %w", found.err)
			continue
		}
		w.weigher, w.refused = found.weigher, nil
		k.selected = append(k.selected, Selection{Key: w.name, By: k.nameOf(found.weigher)})
	}
}

// nameOf returns the name of a Weigher, with the cache whose misses are counted.
func (k *Keys) nameOf(w Weigher) string {
	return strings.Replace(w.Name(), "cache misses", cmp.Or(k.options.Cache, "cache")+" misses", 1)
}

// openedWeigher holds the results of Open.
type openedWeigher struct {
	weigher Weigher
	err     error
}

func (k *Keys) openKey(key Key) (found openedWeigher) {
	found.weigher, found.err = k.options.Open(key, &k.options)
	return found
}

func (o openedWeigher) drop() {
	if o.err == nil {
		_ = o.weigher.Close() // it was only opened for reading
	}
}

var errOpeningHangs = errors.New("opening its counters hangs: a process may block a directory below /sys/devices")

// Selected returns the keys whose measurement began since the last call.
func (k *Keys) Selected() (selected []Selection) {
	selected, k.selected = k.selected, nil
	return selected
}

// Failed calls yield with each key that was not measured in the last interval, or not of all
// claims, and why.
func (k *Keys) Failed() iter.Seq2[Key, error] {
	return func(yield func(Key, error) bool) {
		for i := range k.weights {
			if w := &k.weights[i]; w.failed != nil && !yield(w.name, w.failed) {
				return
			}
		}
	}
}

// Models returns the power models that are fitted, by their key. They are used from the first
// window that is weighed.
func (k *Keys) Models() map[Key]*ridge.Model { return k.options.models }

// Close closes the Weighers.
func (k *Keys) Close() error {
	var errs []error
	for i := range k.weights {
		k.weights[i].search.Close()
		if w := k.weights[i].weigher; w != nil {
			errs = append(errs, w.Close())
		}
	}
	return errors.Join(errs...)
}

// discounted marks the weights that are CPU time with the discount of cores.
func (k *Keys) discounted() (discounted [attribution.Weights]bool) {
	for i := range k.weights {
		discounted[i] = k.weights[i].name == KeyCPUTime || k.weights[i].name == KeyFrequency
	}
	return discounted
}

// weigh sets the weights of all rows, and marks the weights that have no data.
func (k *Keys) weigh(t *table, m *Measurement) {
	k.open(m.ReadAt)
	for i := range t.rows {
		t.shares = append(t.shares, &t.rows[i].Share)
	}
	for i := range k.weights {
		by := &k.weights[i]
		if by.weigher == nil {
			t.node.Unweighed[i], by.failed = true, by.refused
			continue
		}
		if c, ok := by.weigher.(calibrator); ok && by.fitted != "" {
			total, at := measuredEnergy(m.Readings, by.fitted)
			changed := by.changeZones(m.Readings)
			c.Calibrate(total, len(by.zones), at, m.Table.Counting.Trainable)
			if changed {
				by.weigher.Forget() // the totals before and now are of different zones
			}
		}
		measured, err := by.weigher.Weigh(m.ReadAt, t.shares)
		by.failed = err
		t.node.Unweighed[i] = t.node.Unweighed[i] || !measured
		for r := range t.rows {
			t.rows[r].weights[i] = t.rows[r].Work
		}
	}
}

// measuredEnergy returns the measured energy of the zones of a kind, and the time until which the
// energy of all of them was read. The time is zero if there is no zone of the kind, or one was
// never read.
func measuredEnergy(readings []power.Reading, kind power.Kind) (total units.Energy, at time.Time) {
	zones := 0
	for i := range readings {
		r := &readings[i]
		if r.Zone.Kind != kind || r.Zone.Method != power.Measured {
			continue
		}
		if total += r.Total; zones == 0 || r.At.Before(at) {
			at = r.At
		}
		zones++
	}
	return total, at
}

// changeZones notes the measured zones that the key is fitted to, and reports whether they changed.
func (w *weight) changeZones(readings []power.Reading) (changed bool) {
	n := 0
	for i := range readings {
		z := readings[i].Zone
		if z.Kind != w.fitted || z.Method != power.Measured {
			continue
		}
		if n == len(w.zones) {
			w.zones, changed = append(w.zones, z.ID), true
		}
		changed = changed || w.zones[n] != z.ID
		w.zones[n] = z.ID
		n++
	}
	changed = changed || n < len(w.zones)
	w.zones = w.zones[:n]
	return changed
}

// forgetWork makes the Weighers discard the work before the baseline.
func (k *Keys) forgetWork() {
	for i := range k.weights {
		if m := k.weights[i].weigher; m != nil {
			m.Forget()
		}
	}
}
