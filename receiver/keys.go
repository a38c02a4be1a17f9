// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/cgroup"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// KeyRule is a value of the setting attribution::key.
type KeyRule = claims.Key

// The keys.
const (
	KeyCPUTime       = claims.KeyCPUTime
	KeyFrequency     = claims.KeyFrequency
	KeyCycles        = claims.KeyCycles
	KeyInstructions  = claims.KeyInstructions
	KeyCacheMisses   = claims.KeyCacheMisses
	KeyMemory        = claims.KeyMemory
	KeyMemoryCPUTime = claims.KeyMemoryCPUTime
)

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
		oneOf(wrong, "attribution::key", c.Key, claims.AllKeys...)
	}
	for kind := range c.Keys {
		oneOf(wrong, "attribution::keys", kind, power.Kinds...)
	}
	for _, kind := range power.Kinds {
		if key, ok := c.Keys[kind]; ok {
			oneOf(wrong, "attribution::keys::"+string(kind), key, claims.AllKeys...)
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
func (c *AttributionConfig) engineKey(kind power.Kind, zones []power.Kind) attribution.AllocationKey {
	if i := slices.Index(c.weighed(zones), c.keyOf(kind)); i >= 0 {
		return attribution.ByFirstWeight + attribution.AllocationKey(i)
	}
	return attribution.ByCPUTime
}

// keyOptions returns what weighs claims.
func (c *Config) keyOptions(cgroups *cgroup.Tree) claims.KeyOptions {
	return claims.KeyOptions{
		Cgroups: cgroups, Keys: c.Attribution.weighed(c.Zones), FrequencyExponent: c.Attribution.FrequencyExponent,
		CgroupMemory: c.Attribution.MemorySize == MemoryCgroup,
	}
}
