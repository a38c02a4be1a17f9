// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
	"github.com/energyreceiver/energyreceiver/receiver/internal/training"
)

const bootIDFile = "proc/sys/kernel/random/boot_id"

// keptNode returns a node whose totals are kept.
func keptNode(t *testing.T, edit ...func(*Config)) (*testNode, *memoryStorage) {
	s := &memoryStorage{stored: map[string][]byte{}}
	n := newTestNode(t, append(edit, func(c *Config) { c.Storage = storageID.String() })...)
	n.host.Files = map[string]string{bootIDFile: "first\n"}
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app"}
	n.host.Processes[20] = &hostsim.Process{Parent: 1, Comm: "web", Exe: "/bin/web", Cgroup: docker(idA)}
	n.extensions = map[component.ID]component.Component{storageID: s}
	n.s.state.KernelClocks = n.kernelClocks
	return n, s
}

func (n *testNode) kernelClocks() (boot, suspended time.Duration) { return 0, n.host.Suspended }

// restart replaces the receiver on the host, as after a crash, and starts it.
func (n *testNode) restart(edit ...func(*Config)) {
	n.t.Helper()
	require.NoError(n.t, n.s.node.CPU.Close())
	n.s.watchdog.Stop()
	n.startAgain(edit...)
}

// startAgain starts another receiver on the host.
func (n *testNode) startAgain(edit ...func(*Config)) {
	n.t.Helper()
	cfg := *n.s.cfg
	for _, f := range edit {
		f(&cfg)
	}
	set := receivertest.NewNopSettings(metadata.Type)
	set.ID = component.NewID(metadata.Type)
	var core zapcore.Core
	core, n.logs = observer.New(zap.DebugLevel)
	set.Logger = zap.New(core)
	next, openMeters := n.s.output.next, n.s.meters.OpenSet
	var err error
	n.s, err = newEnergyScraper(&cfg, set)
	require.NoError(n.t, err)
	n.s.now, n.s.output.next, n.s.state.KernelClocks, n.s.meters.OpenSet = n.host.Now, next, n.kernelClocks, openMeters
	require.NoError(n.t, n.host.Render())
	require.NoError(n.t, n.s.start(context.Background(), n))
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

// passWithout lets time pass without a receiver, in which the package uses energy.
func (n *testNode) passWithout(d time.Duration, energy uint64, used map[int]int64) {
	n.host.Run(d, used)
	n.host.Zones["intel-rapl:0"].Energy += energy
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
	assert.InDelta(t, 300+300+1200+300, n.one("hw.energy").value, 1e-6)
	assert.InDelta(t, 300+300+1200+300, n.sum("system.energy", nil), 1e-6)
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

func TestWhatEndedWhileTheReceiverWasDownEndsWithItsLastTotal(t *testing.T) {
	n, _ := keptNode(t)
	n.start()
	n.run(300*joule, map[int]int64{10: 500})
	before := n.one("process.energy", pid(10))
	n.passWithout(10*time.Second, 300*joule, map[int]int64{10: 500})
	delete(n.host.Processes, 10)
	n.restart()
	n.run(300*joule, map[int]int64{20: 500})
	final := n.one("process.energy", pid(10))
	assert.Equal(t, before.series, final.series)
	assert.InDelta(t, before.value, final.value, 1e-9)
	assert.InDelta(t, 150, n.one("system.unattributed.energy").value, 1e-6, "nobody is known to have used the rest")
	n.run(300*joule, map[int]int64{20: 500})
	assert.Empty(t, n.points("process.energy", nil, pid(10)), "once more, and never again")
}

func TestTotalsOfAnotherBootAreNotUsed(t *testing.T) {
	n, _ := keptNode(t)
	n.start()
	n.run(300*joule, map[int]int64{10: 500})
	n.host.Files[bootIDFile] = "second\n"
	clear(n.finals)
	n.passWithout(10*time.Second, 300*joule, nil)
	n.restart()
	n.run(300*joule, map[int]int64{10: 500})
	assert.Equal(t, []string{"State of another boot: totals start at 0"}, n.messages())
	assert.InDelta(t, 300, n.one("hw.energy").value, 1e-6)
}

func TestTotalsOfALaterTimeAreNotUsed(t *testing.T) {
	n, s := keptNode(t)
	n.start()
	n.run(300*joule, nil)
	uptime, files := n.host.Uptime, s.stored[state.Key]
	n.run(300*joule, nil)
	later := s.stored[state.Key]
	require.NotEqual(t, files, later)
	n.host.Uptime = uptime // a snapshot of the machine, on a disk that is no part of it
	s.stored[state.Key] = later
	clear(n.finals)
	n.restart()
	n.run(300*joule, nil)
	assert.Equal(t, []string{"State not restored: totals start at 0"}, n.messages())
	assert.InDelta(t, 300, n.one("hw.energy").value, 1e-6)
}

func TestAStateThatIsMalformedOrOfAnotherVersionIsNotUsed(t *testing.T) {
	n, s := keptNode(t)
	n.start()
	n.run(300*joule, map[int]int64{10: 500})
	good := s.stored[state.Key]
	const malformed = "storage: the state cannot be restored, and totals start at 0: it is malformed"
	for name, c := range map[string]struct {
		content []byte
		message string
		err     string
	}{
		"another version":       {[]byte{state.Version + 1}, "State not restored: totals start at 0", state.ErrVersion.Error()},
		"the version before":    {[]byte{1, 200, 200}, "State not restored: totals start at 0", state.ErrVersion.Error()},
		"no totals":             {state.Encode(nil, &training.Models{}, nil)[4:], "State not restored: totals start at 0", state.ErrNoTotals.Error()},
		"something else":        {[]byte{state.Version, 200, 200}, "Collection degraded", malformed},
		"a part of the content": {good[4 : len(good)-3], "Collection degraded", malformed},
	} {
		s.stored[state.Key] = sealed(c.content)
		clear(n.finals)
		n.restart()
		n.run(300*joule, map[int]int64{10: 500})
		logged := n.logs.FilterMessage(c.message).All()
		require.Len(t, logged, 1, name)
		assert.Equal(t, c.err, logged[0].ContextMap()["error"], name)
		assert.InDelta(t, 300, n.one("hw.energy").value, 1e-6, name)
	}
}

// sealed returns a content with its checksum.
func sealed(content []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(content)), content...)
}

