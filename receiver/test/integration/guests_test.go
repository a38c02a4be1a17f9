// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// hostConfig is the configuration of a hypervisor's collector. The power of the CPUs is constant,
// and the test serves the counter of the memory. Virtual machines also get the idle energy.
const hostConfig = `
extensions:
  energyguests: {path: TREES}
receivers:
  energy:
    collection_interval: 1s
    initial_delay: 0s
    meters:
      use: []
      http/memory: {endpoint: MEMORY, pointer: /energy, unit: mJ, zone: dram, poll_interval: 1s}
    model: {idle_power: 100, max_power: 100}
    zones: [package, dram]
    cpu_time: procfs
    attribution: {preset: kepler, idle: used}
` + fileExporter

// configOfHost returns the configuration of a collector that writes trees below a directory.
func configOfHost(t *testing.T, trees string) string {
	t.Helper()
	return strings.NewReplacer(
		"MEMORY", servesEnergy(t, newConsumption(30)), "TREES", trees, "service:", "service:\n  extensions: [energyguests]",
	).Replace(hostConfig)
}

// sharedModules are the drivers of a directory that the hypervisor shares by 9p or virtiofs.
var sharedModules = []string{"virtio_pci", "9pnet_virtio", "9p", "virtiofs"}

// servesEnergy serves the energy of a consumption, in whole millijoules, and returns the address.
func servesEnergy(t *testing.T, consumed *consumption) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]uint64{"energy": uint64(consumed.joules(time.Now()) * 1000)})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// vmEnergy is the energy of a virtual machine by zone kind, in microjoules.
type vmEnergy struct{ pkg, dram int64 }

func (a vmEnergy) plus(b vmEnergy) vmEnergy { return vmEnergy{a.pkg + b.pkg, a.dram + b.dram} }

func (a vmEnergy) minus(b vmEnergy) vmEnergy { return vmEnergy{a.pkg - b.pkg, a.dram - b.dram} }

// tree is the directory where a virtual machine receives its energy, and the states that were read
// from it.
type tree struct {
	path string

	mu     sync.Mutex
	states []treeState
}

// treeState is a generation of a tree.
type treeState struct {
	generation uint64
	epoch      string
	energy     vmEnergy
}

// watchTree creates the directory and reads it until the test ends.
func watchTree(t *testing.T, path string) *tree {
	t.Helper()
	require.NoError(t, os.Mkdir(path, 0o755))
	w := &tree{path: path}
	ending, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for ticker := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-ending:
				return
			case <-ticker.C:
				w.looks()
			}
		}
	}()
	t.Cleanup(func() { close(ending); <-done })
	return w
}

