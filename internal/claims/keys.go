// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/weigh"
)

// Key is an allocation key: what a claimant's share of active energy is in proportion to.
type Key string

// The allocation keys.
const (
	KeyCPUTime       Key = "cpu_time"
	KeyFrequency     Key = "frequency" // CPU time, weighted by clock rate
	KeyCycles        Key = "cycles"
	KeyInstructions  Key = "instructions"
	KeyCacheMisses   Key = "cache_misses"
	KeyMemory        Key = "memory"          // held, by who runs and who sleeps
	KeyMemoryCPUTime Key = "memory_cpu_time" // CPU time, weighted by the memory that is held
)

// AllKeys are all allocation keys.
var AllKeys = []Key{
	KeyCPUTime, KeyFrequency, KeyCycles, KeyInstructions, KeyCacheMisses, KeyMemory, KeyMemoryCPUTime,
}

// KeyOptions are what Keys measures, and how.
type KeyOptions struct {
	// Root is the root of the host's file system.
	Root string
	// Keys are the keys beside CPU time, the one of the engine's first weight first.
	Keys []Key
	// FrequencyExponent is the power of the clock rate, 1 to 3, that KeyFrequency weights CPU time by.
	FrequencyExponent int
	// CgroupMemory says that the memory that a container holds is what its cgroup is charged with, and not what its
	// processes have resident.
	CgroupMemory bool
	// Open takes the place of OpenWeigher where it is not nil.
	Open func(Key, *KeyOptions) (w Weigher, rejected, err error)
}

// A Weigher measures the work that was done in CPU time, as *weigh.Meter does.
type Weigher interface {
	Weigh(time.Time, []weigh.Share) (measured bool, err error)
	Forget()
	Name() string
	Close() error
}

// OpenWeigher opens what measures a key. rejected is why it is not the best there is.
func OpenWeigher(key Key, o *KeyOptions) (w Weigher, rejected, err error) {
	if key == KeyFrequency {
		return weigh.NewClock(o.Root, o.FrequencyExponent)
	}
	w, err = weigh.NewCounters(o.Root, weigh.Event(key))
	return w, nil, err
}

// Selection is a key that is measured from now on.
type Selection struct {
	Key      Key
	By       string // what measures it
	Rejected error  // why nothing better does, if anything would
}

// Keys weighs claims by what energy is shared by beside CPU time. A nil Keys weighs nothing.
type Keys struct {
	options  KeyOptions
	selected []Selection // since Selected told
	weights  []weight
	retry    time.Time
	sizes    *containerSizes // nil: what is resident is the size
	// sleepers says that those who sleep count: they hold memory, or a part of their container's.
	sleepers bool

	// Of the interval's claims, each:
	shares  []weigh.Share
	origins []origin
}

// weight is one of the engine's weights.
type weight struct {
	key     Key
	weigher Weigher // nil for those of memory, and where there is none
	refused error   // why there is none
	failed  error   // what was not known of it in the interval
}

// origin is where a claim comes from.
type origin struct {
	cpu      int32          // where it ran last, or who stands for it; below 0 where that is not known
	cgroup   string         // of its container, if it is in one
	seen     bool           // it is a process that a pass has seen
	resident uint64         // bytes
	held     time.Duration  // in the interval
	in       *containerSize // nil where that is not asked for, and outside of containers
}

// reopenAfter is how long a key that cannot be measured is left alone.
const reopenAfter = time.Minute

// NewKeys returns nil where CPU time is the only key. It opens nothing.
func NewKeys(options KeyOptions) *Keys {
	if len(options.Keys) == 0 {
		return nil
	}
	k := &Keys{options: options}
	if k.options.Open == nil {
		k.options.Open = OpenWeigher
	}
	for _, key := range options.Keys {
		k.weights = append(k.weights, weight{key: key})
		if (key == KeyMemory || key == KeyMemoryCPUTime) && options.CgroupMemory && k.sizes == nil {
			k.sizes = newContainerSizes(options.Root)
		}
		k.sleepers = k.sleepers || key == KeyMemory || k.sizes != nil
	}
	return k
}

// Sleepers reports whether processes claim though they did not run: they hold memory, or a part of their container's.
// Keys needs the sizes of processes then.
func (k *Keys) Sleepers() bool { return k != nil && k.sleepers }

// open opens what is not open yet.
func (k *Keys) open(now time.Time) {
	if now.Before(k.retry) {
		return
	}
	k.retry = now.Add(reopenAfter)
	for i := range k.weights {
		w := &k.weights[i]
		if w.weigher != nil || w.key == KeyMemory || w.key == KeyMemoryCPUTime {
			continue
		}
		opened, rejected, err := k.options.Open(w.key, &k.options)
		if err != nil {
			w.refused = fmt.Errorf("CPU time stands in: %w", err)
			continue
		}
		w.weigher, w.refused = opened, nil
		k.selected = append(k.selected, Selection{Key: w.key, By: opened.Name(), Rejected: rejected})
	}
}

