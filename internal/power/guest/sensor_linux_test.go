// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// mounted reads a tree by a meter, in a synctest bubble.
type mounted struct {
	shared
	meter *power.Poller
}

func mount(t *testing.T, test func(*mounted)) {
	synctest.Test(t, func(t *testing.T) {
		s := shared{t, filepath.Join(t.TempDir(), "energy")}
		m := &mounted{s, power.Poll(NewTree(s.path, nil), PollOptions("powercap"))}
		defer func() { assert.NoError(t, m.meter.Close()) }()
		test(m)
	})
}

// read returns what the meter has after a time.
func (m *mounted) read(after time.Duration) ([]power.Reading, error) {
	time.Sleep(after)
	synctest.Wait()
	readings, err := m.meter.Read(m.Context(), power.Sample{At: time.Now()})
	synctest.Wait()
	return readings, err
}

// pass lets a time pass, and the meter read.
func (m *mounted) pass(d time.Duration) { _, _ = m.read(d) }

// pkg returns the reading of the package after a time.
func (m *mounted) pkg(after time.Duration) power.Reading {
	m.Helper()
	readings, err := m.read(after)
	require.NoError(m, err)
	require.NotEmpty(m, readings)
	return readings[0]
}

// report writes the report of a generation, with package and dram.
func (m *mounted) report(generation, pkg int) {
	m.write(reportFile, fmt.Sprintf(`{"version":1,"epoch":"A","generation":"%d","time_unix_nano":"1700000000000000000",`+
		`"zones":[{"zone":"package","energy_uj":"%d"},{"zone":"dram","energy_uj":"7"}]}`, generation, pkg))
}

func TestTreeMayBeMountedLater(t *testing.T) {
	mount(t, func(m *mounted) {
		_, err := m.read(0)
		require.NoError(t, err)
		_, err = m.read(time.Second)
		require.EqualError(t, err, "meters::powercap::path "+m.path+": no such file or directory")
		require.NotErrorIs(t, err, fs.ErrNotExist, "what is configured is missed")
		require.NoError(t, os.Mkdir(m.path, 0o755))
		_, err = m.read(time.Hour)
		require.EqualError(t, err, "meters::powercap::path "+m.path+": no zone with energy_uj: is the share mounted, and does the hypervisor write to it?")
		m.report(1, 5)
		m.pass(10 * time.Second)
		readings, err := m.read(time.Second)
		require.NoError(t, err)
		assert.Len(t, readings, 2)
	})
}

func TestHalfWrittenTreeIsAnErrorOnceThatLasts(t *testing.T) {
	mount(t, func(m *mounted) {
		m.write("intel-rapl:0/energy_uj", "")
		m.pass(0)
		readings, err := m.read(30 * time.Second)
		require.NoError(t, err)
		require.Empty(t, readings)
		_, err = m.read(2 * time.Second)
		require.EqualError(t, err, "meters::powercap::path "+m.path+": intel-rapl:0: it is half-written")
		m.write("intel-rapl:0/energy_uj", "7")
		m.pass(10 * time.Second)
		require.NoError(t, m.pkg(time.Second).Err)
		m.write("intel-rapl:0/energy_uj", "")
		assert.EqualError(t, m.pkg(time.Hour).Err, "meters::powercap::path "+m.path+" is stale: intel-rapl:0: it is half-written")
	})
}

func TestATreeOfAnotherProgramIsReadOnceTheReportIsMissingForLong(t *testing.T) {
	mount(t, func(m *mounted) {
		m.report(1, 1_000_000)
		m.pass(0)
		m.pass(time.Second)
		m.report(2, 1_000_005)
		m.pass(time.Second + 1)
		require.NoError(t, os.Remove(filepath.Join(m.path, reportFile)))
		m.put(scaphandre)
		_, err := m.read(25 * time.Second)
		require.EqualError(t, err, "meters::powercap::path "+m.path+": report.json: no such file or directory")
		require.Equal(t, units.Energy(5), m.pkg(25*time.Second).Total)
		m.write("intel-rapl:0/energy_uj", "8700002")
		require.Equal(t, units.Energy(7), m.pkg(time.Second).Total)
		m.report(1, 2_000_000)
		m.pass(time.Second)
		m.report(2, 2_000_001)
		require.Equal(t, units.Energy(8), m.pkg(time.Second).Total)
	})
}
