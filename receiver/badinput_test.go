// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

func TestWithoutSysTheSensorIsReportedAndFoundLater(t *testing.T) {
	n := newTestNode(t)
	require.NoError(t, n.host.Render())
	sys, away := filepath.Join(n.host.Root(), "sys"), filepath.Join(n.host.Root(), "away")
	require.NoError(t, os.Rename(sys, away))
	n.startAsIs()
	for range 3 {
		n.scrapeAsIs()
		assert.Empty(t, n.points("hw.energy", nil))
		assert.Empty(t, n.points("process.energy", nil))
	}
	assert.Equal(t, []string{"Degraded energy sensor"}, n.logged())
	require.Len(t, n.status, 1)
	assert.ErrorContains(t, n.status[0].Err(), "no powercap interface")
	require.NoError(t, os.Rename(away, sys))
	n.run(0, nil)
	n.run(100*joule, map[int]int64{1: 500})
	assert.InDelta(t, 50, n.one("process.energy", pid(1)).value, 1e-6)
	assert.Equal(t, []string{"Degraded energy sensor", "Recovered energy sensor"}, n.logged())
}

func TestWithoutSysTheModelWorks(t *testing.T) {
	n := newTestNode(t, withModel(40, 120))
	withoutSys := func() {
		require.NoError(t, n.host.Render())
		require.NoError(t, os.RemoveAll(filepath.Join(n.host.Root(), "sys")))
	}
	withoutSys()
	n.startAsIs()
	n.host.Run(10*time.Second, map[int]int64{1: 500})
	withoutSys()
	n.host.Uptime -= 10 * time.Second
	n.scrapeAsIs()
	assert.InDelta(t, 400, n.one("process.energy", pid(1)).value, 1e-4, "80 W for 10 s, half of it active")
}

func TestProcessesThatCannotBeReadAreNotLoggedOneByOne(t *testing.T) {
	n := newTestNode(t)
	for p := 10; p < 210; p++ {
		n.host.Processes[p] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app"}
	}
	n.start()
	n.run(100*joule, map[int]int64{10: 100, 20: 100})
	before := n.logs.Len()
	for p := 10; p < 210; p++ {
		dir := filepath.Join(n.host.Root(), "proc", fmt.Sprint(p))
		for _, name := range []string{"stat", "exe", "cgroup", "cmdline"} {
			if p%2 == 0 || name != "stat" {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
				require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755)) // exists, and cannot be read
			}
		}
	}
	for range 3 {
		n.scrapeAsIs()
		n.balance()
	}
	assert.Equal(t, before, n.logs.Len(), "%v", n.logs.All()[before:])
}

func TestACommandLineOfAMegabyteIsCut(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.ResourceAttributes.ProcessCommandLine.Enabled = true })
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "java", Exe: "/usr/bin/java", Args: []string{"java", strings.Repeat("é", 1<<19)}}
	n.host.Processes[11] = &hostsim.Process{Parent: 1, Comm: "bytes", Exe: "/bin/bytes", Args: []string{strings.Repeat("a\xff", 1<<19)}}
	n.host.Processes[12] = &hostsim.Process{Parent: 1, Comm: "qemu-kvm", Exe: "/usr/libexec/qemu-kvm",
		Args: []string{"qemu-kvm", "-device", strings.Repeat("x", 60_000), "-uuid", "6f9619ff-8b86-4011-b42d-00cf4fc964ff"}}
	n.start()
	n.run(100*joule, map[int]int64{10: 100, 11: 100, 12: 100})
	for _, p := range []int{10, 11, 12} {
		line := n.one("process.energy", pid(p)).attributes["process.command_line"]
		assert.LessOrEqual(t, len(line), 4096)
		assert.Greater(t, len(line), 4000)
		assert.True(t, utf8.ValidString(line))
	}
	assert.Equal(t, "6f9619ff-8b86-4011-b42d-00cf4fc964ff", n.one("vm.energy").attributes["vm.id"], "only the first 64 KiB are read")
}

func TestProcessesCannotMakeACollectionLarge(t *testing.T) {
	n := newTestNode(t)
	const hypervisors = 33
	used := map[int]int64{}
	for p := 10; p < 10+hypervisors; p++ {
		n.host.Processes[p] = &hostsim.Process{Parent: 1, Comm: "qemu", Exe: "/tmp/qemu-system-x86_64",
			Args: []string{"qemu", "-name", "guest=" + strings.Repeat("x", 130_000)}}
		used[p] = 10
	}
	n.start()
	n.run(100*joule, used)
	assert.Len(t, n.points("vm.energy", nil), hypervisors)
	var m pmetric.ProtoMarshaler
	assert.Less(t, m.MetricsSize(n.md), 100_000)
}

