// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
	"github.com/energyreceiver/energyreceiver/receiver/internal/training"
)

// simStore is a storage extension that fails as files do.
type simStore struct {
	component.StartFunc
	component.ShutdownFunc
	storage.Client // nil: the receiver uses no other methods than those below
	w              *world
	values         map[string][]byte
	older          [][]byte           // states that were stored
	records        map[string]*record // of states, by their text
	faults         storeFaults
	hung           chan bool // receives the result of the write that hangs, and ends it
	putBack        bool      // the state is one of older
}

type storeFaults struct {
	opening, reading bool // fails at the next start
	writing          int  // fails so often
	deleting         bool // fails, too
	hanging          int  // writes hang for so many collections
}

var errStore = errors.New("no space left on device")

// What must have happened to a store.
const (
	storeFull     = "store full"
	storeReadOnly = "store read-only"
	storeHangs    = "store hangs"
	storeIsLate   = "store hangs until a later collection"
	killedWrite   = "receiver killed while its store hangs"
	hasWaited     = "a collection is withheld"
)

// stateFaults change the state in the store of a receiver that is down.
var stateFaults = [...]struct {
	name   string
	change func(s *simStore, value []byte, b uint32) []byte
}{
	{"state damaged", func(_ *simStore, value []byte, b uint32) []byte {
		value[b%uint32(len(value))] ^= 1 << (b % 7)
		return value
	}},
	{"state cut off", func(_ *simStore, value []byte, b uint32) []byte { return value[:b%uint32(len(value))] }},
	{"state deleted", func(*simStore, []byte, uint32) []byte { return nil }},
	{"state of an earlier time", func(s *simStore, value []byte, b uint32) []byte {
		if len(s.older) > 0 { // otherwise only a part of a state was ever stored
			value = s.older[b%uint32(len(s.older))]
		}
		return value
	}},
	{"state of another machine", func(s *simStore, _ []byte, _ uint32) []byte { return foreignState(s.w.tb) }},
}

// happen lets something happen to the store, or to the state in it.
func (s *simStore) happen(e hostsim.Event) {
	switch what := int(e.A % 10); what {
	case 5:
		s.faults.deleting = s.faults.deleting && s.faults.writing > 0
		s.faults.writing += int(1 + e.B%20)
		s.w.fired[storeFull]++
	case 6:
		s.faults.reading = true
	case 7:
		s.faults.opening = true
	case 8:
		s.faults.writing += int(1 + e.B%60)
		s.faults.deleting = true
		s.w.fired[storeReadOnly]++
	case 9:
		s.faults.hanging += int(1 + e.B%30)
	default:
		value := s.values[state.Key]
		if f := stateFaults[what]; s.w.run.s == nil && len(value) > 0 {
			s.w.fired[f.name]++
			s.values[state.Key], s.putBack = f.change(s, slices.Clone(value), e.B), what == 3
		}
	}
}

var foreign struct {
	sync.Once
	state []byte
}

// foreignState is the state of a receiver on another machine.
func foreignState(tb testing.TB) []byte {
	foreign.Do(func() {
		w := newWorld(tb, plan{seed: 4, restarts: true})
		w.start()
		for range 5 {
			w.life.Step(10 * time.Second)
			w.collect()
		}
		foreign.state = w.store.values[state.Key]
		w.close()
	})
	return foreign.state
}

// usable returns the record of the state that the next start finds, nil if it finds none that is
// good. A start that can neither replace nor remove the state, which it tries twice each, does not
// restore it.
func (s *simStore) usable() *record {
	r := s.records[string(s.values[state.Key])]
	switch {
	case s.faults.opening, s.faults.reading:
		s.w.fired["store not readable"]++
		return nil
	case r == nil, r.boot != s.w.boot, s.faults.hanging > 0, s.faults.deleting && s.faults.writing > 2:
		return nil
	}
	if _, err := s.totals(); errors.Is(err, state.ErrNoTotals) { // the machine's clock could not be read
		return nil
	}
	return r
}