func TestOtherSettingsStartTotalsAtTheStateAndLoseNothing(t *testing.T) {
	n, _ := keptNode(t)
	n.start()
	n.run(300*joule, map[int]int64{10: 500})
	stamp := n.one("hw.energy").at
	n.passWithout(20*time.Second, 600*joule, map[int]int64{10: 1000})
	clear(n.finals)
	n.restart(func(c *Config) { c.Attribution.Idle = config.IdleUsed })
	n.run(300*joule, map[int]int64{10: 500})
	assert.Equal(t, []string{"Totals start at 0 because the settings have changed. They include the energy since the last collection"}, n.messages())
	assert.InDelta(t, 900, n.one("hw.energy").value, 1e-6)
	assert.True(t, stamp.Add(time.Nanosecond).Equal(n.one("hw.energy").start))
	assert.InDelta(t, 450, n.one("process.energy", pid(10), "energy.state=active").value, 1e-3)
	assert.InDelta(t, 900, n.sum("system.energy", nil), 1e-6)
}

func TestSettingsThatTotalsDoNotDependOnMayChange(t *testing.T) {
	n, _ := keptNode(t)
	n.start()
	n.run(300*joule, map[int]int64{10: 500})
	n.restart(func(c *Config) {
		c.Series.Processes.Max, c.CollectionInterval = 100, time.Minute
		c.Zones = slices.Clone(c.Zones)
		slices.Reverse(c.Zones)
	})
	n.run(300*joule, map[int]int64{10: 500})
	assert.InDelta(t, 600, n.one("hw.energy").value, 1e-6)
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
		assert.InDelta(t, 900, n.one("hw.energy").value, 1e-6)
	}
}

