// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/pack"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/training"
)

// testStore is a store whose calls fail, or whose writes take a time.
type testStore struct {
	stored      map[string][]byte
	set, remove error
	takes       time.Duration
	closed      int
}

func (s *testStore) Get(_ context.Context, key string) ([]byte, error) { return s.stored[key], nil }

func (s *testStore) Set(_ context.Context, key string, value []byte) error {
	time.Sleep(s.takes)
	if s.set == nil {
		s.stored[key] = value
	}
	return s.set
}

func (s *testStore) Delete(_ context.Context, key string) error {
	if s.remove == nil {
		delete(s.stored, key)
	}
	return s.remove
}

func (s *testStore) Close(context.Context) error {
	s.closed++
	return nil
}

// machine is a machine with a store. Its clock advances when a test says so.
type machine struct {
	t         *testing.T
	root      string
	up, awake time.Duration
	store     *testStore
	interval  time.Duration
	logs      *observer.ObservedLogs // of the last start
	state     *State
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, root: t.TempDir(), store: &testStore{stored: map[string][]byte{}}, interval: 10 * time.Second}
	require.NoError(t, os.MkdirAll(filepath.Join(m.root, "proc/sys/kernel/random"), 0o700))
	m.boot("first")
	m.pass(time.Hour)
	return m
}

func (m *machine) write(path, text string) {
	require.NoError(m.t, os.WriteFile(filepath.Join(m.root, path), []byte(text), 0o600))
}

func (m *machine) boot(id string) { m.write("proc/sys/kernel/random/boot_id", id+"\n") }

func (m *machine) pass(d time.Duration) {
	m.up, m.awake = m.up+d, m.awake+d
	m.write("proc/uptime", fmt.Sprintf("%.2f 0.00\n", m.up.Seconds()))
}

func (m *machine) now() time.Time { return time.Unix(1_800_000_000, 0).Add(m.awake) }

// start starts a receiver, which restores the stored state.
func (m *machine) start() *Totals {
	cfg := config.Default()
	cfg.RootPath, cfg.CollectionInterval = m.root, m.interval
	core, logs := observer.New(zap.DebugLevel)
	clocks := func() (boot, suspended time.Duration) { return m.up, m.up - m.awake }
	m.logs, m.state = logs, New(cfg, zap.New(core), clocks, OpenStorage)
	m.state.in = &Storage{connect: func(context.Context) (store, error) { return m.store, nil }}
	return m.state.Restore(m.t.Context(), m.now())
}

// save stores the totals of a collection, and reports whether the collection may be emitted.
func (m *machine) save(last bool) bool {
	return m.state.Save(m.t.Context(), m.now, training.Zones{}, func(k *Totals) error {
		k.ReadAt, k.BootTime = m.now(), m.now().Add(-m.up)
		k.Window.Ledger.At, k.Window.Ledger.Accounts = m.now(), []ledger.AccountState{{Entity: identity.ProcessEntity}}
		return nil
	}, last)
}

func (m *machine) logged() string {
	require.Equal(m.t, 1, m.logs.Len())
	return m.logs.All()[0].Message
}

const (
	continued = "Totals continue"
	mayBeOld  = "Totals start at 0 because newer totals may have been sent. They include the energy since the stored state"
	otherBoot = "State of another boot: totals start at 0"
	unusable  = "State not restored: totals start at 0"
)