// collected ends the hanging of writes after a number of collections.
func (s *simStore) collected() {
	if s.faults.hanging > 0 {
		if s.faults.hanging--; s.faults.hanging == 0 && s.hung != nil {
			s.w.fired[storeIsLate]++
			s.release(true)
		}
	}
}

// settle waits until a write hangs, if writes do.
func (s *simStore) settle() {
	if s.faults.hanging > 0 {
		synctest.Wait()
	}
}

// release ends a write that hangs.
func (s *simStore) release(succeeds bool) {
	if s.hung != nil {
		s.hung <- succeeds
		s.hung = nil
		synctest.Wait() // for the write
	}
}

// withheld notes a collection that was not sent because of the store.
func (s *simStore) withheld() {
	if err := s.w.run.s.state.Err(); err != nil && strings.Contains(err.Error(), "withheld") {
		s.w.fired[hasWaited]++
	}
}

// hasExpired reports whether the lease of the stored state has ended by the clock of the next
// start.
func (s *simStore) hasExpired() bool {
	totals, err := s.totals()
	require.NoError(s.w.tb, err)
	return s.w.life.Host.Now().Sub(totals.ReadAt) > totals.Lease
}

// totals decodes the totals of the stored state.
func (s *simStore) totals() (totals state.Totals, err error) {
	host := s.w.life.Host
	err = state.Decode(s.values[state.Key], &training.Models{}, &totals, state.Moment{
		Boot: s.w.boot.id, At: host.Now(), Clocks: state.Clocks{Boot: host.Uptime, Suspended: host.Suspended},
	})
	return totals, err
}

// forget removes a state that cannot be distinguished from a state of this boot: it is older than
// the machine's reset to a snapshot, and the machine has since run for longer than it had then.
func (s *simStore) forget() {
	r := s.records[string(s.values[state.Key])]
	if r != nil && r.boot.number != s.w.boot.number && r.boot.id == s.w.boot.id && r.uptime <= s.w.life.Host.Uptime {
		delete(s.values, state.Key)
	}
}

// opened ends the faults of a start.
func (s *simStore) opened() { s.faults.opening, s.faults.reading = false, false }

// GetClient implements storage.Extension.
func (s *simStore) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	if s.faults.opening {
		return nil, errStore
	}
	return s, nil
}

// Get implements storage.Client.
func (s *simStore) Get(_ context.Context, key string) ([]byte, error) {
	if s.faults.reading {
		return nil, errStore
	}
	return bytes.Clone(s.values[key]), nil
}

// Set implements storage.Client.
func (s *simStore) Set(_ context.Context, key string, value []byte) error {
	run := &s.w.run
	switch {
	case run.cut:
		return nil
	case s.faults.hanging > 0:
		return s.hang(key, value)
	case s.faults.writing > 0:
		s.faults.writing--
		return errStore
	case run.dying == beforeStored:
		run.cut = true
	case run.dying == whileStored:
		run.cut = true
		s.values[key] = bytes.Clone(value[:len(value)*(run.scrapes%5)/5])
	default:
		s.store(key, value, s.w.backend.record())
		run.cut = run.dying == beforeDelivered
	}
	return nil
}

// hang is a write that hangs. A write of a start is lost: it would store the state that the start
// did not restore.
func (s *simStore) hang(key string, value []byte) error {
	s.w.fired[storeHangs]++
	s.hung = make(chan bool)
	if s.w.run.starting {
		<-s.hung
		return errStore
	}
	r := s.w.backend.record()
	if succeeds := <-s.hung; !succeeds {
		return errStore
	}
	s.store(key, value, r)
	return nil
}

func (s *simStore) store(key string, value []byte, r *record) {
	s.values[key] = bytes.Clone(value)
	s.older = append(s.older, s.values[key])
	s.records[string(value)] = r
	s.putBack = false
	s.w.fired["states stored"]++
}

// Delete implements storage.Client.
func (s *simStore) Delete(_ context.Context, key string) error {
	switch {
	case s.w.run.cut:
	case s.faults.writing > 0 && s.faults.deleting:
		return errStore
	default:
		delete(s.values, key)
	}
	return nil
}

// Close implements storage.Client.
func (*simStore) Close(context.Context) error { return nil }
