// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config/configtest"
	"github.com/energyreceiver/energyreceiver/receiver/internal/meters"
	"github.com/energyreceiver/energyreceiver/receiver/internal/rules"
)

// guestNode is the receiver in a virtual machine whose hypervisor writes a tree.
type guestNode struct{ *testNode }

// inGuest runs a test in a synctest bubble. The machine has a powercap zone of its own, which a guest must not read.
func inGuest(t *testing.T, test func(*guestNode), edit ...func(*Config)) {
	synctest.Test(t, func(t *testing.T) {
		edit = append(edit, func(c *Config) { c.Meters.Powercap.Path = filepath.Join(c.RootPath, "mnt/energy") })
		n := &guestNode{newTestNode(t, edit...)}
		n.host.Processes[100] = &hostsim.Process{Comm: "a"}
		n.host.Processes[200] = &hostsim.Process{Comm: "b"}
		test(n)
	})
}

// pass lets ten seconds pass, in which processes run, and scrapes.
func (n *guestNode) pass(used map[int]int64) {
	n.t.Helper()
	time.Sleep(10 * time.Second)
	synctest.Wait()
	n.run(7*joule, used)
}

func TestATreeThatIsNotThereIsToldWhateverElseIsRead(t *testing.T) {
	inGuest(t, func(n *guestNode) {
		n.hwmon(map[string]uint64{"energy1_input": 1000})
		n.start()
		n.pass(nil)
		n.pass(nil)
		assert.Contains(t, n.logged(), "Degraded energy sensor")
		assert.Contains(t, strings.Join(n.reasons("energy sensor"), "\n"), "meters::powercap::path "+n.cfg.Meters.Powercap.Path+": no such file or directory")
		assert.Empty(t, n.points("system.energy", nil, "hw.id=intel-rapl:0"), "the machine's own zones are not read")
	})
}

func TestWithATreeThereIsNoOtherRAPL(t *testing.T) {
	for _, used := range [][]string{drivers.Local(), only("powercap"), only("perf")} {
		cfg := simpleConfig()
		cfg.Meters.Use, cfg.Meters.Powercap.Path = used, "/mnt/energy"
		set, err := meters.Open(t.Context(), cfg, componenttest.NewNopHost(), componenttest.NewNopTelemetrySettings())
		require.NoError(t, err)
		for _, m := range set.Status() {
			if m.Family == "rapl" {
				assert.Equal(t, "powercap", m.Name)
				assert.IsType(t, &power.Poller{}, m.Meter)
			}
		}
		require.NoError(t, set.Close())
	}
}

func TestTheConfigurationOfThePageHasNoSettingWithoutEffect(t *testing.T) {
	page, err := os.ReadFile("../docs/virtual-machines.md")
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?s)```yaml\nreceivers:\n  energy:\n(.*?)```").FindAllSubmatch(page, -1) {
		cfg := configtest.Load(t, config.Default(), string(regexp.MustCompile("(?m)^    ").ReplaceAll(block[1], nil)))
		_, notes := rules.Resolve(cfg, rules.Machine{})
		assert.Empty(t, slices.DeleteFunc(notes, func(n rules.Note) bool { return n.Warning == "" }))
	}
}
