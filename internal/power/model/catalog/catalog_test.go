// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

var all = []power.Kind{power.Package, power.DRAM, power.Platform}

const gib = 1 << 30

func mustCurves(t testing.TB, m machine.Machine, o Options) []model.ZoneCurve {
	t.Helper()
	curves, err := Curves(m, o)
	require.NoError(t, err)
	return curves
}

// packagesCurve returns the curve of the packages only.
func packagesCurve(t testing.TB, m machine.Machine, o Options) model.ZoneCurve {
	t.Helper()
	o.Kinds = []power.Kind{power.Package}
	curves := mustCurves(t, m, o)
	require.Len(t, curves, 1)
	return curves[0]
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	assert.InEpsilon(t, want, got, 0.005, what)
}

// is asserts what a curve was made from, and its error.
func is(t *testing.T, c *model.ZoneCurve, basis string, expectedError float64) {
	t.Helper()
	assert.Equal(t, basis, c.Basis)
	assert.InDelta(t, expectedError, c.ExpectedError, 0)
}

// The machines of the tests, as package machine reads them.
var (
	m5large = machine.Machine{
		Arch: "amd64", CPU: "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", Vendor: "GenuineIntel", Family: 6, Model: 85, Stepping: 7,
		Threads: 2, Cores: 1, Sockets: 1, Memory: 8 * gib, Virtual: true, Cloud: "aws", Instance: "m5.large",
	}
	gold6230 = machine.Machine{
		Arch: "amd64", CPU: "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz", Vendor: "GenuineIntel", Family: 6, Model: 85, Stepping: 7,
		Threads: 80, Cores: 40, Sockets: 2, Memory: 192 * gib,
	}
	n2 = machine.Machine{
		Arch: "amd64", CPU: "Intel(R) Xeon(R) CPU @ 2.80GHz", Vendor: "GenuineIntel", Family: 6, Model: 85, Stepping: 7,
		Threads: 4, Cores: 2, Sockets: 1, Memory: 16 * gib, Virtual: true, Cloud: "gcp",
	}
)

func TestTheSameCPUHasItsMeasuredCurve(t *testing.T) {
	whole := m5large
	whole.Virtual, whole.Instance, whole.Threads, whole.Sockets = false, "", 96, 2
	c := packagesCurve(t, whole, Options{})
	for u, want := range map[float64]float64{0: 54.7, 0.3: 223.9, 1: 440.1} {
		near(t, "power", c.Curve.Watts(u), want)
	}
	is(t, &c, "Intel Xeon Platinum 8259CL: measured, 2 chips", model.SameCPUError)
	whole.Sockets, whole.Threads = 1, 48
	near(t, "power of one of the two chips", packagesCurve(t, whole, Options{}).Curve.Watts(1), 440.1/2)
}

func TestAVirtualMachineHasThePartOfItsThreads(t *testing.T) {
	c := packagesCurve(t, m5large, Options{})
	near(t, "idle power", c.Curve.Watts(0), 54.7*2/96)
	near(t, "full power", c.Curve.Watts(1), 440.1*2/96)
	assert.Equal(t, "Intel Xeon Platinum 8259CL: measured, 2 of 96 threads of the host", c.Basis)
	elsewhere := m5large
	elsewhere.Cloud, elsewhere.Instance = "", ""
	c = packagesCurve(t, elsewhere, Options{})
	near(t, "full power without an instance type", c.Curve.Watts(1), 440.1*2/96)
	assert.Equal(t, "Intel Xeon Platinum 8259CL: measured, 2 threads (a chip has 48)", c.Basis)
}

func TestWithoutIdleAVirtualMachineHasItsDynamicPowerOnly(t *testing.T) {
	for _, c := range mustCurves(t, m5large, Options{Kinds: all, WithoutIdle: true}) {
		with := mustCurves(t, m5large, Options{Kinds: []power.Kind{c.Kind}})[0].Curve
		assert.InDelta(t, 0, c.Curve.Watts(0), 0, c.Kind)
		near(t, string(c.Kind), c.Curve.Watts(0.7), with.Watts(0.7)-with.Watts(0))
		assert.Regexp(t, ", without idle power$", c.Basis)
		if c.Kind == power.Package {
			t.Attr("vm-idle", fmt.Sprintf("%.0f W idle", c.Curve.Watts(0)))
		}
	}
	near(t, "idle power of a machine that is not virtual", packagesCurve(t, gold6230, Options{WithoutIdle: true}).Curve.Watts(0), 0.1206*250)
}