// In a night asleep a counter restarts, and what it shows then is not what it counted since.
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
	assert.InDelta(t, 600, n.one("hw.energy").value, 1e-6)
	assert.Contains(t, n.messages(), "Energy during downtime is incomplete")
}

func TestAStoreThatFailsCostsNothingButTheTotals(t *testing.T) {
	n, s := keptNode(t)
	broken := &brokenStorage{memoryStorage: s}
	n.extensions[storageID] = broken
	n.start()
	n.run(300*joule, map[int]int64{10: 500})
	require.NotEmpty(t, s.stored[state.Key])
	broken.set = errors.New("no space left on device")
	n.run(300*joule, map[int]int64{10: 500})
	n.run(300*joule, map[int]int64{10: 500})
	assert.Equal(t, []string{"Degraded storage"}, n.logged())
	assert.Empty(t, s.stored[state.Key], "totals since are above those")
	broken.set = nil
	n.run(300*joule, map[int]int64{10: 500})
	assert.Equal(t, []string{"Degraded storage", "Recovered storage"}, n.logged())
	assert.NotEmpty(t, s.stored[state.Key])
	assert.InDelta(t, 1200, n.one("hw.energy").value, 1e-6)
}

func TestWithoutABootIDOnlyModelsAreStored(t *testing.T) {
	n, s := keptNode(t, func(c *Config) { c.Attribution.StaticPower = allStatic(config.StaticMinimum) })
	n.host.Files = nil
	n.start()
	n.run(300*joule, map[int]int64{10: 10})
	assert.Equal(t, []string{"Degraded storage"}, n.logged())
	assert.Equal(t, state.Encode(nil, &n.s.state.Training.Trained, nil), s.stored[state.Key])
	assert.NotEmpty(t, n.s.state.Training.Trained.Zones)
}

func TestZonesOfTheStateThatAreGoneEnd(t *testing.T) {
	n, _ := keptNode(t, func(c *Config) { c.Zones = []power.Kind{power.Package, power.DRAM} })
	n.host.Zones["intel-rapl:0:0"] = &hostsim.Zone{Name: "dram", Max: 65_712_999_613, Energy: 5 * joule}
	n.start()
	n.run(300*joule, map[int]int64{10: 500})
	require.Len(t, n.points("hw.energy", nil), 2)
	delete(n.host.Zones, "intel-rapl:0:0")
	n.restart()
	n.run(300*joule, map[int]int64{10: 500})
	assert.InDelta(t, 600, n.one("hw.energy", "hw.type=cpu").value, 1e-6)
	n.run(300*joule, map[int]int64{10: 500})
	assert.Len(t, n.points("hw.energy", nil), 1)
}

// lastNode returns a node whose receiver hands its last collection to the returned sink.
func lastNode(t *testing.T, answer error, edit ...func(*Config)) (*testNode, *consumertest.MetricsSink) {
	n, _ := keptNode(t, edit...)
	sink := new(consumertest.MetricsSink)
	next, err := consumer.NewMetrics(func(ctx context.Context, md pmetric.Metrics) error {
		return errors.Join(answer, sink.ConsumeMetrics(ctx, md))
	})
	require.NoError(t, err)
	n.s.output.next = nextConsumer{next, n.s.delivered}
	require.NoError(t, n.host.Render())
	return n, sink
}

