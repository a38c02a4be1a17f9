// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/allocs"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
	"github.com/energyreceiver/energyreceiver/receiver/internal/training"
)

// Facts of a store, a state file, leases and the format are tested in internal/state.

const bootIDFile = "proc/sys/kernel/random/boot_id"

// keptNode returns a node whose totals are kept.
func keptNode(t *testing.T, edit ...func(*Config)) (*testNode, *memoryStorage) {
	s := &memoryStorage{stored: map[string][]byte{}}
	n := newTestNode(t, append(edit, func(c *Config) { c.Storage = storageID.String() })...)
	n.host.Files = map[string]string{bootIDFile: "first\n"}
	n.process(10, "app")
	n.process(20, "web", docker(idA))
	n.extensions = map[component.ID]component.Component{storageID: s}
	return n, s
}

// restart replaces the receiver on the host, as after a crash, and starts it.
func (n *testNode) restart(edit ...func(*Config)) {
	n.t.Helper()
	n.startAgain(edit...)
}

// startAgain starts another receiver on the host.
func (n *testNode) startAgain(edit ...func(*Config)) {
	n.t.Helper()
	cfg := *n.cfg
	n.cfg = &cfg
	for _, f := range edit {
		f(&cfg)
	}
	n.log()
	require.NoError(n.t, n.host.Render())
	n.begin()
}

// handsOn makes the receiver send its last collection to a consumer.
func (n *testNode) handsOn(take consumer.ConsumeMetricsFunc) {
	var err error
	n.next, err = consumer.NewMetrics(take)
	require.NoError(n.t, err)
}

// messages returns what was logged of totals.
func (n *testNode) messages() (out []string) {
	for _, e := range n.logs.All() {
		switch e.Message {
		case "Meter selected: energy is measured by powercap (RAPL)", "CPU time source selected", "Setting has no effect":
		default:
			out = append(out, e.Message)
		}
	}
	return out
}

func TestTotalsContinueAfterACrash(t *testing.T) {
	n, _ := keptNode(t)
	n.start()
	n.run(300*joule, map[int]int64{10: 500})
	n.run(300*joule, map[int]int64{10: 250, 20: 250})
	before, container := n.one("process.energy", pid(10)), n.one("container.energy", "container.id="+idA)
	node := n.one("hw.energy")

	n.passWithout(5*time.Second, 100*joule, map[int]int64{10: 250}) // not collected any more
	n.passWithout(55*time.Second, 1100*joule, map[int]int64{10: 2750, 20: 2500})
	n.restart()
	n.run(300*joule, map[int]int64{10: 500})
	assert.Equal(t, []string{"Totals continue"}, n.messages())
	after := n.one("process.energy", pid(10))
	assert.Equal(t, before.series, after.series, "the same attributes and start")
	// All CPU time is claimed: 10 s at half load and 300 J, 60 s of which 5500 of 6000 ticks are busy and 1200 J.
	assert.InDelta(t, before.value+1100*3000/5500+150, after.value, 1e-3)
	assert.Equal(t, container.series, n.one("container.energy", "container.id="+idA).series)
	assert.InDelta(t, container.value+1100*2500/5500, n.one("container.energy", "container.id="+idA).value, 1e-3)
	assert.Equal(t, node.series, n.one("hw.energy").series)
	n.expectWhole(300+300+1200+300, 1e-6)
}

// expectWhole checks the energy of the node since the totals began.
func (n *testNode) expectWhole(joules, within float64) {
	n.t.Helper()
	assert.InDelta(n.t, joules, n.one("hw.energy").value, within)
	assert.InDelta(n.t, joules, n.sum("system.energy", nil), within)
}

// testdata/0.1.0.state is the state that version 0.1.0 stores of this node. A change of the format
// that does not restore it needs another state.Version, and then the changelog says that totals
// start at 0. -update writes the file.
func TestTheStateOfAnEarlierVersionIsRestored(t *testing.T) {
	n, s := keptNode(t)
	n.start()
	n.run(300*joule, map[int]int64{10: 500})
	n.run(300*joule, map[int]int64{10: 250, 20: 250})
	before := n.one("process.energy", pid(10))
	file := filepath.Join("testdata", "0.1.0.state")
	if *update {
		require.NoError(t, os.WriteFile(file, s.stored[state.Key], 0o600))
	}
	earlier, err := os.ReadFile(file)
	require.NoError(t, err)
	s.stored[state.Key] = earlier
	n.restart()
	n.run(300*joule, map[int]int64{10: 500})
	assert.Equal(t, []string{"Totals continue"}, n.messages())
	after := n.one("process.energy", pid(10))
	assert.Equal(t, before.series, after.series)
	assert.InDelta(t, before.value+150, after.value, 1e-3, "10 s at half load")
}

