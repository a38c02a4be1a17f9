// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// transferAll sets the bytes that two containers transferred. Process 10 is in the first one, which is in a pod, and
// process 20 in the other one.
func (n *testNode) transferAll(inPod, other string, bytes int) {
	n.t.Helper()
	for _, cgroup := range []string{inPod, other} {
		n.named("sys/fs/cgroup"+cgroup+"/io.stat", fmt.Sprintf(
			"8:0 rbytes=%d wbytes=%d rios=1 wios=1 dbytes=0 dios=0\n253:0 rbytes=99 wbytes=99\n9:127 rbytes=99\n7:0 rbytes=99\n259:0 rbytes=%d wbytes=0\n", bytes, 2*bytes, bytes))
	}
	n.network(1, 99)
	n.network(10, 10*bytes)
	n.network(20, 20*bytes)
}

// network sets the bytes that the network namespace of a process received. It transmitted two more.
func (n *testNode) network(pid, bytes int) {
	n.t.Helper()
	n.named(fmt.Sprintf("proc/%d/net/dev", pid), fmt.Sprintf("Inter-|   Receive                    |  Transmit\n"+
		" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n"+
		"    lo:    99       1    0    0    0     0          0         0       99       1    0    0    0     0       0          0\n"+
		"  eth0:%d       1    0    0    0     0          0         0       %d       1    0    0    0     0       0          0\n", bytes, bytes+2))
}

// transferringNode is a node with a container in a pod and one outside of pods.
func transferringNode(t *testing.T) *testNode {
	n := newTestNode(t, func(c *Config) {
		m := &c.Metrics
		m.ContainerDiskIo.Enabled, m.ContainerNetworkIo.Enabled, m.K8sPodNetworkIo.Enabled = true, true, true
	})
	n.process(10, "web", inPodA(idA))
	n.process(20, "app", docker(idB))
	n.named("proc/devices", "Character devices:\n  8 md\n\nBlock devices:\n  7 loop\n  8 sd\n  9 md\n253 device-mapper\n254 mdp\n")
	n.start()
	n.transfer(1000)
	n.newborn(11) // in a network namespace of its own
	n.host.Processes[11].Cgroup = inPodA(idA)
	n.network(11, 1)
	return n
}

func (n *testNode) transfer(bytes int) {
	n.transferAll("/kubepods/burstable/pod"+uidA+"/"+idA, scope(idB), bytes)
}

// transferred returns the values of the metrics of the transferringNode.
func (n *testNode) transferred() map[string]float64 {
	values := map[string]float64{}
	for _, metric := range []string{"container.disk.io", "container.network.io", "k8s.pod.network.io"} {
		for _, p := range n.points(metric, nil) {
			of := map[string]string{idA: "A", idB: "B", "": "pod"}[p.attributes["container.id"]]
			values[metric+" "+of+" "+p.attributes["disk.io.direction"]+p.attributes["network.io.direction"]] = p.value
		}
	}
	return values
}

func TestContainersAndPodsHaveTheBytesThatTheyTransferred(t *testing.T) {
	n := transferringNode(t)
	n.run(10*joule, map[int]int64{10: 100, 20: 100})
	all := map[string]float64{
		"container.disk.io A read": 2000, "container.disk.io A write": 2000, "container.disk.io B read": 2000, "container.disk.io B write": 2000,
		"k8s.pod.network.io pod receive": 10000, "k8s.pod.network.io pod transmit": 10002, "container.network.io B receive": 20000, "container.network.io B transmit": 20002,
	}
	assert.Equal(t, all, n.transferred())
	assert.True(t, n.points("container.disk.io", nil)[0].start.Equal(n.host.Booted.Truncate(time.Second)))
}

func TestBytesThatAreNotKnownAreLeftOut(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(n *testNode)
		lacks []string
	}{
		"a pod in the host's network": {func(n *testNode) {
			dev := filepath.Join(n.host.Root(), "proc/10/net/dev")
			require.NoError(n.t, os.Remove(dev))
			require.NoError(n.t, os.Link(filepath.Join(n.host.Root(), "proc/1/net/dev"), dev))
		}, []string{"k8s.pod.network.io pod receive", "k8s.pod.network.io pod transmit"}},
		"no network files": {func(n *testNode) {
			require.NoError(n.t, os.RemoveAll(filepath.Join(n.host.Root(), "proc/20/net")))
		}, []string{"container.network.io B receive", "container.network.io B transmit"}},
		"a malformed network file": {func(n *testNode) { n.named("proc/20/net/dev", "eth0: 1 2\n") }, []string{"container.network.io B receive", "container.network.io B transmit"}},
		"no io controller": {func(n *testNode) {
			require.NoError(n.t, os.Remove(filepath.Join(n.host.Root(), "sys/fs/cgroup"+scope(idB)+"/io.stat")))
		}, []string{"container.disk.io B read", "container.disk.io B write"}},
		"a malformed io.stat": {func(n *testNode) { n.named("sys/fs/cgroup"+scope(idB)+"/io.stat", "8:0 rbytes=x\n") }, []string{"container.disk.io B read", "container.disk.io B write"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := transferringNode(t)
			n.run(10*joule, map[int]int64{10: 100, 20: 100})
			want := n.transferred()
			for _, series := range c.lacks {
				require.Contains(t, want, series)
				delete(want, series)
			}
			c.edit(n)
			n.run(10*joule, map[int]int64{10: 100, 20: 100})
			assert.Equal(t, want, n.transferred())
		})
	}
}

// As when a container is started again under the same ID.
func TestBytesThatGoBackBeginAgain(t *testing.T) {
	n := transferringNode(t)
	n.run(10*joule, map[int]int64{10: 100, 20: 100})
	before := n.one("k8s.pod.network.io", "network.io.direction=receive")
	n.transfer(10)
	n.run(10*joule, map[int]int64{10: 100, 20: 100})
	reset := n.one("k8s.pod.network.io", "network.io.direction=receive")
	assert.InDelta(t, 100, reset.value, 0)
	assert.Equal(t, before.at, reset.start)
	n.transfer(20)
	n.run(10*joule, map[int]int64{10: 100, 20: 100})
	assert.Equal(t, reset.start, n.one("k8s.pod.network.io", "network.io.direction=receive").start)
}