func TestTheLastCollectionIsHandedOnAtShutdown(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"with storage":    func(*Config) {},
		"without storage": func(c *Config) { c.Storage = "" },
		"with windows":    func(c *Config) { c.Window = time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			n, sink := lastNode(t, nil, edit)
			require.NoError(t, n.s.start(t.Context(), n))
			n.run(300*joule, map[int]int64{10: 500})
			n.passWithout(5*time.Second, 100*joule, map[int]int64{10: 100})
			require.NoError(t, n.host.Render())
			require.NoError(t, n.s.shutdown(t.Context()))
			require.Len(t, sink.AllMetrics(), 1)
			n.md = sink.AllMetrics()[0]
			assert.InDelta(t, 400, n.one("hw.energy").value, 1e-6)
			n.balance()
		})
	}
}

func TestALastCollectionThatIsRefusedIsInTheState(t *testing.T) {
	n, _ := lastNode(t, errors.New("the backend is away"))
	require.NoError(t, n.s.start(t.Context(), n))
	n.run(300*joule, map[int]int64{10: 500})
	n.passWithout(5*time.Second, 100*joule, map[int]int64{10: 100})
	require.NoError(t, n.host.Render())
	require.NoError(t, n.s.shutdown(t.Context()))
	assert.Contains(t, n.messages(), "Last collection refused")
	n.restart()
	n.run(300*joule, map[int]int64{10: 500})
	assert.InDelta(t, 700, n.one("hw.energy").value, 1e-6)
	n.s.output.next = nil
	require.NoError(t, n.s.shutdown(t.Context()))
}

func TestAConsumerThatHangsEndsTheShutdownInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := keptNode(t)
		release := make(chan struct{})
		next, err := consumer.NewMetrics(func(context.Context, pmetric.Metrics) error { <-release; return nil })
		require.NoError(t, err)
		n.s.output.next = nextConsumer{next, n.s.delivered}
		require.NoError(t, n.host.Render())
		require.NoError(t, n.s.start(t.Context(), n))
		n.run(300*joule, nil)
		began := time.Now()
		require.NoError(t, n.s.shutdown(t.Context()))
		assert.Equal(t, lastTimeout, time.Since(began))
		close(release)
		synctest.Wait()
	})
}

func TestAStoreThatHangsTakesNoTimeFromTheLastCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := keptNode(t)
		hanging := &hangingStore{s, make(chan struct{})}
		n.extensions[storageID] = hangingStorage{hanging}
		var left time.Duration
		next, err := consumer.NewMetrics(func(ctx context.Context, _ pmetric.Metrics) error {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return ctx.Err()
		})
		require.NoError(t, err)
		n.s.output.next = nextConsumer{next, n.s.delivered}
		require.NoError(t, n.host.Render())
		require.NoError(t, n.s.start(t.Context(), n))
		require.NoError(t, n.s.shutdown(t.Context()))
		assert.Equal(t, lastTimeout, left)
		close(hanging.release)
		synctest.Wait()
	})
}

// hangingStorage is a storage extension with one store.
type hangingStorage struct{ *hangingStore }

func (s hangingStorage) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return s.hangingStore, nil
}

func TestWithoutAMeasurementNothingIsHandedOnAtShutdown(t *testing.T) {
	n, sink := lastNode(t, nil)
	require.NoError(t, n.s.start(t.Context(), n))
	require.NoError(t, os.Remove(filepath.Join(n.host.Root(), "proc/stat")))
	require.NoError(t, n.s.shutdown(t.Context()))
	assert.Empty(t, sink.AllMetrics())

	failed, sink := lastNode(t, nil, func(c *Config) {
		c.Storage = ""
	})
	failed.s.cfg.Model = configoptional.Some(config.ModelConfig{IdlePower: 120, MaxPower: 40})
	require.Error(t, failed.s.start(t.Context(), failed))
	require.NoError(t, failed.s.shutdown(t.Context()))
	assert.Empty(t, sink.AllMetrics())
}

// hangingStore answers once it is released.
type hangingStore struct {
	*memoryStorage
	release chan struct{}
}

func (s *hangingStore) Set(ctx context.Context, key string, value []byte) error {
	<-s.release
	return s.memoryStorage.Set(ctx, key, value)
}
