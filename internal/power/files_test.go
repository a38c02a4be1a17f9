// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

func TestAMachineWithoutCountersIsSearchedOnceAMinute(t *testing.T) {
	var searched []int
	second := 0
	d := Discovery{Find: func() func() error {
		searched = append(searched, second)
		return func() error { return ErrNoZones }
	}}
	for ; second < 300; second++ {
		at := time.Unix(int64(second), 0)
		d.Run(Sample{At: at}, 0)
		require.ErrorIs(t, d.Note(at, false, false), ErrNoZones)
	}
	assert.Equal(t, []int{0, 1, 2, 4, 8, 16, 32, 64, 124, 184, 244}, searched)
}

func TestAZoneThatFailsIsLookedForOnceASecond(t *testing.T) {
	for name, c := range map[string]struct {
		failing func(i int) bool
		first   int // in the read after the first failure
		most    int
	}{
		"fails":          {func(int) bool { return true }, 1, 3},
		"fails at times": {func(i int) bool { return i%2 == 0 }, 1, 3},
		"does not fail":  {func(int) bool { return false }, 0, 0},
	} {
		searched, now := 0, after(0)
		d := Discovery{Find: func() func() error { searched++; return func() error { return nil } }}
		step := func(failing bool) {
			now = now.Add(10 * time.Millisecond)
			d.Run(Sample{At: now}, 1)
			require.NoError(t, d.Note(now, !failing, failing))
		}
		step(false)
		searched = 0
		for i := range 200 {
			if step(c.failing(i)); i == 1 {
				assert.Equal(t, c.first, searched, name)
			}
		}
		assert.LessOrEqual(t, searched, c.most, name)
	}
}

// counters is a directory of files, each of which is a zone.
type counters struct {
	testing.TB
	Files
	dir, name string
	began     time.Time
	opens     int
	opened    *os.File // by the last open
	blocks    bool
	release   chan struct{}
}

// newCounters returns files that show 1000 J, opened on another goroutine if always is set.
func newCounters(t testing.TB, always bool) *counters {
	c := &counters{TB: t, dir: t.TempDir(), began: time.Now(), release: make(chan struct{})}
	c.Meter, c.Search.Dir, c.Search.Always, c.Find = "test", c.dir, always, c.find
	c.open = func(path string) (*os.File, error) {
		if c.opens++; c.blocks {
			<-c.release
		}
		file, err := os.Open(path)
		c.opened = file
		return file, err
	}
	c.set("a", 1000)
	c.set("b", 1000)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func (c *counters) set(zone string, joules int) {
	require.NoError(c, os.WriteFile(filepath.Join(c.dir, zone), fmt.Appendln(nil, joules), 0o600))
}

func (c *counters) find() func() error {
	entries, err := os.ReadDir(c.dir)
	var found []CounterFile
	for _, e := range entries {
		info, _ := e.Info()
		found = append(found, CounterFile{Zone: Zone{ID: e.Name(), Name: c.name}, Path: filepath.Join(c.dir, e.Name()), Info: info})
	}
	return func() error {
		c.Merge(found, nil)
		return err
	}
}

// read returns the counters and errors of zones at a time after the start.
func (c *counters) read(after, wait time.Duration) (shown map[string]Shown, err error) {
	c.Helper()
	time.Sleep(time.Until(c.began.Add(after)))
	began := time.Now()
	answer, err := c.Answer(context.Background(), Sample{At: began})
	assert.LessOrEqual(c, time.Since(began), wait)
	synctest.Wait()
	shown = map[string]Shown{}
	for _, s := range answer.Shown {
		shown[s.Zone.ID] = s
	}
	return shown, err
}

// A counter that was closed is opened by the next discovery.
func TestOpeningACounterHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounters(t, true)
		shown, err := c.read(0, time.Second)
		require.NoError(t, err)
		require.Len(t, shown, 2)
		c.blocks = true
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, "a"), []byte("?\n"), 0o600))
		shown, err = c.read(time.Second, 0)
		require.NoError(t, err)
		require.Error(t, shown["a"].Err)
		c.set("a", 1300)
		c.set("b", 1400)
		for i := range 20 {
			shown, err = c.read(time.Duration(2+i)*time.Second, time.Second)
			if i > 0 && (err == nil || !strings.Contains(err.Error(), "looking for files in "+c.dir+" hangs")) {
				t.Errorf("error %v", err)
			}
			assert.Equal(t, units.Energy(1400), shown["b"].Counter)
			require.ErrorIs(t, shown["a"].Err, errNotOpen)
		}
		assert.Equal(t, 3, c.opens)
		c.blocks = false
		close(c.release)
		synctest.Wait()
		shown, err = c.read(40*time.Second, 0)
		require.NoError(t, err)
		assert.Equal(t, units.Energy(1300), shown["a"].Counter)
	})
}

