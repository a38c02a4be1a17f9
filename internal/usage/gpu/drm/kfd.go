// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
)

// kfd reads which processes compute through AMD's KFD (drivers/gpu/drm/amd/amdkfd/kfd_process.c,
// kfd_topology.c).
type kfd struct {
	reader    *reader
	devices   *devices
	nodes     []*kfdNode
	processes map[int32]*kfdProcess // by PID
	round     uint64                // the number of Reads with these nodes
}

// kfdNode is a GPU of KFD, or a partition of one.
type kfdNode struct {
	name                    string // of the GPU
	device                  *device
	units                   uint64 // compute units
	sdma                    uint64 // SDMA engines
	occupancy, time, memory string // its files of a process
}

// kfdProcess is the state of a process that has KFD open. Its slices are by the index of the node.
type kfdProcess struct {
	copied []counter // SDMA
	still  []uint8   // the number of Reads since the counter advanced, modulo 256
	round  uint64    // the last Read that listed the process
}

// A counter that did not change is read only once in sdmaRest Reads, because the kernel computes it
// in the memory of the process (kfd_process.c, kfd_sdma_activity_worker). Its time can therefore be
// reported late.
const sdmaRest = 4

// The engine classes of KFD. amdgpu's fdinfo uses other names.
var (
	kfdCompute = []byte("kfd-compute")
	kfdSDMA    = []byte("kfd-sdma")
)

// discoverKFD finds the GPUs of KFD's topology.
func discoverKFD(root string) (found []*kfdNode) {
	topology := filepath.Join(root, "sys/class/kfd/kfd/topology/nodes")
	entries, _ := os.ReadDir(topology) // it does not exist without KFD
	for _, entry := range entries {
		id, err := os.ReadFile(filepath.Join(topology, entry.Name(), "gpu_id"))
		gpuID := string(bytes.TrimSpace(id))
		if err != nil || gpuID == "" || gpuID == "0" { // a node of CPUs
			continue
		}
		properties, err := os.ReadFile(filepath.Join(topology, entry.Name(), "properties"))
		if err != nil {
			continue
		}
		if node := newKFDNode(gpuID, properties); node.units > 0 {
			found = append(found, node)
		}
	}
	return found
}

// newKFDNode returns the GPU with some properties.
func newKFDNode(id string, properties []byte) *kfdNode {
	of := func(name string) uint64 { return property(properties, name) }
	return &kfdNode{
		name: pciAddress(of("domain"), of("location_id")), units: of("simd_count") / max(1, of("simd_per_cu")),
		sdma:      max(1, of("num_sdma_engines")+of("num_sdma_xgmi_engines")),
		occupancy: "stats_" + id + "/cu_occupancy", time: "sdma_" + id, memory: "vram_" + id,
	}
}

// property returns a number of the properties of a node, at most 1<<32, or 0 if it is missing.
func property(properties []byte, name string) uint64 {
	for line := range bytes.Lines(properties) {
		if key, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte{' '}); string(key) == name {
			n, err := kernfs.ParseUint(value)
			if err != nil {
				return 0
			}
			return min(n, 1<<32)
		}
	}
	return 0
}

// pciAddress returns the address of a location: the bus in bits 8 to 15, the device in bits 3 to 7
// and the function below. The bits from 28 on number partitions.
func pciAddress(domain, location uint64) string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, location>>8&0xff, location>>3&0x1f, location&7)
}

// takeOver adopts the GPUs that were found, whose devices are in the list.
func (k *kfd) takeOver(found []*kfdNode) {
	for _, node := range found {
		node.device = named(k.devices.list, node.name)
	}
	if !slices.EqualFunc(found, k.nodes, func(a, b *kfdNode) bool { return *a == *b }) {
		k.nodes, k.processes, k.round = found, map[int32]*kfdProcess{}, 0
	}
}

