// SPDX-License-Identifier: Apache-2.0

package powercap

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// blockable is a meter as on a sysfs, of which a test can have the files with a name not be opened.
type blockable struct {
	tree
	meter     *Meter
	blocked   string // base name
	unblocked chan struct{}
	opens     map[string]int
	started   time.Time
}

func newBlockable(t *testing.T) *blockable {
	b := &blockable{tree: newTree(t), unblocked: make(chan struct{}), opens: map[string]int{}, started: time.Now()}
	b.zone("intel-rapl:0", "package-0")
	b.meter = b.tree.meter()
	b.meter.files.Search.Always = true
	b.meter.open = func(path string) (*os.File, error) {
		b.opens[filepath.Base(path)]++
		if filepath.Base(path) == b.blocked {
			<-b.unblocked
		}
		return os.Open(path)
	}
	return b
}

// read reads at a time after the start, and fails if that takes longer than wait.
func (b *blockable) read(at, wait time.Duration) (map[string]power.Reading, error) {
	b.Helper()
	time.Sleep(time.Until(b.started.Add(at)))
	began := time.Now()
	readings, err := b.meter.Read(context.Background(), power.Sample{At: after(at)})
	if took := time.Since(began); took > wait {
		b.Errorf("a read took %v, want %v", took, wait)
	}
	return byID(readings), err
}

func (b *blockable) expectHangs(err error) {
	b.Helper()
	synctest.Wait() // for the goroutine that hangs
	if err == nil || !strings.Contains(err.Error(), "looking for files in "+b.path()+" hangs") {
		b.Errorf("error %v, want one that says that looking for zones hangs", err)
	}
}

func TestKnownZonesAreReadWhileADiscoveryHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlockable(t)
		if r, err := b.read(0, 0); err != nil || r["intel-rapl:0"].Err != nil {
			t.Fatal(r, err)
		}
		b.blocked = "name"
		clear(b.opens)
		b.energy("intel-rapl:0", 1100)
		r, err := b.read(10*time.Second, 100*time.Millisecond)
		b.expectTotal(r["intel-rapl:0"], 100)
		assert.NoError(t, err, "it may return soon")
		for i := range 20 {
			b.energy("intel-rapl:0", 1200)
			r, err = b.read(time.Duration(20+i)*time.Second, 0)
			b.expectTotal(r["intel-rapl:0"], 200)
			b.expectHangs(err)
		}
		assert.Equal(t, 1, b.opens["name"])
		b.blocked = ""
		close(b.unblocked)
		synctest.Wait()
		b.zone("intel-rapl:1", "package-1")
		if _, err = b.read(40*time.Second, 0); err != nil {
			t.Error("after it has returned:", err)
		}
		if r, err = b.read(50*time.Second, searchedFor); err != nil || len(r) != 2 || r["intel-rapl:1"].Event != power.Appeared {
			t.Errorf("%+v, %v, want the new zone", r, err)
		}
	})
}

// searchedFor is more than a discovery takes in a bubble.
const searchedFor = 10 * time.Millisecond

// A counter that was closed is opened by the next discovery.
func TestOpeningACounterHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlockable(t)
		b.zone("intel-rapl:1", "package-1")
		if r, err := b.read(0, 0); err != nil || len(r) != 2 {
			t.Fatal(r, err)
		}
		b.blocked = "energy_uj"
		b.write("?\n", "intel-rapl:0", "energy_uj")
		if r, err := b.read(time.Second, 0); err != nil || r["intel-rapl:0"].Err == nil || b.opens["energy_uj"] != 2 {
			t.Fatal(r, err)
		}
		b.energy("intel-rapl:0", 1300)
		b.energy("intel-rapl:1", 1400)
		for i := range 20 {
			r, err := b.read(time.Duration(2+i)*time.Second, 100*time.Millisecond)
			if i > 0 {
				b.expectHangs(err)
			}
			b.expectTotal(r["intel-rapl:1"], 400)
			assert.Error(t, r["intel-rapl:0"].Err, "no error of the counter that is not open")
		}
		assert.Equal(t, 3, b.opens["energy_uj"])
		close(b.unblocked)
		synctest.Wait()
		r, err := b.read(40*time.Second, searchedFor)
		assert.NoError(t, err)
		b.expectTotal(r["intel-rapl:0"], 300)
	})
}

func TestAnOpeningThatHangsDoesNotDelayClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlockable(t)
		b.blocked = "energy_uj"
		_, err := b.read(0, time.Second)
		b.expectHangs(err)
		assert.NoError(t, b.meter.Close())
		close(b.unblocked)
	})
}

func TestReadsOfOpenFilesAllocateNothing(t *testing.T) {
	b := newBlockable(t)
	if _, err := b.read(0, time.Minute); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := b.meter.Read(context.Background(), power.Sample{At: after(time.Second)}); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