// looks records the report if it is new.
func (w *tree) looks() {
	text, err := os.ReadFile(filepath.Join(w.path, "report.json"))
	var report struct {
		Epoch      string `json:"epoch"`
		Generation uint64 `json:"generation,string"`
		Zones      []struct {
			Kind   string `json:"zone"`
			Energy int64  `json:"energy_uj,string"`
		} `json:"zones"`
	}
	if err != nil || json.Unmarshal(text, &report) != nil || len(report.Zones) < 2 || report.Generation == w.last().generation {
		return
	}
	s := treeState{generation: report.Generation, epoch: report.Epoch}
	for _, z := range report.Zones {
		if z.Kind == "dram" {
			s.energy.dram = z.Energy
		} else {
			s.energy.pkg = z.Energy
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states = append(w.states, s)
}

func (w *tree) all() []treeState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.states[:len(w.states):len(w.states)]
}

// last returns the latest generation, or the zero treeState before the first one.
func (w *tree) last() treeState {
	if all := w.all(); len(all) > 0 {
		return all[len(all)-1]
	}
	return treeState{}
}

// grows waits for a number of new generations.
func (w *tree) grows(t *testing.T, more int) {
	t.Helper()
	want := len(w.all()) + more
	eventually(t, "the tree "+w.path+" has new generations", func() bool { return len(w.all()) >= want })
}

// requireOneSeries checks that the generations follow each other in one epoch and that energy never
// decreases.
func (w *tree) requireOneSeries(t *testing.T) {
	t.Helper()
	all := w.all()
	require.NotEmpty(t, all)
	for i, s := range all[1:] {
		require.Equal(t, all[0].epoch, s.epoch, "epoch of %s", w.path)
		require.Greater(t, s.generation, all[i].generation, "generation of %s", w.path)
		grown := s.energy.minus(all[i].energy)
		require.GreaterOrEqual(t, min(grown.pkg, grown.dram), int64(0), "%s: %+v after %+v", w.path, s, all[i])
	}
}

// microjoules returns the totals of a metric after each emission.
func microjoules(emissions []emission, metric string, want ...string) (all []vmEnergy) {
	pkg := totals(emissions, metric, append(want, "energy.zone=package")...)
	dram := totals(emissions, metric, append(want, "energy.zone=dram")...)
	for i := range emissions {
		all = append(all, vmEnergy{int64(math.Round(pkg[i] * 1e6)), int64(math.Round(dram[i] * 1e6))})
	}
	return all
}

// attributed returns the totals of a virtual machine that successive collectors of the host sent.
// The totals of a collector start at the last total of the previous collector.
func attributed(t *testing.T, uuid string, hosts ...*collector) map[vmEnergy]bool {
	t.Helper()
	all := map[vmEnergy]bool{}
	var before vmEnergy
	for _, h := range hosts {
		var last vmEnergy
		for _, last = range microjoules(readEmissions(t, h.out), "vm.energy", "vm.id="+uuid) {
			all[before.plus(last)] = true
		}
		before = before.plus(last)
	}
	return all
}

// requireHosts checks that the totals of the collector equal the host's: the energy that the host
// attributed since one of several exported states. Processes, unattributed and idle energy count
// together, to the microjoule.
func (c *guestCollector) requireHosts(t *testing.T, states []treeState, host map[vmEnergy]bool, zones ...string) {
	t.Helper()
	requireBalance(t, c.emissions, zones...)
	sums := make([]vmEnergy, len(c.emissions))
	for _, part := range [][]vmEnergy{
		microjoules(c.emissions, "process.energy"), microjoules(c.emissions, "system.unattributed.energy"),
		microjoules(c.emissions, "system.energy", "energy.state=idle"),
	} {
		for i := range sums {
			sums[i] = sums[i].plus(part[i])
		}
	}
	different := map[vmEnergy]bool{}
	for _, s := range sums {
		different[s] = true
	}
	assert.Greater(t, len(different), 1, "totals of %s, %s", c.name, c.dir)
	began := slices.IndexFunc(states, func(s treeState) bool {
		return !slices.ContainsFunc(sums, func(sum vmEnergy) bool { return !host[s.energy.plus(sum)] })
	})
	require.GreaterOrEqual(t, began, 0, "%s, %s: totals that are the host's since one of its states: %+v, the states are %+v", c.name, c.dir, sums, states)
	last := sums[len(sums)-1]
	t.Logf("%s, %s: %d totals are the host's to the microjoule, %.6f J of package and %.6f J of dram from generation %d on",
		filepath.Base(c.dir), c.name, len(different), float64(last.pkg)/1e6, float64(last.dram)/1e6, states[began].generation)
	c.requireReported(t)
}

// requireGenerations checks that every generation of the tree equals a total that the host
// attributed, and that the totals of each collector of the guest belong to generations.
func (w *tree) requireGenerations(t *testing.T, host map[vmEnergy]bool, guests ...*guestCollector) {
	t.Helper()
	w.requireOneSeries(t)
	for _, s := range w.all() {
		require.True(t, host[s.energy], "%s: the host did not send %+v", w.path, s)
	}
	for _, c := range guests {
		c.requireHosts(t, w.all(), host, "package", "dram")
	}
}

// requireReported checks that all energy has the method "reported".
func (c *guestCollector) requireReported(t *testing.T) {
	t.Helper()
	for _, e := range c.emissions {
		for _, p := range e {
			if strings.HasSuffix(p.metric, ".energy") && p.metric != "system.unattributed.energy" {
				require.Equal(t, "reported", p.attributes["energy.method"], "%s of %s", p.metric, c.name)
			}
		}
	}
}

// sharedMachine is a machine of libvirt with a directory where it receives its energy.
type sharedMachine struct {
	machine
	*guest
	tree    *tree
	modules []string
}

// defines defines a machine in libvirt.
func (l *libvirt) defines(t *testing.T, m *sharedMachine, k kernel, initramfs string) {
	t.Helper()
	devices := fmt.Sprintf(`<serial type='file'><source path='%s'/><target port='0'/></serial>
    <serial type='unix'><source mode='connect' path='%s'/><target port='1'/></serial>
    <filesystem type='mount' accessmode='passthrough'>
      <source dir='%s'/>
      <target dir='energy'/>
      <readonly/>
    </filesystem>`, m.console(), m.socket, m.tree.path)
	l.virsh(t, "define", m.domain(t, k, initramfs, 1024, "console=ttyS0 quiet panic=-1 tsc=unstable guest.agent=/dev/ttyS1", devices))
	t.Cleanup(func() { l.virsh(t, "undefine", m.name) })
}

// measures waits until a started machine is up, and starts a load and a collector there.
func (m *sharedMachine) measures(t *testing.T, name, source string) *guestCollector {
	t.Helper()
	m.connects(t)
	m.loads(t, m.modules...)
	m.mounts9p(t, "/mnt/energy")
	m.starts(t, "load", "", "/load", "burn", "30", "0")
	return m.readsTree(t, name, "/mnt/energy", source)
}

// mounts9p mounts the directory that the hypervisor shares as "energy".
func (g *guest) mounts9p(t *testing.T, at string) {
	t.Helper()
	g.mounts(t, "9p", "energy", at, unix.MS_RDONLY, "trans=virtio,version=9p2000.L,cache=none")
}

// readsTree starts a collector that reads a directory.
func (g *guest) readsTree(t *testing.T, name, path, source string) *guestCollector {
	t.Helper()
	return g.startsCollector(t, name, "meters: {powercap: {path: "+path+"}}", "zones: [package, dram]", "cpu_time: "+source)
}

// guestPrograms returns a collector and a load for a guest.
func guestPrograms(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{"load": build(t, "load"), "otelcol-energy": collectorBinary(t)}
}

// sharedDirectory returns a directory for trees.
func sharedDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "energy-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// Two machines of libvirt read the energy that the host's collector attributed to them. One is
// stopped and started, the other paused, and the host's collector is stopped for a while.
func TestLibvirtMachinesReceiveTheirEnergy(t *testing.T) {
	need(t)
	k := guestKernel(t, "6.1.", "amd64")
	files := guestPrograms(t)
	files["init"] = build(t, "guest")
	modules := k.addModules(t, files, sharedModules...)
	initramfs := filepath.Join(t.TempDir(), "initramfs")
	writeInitramfs(t, initramfs, files)
	l := startLibvirt(t)
	shared := sharedDirectory(t)
	config := configOfHost(t, shared)
	host := runCollector(t, "host-1", config)

	all := []*sharedMachine{
		{machine: machine{name: "paused", uuid: "7b1e54c6-0a3d-4f92-8c57-d96e2f41b083"}},
		{machine: machine{name: "restarted", uuid: "c25f80d9-6e17-4ba4-9f38-15a7e60d3c72"}},
	}
	paused, restarted := all[0], all[1]
	for _, m := range all {
		m.guest, m.tree, m.modules = newGuest(t, "energy-"+m.name), watchTree(t, filepath.Join(shared, m.name)), modules
		l.defines(t, m, k, initramfs)
		t.Cleanup(func() { l.virsh(t, "destroy", m.name) })
		l.virsh(t, "start", m.name)
	}
	steady := paused.measures(t, "steady", "auto")
	first := restarted.measures(t, "first", "procfs")
	first.emits(t, 5)
	steady.emits(t, 5)

	first.stops(t)
	l.virsh(t, "destroy", restarted.name)
	l.virsh(t, "start", restarted.name)
	l.virsh(t, "suspend", paused.name)
	paused.tree.grows(t, 2) // the generation during which it was suspended, and one more
	before := paused.tree.last()
	second := restarted.measures(t, "second", "procfs")
	second.emits(t, 5)
	after := paused.tree.last()
	l.virsh(t, "resume", paused.name)
	steady.emits(t, 2)

	host.stop(t)
	steady.says(t, degraded, 0)
	second.says(t, degraded, 0)
	gone := steady.lasts(t, 2)
	again := runCollector(t, "host-2", config)
	steady.says(t, recovered, 0)
	second.says(t, recovered, 0)
	steady.emits(t, 3)
	second.emits(t, 3)
	steady.stops(t)
	second.stops(t)
	paused.tree.grows(t, 2)
	again.stop(t)

	paused.tree.requireGenerations(t, attributed(t, paused.uuid, host, again), steady)
	restarted.tree.requireGenerations(t, attributed(t, restarted.uuid, host, again), first, second)
	assert.Greater(t, after.generation, before.generation+3, "generations of a paused machine")
	grown := after.energy.minus(before.energy)
	t.Logf("while it was paused the machine had %.6f J of package in %d generations", float64(grown.pkg)/1e6, after.generation-before.generation)
	assert.Less(t, grown.pkg, int64(1e6), "energy of a paused machine, in microjoules")
	assert.Zero(t, steady.gained("intel-rapl:0", gone), "energy while the host's collector is stopped")
	t.Logf("while the host's collector is stopped: %s", steady.degraded())
}

// A machine without a manager reads its directory by 9p and by virtiofs at once.
func TestEnergyBy9PAndVirtiofs(t *testing.T) {
	need(t)
	virtiofsd := "/usr/lib/qemu/virtiofsd"
	if _, err := os.Stat(virtiofsd); err != nil {
		t.Skip("lacks " + virtiofsd + ": apt-get install qemu-system-common (Debian 12)")
	}
	k := guestKernel(t, "6.1.", "amd64")
	t.Parallel()
	shared := sharedDirectory(t)
	m := machine{name: "shared", uuid: "e90a3d17-52bc-4d68-b1f4-08c76e9a2d5f"}
	w := watchTree(t, filepath.Join(shared, m.name))
	host := runCollector(t, "host", configOfHost(t, shared))

	socket := filepath.Join(sharedDirectory(t), "socket")
	startDaemon(t, exec.Command(virtiofsd, "--socket-path="+socket, "-o", "source="+w.path, "-o", "cache=none", "-o", "sandbox=chroot"),
		filepath.Join(cache(t), "virtiofsd.log"))
	eventually(t, "virtiofsd listens", func() bool { _, err := os.Stat(socket); return err == nil })
	g := startGuest(t, &guestOptions{
		name: "energy-" + m.name, kernel: k, files: guestPrograms(t), modules: sharedModules,
		qemu: []string{
			"-name", "guest=" + m.name, "-uuid", m.uuid,
			"-machine", "memory-backend=memory", "-object", "memory-backend-memfd,id=memory,size=1G,share=on",
			"-virtfs", "local,path=" + w.path + ",mount_tag=energy,security_model=none,readonly=on",
			"-chardev", "socket,id=virtiofsd,path=" + socket, "-device", "vhost-user-fs-pci,chardev=virtiofsd,tag=energyfs",
		},
	})
	g.mounts9p(t, "/mnt/9p")
	g.mounts(t, "virtiofs", "energyfs", "/mnt/virtiofs", unix.MS_RDONLY, "")
	g.starts(t, "load", "", "/load", "burn", "60", "0")
	collectors := []*guestCollector{g.readsTree(t, "9p", "/mnt/9p", "procfs"), g.readsTree(t, "virtiofs", "/mnt/virtiofs", "procfs")}
	for _, c := range collectors {
		c.emits(t, 6)
	}
	for _, c := range collectors {
		c.stops(t)
	}
	g.powersOff(t)
	host.stop(t)
	w.requireGenerations(t, attributed(t, m.uuid, host), collectors...)
}