func TestACgroupFileLongerThanAPageIsReadInFull(t *testing.T) {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "%d:name=hierarchy%d:/some/path/of/no/container/%s\n", i+2, i, strings.Repeat("x", 60))
	}
	b.WriteString("1:cpu,cpuacct:/docker/" + idA)
	require.Greater(t, b.Len(), 4096)
	n := newTestNode(t)
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app", Cgroup: b.String()}
	n.start()
	n.run(100*joule, map[int]int64{10: 100})
	assert.InDelta(t, 10, n.one("container.energy", "container.id="+idA).value, 1e-6)
}

func TestTheHighestPidIsMeasured(t *testing.T) {
	const highest = 1 << 22 // PID_MAX_LIMIT
	n := newTestNode(t)
	n.host.Processes[highest] = &hostsim.Process{Parent: 1, Comm: "last", Exe: "/bin/last"}
	n.start()
	n.run(100*joule, map[int]int64{highest: 100})
	assert.InDelta(t, 10, n.one("process.energy", pid(highest)).value, 1e-6)
}

func TestNamesOfDirectoriesThatAreNoPidsAreSkipped(t *testing.T) {
	n := newTestNode(t)
	require.NoError(t, n.host.Render())
	for _, name := range []string{"self", "0", "007", "-5", "12a", "99999999999999999999", " 3", "4294967297"} {
		dir := filepath.Join(n.host.Root(), "proc", name)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		stat := "7 (x) S 1 7 7 0 -1 0 0 0 0 0 500 0 0 0 20 0 1 0 0 0 0\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600))
	}
	n.startAsIs()
	n.host.Run(10*time.Second, map[int]int64{1: 100})
	n.host.Zones["intel-rapl:0"].Energy += 100 * joule
	for _, name := range []string{"stat", "uptime", "1/stat"} { // the other files are rendered
		require.NoError(t, os.Remove(filepath.Join(n.host.Root(), "proc", name)))
	}
	n.scrape()
	assert.Len(t, n.points("process.energy", nil), 2, "init and the others")
}

func TestATaskMayHaveAnyName(t *testing.T) {
	for name, want := range map[string]string{
		"a ) (b":          "a ) (b",
		")":               ")",
		"(":               "(",
		") R 1 1 (":       ") R 1 1 (",
		"two\nlines":      "two\nlines",
		"\xff\xfe":        "\uFFFD",
		"tab\there":       "tab\there",
		"ünïcödé":         "ünïcödé",
		" ":               " ",
		"15 bytes and mo": "15 bytes and mo",
	} {
		n := newTestNode(t)
		n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: name}
		n.start()
		n.run(100*joule, map[int]int64{10: 100})
		p := n.one("process.energy", pid(10))
		assert.Equal(t, want, p.attributes["process.executable.name"])
		assert.InDelta(t, 10, p.value, 1e-6, "%q", name)
	}
}

func TestATruncatedProcessStatLosesNoEnergy(t *testing.T) {
	n := newTestNode(t)
	n.host.Processes[10] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app"}
	n.host.Processes[20] = &hostsim.Process{Parent: 1, Comm: "other", Exe: "/bin/other"}
	n.start()
	n.run(0, nil)
	path := filepath.Join(n.host.Root(), "proc/10/stat")
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	n.host.Run(10*time.Second, map[int]int64{10: 100, 20: 100})
	require.NoError(t, n.host.Render())
	for _, length := range []int{0, 1, 3, 7, 20, len(whole) / 2} {
		require.NoError(t, os.WriteFile(path, whole[:length], 0o600))
		md, err := n.s.scrape(t.Context())
		require.NoError(t, err)
		n.md = md
		n.balance()
		assert.Len(t, n.points("process.energy", nil, pid(10)), 1, "%d bytes", length)
	}
	n.run(100*joule, map[int]int64{20: 100})
	assert.InDelta(t, 5, n.one("process.energy", pid(10)).value, 1e-6, "its earlier time is known now")
}

func TestATruncatedNodeStatIsCoveredByTheNextScrape(t *testing.T) {
	for _, content := range []string{"", "cpu", "cpu  1 2", "cpu 1 2 3 x\n", "intr 1\n", strings.Repeat("9", 10_000)} {
		n := newTestNode(t)
		n.start()
		n.run(100*joule, map[int]int64{1: 500})
		stat := filepath.Join(n.host.Root(), "proc/stat")
		require.NoError(t, os.WriteFile(stat, []byte(content), 0o600))
		n.scrapeAsIs()
		assert.Zero(t, n.md.MetricCount())
		assert.Equal(t, []string{"Degraded node CPU time"}, n.logged())
		n.run(100*joule, map[int]int64{1: 500})
		assert.InDelta(t, 100, n.one("process.energy", pid(1)).value, 1e-6)
	}
}