func TestAMachineOnAMetalInstanceHasItsPart(t *testing.T) {
	m := m5large
	m.CPU, m.Stepping, m.Instance = "Intel(R) Xeon(R) Platinum 8175M CPU @ 2.50GHz", 4, "m5.metal" // by the environment, in a virtual machine on it
	c := packagesCurve(t, m, Options{})
	near(t, "full power", c.Curve.Watts(1), 491.8*2/96)
	m.Virtual, m.Threads, m.Sockets = false, 96, 2
	near(t, "the metal's idle power", packagesCurve(t, m, Options{WithoutIdle: true}).Curve.Watts(0), 57.9)
}

// TestAVirtualMachineOfWholeCoresHasTwiceThePartOfOneOfThreads has clouds that show what a vCPU is.
func TestAVirtualMachineOfWholeCoresHasTwiceThePartOfOneOfThreads(t *testing.T) {
	measured := m5large
	milan := m5large
	milan.CPU, milan.Vendor, milan.Family, milan.Model = "AMD EPYC 7R13 Processor", "AuthenticAMD", 25, 1
	genoa := milan
	genoa.CPU, genoa.Model, genoa.Instance = "AMD EPYC 9R14", 17, "m7a.large"
	for _, m := range []machine.Machine{measured, milan, genoa} {
		threads := packagesCurve(t, m, Options{})
		m.Cores = m.Threads
		cores := packagesCurve(t, m, Options{})
		near(t, m.CPU, cores.Curve.Watts(0.3), 2*threads.Curve.Watts(0.3))
		assert.Contains(t, cores.Basis, ", 2 cores")
		m.Cloud, m.Instance = "", ""
		near(t, "a topology that is made up", packagesCurve(t, m, Options{}).Curve.Watts(0.3), threads.Curve.Watts(0.3))
	}
}

func TestTheCPUOfATypeIsNotTakenWhereTheMachineShowsAnotherFamily(t *testing.T) {
	m := m5large
	m.CPU, m.Vendor, m.Family, m.Model, m.Instance = "AMD EPYC Processor", "AuthenticAMD", 25, 1, "m5n.large"
	c := packagesCurve(t, m, Options{})
	assert.Equal(t, "a CPU of the family amd-epyc-gen3: TDP of 8.2 W a core, shape of server CPUs, 2 of 96 threads of the host", c.Basis)
	m.Vendor = "" // the CPU says nothing
	assert.Regexp(t, "^Intel Xeon Platinum 8259CL: measured", packagesCurve(t, m, Options{}).Basis)
}

// TestOnlyCPUsLikeTheMeasuredOnesHaveTheirError has CPUs of the same families.
func TestOnlyCPUsLikeTheMeasuredOnesHaveTheirError(t *testing.T) {
	for name, want := range map[string]float64{
		"Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz":     scalableError,
		"Intel(R) Xeon(R) Platinum 8168 CPU @ 2.70GHz": scalableError,
		"Intel(R) Xeon(R) Silver 4110 CPU @ 2.10GHz":   otherError,
		"Intel(R) Xeon(R) Bronze 3104 CPU @ 1.70GHz":   otherError,
		"Intel(R) Xeon(R) D-2143IT CPU @ 2.20GHz":      otherError,
		"Intel(R) Xeon(R) W-2123 CPU @ 3.60GHz":        otherError,
		"Intel(R) Xeon(R) CPU E3-1240 v5 @ 3.50GHz":    otherError,
		"Intel(R) Core(TM) i9-10940X CPU @ 3.30GHz":    otherError,
	} {
		m := gold6230
		m.CPU = name
		assert.InDelta(t, want, packagesCurve(t, m, Options{}).ExpectedError, 0)
	}
}

