// SPDX-License-Identifier: Apache-2.0

// Package catalog estimates power curves from the hardware of a machine. Its lists contain measured
// curves of a few CPUs, the thermal design power (TDP) and family of a few thousand CPUs, and the
// CPUs of cloud instance types. The lists are embedded, and each names its source and license.
package catalog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// Options configure the curves.
type Options struct {
	// Kinds are the zone kinds to model: power.Package, power.DRAM and power.Platform, in this
	// order. Other kinds are ignored.
	Kinds []power.Kind
	// WithoutIdle excludes the host's idle power from the curves of a virtual machine, so that they
	// have only its dynamic power.
	WithoutIdle bool
	// MemoryPower is the power of memory in watts per GiB, at any load. 0 selects the power in the
	// catalog.
	MemoryPower float64
}

// The largest machine that Curves accepts.
const (
	maxThreads = 1 << 16
	maxMemory  = 1 << 50 // bytes
)

// Curves returns the curves of the machine. The error lists the zone kinds without a curve, and the
// reasons. All other curves are returned.
//
// The power of a package comes from the first available source of these:
//
//  1. the measured curve of the CPU model
//  2. the TDP of the CPU model
//  3. the TDP of the CPU family
//  4. the TDP of all servers
//
// The share of a virtual machine in the host's power is the share of its CPUs in the host's threads.
func Curves(m machine.Machine, o Options) ([]model.ZoneCurve, error) {
	if m.Threads < 1 || m.Threads > maxThreads {
		return nil, fmt.Errorf("the machine has %d CPUs", m.Threads)
	}
	h := find(m)
	var curves []model.ZoneCurve
	var errs []error
	for _, entry := range []struct {
		kind  power.Kind
		curve func(Options) (model.ZoneCurve, error)
	}{{power.Package, h.packages}, {power.DRAM, h.memory}, {power.Platform, h.platform}} {
		if !slices.Contains(o.Kinds, entry.kind) {
			continue
		}
		curve, err := entry.curve(o)
		if err != nil {
			errs = append(errs, fmt.Errorf("no power model of %s: %w", entry.kind, err))
			continue
		}
		curve.Kind = entry.kind
		curves = append(curves, curve)
	}
	return curves, errors.Join(errs...)
}

// host is a machine and its entries in the lists. For a virtual machine they describe its host.
type host struct {
	machine.Machine
	measured *measuredMachine // nil unless the CPU model was measured
	cpu      cpu              // zero if not listed
	family   string           // empty if not available
	typical  perCore          // typical CPU of the family, or of all servers
	threads  int              // threads of one chip, estimated if neither its cores nor the host's threads are listed
	guessed  bool             // threads is estimated from the TDP alone
	// all is the number of threads of a virtual machine's host, or 0 if not available.
	all int
}

// find looks up the machine in the lists.
func find(m machine.Machine) host {
	h := host{Machine: m}
	instance, its := h.instanceType()
	h.measured, h.cpu = lookupMeasured(m.CPU), lookupCPU(m.CPU)
	if h.cpu.tdp == 0 && its.tdp > 0 {
		h.measured, h.cpu = lookupMeasured(instance.cpu), its
	}
	h.family = h.cpu.family
	if h.family == "" {
		h.family = familyOf(m, instance.cpu)
	}
	h.typical = typicalCore(h.family)
	h.threads = h.threadsOfChip(instance.hostThreads)
	if h.Virtual && instance.hostThreads >= max(m.Threads, h.threads) {
		h.all = instance.hostThreads
	}
	return h
}

// instanceType returns the machine's instance type in its cloud, and the CPU that is listed for the
// type. The cpu is zero if the machine reports a CPU of another family, because a type may run on
// several CPUs.
func (h *host) instanceType() (instance, cpu) {
	i := lookupInstance(h.Cloud, h.Instance)
	its := lookupCPU(i.cpu)
	if own := familyOf(h.Machine, ""); own != "" && its.family != "" && own != its.family {
		its = cpu{}
	}
	if h.hasWholeCores() {
		i.hostThreads = 0 // the list counts two threads per core
	}
	return i, its
}

// threadsOfChip returns the number of threads of one chip, or 0 if the CPU is not listed. If the
// list lacks the number of cores, it is estimated as the TDP of the chip over the TDP of a core of
// the family. If the host's threads are listed, the estimate is adjusted so that the host has a
// whole number of chips.
func (h *host) threadsOfChip(ofHost int) int {
	switch {
	case h.cpu.tdp == 0:
		return 0
	case h.cpu.cores > 0:
		return h.cpu.cores * h.threadsPerCore()
	}
	estimate := max(1, int(h.cpu.tdp/h.typical.watts+0.5)*h.threadsPerCore())
	if ofHost > 0 {
		return ofHost / max(1, (ofHost+estimate/2)/estimate)
	}
	h.guessed = true
	return estimate
}

// chips returns the number of chips whose power the machine has. A virtual machine can have a
// fraction of a chip.
func (h *host) chips(threadsOfChip int) float64 {
	if h.Virtual {
		return float64(h.Threads) / float64(threadsOfChip)
	}
	return float64(h.sockets())
}