func TestTotalsContinueWithinALeaseAndStartOverAfterIt(t *testing.T) {
	for name, c := range map[string]struct {
		last    bool // the receiver was shut down
		down    func(*machine)
		message string
		totals  bool
	}{
		"a crash":                      {false, func(m *machine) { m.pass(m.state.lease.length) }, continued, true},
		"a crash, longer than a lease": {false, func(m *machine) { m.pass(m.state.lease.length + time.Second) }, mayBeOld, true},
		"a shutdown":                   {true, func(m *machine) { m.pass(maxDown) }, continued, true},
		"too old":                      {true, func(m *machine) { m.pass(maxDown + time.Second) }, unusable, false},
		"another boot":                 {true, func(m *machine) { m.boot("second") }, otherBoot, false},
		"a machine that was set back":  {true, func(m *machine) { m.pass(-time.Minute) }, unusable, false},
		"a night asleep":               {false, func(m *machine) { m.pass(time.Second); m.up += 8 * time.Hour; m.pass(0) }, continued, true},
	} {
		m := newMachine(t)
		require.Nil(t, m.start())
		require.Equal(t, "No state stored: totals start at 0", m.logged())
		m.pass(m.interval)
		require.True(t, m.save(c.last))
		awake := m.awake
		c.down(m)
		totals := m.start()
		assert.Equal(t, c.message, m.logged(), name)
		if !c.totals {
			assert.Nil(t, totals, name)
			continue
		}
		require.NotNil(t, totals, name)
		assert.Equal(t, m.now().Add(awake-m.awake), totals.ReadAt, "%s: the time asleep is no time", name)
		assert.Equal(t, c.message == continued, len(totals.Window.Ledger.Accounts) == 1, name)
	}
}

func TestACollectionIsWithheldForOneLeaseWhileAnOlderStateCouldBeRestored(t *testing.T) {
	m := newMachine(t)
	m.start()
	require.True(t, m.save(false))
	end := m.up + m.state.lease.length
	m.store.set, m.store.remove = errors.New("read-only file system"), errors.New("read-only file system")
	for m.up < end {
		require.False(t, m.save(false))
		require.ErrorContains(t, m.state.Err(), "collections are withheld until")
		m.pass(m.interval)
	}
	require.True(t, m.save(false))
	assert.ErrorContains(t, m.state.Err(), "totals will start at 0 after a restart")
	assert.Nil(t, m.start(), "the next start could restore the state again")
	assert.ErrorContains(t, m.state.Err(), "the state can be neither replaced nor removed")
	m.store.set = nil
	m.pass(time.Second)
	require.NotNil(t, m.start())
	assert.Equal(t, mayBeOld, m.logged())
}

func TestAStateThatCannotBeReplacedIsRemovedAndWithholdsNothing(t *testing.T) {
	m := newMachine(t)
	m.start()
	require.True(t, m.save(false))
	m.store.set = errors.New("no space left on device")
	require.True(t, m.save(false))
	require.ErrorContains(t, m.state.Err(), "no space left on device")
	assert.Empty(t, m.store.stored, "totals since are higher")
	m.store.set = nil
	require.True(t, m.save(false))
	require.NoError(t, m.state.Err())
	assert.NotEmpty(t, m.store.stored)
}

func TestAStoreThatIsAlwaysLateDelaysCollectionsByOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.start()
		require.True(t, m.save(false))
		m.store.takes = storeTimeout + 2*time.Second
		withheld := time.Duration(0)
		for range 100 {
			m.pass(m.interval)
			if !m.save(false) {
				withheld += m.interval
			}
			time.Sleep(m.store.takes) // until the store has written
		}
		assert.Positive(t, withheld)
		assert.LessOrEqual(t, withheld, m.state.lease.length)
	})
}

func TestAStoreThatHangsIsWaitedForOnceAndUsedAgainWhenItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &testStore{stored: map[string][]byte{}, takes: time.Hour}
		k := &Storage{connect: func(context.Context) (store, error) { return s, nil }}
		began := time.Now()
		require.ErrorIs(t, k.set(t.Context(), []byte("first")), errSlow)
		assert.Equal(t, storeTimeout, time.Since(began))
		require.ErrorIs(t, k.set(t.Context(), []byte("second")), errSlow)
		assert.Equal(t, storeTimeout, time.Since(began), "the second call does not wait")
		time.Sleep(s.takes)
		value, err := k.get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "first", string(value))
		s.takes = 0
		require.NoError(t, k.set(t.Context(), []byte("third")))
		require.NoError(t, k.close(t.Context()))
		assert.Equal(t, 1, s.closed)
	})
}