func TestAListedCPUHasTheReferenceTimesItsTDP(t *testing.T) {
	c := packagesCurve(t, gold6230, Options{})
	for u, want := range map[float64]float64{0: 0.1206, 0.5: 0.7307, 1: 1.0246} { // medians of the five servers
		near(t, "power", c.Curve.Watts(u), want*2*125)
	}
	is(t, &c, "Intel Xeon Gold 6230: TDP 125 W, shape of server CPUs, 2 chips", scalableError)
	t.Attr("tdp", fmt.Sprintf("TDP 125 W; another model: %.1f W", c.Curve.Watts(0.5)))
	guest := gold6230
	guest.Virtual, guest.Threads = true, 8
	c = packagesCurve(t, guest, Options{})
	near(t, "8 of 40 threads", c.Curve.Watts(1), 1.0246*125*8/40)
	assert.Equal(t, "Intel Xeon Gold 6230: TDP 125 W, shape of server CPUs, 8 threads (a chip has 40)", c.Basis)
}

// TestACPUWhoseCoresAreNotListedIsEstimated has a CPU of Azure, which lists its TDP only.
func TestACPUWhoseCoresAreNotListedIsEstimated(t *testing.T) {
	m := m5large
	m.CPU, m.Model, m.Stepping, m.Cloud, m.Instance = "Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz", 106, 6, "azure", ""
	c := packagesCurve(t, m, Options{})
	if full := c.Curve.Watts(1); full < 5 || full > 12 || !strings.Contains(c.Basis, "2 threads (a chip has about ") {
		t.Errorf("%g W, %q", full, c.Basis)
	}
	assert.Greater(t, c.ExpectedError, otherError)
	m.Cloud, m.Instance, m.CPU = "aws", "m5zn.large", "Intel(R) Xeon(R) Platinum 8252C CPU @ 3.80GHz"
	assert.Regexp(t, "2 of 48 threads of the host$", packagesCurve(t, m, Options{}).Basis)
}

func TestAnUnlistedCPUIsEstimatedByItsFamily(t *testing.T) {
	arm := machine.Machine{Arch: "arm64", CPU: "Arm Neoverse-N1", Vendor: "Arm", Model: 0xd0c, Threads: 4, Cores: 4, Sockets: 1, Memory: gib, Virtual: true}
	graviton := arm
	graviton.Chip, graviton.Cloud, graviton.Instance = "AWS Graviton2", "aws", "m6g.xlarge"
	grace := arm
	grace.CPU, grace.Model = "Arm Neoverse-V2", 0xd4f
	other := arm
	other.CPU, other.Model = "Arm Neoverse-V1", 0xd40
	milan := m5large
	milan.CPU, milan.Vendor, milan.Family, milan.Model = "AMD EPYC-Milan Processor", "AuthenticAMD", 25, 1
	milan.Cloud, milan.Instance = "", ""
	named := milan
	named.Vendor, named.CPU = "", "Intel Xeon Processor (Icelake)"
	unknown := milan
	unknown.Vendor, unknown.CPU = "", "QEMU Virtual CPU version 2.5+"
	for _, tc := range []struct {
		m     machine.Machine
		basis string
	}{
		{n2, "a CPU of the family intel-cascadelake: TDP of 8.3 W a core, shape of server CPUs, 4 threads"},
		{milan, "a CPU of the family amd-epyc-gen3: TDP of 8.2 W a core, shape of server CPUs, 2 threads"},
		{named, "a CPU of the family intel-icelake: TDP of 8.4 W a core, shape of server CPUs, 2 threads"},
		{arm, "a CPU of the family arm-neoverse-n1: TDP of 2.4 W a core, shape of server CPUs, 4 threads"},
		{graviton, "a CPU of the family arm-neoverse-n1: TDP of 2.4 W a core, shape of server CPUs, 4 of 64 threads of the host"},
		{grace, "a CPU of the family arm-neoverse-v2: TDP of 3.5 W a core, shape of server CPUs, 4 threads"},
		{other, "an unknown Arm CPU: TDP of 2.6 W a core, shape of server CPUs, 4 threads"},
		{unknown, "an unknown CPU: TDP of 9.2 W a core, shape of server CPUs, 2 threads"},
	} {
		c := packagesCurve(t, tc.m, Options{})
		assert.Equal(t, tc.basis, c.Basis)
		perThread := c.Curve.Watts(1) / float64(tc.m.Threads)
		if perThread < 2 || perThread > 6 || c.ExpectedError < familyError || c.ExpectedError > 1 {
			t.Errorf("%s: %g W a thread, error %g", tc.basis, perThread, c.ExpectedError)
		}
	}
}

