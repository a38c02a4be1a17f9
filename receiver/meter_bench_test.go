// SPDX-License-Identifier: Apache-2.0

//go:build linux

package energyreceiver

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// meterPause is the time before each collection of BenchmarkMeters, in which caches cool down and
// slow meters are polled.
const meterPause = 100 * time.Millisecond

// BenchmarkMeters measures a collection beside a crowd of which one in a hundred is active: with
// powercap alone (two packages and their DRAM), with all local meters of a machine that also has an
// ACPI power meter, three graphics cards and the counters of a Cray node, and with its zone other
// attributed, too. They take turns, so that what else the machine does is the same for all. ns/op
// has no meaning here.
func BenchmarkMeters(b *testing.B) {
	variants := []struct {
		name  string
		meter []string
		zones []power.Kind
	}{
		{"powercap", only("powercap"), []power.Kind{power.Package, power.DRAM}},
		{"all", drivers.Local(), []power.Kind{power.Package, power.DRAM}},
		{"all+other", drivers.Local(), []power.Kind{power.Package, power.DRAM, power.Other}},
	}
	beside(b, func(b *testing.B) {
		for _, kind := range []cpu.SourceKind{cpu.KindProcfs, cpu.KindBPF} {
			b.Run(string(kind), func(b *testing.B) {
				root, add := allMeters(b)
				var scrapers []*energyScraper
				for _, v := range variants {
					scrapers = append(scrapers, realScraper(b, kind, 0, func(c *Config) {
						c.RootPath, c.Meters.Use, c.Zones = root, v.meter, v.zones
					}))
				}
				used := make([]time.Duration, len(variants))
				for b.Loop() {
					for i, s := range scrapers {
						add()
						time.Sleep(meterPause)
						before := cpuTime(b)
						collect(b, s)
						used[i] += cpuTime(b) - before
					}
				}
				for i, v := range variants {
					b.ReportMetric(float64(used[i].Nanoseconds())/1000/float64(b.N), v.name+"-cpu-µs/op")
					b.ReportMetric(float64(used[i])/float64(used[0]), v.name+"-ratio")
					b.ReportMetric(float64(len(scrapers[i].attributor.Collector.Zones())), v.name+"-zones")
				}
			})
		}
	})
}

// allMeters returns a root with this machine's processes, two packages and the files of other
// meters as recorded from machines. add adds energy to the zones.
func allMeters(b *testing.B) (root string, add func()) {
	root, addPackages := twoPackages(b)
	write := func(name, text string) {
		path := filepath.Join(root, name)
		require.NoError(b, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(b, os.WriteFile(path, []byte(text+"\n"), 0o600))
	}
	for i := range 2 {
		write(fmt.Sprintf("sys/class/powercap/intel-rapl:%d:0/name", i), "dram")
		write(fmt.Sprintf("sys/class/powercap/intel-rapl:%d:0/max_energy_range_uj", i), "65712999613")
	}
	energy := 0
	add = func() {
		addPackages()
		energy += 1_000_000
		for i := range 2 {
			write(fmt.Sprintf("sys/class/powercap/intel-rapl:%d:0/energy_uj", i), fmt.Sprint(energy))
		}
		for i, name := range []string{"0000:03:00.0/hwmon/hwmon10", "0000:0b:00.0/hwmon/hwmon12"} {
			write("sys/devices/pci0000:00/"+name+"/energy1_input", fmt.Sprint(1000+i+energy))
		}
		write("sys/cray/pm_counters/energy", fmt.Sprintf("%d J 1718000000400123 us", 98765432+8*energy/1_000_000))
	}
	lines := func(file string, each func(line string)) {
		text, err := os.ReadFile(filepath.Join("../internal/power", file))
		require.NoError(b, err)
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "zone:") {
				each(line)
			}
		}
	}
	number := regexp.MustCompile(`\bhwmon(\d)`)
	for file, to := range map[string]string{"server_acpi": "hwmon$1", "intel_cards": "hwmon1$1"} {
		lines("hwmon/testdata/"+file+".txt", func(line string) {
			line = number.ReplaceAllString(line, to)
			if name, target, ok := strings.Cut(line, " -> "); ok {
				path := filepath.Join(root, name)
				require.NoError(b, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(b, os.Symlink(target, path))
			} else if name, value, ok := strings.Cut(line, " ="); ok {
				write(name, strings.TrimSpace(value))
			}
		})
	}
	lines("cray/testdata/ex_epyc.txt", func(line string) {
		if name, value, ok := strings.Cut(line, " = "); ok {
			write("sys/cray/pm_counters/"+name, value)
		}
	})
	add()
	return root, add
}
