// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// superchips is a machine with modules. Each module has a CPU socket and a GPU, whose counter measures the module.
type superchips struct {
	*Set
	t             testing.TB
	modules, cpus *fake
}

func newSuperchips(t testing.TB, modules int) *superchips {
	m := &superchips{t: t, modules: new(fake), cpus: new(fake)}
	for i := range modules {
		socket := units.Domain("package-" + string(rune('0'+i)))
		m.modules.readings = append(m.modules.readings, Reading{Zone: &Zone{
			ID: "GPU-" + string(socket), Kind: GPU, Method: Measured, Domain: units.GPU("000" + string(rune('0'+i)) + ":01:00.0"), Includes: socket,
		}})
		m.cpus.readings = append(m.cpus.readings, Reading{Zone: &Zone{ID: "Grace " + string(socket), Kind: Package, Method: Measured, Domain: socket}})
	}
	m.Set = NewSet(Member{Name: "gpu", Meter: m.modules}, Member{Name: "hwmon", Meter: m.cpus})
	return m
}

func count(r *Reading, seconds, joules float64) {
	r.At, r.Total = after(time.Duration(seconds*float64(time.Second))), units.Energy(joules*float64(units.Joule))
}

// expect reads the set at a time in seconds and compares the totals of the GPUs, in joules.
func (m *superchips) expect(seconds float64, want ...float64) {
	m.t.Helper()
	var got []float64
	for _, r := range m.Read(context.Background(), Sample{At: after(time.Duration(seconds * float64(time.Second)))}) {
		if r.Zone.Kind == GPU {
			got = append(got, r.Total.Joules())
		}
	}
	assert.Equal(m.t, want, got, "after %g s", seconds)
}

// The module of 423 W has a socket of 123 W, which is read half a second later than the module.
func TestTheEnergyOfASocketIsSubtractedFromItsModule(t *testing.T) {
	m := newSuperchips(t, 1)
	for second := range 10 {
		count(&m.modules.readings[0], float64(second), 423*float64(second))
		count(&m.cpus.readings[0], float64(second)+0.5, 123*float64(second))
		m.expect(float64(second)+0.6, 423*float64(second)-123*max(float64(second)-0.5, 0))
	}
	assert.NoError(t, m.ModuleErr())
}

func TestAGPUExcludesTheSocketOfItsOwnModule(t *testing.T) {
	for name, c := range map[string]struct {
		sockets []float64 // their power in W; a module has 500 W
		change  func(*superchips)
		gpus    []float64 // their power in W
	}{
		"two modules":                         {[]float64{100, 20}, func(*superchips) {}, []float64{400, 480}},
		"the GPU of another module is hidden": {[]float64{100, 20}, func(m *superchips) { m.modules.readings = m.modules.readings[1:] }, []float64{480}},
		"the only socket has another number":  {[]float64{100}, func(m *superchips) { m.modules.readings[0].Zone.Includes = "package-36" }, []float64{400}},
		"a modeled socket is not subtracted":  {[]float64{100}, func(m *superchips) { m.cpus.readings[0].Zone.Method = Modeled }, []float64{500}},
		"only the first socket is read":       {[]float64{100, 20}, func(m *superchips) { m.cpus.readings = m.cpus.readings[:1] }, []float64{400, 500}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newSuperchips(t, len(c.sockets))
			c.change(m)
			for second := range 3 {
				for i := range m.modules.readings {
					count(&m.modules.readings[i], float64(second), 500*float64(second))
				}
				for i := range m.cpus.readings {
					count(&m.cpus.readings[i], float64(second), c.sockets[i]*float64(second))
				}
				var want []float64
				for _, watts := range c.gpus {
					want = append(want, watts*float64(second))
				}
				m.expect(float64(second), want...)
			}
		})
	}
}

func TestAGPUNeverLosesEnergyToItsSocket(t *testing.T) {
	m := newSuperchips(t, 1)
	for _, c := range []struct{ second, module, socket, gpu float64 }{{0, 0, 0, 0}, {1, 100, 60, 40}, {2, 110, 90, 40}, {3, 210, 130, 80}} {
		count(&m.modules.readings[0], c.second, c.module)
		count(&m.cpus.readings[0], c.second, c.socket)
		m.expect(c.second, c.gpu)
	}
}

func TestAModuleIsNotSeparatedIfItsSocketCannotBeRead(t *testing.T) {
	m := newSuperchips(t, 1)
	m.cpus.readings[0].Err = errUnreadable
	for _, second := range []float64{0, 60, 120} {
		count(&m.modules.readings[0], second, 423*second)
		m.expect(second, 423*second)
		assert.NoError(t, m.ModuleErr())
	}
	count(&m.modules.readings[0], 121, 423*121)
	m.expect(121, 423*121)
	assert.EqualError(t, m.ModuleErr(), "the energy of GPU-package-0 contains the energy of a CPU socket, because its meter measures a module and no meter reads the socket")
	m.cpus.readings[0].Err = nil
	count(&m.cpus.readings[0], 122, 0)
	count(&m.modules.readings[0], 122, 423*122)
	m.expect(122, 423*122)
	assert.NoError(t, m.ModuleErr())
	count(&m.cpus.readings[0], 132, 1230)
	count(&m.modules.readings[0], 132, 423*132)
	m.expect(132, 423*132-1230)
}
