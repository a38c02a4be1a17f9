// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit/emittest"
	"github.com/energyreceiver/energyreceiver/receiver/internal/state"
)

// FuzzTick runs the receiver on a small host in which one file has arbitrary content, at the start or in the middle,
// and is then restored.
func FuzzTick(f *testing.F) {
	seeds := [][]byte{
		nil, {0}, []byte("\n"), []byte("0\n"), []byte("-1\n"), []byte("18446744073709551615\n"), []byte("9223372036854775808"),
		[]byte("nan"), []byte("1e300\n"), bytes.Repeat([]byte("9"), 5000), []byte("\xff\xfe\xfd"), []byte("262143328850\n"),
		[]byte("10 (app) S 1 10 10 0 -1 4194560 0 0 0 0 18446744073709551615 18446744073709551615 9223372036854775807 9223372036854775807 20 0 1 0 0 0 0\n"),
		[]byte("10 (app) Z 10 10 10 0 -1 0 0 0 0 0 1 1 -5 -5 20 0 1 0 99999999999 0 0\n"),
		[]byte("10 (app) R 0 10 10 0 -1 2129984 0 0 0 0 5000 0 0 0 20 0 2147483647 0 100001 0 0\n"),
		[]byte("10 (a ) (b\n) R 1 1 1 0 0 0 0 0 0 0 7 0 0 0 20 0 1 0 0 0 0"),
		[]byte("cpu  18446744073709551615 0 0 1 0 0 0 0 0 0\n"), []byte("cpu  1 2 3 4\n"), []byte("cpu  0 0 0 0 0 0 0 0 0 0\nbtime 18446744073709551615\n"),
		[]byte("99999999.99 1.00\n"), []byte("0.00 0.00\n"), []byte("usage_usec 18446744073709551\n"), []byte("usage_usec 1\n"),
		[]byte("0::/docker/" + idA + "/docker/" + idB + "\n"), []byte("0::/../../docker/" + idB + "\n"), []byte("0::/machine.slice/machine-qemu\\x2d1\\x2da.scope\n"),
		[]byte("/usr/bin/qemu-kvm\x00-uuid\x00aaaaaaaa-0000-4000-8000-00000000000a\x00"), []byte("/usr/bin/qemu-kvm"),
		[]byte("dram\n"), []byte("psys\n"), []byte("package-1\n"), []byte("1 1 0:1 / / rw - cgroup2 x rw\n"), []byte("1 1 0:1 / /proc rw - cgroup x cpuacct\n"),
	}
	const files = 27
	step := unlessShort(3, 6)
	for i, content := range seeds {
		for file := i % step; file < files; file += step {
			f.Add(byte(file), (i+file)%2 == 0, content)
		}
		if bytes.HasPrefix(content, []byte("10 (")) {
			f.Add(byte(8), false, content) // proc/10/stat
		}
	}
	f.Fuzz(func(t *testing.T, file byte, early bool, content []byte) {
		n := newTestNode(t, func(c *Config) {
			c.Zones = power.Kinds
			c.Series.Processes = byPID(config.ProcessSeriesConfig{MinEnergy: 0.5, Max: 4})
			c.ResourceAttributes.ProcessCommandLine.Enabled = true
			c.Metrics.ProcessCPUTime.Enabled = true
			c.Metrics.ContainerCPUTime.Enabled = true
			c.Metrics.SystemCPUBusy.Enabled = true
		})
		h := n.host
		h.Zones["intel-rapl:0:0"] = &hostsim.Zone{Name: "dram", Max: 65_532_610_987, Energy: 65_500_000_000}
		h.Processes[10] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app", Args: []string{"app", "-x"}, Cgroup: docker(idA)}
		h.Processes[11] = &hostsim.Process{Parent: 10, Comm: "sh", Exe: "/bin/sh", Cgroup: docker(idA)}
		h.Processes[12] = &hostsim.Process{Parent: 1, Comm: "qemu-kvm", Exe: "/usr/bin/qemu-kvm", Args: []string{"qemu-kvm"}}
		h.Cgroups[scope(idA)] = time.Hour
		require.NoError(t, h.Render())
		files := filesBelow(t, h.Root())
		name := files[int(file)%len(files)]
		totals := map[string]float64{}
		tick := func() {
			md, err := n.s.scrape(t.Context())
			require.NoError(t, err)
			n.md = md
			n.accept()
			if md.ResourceMetrics().Len() == 0 {
				return // the node's CPU time could not be read
			}
			checkTotals(t, md, totals)
			n.balance()
		}
		spend := func() {
			h.Run(10*time.Second, map[int]int64{1: 10, 10: 200, 11: 100, 12: 300})
			h.Cgroups[scope(idA)] += 5 * time.Second
			for _, z := range h.Zones {
				z.Energy = (z.Energy + 50*joule) % z.Max
			}
			require.NoError(t, h.Render())
		}
		if early {
			put(t, name, content)
		}
		n.startAsIs()
		spend()
		tick()
		spend()
		put(t, name, content)
		tick()
		h.Processes[11].Cgroup = docker(idB)
		spend()
		tick()
		h.Processes[10].CUser += h.Processes[11].User
		delete(h.Processes, 11)
		delete(h.Processes, 12)
		h.Run(10*time.Second, map[int]int64{10: 100})
		require.NoError(t, h.Render())
		tick()
		tick()
	})
}

// filesBelow returns the files and links below a directory, always in the same order.
func filesBelow(t *testing.T, root string) []string {
	var files []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	}))
	return files
}

