// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/stall"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// kfd reads which processes compute through AMD's KFD (drivers/gpu/drm/amd/amdkfd/kfd_process.c,
// kfd_topology.c).
type kfd struct {
	nodes     []*kfdNode
	processes []*kfdProcess // by PID
	listed    []int32       // PIDs, of this Read
	begun     bool          // there was a Read with nodes
}

// kfdNode is a GPU of KFD, or a partition of one.
type kfdNode struct {
	id                      string // gpu_id
	device                  *device
	units                   uint64 // compute units
	sdma                    uint64 // SDMA engines
	occupancy, time, memory string // its files of a process
}

// kfdProcess is a process that has KFD open.
type kfdProcess struct {
	pid    int32
	used   []units.CPUTime // in the interval, by the index of the node
	copied []counter       // SDMA
	still  []uint8         // for how many Reads the counter stood still, modulo 256
}

// sdmaRest is in which Read a counter that stands still is read: the kernel sums it up in the
// memory of the process (kfd_process.c, kfd_sdma_activity_worker). What it counts meanwhile is
// reported late.
const sdmaRest = 4

// The engine classes of KFD. amdgpu's fdinfo has none of these names.
var (
	kfdCompute = []byte("kfd-compute")
	kfdSDMA    = []byte("kfd-sdma")
)

// foundKFD is a GPU of KFD's topology, and the name of its device.
type foundKFD struct {
	kfdNode
	device string
}

// discoverKFD finds the GPUs of KFD's topology.
func (s *Source) discoverKFD() (found []foundKFD) {
	const topology = "sys/class/kfd/kfd/topology/nodes"
	entries, _ := os.ReadDir(s.path(topology)) // without KFD there is none
	for _, entry := range entries {
		id, err := os.ReadFile(s.path(topology, entry.Name(), "gpu_id"))
		gpuID := string(bytes.TrimSpace(id))
		if err != nil || gpuID == "" || gpuID == "0" { // a node of CPUs
			continue
		}
		properties, err := os.ReadFile(s.path(topology, entry.Name(), "properties"))
		if err != nil {
			continue
		}
		if node := newKFDNode(gpuID, properties); node != nil {
			found = append(found, foundKFD{*node, pciAddress(property(properties, "domain"), property(properties, "location_id"))})
		}
	}
	return found
}

// takeOver adopts the GPUs that were found. Their devices are already known.
func (k *kfd) takeOver(s *Source, all []foundKFD) {
	var found []*kfdNode
	for i := range all {
		node := &all[i].kfdNode
		node.device = s.found(&foundDevice{name: all[i].device})
		found = append(found, node)
	}
	same := slices.EqualFunc(found, k.nodes, func(a, b *kfdNode) bool { return *a == *b })
	if !same {
		k.nodes, k.processes, k.begun = found, nil, false
	}
}

// newKFDNode returns the GPU with some properties, nil for one without compute units.
func newKFDNode(id string, properties []byte) *kfdNode {
	n := &kfdNode{
		id: id, units: property(properties, "simd_count") / max(1, property(properties, "simd_per_cu")),
		sdma:      max(1, property(properties, "num_sdma_engines")+property(properties, "num_sdma_xgmi_engines")),
		occupancy: "stats_" + id + "/cu_occupancy", time: "sdma_" + id, memory: "vram_" + id,
	}
	if n.units == 0 {
		return nil
	}
	return n
}

// property returns a number of a node's properties, 0 if it is not there.
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

// read reads what processes used since the last Read. One that is new opened KFD since then.
func (k *kfd) read(s *Source) {
	if len(k.nodes) == 0 {
		return
	}
	switch err := s.run(0, 0, 0, (*files).listKFD); {
	case errors.Is(err, stall.ErrUnread): // any user can block the list
		for _, node := range k.nodes {
			node.device.hidden = true
		}
		return
	case err != nil:
		k.listed = k.listed[:0]
	default:
		k.listed = append(k.listed[:0], s.files.Job().listed...)
	}
	slices.Sort(k.listed)
	k.listed = k.listed[:min(len(k.listed), maxClients/len(k.nodes))]
	k.match()
	for _, p := range k.processes {
		for i, node := range k.nodes {
			p.used[i] = p.read(k, i, node, s)
		}
	}
	for _, d := range s.devices {
		d.readUntold(s.text)
	}
	k.begun = true
}

// match makes the processes those that are listed.
func (k *kfd) match() {
	if slices.EqualFunc(k.listed, k.processes, func(pid int32, p *kfdProcess) bool { return pid == p.pid }) {
		return
	}
	known := k.processes
	k.processes = nil
	for _, pid := range k.listed {
		i, ok := slices.BinarySearchFunc(known, pid, func(p *kfdProcess, pid int32) int { return int(p.pid) - int(pid) })
		if ok {
			k.processes = append(k.processes, known[i])
			continue
		}
		n := len(k.nodes)
		p := &kfdProcess{pid: pid, used: make([]units.CPUTime, n), copied: make([]counter, n), still: make([]uint8, n)}
		for i := range p.copied {
			p.copied[i].begun = k.begun // at 0
		}
		k.processes = append(k.processes, p)
	}
}

// read returns for how long a GPU worked for the process, as far as KFD shows it.
func (p *kfdProcess) read(k *kfd, index int, node *kfdNode, s *Source) (used units.CPUTime) {
	d := node.device
	n, err := s.kfdNumber(p.pid, node.occupancy)
	switch {
	case err == nil:
		compute := units.CPUTime(units.MulDiv(uint64(d.elapsed), min(n, node.units), k.unitsOf(d)))
		used += compute
		d.add(kfdCompute, compute)
	case denied(err):
		d.hidden = true
		return 0
	case errors.Is(err, stall.ErrUnread):
		return 0 // others are read
	default: // gone, or a GPU that counts no waves
		if held, err := s.kfdNumber(p.pid, node.memory); err == nil && held > 0 && (len(d.unknown) == 0 || d.unknown[len(d.unknown)-1] != p.pid) {
			d.unknown = append(d.unknown, p.pid)
		}
	}
	if p.still[index]++; p.still[index] > 2 && p.still[index]%sdmaRest != 0 {
		return used
	}
	if n, err := s.kfdNumber(p.pid, node.time); err == nil {
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

// kfdNumber returns the number in a file of a process in KFD's directory. Reads may block: for
// sdma_*, the kernel reads the memory of the process, which the process can block, and any user can
// block the directory of the process.
func (s *Source) kfdNumber(pid int32, name string) (uint64, error) {
	s.files.Job().file = name
	if err := s.run(pid, 0, 0, (*files).readKFD); err != nil {
		return 0, err
	}
	return kernfs.ParseUintLine(s.files.Job().text)
}

// readUntold finds how long a GPU computed for processes of which KFD does not show it: for as long
// as the GPU shows that it was busy (gpu_busy_percent) and no other process kept it so. They hold
// its memory, and so it is awake.
func (d *device) readUntold(buf []byte) {
	d.unknownUsed = 0
	if len(d.unknown) == 0 {
		return
	}
	text, err := d.activity.Read(buf)
	if err != nil {
		d.hidden = true
		return
	}
	percent, err := kernfs.ParseUintLine(text)
	if err != nil {
		return
	}
	busy := units.CPUTime(d.elapsed) / 100 * units.CPUTime(min(percent, 100))
	if d.unknownUsed = units.Advance(d.busy(), busy); d.unknownUsed > 0 {
		d.add(kfdCompute, busy)
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