func TestWithoutABootIDOnlyModelsAreStored(t *testing.T) {
	m := newMachine(t)
	require.NoError(t, os.Remove(filepath.Join(m.root, "proc/sys/kernel/random/boot_id")))
	m.start()
	require.True(t, m.save(false))
	require.ErrorContains(t, m.state.Err(), "totals are not stored")
	assert.Equal(t, Encode(nil, &training.Models{}, nil), m.store.stored[Key])
}

func TestTheConditionsOfAnAccountAreStored(t *testing.T) {
	for _, want := range []ledger.AccountState{{Other: true}, {Group: true}, {Live: true}, {Reported: true}} {
		want.Entity, want.Start, want.Owner.Process.Executable = identity.ProgramEntity, time.Unix(1, 0).UTC(), "sh"
		written := pack.NewWriter(nil)
		packAccount(written, &want)
		var got ledger.AccountState
		packAccount(pack.NewReader(written.Bytes()), &got)
		got.Start = got.Start.UTC()
		assert.Empty(t, got.Amounts)
		got.Amounts = nil
		assert.Equal(t, want, got)
	}
}

// earlier returns a state of version 0.1.0, without its checksum, and a moment at which it is restored.
func earlier(t testing.TB) ([]byte, Moment) {
	stored, err := os.ReadFile("../../testdata/0.1.0.state")
	require.NoError(t, err)
	return stored[4:], Moment{Boot: "first", At: time.Unix(1_800_000_000, 0), Clocks: Clocks{Boot: 24 * time.Hour}}
}

// sealed returns a content with its checksum.
func sealed(content []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(content)), content...)
}

func decode(content []byte, now Moment) (trained training.Models, totals Totals, err error) {
	err = Decode(sealed(content), &trained, &totals, now)
	return trained, totals, err
}

func TestAStateThatIsMalformedOrOfAnotherVersionIsNotUsed(t *testing.T) {
	good, now := earlier(t)
	_, _, err := decode(good, now)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		content []byte
		want    error
	}{
		"another version":    {[]byte{Version + 1}, ErrVersion},
		"the version before": {[]byte{1, 200, 200}, ErrVersion},
		"no totals":          {Encode(nil, &training.Models{}, nil)[4:], ErrNoTotals},
		"something else":     {[]byte{Version, 200, 200}, pack.ErrMalformed},
		"a part":             {good[:len(good)-3], pack.ErrMalformed},
	} {
		_, _, err := decode(c.content, now)
		assert.ErrorIs(t, err, c.want, name)
	}
	assert.ErrorIs(t, Decode(append(sealed(good), 0), &training.Models{}, &Totals{}, now), errChecksum)
}

// FuzzDecodeState decodes a state of which a byte is replaced by others. A state that is decoded without an error is
// encoded alike again.
func FuzzDecodeState(f *testing.F) {
	good, now := earlier(f)
	for at := range uint16(len(good)) {
		f.Add(at, []byte{1}) // -1, or 1
		f.Add(at, binary.AppendUvarint(nil, math.MaxUint64))
		f.Add(at, []byte{254, 255, 255, 255, 15}) // the largest number of 32 bits
		f.Add(at, []byte{})
	}
	f.Fuzz(func(t *testing.T, at uint16, put []byte) {
		i := int(at) % len(good)
		content := slices.Concat(good[:i], put, good[i+1:])
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		trained, totals, err := decode(content, now)
		runtime.ReadMemStats(&after)
		require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20+1000*len(content)), "bounded by the input")
		if err != nil {
			return
		}
		again := Encode(nil, &trained, &totals)
		trained, totals, err = decode(again[4:], now)
		require.NoError(t, err)
		require.Equal(t, again, Encode(nil, &trained, &totals))
	})
}