// put gives a file a content, or a link a target.
func put(t *testing.T, name string, content []byte) {
	if target := strings.ReplaceAll(string(content), "\x00", ""); filepath.Base(name) == "exe" {
		require.NoError(t, os.Remove(name))
		if target != "" && len(target) < 255 {
			require.NoError(t, os.Symlink(target, name))
		}
		return
	}
	require.NoError(t, os.WriteFile(name, content, 0o600))
}

// checkTotals checks that every value is possible, and that no sum fell.
func checkTotals(t *testing.T, md pmetric.Metrics, before map[string]float64) {
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			for i, p := range dataPoints(m).All() {
				if emittest.IsZeroPoint(dataPoints(m), i) {
					continue
				}
				v := p.DoubleValue()
				require.False(t, math.IsNaN(v) || math.IsInf(v, 0) || v < 0, "%s is %v", m.Name(), v)
				require.LessOrEqual(t, p.StartTimestamp(), p.Timestamp(), m.Name())
				if m.Type() == pmetric.MetricTypeGauge {
					continue
				}
				key := series(m.Name(), rm, p)
				require.GreaterOrEqual(t, v, before[key], key)
				before[key] = v
			}
		}
	}
}

func series(metric string, rm pmetric.ResourceMetrics, p pmetric.NumberDataPoint) string {
	return fmt.Sprint(metric, " ", rm.Resource().Attributes().AsRaw(), p.Attributes().AsRaw(), p.StartTimestamp())
}

// FuzzTrainedModels changes the trained models of a state, and starts the receiver with them.
func FuzzTrainedModels(f *testing.F) {
	rules := []config.StaticModel{config.StaticMinimum, config.StaticResting, config.StaticBase, config.StaticRegression, config.StaticTrained}
	stored := make([][]byte, len(rules))
	trained := make([]bool, len(rules))
	start := func(t *testing.T, rule byte, s *memoryStorage) *testNode {
		n := sharedNode(t, func(c *config.AttributionConfig) {
			c.StaticPower = allStatic(rules[rule])
			c.Tuning = config.StaticTuning{Rest: 1, Base: 10 * time.Second, Samples: 1}
		})
		n.cfg.Storage = storageID.String()
		n.extensions = map[component.ID]component.Component{storageID: s}
		n.start()
		return n
	}
	step := uint16(unlessShort(24, 72))
	for rule := range rules {
		f.Add(byte(rule), uint16(0), uint16(0), []byte(nil)) // as stored
		for at := uint16(0); at < 600; at += step {
			f.Add(byte(rule), at, uint16(1), []byte{255})
			f.Add(byte(rule), at, uint16(9), binary.AppendUvarint(nil, math.MaxUint64))
			for _, number := range []float64{math.NaN(), math.Inf(1), -1e308} {
				f.Add(byte(rule), at, uint16(8), binary.LittleEndian.AppendUint64(nil, math.Float64bits(number)))
			}
			f.Add(byte(rule), at, uint16(math.MaxUint16), []byte(nil))
		}
	}
	f.Fuzz(func(t *testing.T, rule byte, at, length uint16, put []byte) {
		rule %= byte(len(rules))
		if stored[rule] == nil {
			s := &memoryStorage{stored: map[string][]byte{}}
			n := start(t, rule, s)
			for i := range int64(36) {
				n.run(uint64(300+20*(i%12))*joule, map[int]int64{10: 225 + 50*(i%12)})
			}
			trained[rule] = n.trained()
			n.stop()
			models := s.trained(t)
			require.NotEmpty(t, models.Zones)
			stored[rule] = state.Encode(nil, &models, nil)[4:]
		}
		b := stored[rule]
		from := min(int(at), len(b))
		to := min(from+int(length), len(b))
		n := start(t, rule, &memoryStorage{stored: map[string][]byte{state.Key: sealed(slices.Concat(b[:from], put, b[to:]))}})
		if from == to && len(put) == 0 {
			n.run(600*joule, map[int]int64{10: 500})
			require.Equal(t, trained[rule], n.trained(), "nothing was changed")
		}
		totals := map[string]float64{}
		for range 3 {
			n.run(600*joule, map[int]int64{10: 500, 20: 100})
			checkTotals(t, n.md, totals)
			require.InDelta(t, 60, n.sum("system.power", nil), 1e-6)
		}
	})
}

// sealed returns the content of a state with its checksum.
func sealed(content []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(content)), content...)
}

// FuzzRestoredState starts the receiver with a state of which a byte is replaced by others. The checksum is right.
func FuzzRestoredState(f *testing.F) {
	step := uint16(unlessShort(1, 4))
	for at := uint16(0); at < 900; at += step {
		f.Add(at, [][]byte{{1}, binary.AppendUvarint(nil, math.MaxUint64), {254, 255, 255, 255, 15}}[at%3])
	}
	f.Fuzz(func(t *testing.T, at uint16, put []byte) {
		n, s := keptNode(t, func(c *Config) {
			c.Zones = []power.Kind{power.Package, power.DRAM}
			c.Attribution.Scope, c.Attribution.StaticPower = config.ScopeZone, allStatic(config.StaticMinimum)
		})
		n.host.Zones["intel-rapl:0:0"] = &hostsim.Zone{Name: "dram", Max: 65_712_999_613, Energy: 5 * joule}
		collect := func(times int) {
			for range times {
				n.passWithout(10*time.Second, 300*joule, map[int]int64{10: 250, 20: 250})
				require.NoError(t, n.host.Render())
				_, err := n.s.scrape(t.Context())
				require.NoError(t, err)
			}
		}
		n.start()
		collect(2)
		content := s.stored[state.Key][4:]
		i := int(at) % len(content)
		s.stored[state.Key] = sealed(slices.Concat(content[:i], put, content[i+1:]))
		n.passWithout(10*time.Second, 300*joule, map[int]int64{10: 250, 20: 250})
		n.restart()
		collect(3)
	})
}