func TestAnUnlistedCPUOfAMachineIsEstimatedByItsCores(t *testing.T) {
	m := n2
	m.Virtual, m.Threads, m.Cores = false, 20, 20 // without simultaneous multithreading
	twice := m
	twice.Threads = 40
	a, b := packagesCurve(t, m, Options{}), packagesCurve(t, twice, Options{})
	assert.InDelta(t, a.Curve.Watts(1), b.Curve.Watts(1), 0)
	assert.Regexp(t, ", 20 cores$", b.Basis)
}

func TestMemoryIsModeledByItsSize(t *testing.T) {
	c := mustCurves(t, gold6230, Options{Kinds: []power.Kind{power.DRAM}})[0]
	near(t, "idle power", c.Curve.Watts(0), 192*0.1555)
	near(t, "full power", c.Curve.Watts(1), 192*0.3605)
	is(t, &c, "192 GiB of memory of servers with DDR4", memoryError)
	t.Attr("memory", fmt.Sprintf("%.1f to %.1f W", c.Curve.Watts(0), c.Curve.Watts(1)))
	c = mustCurves(t, m5large, Options{Kinds: []power.Kind{power.DRAM}, MemoryPower: 0.5, WithoutIdle: true})[0]
	if c.Kind != power.DRAM || c.Curve.Watts(0) != 4 || c.Curve.Watts(1) != 4 || c.ExpectedError != 0 {
		t.Errorf("a stated power: %+v", c)
	}
}

func TestTheWholeMachineIsOfItsFamily(t *testing.T) {
	c := mustCurves(t, gold6230, Options{Kinds: []power.Kind{power.Platform}})[0]
	near(t, "idle power", c.Curve.Watts(0), 2*33.7)
	near(t, "full power", c.Curve.Watts(1), 2*220.5)
	if c.Basis != "family intel-cascadelake: whole systems at the wall (SPECpower), 2 chips" || c.ExpectedError < 0.2 || c.ExpectedError > 0.4 {
		t.Errorf("%q, %g", c.Basis, c.ExpectedError)
	}
	c = mustCurves(t, n2, Options{Kinds: []power.Kind{power.Platform}})[0]
	near(t, "a part of it", c.Curve.Watts(1), 220.5*4/56)
	pi := machine.Machine{Arch: "arm64", CPU: "Arm Cortex-A72", Threads: 4, Cores: 4, Sockets: 1}
	c = mustCurves(t, pi, Options{Kinds: []power.Kind{power.Platform}})[0]
	if w := c.Curve.Watts(1); w > 20 || c.Basis != "an unknown family: whole systems at the wall (SPECpower), 4 threads" {
		t.Errorf("%g W, %q", w, c.Basis)
	}
}

// watts returns the powers of a curve.
func watts(c model.Curve) (all []float64) {
	for _, p := range c {
		all = append(all, p.Watts)
	}
	return all
}

func TestShapesGoFromNothingToAllWithoutGoingDown(t *testing.T) {
	assert.Equal(t, []string{"server", "linear"}, ShapeNames()[:2], ShapeNames())
	for _, name := range append(ShapeNames(), "") {
		s, err := Shape(name)
		require.NoError(t, err)
		assert.Zero(t, s.Watts(0), name)
		assert.InDelta(t, 1, s.Watts(1), 0, name)
		assert.IsNonDecreasing(t, watts(s), name)
	}
	for _, name := range []string{"round", "Server", "intel-skylake-server", "\x00"} {
		_, err := Shape(name)
		require.ErrorContains(t, err, "must be one of server, linear, ", name)
	}
}

