// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// renderTopology writes the positions of the CPUs: to sys/devices/system/cpu, and by NUMA node to
// sys/devices/system/node.
func (h *Host) renderTopology(r *renderer) {
	same := func(a, b Place) bool {
		return a.Package == b.Package && a.Die == b.Die && slices.Equal(a.Siblings, b.Siblings)
	}
	if h.Cached && h.shownCPUs == h.CPUs && slices.EqualFunc(h.shownTopology, h.Topology, same) {
		return
	}
	h.shownCPUs, h.shownTopology = h.CPUs, slices.Clone(h.Topology)
	nodes := map[int][]int{}
	first := map[int]int{} // CPU of a package
	for cpu, place := range h.Topology {
		if _, ok := first[place.Package]; !ok {
			first[place.Package] = cpu
		}
		siblings := h.online(place.Siblings)
		if len(siblings) == 0 {
			siblings = []int{cpu}
		}
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", cpu)
		r.write(dir+"physical_package_id", strconv.Itoa(place.Package)+"\n")
		r.write(dir+"die_id", strconv.Itoa(place.Die)+"\n")
		r.write(dir+"core_id", strconv.Itoa(siblings[0]-first[place.Package])+"\n")
		for _, name := range [...]string{"thread_siblings_list", "core_cpus_list"} {
			r.write(dir+name, cpuList(siblings))
		}
		nodes[place.Package] = append(nodes[place.Package], cpu)
	}
	numbers := make([]int, 0, len(nodes))
	for node, cpus := range nodes {
		numbers = append(numbers, node)
		r.write(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", node), cpuList(h.online(cpus)))
	}
	slices.Sort(numbers)
	r.write("sys/devices/system/node/online", cpuList(numbers))
}

// online returns the CPUs that are online.
func (h *Host) online(cpus []int) []int {
	return slices.DeleteFunc(slices.Clone(cpus), func(cpu int) bool { return cpu >= h.CPUs })
}

// cpuList formats ascending numbers as the kernel does, with ranges for consecutive numbers: 0-3,8.
func cpuList(numbers []int) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		end := i + 1
		for end < len(numbers) && numbers[end] == numbers[end-1]+1 {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(numbers[i]))
		if end-i > 1 {
			b.WriteString("-" + strconv.Itoa(numbers[end-1]))
		}
		i = end
	}
	b.WriteByte('\n')
	return b.String()
}

// numaStat returns the text of a cgroup's memory.numa_stat. All memory is anonymous.
func numaStat(nodes []uint64) string {
	var b strings.Builder
	for _, kind := range [...]string{
		"anon", "file", "kernel_stack", "pagetables", "shmem", "file_mapped", "file_dirty", "file_writeback",
		"inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable", "slab_reclaimable", "slab_unreclaimable",
	} {
		b.WriteString(kind)
		for node, bytes := range nodes {
			if kind != "anon" && kind != "active_anon" {
				bytes = 0
			}
			fmt.Fprintf(&b, " N%d=%d", node, bytes)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