// Selected returns the keys that are measured since the last call and were not before.
func (k *Keys) Selected() (selected []Selection) {
	if k == nil {
		return nil
	}
	selected, k.selected = k.selected, nil
	return selected
}

// Failed calls yield with each key that was not measured in the last interval, or not of all claims, and why.
func (k *Keys) Failed() iter.Seq2[Key, error] {
	return func(yield func(Key, error) bool) {
		if k == nil {
			return
		}
		for i := range k.weights {
			if w := &k.weights[i]; w.failed != nil && !yield(w.key, w.failed) {
				return
			}
		}
	}
}

// Close closes what measures the keys.
func (k *Keys) Close() error {
	if k == nil {
		return nil
	}
	var errs []error
	for i := range k.weights {
		if w := k.weights[i].weigher; w != nil {
			errs = append(errs, w.Close())
		}
	}
	if k.sizes != nil {
		errs = append(errs, k.sizes.close())
	}
	return errors.Join(errs...)
}

// readCgroups reports whether any key is measured by containers' cgroups.
func (k *Keys) readCgroups() bool {
	return k != nil && (k.sizes != nil || slices.ContainsFunc(k.weights, func(w weight) bool {
		return w.key == KeyCycles || w.key == KeyInstructions || w.key == KeyCacheMisses
	}))
}

// begin starts an interval.
func (k *Keys) begin() {
	if k != nil {
		k.shares, k.origins = k.shares[:0], k.origins[:0]
	}
}

// compact gives back the memory that was needed for more claims.
func (k *Keys) compact() {
	if k != nil {
		k.shares, k.origins = nil, nil
	}
}

// claimed says where the next claim comes from.
func (k *Keys) claimed(o origin) {
	if k.sizes != nil && o.cgroup != "" && o.seen {
		o.in = k.sizes.of(o.cgroup)
	}
	k.shares = append(k.shares, weigh.Share{LastCPU: o.cpu, Cgroup: o.cgroup})
	k.origins = append(k.origins, o)
}

// weigh sets the weights of an interval's claims, and returns those of which nothing is known.
func (k *Keys) weigh(now time.Time, claims []attribution.Claim) (unweighed [attribution.Weights]bool) {
	if k == nil {
		return unweighed
	}
	k.open(now)
	for i := range k.weights {
		w := &k.weights[i]
		switch {
		case w.key == KeyMemory || w.key == KeyMemoryCPUTime:
			k.weighMemory(i, now, claims)
			if k.sizes != nil {
				w.failed = k.sizes.trouble()
			}
		case w.weigher == nil:
			unweighed[i], w.failed = true, w.refused
		default:
			for c := range claims {
				k.shares[c].CPU = claims[c].CPU
			}
			measured, err := w.weigher.Weigh(now, k.shares)
			unweighed[i], w.failed = !measured, err
			for c := range claims {
				claims[c].Weights[i] = k.shares[c].Work
			}
		}
	}
	return unweighed
}

// forgetWork says that what was done until now is nobody's.
func (k *Keys) forgetWork() {
	if k == nil {
		return
	}
	for i := range k.weights {
		if m := k.weights[i].weigher; m != nil {
			m.Forget()
		}
	}
}

// The units of memory's weights: small enough for what runs in days on machines of any size.
const (
	memoryUnit = 4096 // bytes
	heldUnit   = time.Millisecond
	ranUnit    = time.Microsecond
)

// weighMemory weighs claims by the memory that they hold: for how long, or for how much CPU time. What nobody saw holds
// nothing for any length of time, and what the others do on average while it ran.
func (k *Keys) weighMemory(i int, now time.Time, claims []attribution.Claim) {
	if k.sizes != nil {
		k.sizes.begin(now)
		for c := range k.origins {
			if o := &k.origins[c]; o.in != nil {
				o.in.resident += o.resident
				k.sizes.read(o.in)
			}
		}
		k.sizes.finish()
	}
	byCPUTime := k.weights[i].key == KeyMemoryCPUTime
	var sum, cpu uint64
	for c := range claims {
		o := &k.origins[c]
		if !o.seen {
			claims[c].Weights[i] = 0
			continue
		}
		bytes := o.resident
		if o.in != nil && o.in.ok {
			bytes = o.in.part(o.resident)
		}
		ran := uint64(claims[c].CPU) / uint64(ranUnit)
		factor := uint64(max(o.held, 0) / heldUnit)
		if byCPUTime {
			factor = ran
		}
		weight := units.MulDiv(bytes/memoryUnit, factor, 1)
		sum, cpu = units.AddSaturating(sum, weight), units.AddSaturating(cpu, ran)
		claims[c].Weights[i] = weight
	}
	if !byCPUTime {
		return
	}
	for c := range claims {
		if !k.origins[c].seen {
			claims[c].Weights[i] = units.MulDiv(uint64(claims[c].CPU)/uint64(ranUnit), sum, cpu)
		}
	}
}
