// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// The worked examples of Kepler's power attribution guide, on one CPU. Processes 10 and 20 are standalone and in
// container B, 30 and 31 in container A, 40 is a hypervisor, 50 and 51 are in the containers C and D of a pod. Process
// 1 uses the rest of the CPU time.
func TestKeplersWorkedExamples(t *testing.T) {
	const podUID = "11111111-2222-3333-4444-555555555555"
	inPod := func(id string) string {
		return "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod11111111_2222_3333_4444_555555555555.slice/cri-containerd-" + id + ".scope"
	}
	idC, idD := idA[:63]+"c", idA[:63]+"d"
	for name, c := range map[string]struct {
		seconds, watts uint64
		used           map[int]int64 // ticks of 10 ms
		want           map[string]float64
	}{
		"40 W, 25 % busy, all by a virtual machine": {
			10, 40, map[int]int64{40: 250},
			map[string]float64{"active": 10, "idle": 30, "vm": 10},
		},
		"40 W, 25 % busy, a fifth of it by a container": {
			10, 40, map[int]int64{1: 200, 20: 50},
			map[string]float64{"active": 10, "idle": 30, "B": 2},
		},
		"60 W, a third busy": {
			30, 60, map[int]int64{10: 100, 30: 80, 31: 70, 20: 60, 40: 200, 50: 90, 51: 110, 1: 290},
			map[string]float64{
				"active": 20, "idle": 40, "10": 2, "30": 1.6, "31": 1.4, "20": 1.2, "40": 4, "50": 1.8, "51": 2.2,
				"A": 3, "B": 1.2, "C": 1.8, "D": 2.2, "pod": 4, "vm": 4,
			},
		},
		"15 % of 10 W by the container web-server, 25 % by the pod frontend": {
			20, 20, map[int]int64{30: 100, 31: 50, 50: 200, 51: 50, 1: 600},
			map[string]float64{"active": 10, "idle": 10, "A": 1.5, "C": 2, "D": 0.5, "pod": 2.5},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			for pid, cgroup := range map[int]string{
				10: "", 20: docker(idB), 30: docker(idA), 31: docker(idA), 50: inPod(idC), 51: inPod(idD),
			} {
				n.host.Processes[pid] = &hostsim.Process{Parent: 1, Comm: "p", Exe: "/bin/p", Cgroup: cgroup}
			}
			n.host.Processes[40] = &hostsim.Process{
				Parent: 1, Comm: "qemu-system-x86", Exe: "/usr/bin/qemu-system-x86_64", Args: []string{"qemu-system-x86_64", "-name", "vm"},
			}
			n.start()
			n.host.Run(time.Duration(c.seconds)*time.Second, c.used)
			n.host.Zones["intel-rapl:0"].Energy += c.watts * c.seconds * joule
			n.scrape()
			energies := map[string]float64{
				"active": n.sum("system.energy", nil, "energy.state=active"), "idle": n.sum("system.energy", nil, "energy.state=idle"),
				"A": n.sum("container.energy", attrs{"container.id": idA}), "B": n.sum("container.energy", attrs{"container.id": idB}),
				"C": n.sum("container.energy", attrs{"container.id": idC}), "D": n.sum("container.energy", attrs{"container.id": idD}),
				"pod": n.sum("k8s.pod.energy", attrs{"k8s.pod.uid": podUID}), "vm": n.sum("vm.energy", attrs{"vm.name": "vm"}),
			}
			for pid := range n.host.Processes {
				energies[strconv.Itoa(pid)] = n.sum("process.energy", attrs{"process.pid": strconv.Itoa(pid)})
			}
			for of, want := range c.want {
				assert.InDelta(t, want, energies[of]/float64(c.seconds), 1e-6, "%s, W", of)
			}
		})
	}
}

// Each socket wraps at a range of its own, and the zone of the node is their sum.
func TestSocketsThatWrapAtTheirOwnRangesAddUp(t *testing.T) {
	n := newTestNode(t)
	first := n.host.Zones["intel-rapl:0"]
	second := &hostsim.Zone{Name: "package-1", Max: 65_532_610_987}
	n.host.Zones["intel-rapl:1"] = second
	first.Energy, second.Energy = first.Max-100*joule, second.Max-30*joule
	n.start()
	total := 0.0
	for _, c := range []struct {
		first, second uint64 // counters, J
		want          float64
	}{
		{50, 20, 150 + 50}, {150, 60, 100 + 40}, {65_500, 65_500, 65_350 + 65_440}, {65_600, 10, 100 + 42.610_987},
	} {
		n.host.Run(300*time.Second, map[int]int64{1: 500})
		first.Energy, second.Energy = c.first*joule, c.second*joule
		n.scrape()
		total += c.want
		assert.InDelta(t, total, n.sum("system.energy", nil), 1e-3, "J at %d and %d", c.first, c.second)
	}
}
