// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/weigh"
)

// KeyRule is a value of the setting attribution::key.
type KeyRule string

// The keys.
const (
	KeyCPUTime       KeyRule = "cpu_time"
	KeyFrequency     KeyRule = "frequency" // CPU time, weighted by clock rate
	KeyCycles        KeyRule = "cycles"
	KeyInstructions  KeyRule = "instructions"
	KeyCacheMisses   KeyRule = "cache_misses"
	KeyMemory        KeyRule = "memory"          // held, by who runs and who sleeps
	KeyMemoryCPUTime KeyRule = "memory_cpu_time" // CPU time, weighted by the memory that is held
)

var keyRules = []KeyRule{
	KeyCPUTime, KeyFrequency, KeyCycles, KeyInstructions, KeyCacheMisses, KeyMemory, KeyMemoryCPUTime,
}

// MemorySize is a value of the setting attribution::memory_size.
type MemorySize string

// What counts as the memory that a container holds.
const (
	MemoryResident MemorySize = "resident" // what its processes have resident, shared memory once for each
	MemoryCgroup   MemorySize = "cgroup"   // what its cgroup is charged with, caches of files too
)

// keyOf is the key of a kind of zones.
func (c *AttributionConfig) keyOf(kind power.Kind) KeyRule {
	if key, ok := c.Keys[kind]; ok {
		return key
	}
	if c.Key != "" {
		return c.Key
	}
	return KeyCPUTime
}

func (c *AttributionConfig) validateKeys(wrong func(field, format string, args ...any), zones []power.Kind) {
	if c.Key != "" {
		oneOf(wrong, "attribution::key", c.Key, keyRules...)
	}
	for kind := range c.Keys {
		oneOf(wrong, "attribution::keys", kind, power.Kinds...)
	}
	for _, kind := range power.Kinds {
		if key, ok := c.Keys[kind]; ok {
			oneOf(wrong, "attribution::keys::"+string(kind), key, keyRules...)
		}
	}
	if weighed := c.weighed(zones); len(weighed) > attribution.Weights {
		wrong("attribution::keys", "may have at most %d different ones beside %s, has %s", attribution.Weights, KeyCPUTime, join(weighed))
	}
	if n := c.FrequencyExponent; n < 1 || n > 3 {
		wrong("attribution::frequency_exponent", "must be 1, 2 or 3, is %d", n)
	}
	oneOf(wrong, "attribution::memory_size", c.MemorySize, MemoryResident, MemoryCgroup)
}

// weighed are the keys of these zones beside CPU time, the first of the engine's weights first.
func (c *AttributionConfig) weighed(zones []power.Kind) (weighed []KeyRule) {
	for _, kind := range zones {
		if key := c.keyOf(kind); key != KeyCPUTime && !slices.Contains(weighed, key) {
			weighed = append(weighed, key)
		}
	}
	return weighed
}

// engineKey is how the engine names the key of a kind of zones.
func (c *AttributionConfig) engineKey(kind power.Kind, zones []power.Kind) attribution.Key {
	if i := slices.Index(c.weighed(zones), c.keyOf(kind)); i >= 0 {
		return attribution.ByFirstWeight + attribution.Key(i)
	}
	return attribution.ByCPUTime
}

// keys weighs claims by what energy is shared by beside CPU time.
type keys struct {
	cfg     *Config
	logger  *zap.Logger
	weights []weight
	retry   time.Time
	sizes   *containerSizes // nil: what is resident is the size
	// sleepers says that those who sleep count: they hold memory, or a part of their container's.
	sleepers bool

	// Of the interval's claims, each:
	shares  []weigh.Share
	origins []origin
}

// meter is a *weigh.Meter, or a test's.
type meter interface {
	Weigh(time.Time, []weigh.Share) (measured bool, err error)
	Forget()
	Name() string
	Close() error
}