func TestSettingsDecideWhetherTotalsContinue(t *testing.T) {
	n, _ := keptNode(t)
	n.start()
	n.run(300*joule, map[int]int64{10: 500})
	n.restart(func(c *Config) {
		c.Series.Processes.Max, c.CollectionInterval = 100, time.Minute
		c.Zones = slices.Clone(c.Zones)
		slices.Reverse(c.Zones)
	})
	n.run(300*joule, map[int]int64{10: 500})
	n.expectWhole(600, 1e-6)

	stamp := n.one("hw.energy").at
	n.passWithout(20*time.Second, 600*joule, map[int]int64{10: 1000})
	clear(n.finals)
	n.restart(func(c *Config) { c.Attribution.Idle = config.IdleUsed })
	n.run(300*joule, map[int]int64{10: 500})
	assert.Equal(t, []string{"Totals start at 0 because the settings have changed. They include the energy since the last collection"}, n.messages())
	assert.True(t, stamp.Add(time.Nanosecond).Equal(n.one("hw.energy").start))
	assert.InDelta(t, 450, n.one("process.energy", pid(10), "energy.state=active").value, 1e-3)
	n.expectWhole(900, 1e-6)
}

func TestTheWallClockMayStepWhileTheReceiverIsDown(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		n, _ := keptNode(t)
		n.start()
		n.run(300*joule, map[int]int64{10: 500})
		before := n.one("process.energy", pid(10))
		n.host.ClockStep += step
		n.host.Booted = n.host.Booted.Add(step) // as the kernel reports it
		n.passWithout(10*time.Second, 300*joule, map[int]int64{10: 500})
		n.restart()
		n.run(300*joule, map[int]int64{10: 500})
		after := n.one("process.energy", pid(10))
		assert.Equal(t, before.series, after.series, "the creation time of a process, too")
		assert.True(t, after.at.After(before.at))
		n.expectWhole(900, 1e-6)
	}
}

// In a night asleep a counter restarts, and its value then is not what it counted since.
func TestTheTimeAsleepIsNoTimeForACounter(t *testing.T) {
	n, _ := keptNode(t)
	n.start()
	n.run(300*joule, nil)
	n.host.Zones["intel-rapl:0"].Energy = 200_000 * joule // which takes minutes at the highest power of a package
	n.host.Uptime += 8 * time.Hour
	n.host.Suspended += 8 * time.Hour
	n.passWithout(time.Second, 0, nil)
	n.restart()
	n.run(300*joule, nil)
	n.expectWhole(600, 1e-6)
	assert.Contains(t, n.messages(), "Energy during downtime is incomplete")
}

// hangingStorage is a storage extension whose writes hang.
type hangingStorage struct {
	*memoryStorage
	hangs chan struct{}
}

func (s hangingStorage) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return s, nil
}

func (s hangingStorage) Set(context.Context, string, []byte) error {
	<-s.hangs
	return errors.New("input/output error")
}

func TestTheLastCollectionIsHandedOnAtShutdown(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"with storage":    func(*Config) {},
		"without storage": func(c *Config) { c.Storage = "" },
		"with windows":    func(c *Config) { c.Window = time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := keptNode(t, edit)
			sink := new(consumertest.MetricsSink)
			n.handsOn(sink.ConsumeMetrics)
			require.NoError(t, n.host.Render())
			n.begin()
			n.run(300*joule, map[int]int64{10: 500})
			n.passWithout(5*time.Second, 100*joule, map[int]int64{10: 100})
			require.NoError(t, n.host.Render())
			n.stop()
			require.Len(t, sink.AllMetrics(), 1)
			n.md = sink.AllMetrics()[0]
			n.expectWhole(400, 1e-6)
			n.balance()
		})
	}
}

func TestALastCollectionThatIsRefusedIsInTheState(t *testing.T) {
	n, _ := keptNode(t)
	n.handsOn(func(context.Context, pmetric.Metrics) error { return errRefused })
	require.NoError(t, n.host.Render())
	n.begin()
	n.run(300*joule, map[int]int64{10: 500})
	n.passWithout(5*time.Second, 100*joule, map[int]int64{10: 100})
	require.NoError(t, n.host.Render())
	n.stop()
	assert.Contains(t, n.messages(), "Final collection rejected")
	n.restart()
	n.run(300*joule, map[int]int64{10: 500})
	n.expectWhole(700, 1e-6)
	n.stop()
}

// A store that hangs takes no time from the consumer, and a consumer that hangs does not delay the shutdown.
func TestTheLastCollectionHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := keptNode(t)
		store := hangingStorage{s, make(chan struct{})}
		n.extensions[storageID] = store
		require.NoError(t, n.host.Render())
		n.handsOn(func(ctx context.Context, _ pmetric.Metrics) error {
			deadline, _ := ctx.Deadline()
			assert.Equal(t, lastTimeout, time.Until(deadline))
			<-store.hangs
			return nil
		})
		n.begin()
		time.Sleep(time.Minute)
		began := time.Now()
		n.stop()
		assert.Less(t, time.Since(began), lastTimeout+10*time.Second)
		close(store.hangs)
		synctest.Wait()
	})
}

