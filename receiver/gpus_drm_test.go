// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// showCard shows a card of the driver xe at a time since boot: its energy counter, and for how long processes used it.
func (n *testNode) showCard(at time.Duration, joules int, uses map[int]time.Duration) {
	const (
		device = "sys/devices/pci0000:00/0000:03:00.0"
		node   = device + "/drm/renderD128"
		chip   = device + "/hwmon/hwmon0"
		hz     = 19_200_000
	)
	n.host.Links[device+"/driver"] = "../../../bus/pci/drivers/xe"
	n.host.Links["sys/bus/pci/devices/0000:03:00.0"] = "../../../devices/pci0000:00/0000:03:00.0"
	n.host.Links["sys/class/drm/renderD128"] = "../../devices/pci0000:00/0000:03:00.0/drm/renderD128"
	n.host.Links[node+"/device"] = "../../../0000:03:00.0"
	n.host.Files[node+"/dev"] = "226:128\n"
	n.host.Links["sys/class/hwmon/hwmon0"] = "../../devices/pci0000:00/0000:03:00.0/hwmon/hwmon0"
	n.host.Links[chip+"/device"] = "../../../0000:03:00.0"
	n.host.Files[chip+"/name"] = "xe\n"
	n.host.Files[chip+"/energy1_label"] = "card\n"
	n.host.Files[chip+"/energy1_input"] = fmt.Sprintln(joules * joule)
	for pid, used := range uses {
		n.host.Processes[pid].Files = []hostsim.OpenFile{{FD: 7, Target: "/dev/dri/renderD128", Info: fmt.Sprintf(
			"drm-driver:\txe\ndrm-client-id:\t%d\ndrm-pdev:\t0000:03:00.0\ndrm-cycles-ccs:\t%d\ndrm-total-cycles-ccs:\t%d\n",
			pid, int64(used.Seconds()*hz), int64(at.Seconds()*hz))}}
	}
}

func TestTheEnergyOfACardIsSharedByTheTimeThatDRMClientsUsedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNode(t)
		for _, pid := range []int{100, 200, 300} {
			n.host.Processes[pid] = &hostsim.Process{Comm: "app", Start: int64(n.host.Uptime / hostsim.Tick)}
		}
		uses := map[int]time.Duration{100: time.Hour, 200: time.Minute}
		n.showCard(n.host.Uptime, 1000, uses)
		n.start()
		time.Sleep(500 * time.Millisecond) // between two polls, which must not find a file half written
		n.showCard(n.host.Uptime+10*time.Second, 1001, uses)
		assert.NoError(t, n.host.Render())
		time.Sleep(10 * time.Second)
		n.run(0, nil) // its energy is attributed, so that the next interval has 10 s
		uses[100] += 15 * time.Second / 2
		uses[200] += 5 * time.Second / 2
		n.showCard(n.host.Uptime+10*time.Second, 1901, uses)
		assert.NoError(t, n.host.Render())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		n.run(0, map[int]int64{100: 1, 200: 1, 300: 500})
		shares := map[string]float64{}
		for _, p := range n.points("process.energy", nil, "energy.zone=gpu") {
			shares[p.attributes["process.pid"]] = p.value
		}
		assert.InDelta(t, 675, shares["100"], 1e-6)
		assert.InDelta(t, 225, shares["200"], 1e-6)
		assert.Zero(t, shares["300"], "it uses the CPU only")
		assert.Zero(t, n.sum("system.unattributed.energy", nil, "energy.zone=gpu"))
	})
}