// weight is one of the engine's weights.
type weight struct {
	key     KeyRule
	what    string // fails, for the log
	meter   meter  // nil for those of memory, and where there is none
	refused error  // why there is none
	failed  error  // what was not known of it in the interval
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

// newKeys returns nil where CPU time is the only key.
func newKeys(cfg *Config, logger *zap.Logger) *keys {
	k := &keys{cfg: cfg, logger: logger}
	for _, key := range cfg.Attribution.weighed(cfg.Zones) {
		k.weights = append(k.weights, weight{key: key, what: "key " + string(key)})
		if (key == KeyMemory || key == KeyMemoryCPUTime) && cfg.Attribution.MemorySize == MemoryCgroup && k.sizes == nil {
			k.sizes = newContainerSizes(cfg.RootPath)
		}
		k.sleepers = k.sleepers || key == KeyMemory || k.sizes != nil
	}
	if k.weights == nil {
		return nil
	}
	return k
}

// open opens what is not open yet.
func (k *keys) open(now time.Time) {
	if now.Before(k.retry) {
		return
	}
	k.retry = now.Add(reopenAfter)
	for i := range k.weights {
		w := &k.weights[i]
		if w.meter != nil {
			continue
		}
		var opened *weigh.Meter
		var rejected, err error
		switch w.key {
		case KeyMemory, KeyMemoryCPUTime:
			continue
		case KeyFrequency:
			opened, rejected, err = weigh.NewClock(k.cfg.RootPath, k.cfg.Attribution.FrequencyExponent)
		default:
			opened, err = weigh.NewCounters(k.cfg.RootPath, weigh.Event(w.key))
		}
		if err != nil {
			w.refused = fmt.Errorf("CPU time stands in: %w", err)
			continue
		}
		w.meter, w.refused = opened, nil
		fields := []zap.Field{zap.String("key", string(w.key)), zap.String("by", w.meter.Name())}
		if rejected != nil {
			fields = append(fields, zap.NamedError("rejected", rejected))
		}
		k.logger.Info("Allocation key selected", fields...)
	}
}

// readCgroups says whether any key is measured by containers' cgroups.
func (k *keys) readCgroups() bool {
	return k.sizes != nil || slices.ContainsFunc(k.weights, func(w weight) bool {
		return w.key == KeyCycles || w.key == KeyInstructions || w.key == KeyCacheMisses
	})
}

// check tells of the keys that are not measured, or not of all.
func (k *keys) check(c *conditions) {
	for i := range k.weights {
		c.check(k.weights[i].what, k.weights[i].failed)
	}
}

func (k *keys) close() error {
	var errs []error
	for i := range k.weights {
		if m := k.weights[i].meter; m != nil {
			errs = append(errs, m.Close())
		}
	}
	if k.sizes != nil {
		errs = append(errs, k.sizes.close())
	}
	return errors.Join(errs...)
}

// begin starts an interval.
func (k *keys) begin() { k.shares, k.origins = k.shares[:0], k.origins[:0] }

// claimed says where the next claim comes from.
func (k *keys) claimed(o origin) {
	if k.sizes != nil && o.cgroup != "" && o.seen {
		o.in = k.sizes.of(o.cgroup)
	}
	k.shares = append(k.shares, weigh.Share{LastCPU: o.cpu, Cgroup: o.cgroup})
	k.origins = append(k.origins, o)
}

// weigh sets the weights of an interval's claims, and returns those of which nothing is known.
func (k *keys) weigh(now time.Time, claims []attribution.Claim) (unweighed [attribution.Weights]bool) {
	k.open(now)
	for i := range k.weights {
		w := &k.weights[i]
		switch {
		case w.key == KeyMemory || w.key == KeyMemoryCPUTime:
			k.weighMemory(i, now, claims)
			if k.sizes != nil {
				w.failed = k.sizes.trouble()
			}
		case w.meter == nil:
			unweighed[i], w.failed = true, w.refused
		default:
			for c := range claims {
				k.shares[c].CPU = claims[c].CPU
			}
			measured, err := w.meter.Weigh(now, k.shares)
			unweighed[i], w.failed = !measured, err
			for c := range claims {
				claims[c].Weights[i] = k.shares[c].Work
			}
		}
	}
	return unweighed
}

// forgetWork says that what was done until now is nobody's.
func (k *keys) forgetWork() {
	for i := range k.weights {
		if m := k.weights[i].meter; m != nil {
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
func (k *keys) weighMemory(i int, now time.Time, claims []attribution.Claim) {
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
