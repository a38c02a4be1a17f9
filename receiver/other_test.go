// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadatatest"
)

// otherNode is a node with a platform, a package and memory.
type otherNode struct {
	*testNode
	platform uint64
}

func withOther(c *Config) { c.Zones = []power.Kind{power.Package, power.DRAM, power.Other} }

func newOtherNode(t *testing.T, edit ...func(*Config)) *otherNode {
	return otherNodeOf(newTestNode(t, append([]func(*Config){withOther}, edit...)...))
}

func otherNodeOf(n *testNode) *otherNode {
	n.host.Zones["intel-rapl:0:0"] = &hostsim.Zone{Name: "dram", Max: 1e12}
	n.hwmon(map[string]uint64{"System": 0})
	n.process(2, "app")
	return &otherNode{testNode: n}
}

// use has the platform, the package and the memory use energy, and two processes an eighth and a
// quarter of the CPU time.
func (n *otherNode) use(platform, pkg, dram uint64) {
	n.t.Helper()
	n.platform += platform
	n.hwmon(map[string]uint64{"System": n.platform})
	n.host.Zones["intel-rapl:0:0"].Energy += dram
	n.run(pkg, map[int]int64{1: 125, 2: 250})
}

func TestOtherIsAttributedLikeAnyZone(t *testing.T) {
	n := newOtherNode(t)
	n.start()
	n.use(100*joule, 30*joule, 6*joule)
	assert.InDelta(t, 8, n.one("process.energy", pid(1), "energy.zone=other", "energy.method=measured").value, 1e-6)
	assert.InDelta(t, 16, n.one("process.energy", pid(2), "energy.zone=other").value, 1e-6)
	assert.InDelta(t, 24, n.one("system.energy", "energy.zone=other", "energy.state=active").value, 1e-6)
	assert.InDelta(t, 40, n.one("system.energy", "energy.zone=other", "energy.state=idle").value, 1e-6)
	assert.InDelta(t, 100, n.sum("system.energy", nil), 1e-6, "parts and other are the platform")
	assert.InDelta(t, 100, n.one("hw.host.energy").value, 1e-6)
	assert.Len(t, n.points("hw.energy", nil), 2, "other is no hardware")
	assert.Empty(t, n.logged())
	assert.Zero(t, n.logs.FilterMessageSnippet("Zone other not reported").Len())
}

func TestOtherIsNotReportedWithoutAPart(t *testing.T) {
	n := newOtherNode(t)
	delete(n.host.Zones, "intel-rapl:0")
	delete(n.host.Zones, "intel-rapl:0:0")
	n.start()
	n.hwmon(map[string]uint64{"System": 100 * joule})
	for range 7 {
		n.run(0, map[int]int64{1: 125})
	}
	assert.Len(t, n.points("system.energy", nil, "energy.zone=platform"), 2, "platform stands in for package")
	assert.Len(t, n.points("system.energy", nil), 2)
	assert.Empty(t, n.logged())
	assert.Equal(t, 1, n.logs.FilterMessage("Zone other not reported: no meter has read package, dram or gpu").Len())
}

func TestADeficitOfOtherIsACondition(t *testing.T) {
	observedNode, tel := observedNode(t, withOther)
	n := otherNodeOf(observedNode)
	n.start()
	deficit := func(joules float64) {
		t.Helper()
		metadatatest.AssertEqualReceiverEnergyOtherDeficit(t, tel, []metricdata.DataPoint[float64]{observed(joules)}, whenever)
	}
	n.use(100*joule, 30*joule, 6*joule)
	deficit(0)
	for range 31 {
		n.use(10*joule, 20*joule, 0)
	}
	assert.Equal(t, []string{"Degraded zone other"}, n.logged())
	assert.Contains(t, n.reasons("zone other")[0], "other does not increase")
	assert.InDelta(t, 64, n.sum("system.energy", nil, "energy.zone=other"), 1e-6)
	deficit(310)
	n.use(400*joule, 20*joule, 0)
	assert.Equal(t, []string{"Degraded zone other", "Recovered zone other"}, n.logged())
	assert.InDelta(t, 64+70, n.sum("system.energy", nil, "energy.zone=other"), 1e-6)
	deficit(0)
}

// unreadablePackage makes reads of the package's counter fail until the returned function is called.
func unreadablePackage() (restore func()) {
	return kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if strings.HasSuffix(path, "intel-rapl:0/energy_uj") {
			return nil, fs.ErrPermission
		}
		return got, err
	})
}

// The sensor of the package is there and cannot be read, so the model stands in for it.
func TestAModeledPackageMakesNoOther(t *testing.T) {
	n := newOtherNode(t, withModel(40, 120))
	defer unreadablePackage()()
	n.start()
	n.use(100*joule, 0, 6*joule)
	assert.Empty(t, n.points("system.energy", nil, "energy.zone=other"))
	assert.Len(t, n.points("system.energy", nil, "energy.zone=package", "energy.method=modeled"), 2)
	require.Len(t, n.reasons("zone other"), 1)
	assert.Contains(t, n.reasons("zone other")[0], "package is modeled")
}