func TestAnOpeningThatHangsDoesNotDelayClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounters(t, true)
		c.blocks = true
		_, _ = c.read(0, time.Second)
		began := time.Now()
		require.NoError(t, c.Close())
		assert.Zero(t, time.Since(began))
		close(c.release)
		synctest.Wait()
		_, err := c.opened.Stat()
		require.ErrorIs(t, err, os.ErrClosed, "the file is not left to the garbage collector")
	})
}

func TestZonesAreFoundNextToACounterWhoseOpenIsSlowAndFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounters(t, true)
		c.open = func(path string) (*os.File, error) {
			time.Sleep(300 * time.Millisecond)
			if filepath.Base(path) == "b" {
				return nil, os.ErrPermission
			}
			return os.Open(path)
		}
		var shown map[string]Shown
		for second := range time.Duration(20) {
			if second == 5 {
				c.set("c", 7)
			}
			var err error
			shown, err = c.read(second*time.Second, time.Second)
			require.NoError(t, err)
		}
		assert.Equal(t, units.Energy(1000), shown["a"].Counter)
		require.ErrorIs(t, shown["b"].Err, os.ErrPermission)
		assert.Equal(t, units.Energy(7), shown["c"].Counter)
	})
}

func TestMergeKeepsZonesUnlessTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounters(t, false)
		first, err := c.read(0, 0)
		require.NoError(t, err)
		require.NoError(t, os.Remove(filepath.Join(c.dir, "b")))
		c.set("0", 5)
		second, err := c.read(10*time.Second, 0)
		require.NoError(t, err)
		assert.Same(t, first["a"].Zone, second["a"].Zone)
		require.ErrorIs(t, second["b"].Err, os.ErrNotExist)
		assert.Equal(t, units.Energy(5), second["0"].Counter)
		assert.Equal(t, "0", c.shown[0].Zone.ID, "zones are sorted")
		c.name = "another"
		third, err := c.read(20*time.Second, 0)
		require.NoError(t, err)
		assert.NotSame(t, first["a"].Zone, third["a"].Zone)
		assert.Same(t, first["b"].Zone, third["b"].Zone)

		a := CounterFile{Zone: *third["a"].Zone, Path: filepath.Join(c.dir, "a"), Range: 70}
		drop := func(z *Zone) (stays, open bool) { return z.ID != "b", true }
		c.Merge([]CounterFile{a, {Zone: a.Zone, Range: 80}}, drop)
		a.Range = 0
		c.Merge([]CounterFile{a}, drop)
		answer, err := c.Answer(t.Context(), Sample{At: time.Now()})
		require.NoError(t, err)
		require.Len(t, answer.Shown, 2)
		assert.Equal(t, "0", answer.Shown[0].Zone.ID)
		require.NoError(t, answer.Shown[0].Err, "its file stays open")
		assert.Equal(t, units.Energy(70), answer.Shown[1].Range, "the first counts, and is kept")
	})
}