// read reads the use of KFD since the last Read. A process that was not listed then has opened KFD
// since.
func (k *kfd) read() {
	if len(k.nodes) == 0 {
		return
	}
	var pids []int32
	switch err := k.reader.run(kfdProcesses, (*files).listKFD); {
	case errors.Is(err, kernfs.ErrUnread): // any user can block the list
		for _, node := range k.nodes {
			node.device.compute.hidden = true
		}
		return
	case err == nil:
		pids = k.reader.files().found.entries
	}
	slices.Sort(pids)
	k.round++
	for _, pid := range pids[:min(len(pids), maxClients/len(k.nodes))] {
		p := k.process(pid)
		p.round = k.round
		for i, node := range k.nodes {
			if used := k.readProcess(pid, p, i, node); used > 0 {
				node.device.use(pid, used, time.Time{})
			}
		}
	}
	maps.DeleteFunc(k.processes, func(_ int32, p *kfdProcess) bool { return p.round != k.round })
	for _, d := range k.devices.list {
		d.readUnknown(k.devices.buf)
	}
}

// process returns the process with a PID, which it adds if necessary.
func (k *kfd) process(pid int32) *kfdProcess {
	p := k.processes[pid]
	if p == nil {
		n := len(k.nodes)
		p = &kfdProcess{copied: make([]counter, n), still: make([]uint8, n)}
		for i := range p.copied {
			p.copied[i].begun = k.round > 1 // at 0
		}
		k.processes[pid] = p
	}
	return p
}

// readProcess returns the time that a GPU worked for a process, if KFD shows it.
func (k *kfd) readProcess(pid int32, p *kfdProcess, index int, node *kfdNode) (used units.CPUTime) {
	d := node.device
	n, err := k.number(pid, node.occupancy)
	switch {
	case err == nil:
		used = units.CPUTime(units.MulDiv(uint64(d.elapsed), min(n, node.units), k.unitsOf(d)))
		d.add(kfdCompute, used)
	case denied(err):
		d.compute.hidden = true
		return 0
	case errors.Is(err, kernfs.ErrUnread): // other processes are read
		return 0
	case errors.Is(err, fs.ErrNotExist): // the process exited, or the GPU counts no waves
		if held, err := k.number(pid, node.memory); err == nil && held > 0 {
			d.compute.hold(pid, held)
		}
	}
	if p.still[index]++; p.still[index] > 2 && p.still[index]%sdmaRest != 0 {
		return used
	}
	if n, err := k.number(pid, node.time); err == nil {
		e := engineInfo{ns: n * uint64(time.Microsecond), hasNS: true, capacity: node.sdma}
		copied := p.copied[index].advance(&e, nil, uint64(d.elapsed), false, false)
		used += copied
		d.add(kfdSDMA, copied)
		if copied > 0 {
			p.still[index] = 0
		}
	}
	return used
}

// number returns the number in a file of a process in KFD's directory. Reads may block: for sdma_*,
// the kernel reads the memory of the process, which the process can block, and any user can block
// the directory of the process.
func (k *kfd) number(pid int32, name string) (uint64, error) {
	k.reader.files().file = name
	if err := k.reader.run(kernfs.Subject{PID: pid}, (*files).readKFD); err != nil {
		return 0, err
	}
	return kernfs.ParseUintLine(k.reader.files().text)
}

// readUnknown sets the GPU time of processes whose GPU time KFD does not report: the busy time of
// the GPU (gpu_busy_percent) minus the time of other processes. The time is divided by memory. The
// processes hold memory of the GPU, so the GPU is awake.
func (d *device) readUnknown(buf []byte) {
	c := &d.compute
	if len(c.unknown) == 0 {
		return
	}
	text, err := d.activity.Read(buf)
	if err != nil {
		c.hidden = true
		return
	}
	percent, err := kernfs.ParseUintLine(text)
	if err != nil {
		return
	}
	busy := units.CPUTime(d.elapsed) / 100 * units.CPUTime(min(percent, 100))
	if c.used = units.Advance(d.busy(), busy); c.used == 0 {
		return
	}
	d.add(kfdCompute, busy)
	if gpu.ByMemory(c.parts, c.used, c.held) {
		for i, pid := range c.unknown {
			d.use(pid, c.parts[i], time.Time{})
		}
		c.used = 0
	}
}

// unitsOf returns the compute units of a GPU, of all its partitions.
func (k *kfd) unitsOf(d *device) (n uint64) {
	for _, node := range k.nodes {
		if node.device == d {
			n += node.units
		}
	}
	return n
}
