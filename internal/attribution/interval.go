// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Interval holds the meter readings of the node, and the usage of its hardware by claimants, since
// the previous interval.
//
// The zero Interval is valid: no time passed, and there is no usage and no zone. A Sharer
// keeps no part of an Interval, so that its slices can be filled again for the next one.
type Interval struct {
	// At is the end of the interval. Series that begin in it start no later.
	At time.Time
	// Elapsed is the length of the interval by a clock that does not step.
	Elapsed time.Duration
	// Resolution is the granularity of the CPU times of claims, 0 if they are exact.
	Resolution units.CPUTime
	// Domains lists the usage of each domain. An index means the same domain in all intervals; the
	// list may grow. Index 0 is the node's CPUs: only its claims add to the CPU time of accounts,
	// and its utilization is Shares.Node.
	Domains []Usage
	// Zones lists a reading of every zone. A missing zone has ended or is absent, and its deferred
	// energy is attributed now. If the zone returns, the energy since its last reading is
	// attributed by the CPU time since that reading.
	Zones []ZoneReading
	// EndsCollection reports whether the ledger is emitted after this interval. If the number of
	// series is limited, the largest users then get the series.
	EndsCollection bool
}

// Usage is the use of a domain during an interval, with the claims of its users.
//
// The zero Usage is for a domain whose utilization could not be read. The energy of the domain is
// deferred until an interval with a Total.
type Usage struct {
	// Busy and Total are the CPU time of the domain, summed over its CPUs. Total is busy, idle and
	// waiting for I/O. Busy above Total counts as Total. In the domain of a GPU, Busy, Total and
	// the times of claims are GPU time.
	Busy, Total units.CPUTime
	// Assumed reports whether Busy and Total are assumed, because no counter shows the utilization
	// of the hardware. Shares.Domains omits them, and static power models are not trained on them.
	Assumed bool
	// Claims lists each claimant's usage of the domain. A claimant may have several claims.
	Claims []Claim
	// IdleAmongClaims restricts idle energy that is not shared by use to the claimants that have a
	// claim. On a GPU, these are the processes that have the GPU open, whether or not they used it.
	// The claims may add up to more than Busy, because several engines of a GPU can work at once.
	IdleAmongClaims bool
	// Unattributed is the CPU time of processes that cannot be named, and of interrupts if these
	// have no owner. Its energy is unattributed. Under other attribution weights, it has the
	// average weight of claimed CPU time.
	Unattributed units.CPUTime
	// Weightless is the part of Unattributed without an attribution weight: interrupts hold
	// no memory.
	Weightless [Weights]units.CPUTime
	// Averages are the average weights for Unattributed, if the weights of the domain's claims do
	// not depend on the CPU time in the domain. Otherwise the average of the claims is used.
	Averages [Weights]Average
	// Unweighed marks weights that have no data for this interval. A Sharer then falls back to CPU
	// time, also for all other intervals that the deferred energy of a zone covers.
	Unweighed [Weights]bool
}

// Average is the attribution weight of claimed CPU time. The zero Average is not set.
type Average struct {
	Weight uint64
	CPU    units.CPUTime
}

// NotAttributed is the kind of a zone that is reported but not shared.
const NotAttributed = -1

// ZoneReading is the counter of one zone at the end of an interval.
type ZoneReading struct {
	// Zone is the index of the zone, the same in each interval. It counts from 0.
	Zone int
	// Domain is the index in Interval.Domains of the hardware that the zone measures. An index out
	// of range means the zero Usage.
	Domain int
	// Kind is the index in Shares.Kinds of the zone's kind, below MaxKinds, or NotAttributed.
	//
	// Domain and Kind may change, for example if a zone that replaced other zones is no longer
	// needed. The energy until the first good reading with the new values is attributed with the
	// previous values.
	Kind int
	// Total is the energy that the zone has counted. It never decreases.
	Total units.Energy
	// OK reports whether Total was updated since the previous interval. If false, the zone's energy
	// is deferred, together with the usage of its domain, until the next reading that is OK. Total
	// may nevertheless have grown in a window without an interval, because the CPU time of the
	// window could not be read.
	OK bool
	// Age is the time from the end of Total's energy to the end of the interval, from 0 to a few
	// minutes. It is 0 for a counter that is read at the end of the interval. For other meters, it
	// is the age of the reading plus the lag of the meter. The energy between two readings is
	// attributed by the usage between the ends of their energy. Age is ignored if the reading is
	// not OK.
	Age time.Duration
	// Unmeasured is the part of the time since the previous reading that the meter did not measure.
	// No energy was counted in this part, so no static energy is subtracted for it.
	Unmeasured time.Duration
	// Replaced reports whether the meter of the zone has changed, so that Total does not continue the
	// previous totals. The deferred energy of the previous meter is attributed, and the first reading
	// that is OK is the new baseline. The totals of the zone in the ledger continue.
	Replaced bool
}

// Claim is one claimant's usage of a domain in an interval.
type Claim struct {
	// Claimant used the domain; it may be NoClaimant.
	Claimant Claimant
	// ShortLived reports whether the usage belongs to short-lived processes in the claimant's
	// workload, such as its children, and not to the claimant itself.
	ShortLived bool
	// CPU is the time that was used, of the domain's hardware.
	CPU units.CPUTime
	// Weights are the claim's attribution weights other than CPU time: work, or memory times
	// duration. The unit of each weight is the same in all intervals. A claim may have a weight
	// without CPU time. A claim without weight and CPU time has no share of active energy.
	Weights [Weights]uint64
}

// empty reports whether the claim has no attribution weight at all.
func (c *Claim) empty() bool { return c.CPU == 0 && c.Weights == [Weights]uint64{} }

// add adds another claim of the same claimant.
func (c *Claim) add(o *Claim) {
	c.CPU = units.AddSaturating(c.CPU, o.CPU)
	for i, weight := range o.Weights {
		c.Weights[i] = units.AddSaturating(c.Weights[i], weight)
	}
}

// weight returns an attribution weight of the claim.
func (c *Claim) weight(k Weight) uint64 {
	if k == ByCPUTime {
		return uint64(c.CPU)
	}
	return c.Weights[k-ByFirstWeight]
}

// Claimant identifies a claimant of usage: a process while it runs one program in one container, or
// processes of a container that are not identified. It is valid from Sharer.Open to Sharer.Close.
// Its number is reused.
type Claimant int32

// NoClaimant claims the usage of short-lived processes that belong to no container.
const NoClaimant Claimant = -1

// usage returns the usage of a domain, which must not be changed.
func (iv *Interval) usage(domain int) *Usage {
	if domain < 0 || domain >= len(iv.Domains) {
		return &unknown
	}
	return &iv.Domains[domain]
}

// unknown is the usage of a domain that is missing in an interval.
var unknown Usage