func TestWithoutAMeasurementNothingIsHandedOnAtShutdown(t *testing.T) {
	n, _ := keptNode(t)
	n.handsOn(func(context.Context, pmetric.Metrics) error { t.Error("something was handed on"); return nil })
	require.NoError(t, n.host.Render())
	n.begin()
	require.NoError(t, os.Remove(filepath.Join(n.host.Root(), "proc/stat")))
	n.stop()
}

// fileNode returns a started node that stores its totals and a trained model in a directory.
func fileNode(t *testing.T, directory string) *testNode {
	n := sharedNode(t, func(c *config.AttributionConfig) { c.StaticPower = allStatic(config.StaticMinimum) })
	n.cfg.Storage = directory
	require.NoError(t, n.cfg.Validate())
	require.NoError(t, n.host.Render())
	n.begin()
	return n
}

func TestTotalsAndTrainedModelsAreRestoredFromADirectory(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "lib", "otelcol-energy")
	n := fileNode(t, directory)
	n.run(300*joule, map[int]int64{1: 10})
	n.stop()
	assert.Equal(t, []string{"No state stored: totals start at 0"}, n.messages())
	n.startAgain()
	n.run(600*joule, map[int]int64{10: 500})
	assert.Equal(t, []string{"Totals continue"}, n.messages())
	assert.True(t, n.trained())
	n.expectWhole(900, 1e-6)
	n.stop()

	n.host.Files[bootIDFile] = "second\n"
	clear(n.finals)
	n.startAgain()
	n.run(600*joule, map[int]int64{10: 500})
	assert.Equal(t, []string{"State of another boot: totals start at 0"}, n.messages())
	assert.True(t, n.trained(), "models are restored although totals are not")
	n.expectWhole(600, 1e-6)
	n.stop()

	require.NoError(t, os.WriteFile(state.Path(directory, "energy"), []byte("damaged"), 0o600))
	clear(n.finals)
	n.startAgain()
	assert.Equal(t, []string{"Degraded storage"}, n.logged())
	n.run(300*joule, map[int]int64{10: 500})
	n.expectWhole(300, 1e-6)
	assert.Equal(t, []string{"Degraded storage", "Recovered storage"}, n.logged())
	require.ErrorContains(t, n.status[0].Err(), "storage: the state cannot be restored")
	n.stop()
}

// trained returns the stored models.
func (s *memoryStorage) trained(t *testing.T) (trained training.Models) {
	t.Helper()
	require.NoError(t, state.Decode(s.stored[state.Key], &trained, nil, state.Moment{}))
	return trained
}

func TestModelsOutliveAConfigurationThatTrainsNone(t *testing.T) {
	n, s := keptNode(t, func(c *Config) { c.Attribution.StaticPower = allStatic(config.StaticMinimum) })
	n.start()
	n.run(300*joule, map[int]int64{10: 10})
	trained := s.trained(t)
	require.NotEmpty(t, trained.Zones)
	n.restart(func(c *Config) { c.Attribution.StaticPower = allStatic(config.StaticUtilization) })
	clear(n.finals)
	n.run(300*joule, map[int]int64{10: 10})
	assert.Equal(t, trained, s.trained(t))
}

func TestAnEmbeddedReceiverRestoresModelsOfARunningCollector(t *testing.T) {
	directory := t.TempDir()
	n := fileNode(t, directory)
	n.run(300*joule, map[int]int64{1: 10})
	cfg := *n.cfg
	cfg.Storage = state.Path(directory, "energy")
	e, err := Embed(&cfg, EmbeddedOptions{Logger: n.set.Logger})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	assert.True(t, e.Trained()[power.Class{Zone: power.Package, Method: power.Measured}])
	before, err := os.Stat(cfg.Storage)
	require.NoError(t, err)
	n.host.Run(10*time.Second, map[int]int64{10: 500})
	require.NoError(t, n.host.Render())
	_, err = e.Collect(t.Context())
	require.NoError(t, err)
	require.NoError(t, e.Shutdown(t.Context()))
	after, err := os.Stat(cfg.Storage)
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after), "an embedded receiver stores nothing")
	assert.Empty(t, n.logged())
	n.stop()
}

func TestTheStateOf500ProcessesIsSmallAndTakesHardlyAnAllocation(t *testing.T) {
	n, s := keptNode(t)
	used := map[int]int64{}
	for i := range 500 {
		n.process(1000+i, "server", docker(fmt.Sprintf("%064x", i%100)))
		used[1000+i] = 2
	}
	n.start()
	n.host.CPUs = 2
	n.run(300*joule, used)
	n.run(300*joule, used)
	require.Greater(t, len(n.points("process.energy", nil)), 500)
	save := func() { n.s.state.Save(t.Context(), n.machine.Now, n.s.attributor.Models(), n.s.noteTotals, false) }
	save()
	assert.Less(t, len(s.stored[state.Key]), 160_000)
	assert.LessOrEqual(t, allocs.Count(20, save), uint64(20*60), "none for each process")
}