// sockets returns the number of the machine's sockets, or 1 if not available.
func (h *host) sockets() int { return min(max(1, h.Sockets), h.Threads) }

// part describes the share of its host that a virtual machine has, or the chips of the machine. It
// is a part of the basis.
func (h *host) part(threadsOfChip int, o Options) string {
	if !h.Virtual {
		return ", " + plural(h.sockets(), "chip")
	}
	noun := "thread"
	if h.hasWholeCores() {
		noun = "core"
	}
	text := ", " + plural(h.Threads, noun)
	switch {
	case h.all > 0:
		text = fmt.Sprintf(", %d of %d threads of the host", h.Threads, h.all)
	case threadsOfChip > 0:
		about := ""
		if h.guessed && threadsOfChip == h.threads {
			about = "about "
		}
		text += fmt.Sprintf(" (a chip has %s%d)", about, threadsOfChip)
	}
	return text + withoutIdle(o)
}

func withoutIdle(o Options) string {
	if o.WithoutIdle {
		return ", without idle power"
	}
	return ""
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// packages returns the curve of all sockets of the machine together.
func (h *host) packages(o Options) (model.ZoneCurve, error) {
	z := model.ZoneCurve{ExpectedError: h.errorOfPart(h.packageError())}
	var watts func(u float64) float64
	const shape = "shape of server CPUs"
	switch {
	case h.measured != nil:
		threads := h.measured.threads / h.measured.chips * h.threadsPerCore() / 2 // two threads per core were used
		watts = scaled(h.measured.curve(), h.chips(threads)/float64(h.measured.chips))
		z.Basis = h.measured.cpu + ": measured" + h.part(threads, o)
	case h.cpu.tdp > 0:
		watts = scaled(reference(""), h.cpu.tdp*h.chips(h.threads))
		z.Basis = fmt.Sprintf("%s: TDP %g W, %s%s", h.cpu.name, h.cpu.tdp, shape, h.part(h.threads, o))
	default:
		watts = scaled(reference(""), h.typical.watts*h.cores())
		z.Basis = fmt.Sprintf("%s: TDP of %.2g W a core, %s", h.typical.name, h.typical.watts, shape)
		if h.Virtual {
			z.Basis += h.part(0, o)
		} else {
			z.Basis += fmt.Sprintf(", %.3g cores", h.cores())
		}
	}
	var err error
	z.Curve, err = h.finish(watts, o)
	return z, err
}

// cores returns the number of cores of a machine whose CPU is not listed. For a virtual machine it
// is the number of host cores that its threads correspond to.
func (h *host) cores() float64 {
	if !h.Virtual && h.Cores > 0 && h.Cores <= h.Threads {
		return float64(h.Cores)
	}
	return float64(h.Threads) / float64(h.threadsPerCore())
}

// finish applies the options to a curve and samples it.
func (h *host) finish(watts func(u float64) float64, o Options) (model.Curve, error) {
	var off float64
	if h.Virtual && o.WithoutIdle {
		off = watts(0)
	}
	return sample(func(u float64) float64 { return max(0, watts(u)-off) })
}

// memory returns the curve of all memory of the machine.
func (h *host) memory(o Options) (model.ZoneCurve, error) {
	switch {
	case h.Memory == 0:
		return model.ZoneCurve{}, errors.New("the size of the memory is not available")
	case h.Memory > maxMemory:
		return model.ZoneCurve{}, fmt.Errorf("the machine has %d bytes of memory", h.Memory)
	}
	if o.MemoryPower > 0 {
		return Memory(h.Memory, o.MemoryPower)
	}
	gib := float64(h.Memory) / (1 << 30)
	curve, err := h.finish(scaled(memoryReference(""), gib), o)
	z := model.ZoneCurve{
		Curve: curve, ExpectedError: memoryError,
		Basis: fmt.Sprintf("%.3g GiB of memory of servers with DDR4", gib),
	}
	if h.Virtual {
		z.Basis += withoutIdle(o)
	}
	return z, err
}

// Memory returns a constant curve for memory with a power of wattsPerGiB.
func Memory(bytes uint64, wattsPerGiB float64) (model.ZoneCurve, error) {
	curve, err := model.NewCurve([]model.Point{{Watts: float64(bytes) / (1 << 30) * wattsPerGiB}})
	return model.ZoneCurve{Kind: power.DRAM, Curve: curve}, err
}

// platform returns the curve of the whole machine at the wall.
func (h *host) platform(o Options) (model.ZoneCurve, error) {
	s := lookupSystems(h.family)
	threads, chips := s.threads, float64(h.Threads)/float64(s.threads)
	part := ", " + plural(h.Threads, "thread")
	if s.listed {
		if h.cpu.cores > 0 {
			threads = h.threads
		}
		chips, part = h.chips(threads), h.part(threads, o)
	}
	curve, err := Between(s.idle*chips, s.full*chips, DefaultShape)
	if err != nil {
		return model.ZoneCurve{}, err
	}
	z := model.ZoneCurve{ExpectedError: h.errorOfPart(s.spread), Basis: s.name + ": whole systems at the wall (SPECpower)" + part}
	z.Curve, err = h.finish(curve.Watts, o)
	return z, err
}
