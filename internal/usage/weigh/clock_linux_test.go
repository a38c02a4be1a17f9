// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/perfevent"
)

// cpus writes the cpufreq files of some CPUs.
func cpus(t *testing.T, root string, rates map[string]string) {
	t.Helper()
	for cpu, rate := range rates {
		path := filepath.Join(root, "sys/devices/system/cpu", cpu, "cpufreq/scaling_cur_freq")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(rate), 0o600))
	}
}

func TestTheClockRateIsReadFromCPUFreqWhereTheCountersCannotBe(t *testing.T) {
	root := t.TempDir()
	cpus(t, root, map[string]string{"cpu0": "3400000\n", "cpu3": "800000\n"})
	m, rejected, err := NewClock(root, 1)
	require.NoError(t, err)
	require.ErrorIs(t, rejected, perfevent.ErrOtherKernel, "counters are of this kernel, and the tree is not")
	defer func() { require.NoError(t, m.Close()) }()
	assert.Equal(t, "clock rate by cpufreq", m.Name())
	got := workOf(t, m, began, Share{CPU: 10 * ms, LastCPU: 0}, Share{CPU: 10 * ms, LastCPU: 3})
	assert.InDeltaSlice(t, []float64{34, 8}, got, 1e-5)

	cpus(t, root, map[string]string{"cpu0": "1000000\n"})
	got = workOf(t, m, began.Add(time.Second), Share{CPU: 10 * ms, LastCPU: 0}, Share{CPU: 10 * ms, LastCPU: 3})
	assert.InDeltaSlice(t, []float64{10, 8}, got, 1e-5, "it is read again")
}

func TestMissingClockRatesAreAnError(t *testing.T) {
	m, _, err := NewClock(t.TempDir(), 1)
	require.ErrorIs(t, err, errNoCPUFreq)
	require.ErrorIs(t, err, perfevent.ErrOtherKernel)
	assert.NotContains(t, err.Error(), "\n")
	assert.Nil(t, m)
}

var noRates = map[string]string{
	"empty": "", "a word": "<unknown>\n", "cut short": "340000", "nothing": "0\n", "negative": "-1\n", "only an end": "\n",
	"beyond all rates": "4294967296\n", "very long": strings.Repeat("9", 100) + "\n", "two": "1 2\n",
}

func TestFilesWithoutARateAreRejected(t *testing.T) {
	for name, text := range noRates {
		root := t.TempDir()
		cpus(t, root, map[string]string{"cpu0": text})
		_, _, err := NewClock(root, 1)
		require.ErrorIs(t, err, errNoRate, name)
	}
}

// A CPU that was offline and returns has a new file, so the test replaces the file.
func TestAnInvalidRateIsUnknown(t *testing.T) {
	for name, text := range noRates {
		root := t.TempDir()
		cpus(t, root, map[string]string{"cpu0": text, "cpu1": "2000000\n"})
		m, _, err := NewClock(root, 1)
		require.NoError(t, err, name)
		shares := []Share{{CPU: 10 * ms, LastCPU: 0}, {CPU: 10 * ms, LastCPU: 1}}
		_, err = m.Weigh(began, shares)
		require.ErrorIs(t, err, errNoRate, name)
		assert.InDelta(t, 20, float64(shares[0].Work)/float64(ms), 1e-5, name)
		assert.InDelta(t, 20, float64(shares[1].Work)/float64(ms), 1e-5, name)
		path := filepath.Join(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
		require.NoError(t, os.Remove(path))
		cpus(t, root, map[string]string{"cpu0": "1000000\n"})
		got := workOf(t, m, began.Add(retryAfter), Share{CPU: 10 * ms, LastCPU: 0})
		assert.InDeltaSlice(t, []float64{10}, got, 1e-5, name)
		require.NoError(t, m.Close())
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestNoFileStaysOpen(t *testing.T) {
	root := t.TempDir()
	cpus(t, root, map[string]string{"cpu0": "3400000\n", "cpu3": "800000\n"})
	before := openDescriptors(t)
	m, _, err := NewClock(root, 1)
	require.NoError(t, err)
	workOf(t, m, began, Share{CPU: ms, LastCPU: 0}, Share{CPU: ms, LastCPU: 3})
	assert.Equal(t, before+2, openDescriptors(t))
	cpus(t, root, map[string]string{"cpu3": "x\n"})
	_, err = m.Weigh(began.Add(time.Second), []Share{{CPU: ms, LastCPU: 0}, {CPU: ms, LastCPU: 3}})
	require.ErrorIs(t, err, errNoRate)
	assert.Equal(t, before+1, openDescriptors(t), "what fails is closed")
	require.NoError(t, m.Close())
	assert.Equal(t, before, openDescriptors(t))
}

func FuzzParseKHz(f *testing.F) {
	f.Add([]byte("3400000\n"))
	f.Add([]byte("4294967295\n"))
	f.Add([]byte("<unknown>\n"))
	f.Add([]byte("340000"))
	f.Fuzz(func(t *testing.T, text []byte) {
		rate, err := parseKHz(text)
		if (err == nil) != (rate > 0) {
			t.Fatalf("%q is %d, %v", text, rate, err)
		}
	})
}