func TestTheErrorOfTwoPowersIsByTheCPUAndTheShape(t *testing.T) {
	e3 := gold6230
	e3.CPU = "Intel(R) Xeon(R) CPU E3-1240 v5 @ 3.50GHz"
	for _, tc := range []struct {
		m     machine.Machine
		shape string
		want  float64
	}{
		{gold6230, "", scalableShapeError}, {gold6230, DefaultShape, scalableShapeError}, {n2, "", scalableShapeError}, {gold6230, LinearShape, scalableLineError},
		{e3, "", otherShapeError}, {e3, LinearShape, otherLineError}, {machine.Machine{}, "", otherShapeError}, {gold6230, "intel-skylake", 0},
	} {
		assert.InDelta(t, tc.want, BetweenError(tc.m, tc.shape), 0, "%v, %v", tc.m.CPU, tc.shape)
	}
}

func TestBetweenChecksItsPowers(t *testing.T) {
	_, err := Between(50, 40, "")
	require.Error(t, err)
	c, err := Between(40, 40, "")
	require.NoError(t, err, "a constant power")
	assert.InDelta(t, 40, c.Watts(0.5), 0)
}

func TestWhatIsNoMachineIsRefused(t *testing.T) {
	for _, m := range []machine.Machine{{}, {Threads: -1}, {Threads: maxThreads + 1}, {Threads: math.MaxInt}} {
		if c, err := Curves(m, Options{Kinds: all}); err == nil || len(c) != 0 || !strings.Contains(err.Error(), "CPUs") {
			t.Errorf("%+v: %v, %v", m, c, err)
		}
	}
	for _, memory := range []uint64{0, maxMemory + 1, math.MaxUint64} {
		m := gold6230
		m.Memory = memory
		c, err := Curves(m, Options{Kinds: all})
		if len(c) != 2 || err == nil || !strings.Contains(err.Error(), "no power model of dram: the ") {
			t.Errorf("memory of %d: %d curves, %v", memory, len(c), err)
		}
	}
	if c, err := Curves(gold6230, Options{Kinds: []power.Kind{power.GPU, power.Core}}); err != nil || len(c) != 0 {
		t.Errorf("kinds without a curve: %v, %v", c, err)
	}
}

// TestHostileMachinesHaveSaneCurves has figures that do not fit each other, and names of any bytes.
func TestHostileMachinesHaveSaneCurves(t *testing.T) {
	long := strings.Repeat("Xeon ", 1<<18)
	for _, m := range []machine.Machine{
		{Threads: 1, CPU: "Intel Xeon Platinum 8259CL", Sockets: 1 << 30, Memory: 1},
		{Threads: 1, CPU: "Intel Xeon Platinum 8259CL", Sockets: -5, Cores: -5, Memory: 1},
		{Threads: 3, CPU: long, Chip: long, Vendor: long, Cloud: long, Instance: long, Memory: 1},
		{Threads: 3, CPU: "a,b\n\"c", Cloud: "aws", Instance: "m5.large,x", Memory: 1},
		{Threads: 1024, CPU: "Intel Xeon Platinum 8259CL", Cloud: "aws", Instance: "m5.large", Virtual: true, Memory: 1},
		{Threads: maxThreads, Cores: maxThreads, Sockets: maxThreads, Memory: maxMemory, Virtual: true},
		{Threads: 2, CPU: "Intel Atom Z515", Virtual: true, Memory: 1, Cloud: "aws", Instance: "m5.large"},
		{Threads: 1, CPU: "\x00\xff", Arch: "\xff", Vendor: "GenuineIntel", Family: math.MinInt, Model: math.MaxInt, Memory: 1},
	} {
		for _, o := range []Options{{Kinds: all}, {Kinds: all, WithoutIdle: true}} {
			for _, c := range mustCurves(t, m, o) {
				w := watts(c.Curve)
				assert.IsNonDecreasing(t, w, c.Kind)
				assert.True(t, w[0] >= 0 && w[len(w)-1] <= 1e9, c.Kind)
				if len(c.Basis) > 200 || strings.ContainsAny(c.Basis, "\x00\n") || !(c.ExpectedError > 0 && c.ExpectedError < 1.5) {
					t.Errorf("%.40q: basis %.300q, error %g", m.CPU, c.Basis, c.ExpectedError)
				}
			}
		}
	}
}
