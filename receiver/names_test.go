// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// named writes a file that names something, below the host's root.
func (n *testNode) named(path, text string) {
	n.t.Helper()
	path = filepath.Join(n.host.Root(), path)
	require.NoError(n.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(n.t, os.WriteFile(path, []byte(text), 0o600))
}

// logLink names a container of the pod uidA as the kubelet does once it has started it.
func (n *testNode) logLink(id string) {
	n.t.Helper()
	n.named("var/log/containers/web_shop_app-"+id+".log", "")
}

func inPodA(id string) string { return "0::/kubepods/burstable/pod" + uidA + "/" + id }

// attributesOf returns the attributes of a container's or pod's resource, nil if it is not in the collection.
func (n *testNode) attributesOf(key, value string) (found map[string]any) {
	n.t.Helper()
	for _, rm := range n.md.ResourceMetrics().All() {
		attributes := rm.Resource().Attributes().AsRaw()
		_, process := attributes["process.pid"]
		if attributes[key] != value || process || key != "container.id" && attributes["container.id"] != nil {
			continue
		}
		require.Nil(n.t, found, "there are two")
		found = attributes
	}
	return found
}

func TestTheFirstPointWaitsForTheName(t *testing.T) {
	n := newTestNode(t)
	n.process(20, "app")
	podLogs(t, n, "shop_web_"+uidA)
	require.NoError(t, os.MkdirAll(filepath.Join(n.host.Root(), "var/log/containers"), 0o755))
	n.start()
	n.newborn(10, inPodA(idA))
	n.run(100*joule, map[int]int64{10: 100, 20: 100})
	assert.Nil(t, n.attributesOf("container.id", idA))
	assert.Equal(t, "web", n.attributesOf("k8s.pod.uid", uidA)["k8s.pod.name"], "it is known, and need not wait")
	first := n.one("k8s.pod.energy")
	n.logLink(idA)
	n.run(100*joule, map[int]int64{10: 100, 20: 100})
	assert.Equal(t, "app", n.attributesOf("container.id", idA)["k8s.container.name"])
	assert.InDelta(t, 20, n.one("container.energy").value, 1e-6, "nothing is lost")
	assert.Equal(t, first.start, n.one("container.energy").start)
}

// A random history of containers whose names come at any time, of one, of deliveries that fail, of
// few series: whatever happens, a series of a container or pod never changes its attributes while
// it is known to the next consumer, and no energy is lost.
func TestSeriesNeverChangeTheirNames(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			n := newTestNode(t, func(c *Config) {
				if seed%3 == 0 {
					c.Series.Containers.Max = 3
				}
			})
			n.host.CPUs = 8
			podLogs(t, n)
			require.NoError(t, os.MkdirAll(filepath.Join(n.host.Root(), "var/log/containers"), 0o755))
			n.start()
			seen, taken := map[string]string{}, totalsTaken{}
			for step := range 60 {
				used := map[int]int64{}
				for pid := 10; pid < 18; pid++ {
					n.step(random, pid, used)
				}
				n.refuse = nil
				if random.IntN(4) == 0 {
					n.refuse = assert.AnError
				}
				n.host.Run([...]time.Duration{10 * time.Second, time.Second}[seed%2], used)
				n.host.Zones["intel-rapl:0"].Energy += uint64(random.IntN(200)) * joule
				n.scrape()
				n.checkAttributes(seen, step)
				taken.take(n)
			}
			n.refuse = nil
			for range 2 { // now all names are known, or are not awaited any more
				n.run(0, nil)
				taken.take(n)
			}
			assert.Greater(t, len(seen), 10)
			want := taken.sum("process.energy")
			assert.Positive(t, want)
			assert.InDelta(t, want, taken.sum("container.energy"), 1e-6)
			assert.InDelta(t, want, taken.sum("k8s.pod.energy"), 1e-6)
		})
	}
}

// checkAttributes checks that the series of containers and pods have the attributes that were seen before.
func (n *testNode) checkAttributes(seen map[string]string, step int) {
	n.t.Helper()
	for _, metric := range []string{"container.energy", "k8s.pod.energy"} {
		for _, p := range n.points(metric, nil) {
			attributes := fmt.Sprint(p.attributes)
			key := fmt.Sprint(metric, p.attributes["container.id"], p.attributes["k8s.pod.uid"], p.start)
			if before, ok := seen[key]; ok {
				require.Equal(n.t, before, attributes, "step %d", step)
			}
			seen[key] = attributes
		}
	}
}

// totalsTaken has the last values that the next consumer took, by metric and series.
type totalsTaken map[string]map[string]float64

func (t totalsTaken) take(n *testNode) {
	if n.refuse != nil {
		return
	}
	for _, metric := range []string{"process.energy", "container.energy", "k8s.pod.energy"} {
		if t[metric] == nil {
			t[metric] = map[string]float64{}
		}
		for _, p := range n.points(metric, nil) {
			t[metric][p.series] = p.value
		}
	}
}

func (t totalsTaken) sum(metric string) (sum float64) {
	for _, v := range t[metric] {
		sum += v
	}
	return sum
}

// step has something happen to a process, which is alone in its container and pod.
func (n *testNode) step(random *rand.Rand, pid int, used map[int]int64) {
	id, uid := fmt.Sprintf("%064x", pid), fmt.Sprintf("0a1b2c3d-0000-4000-8000-%012x", pid)
	switch random.IntN(6) {
	case 0:
		delete(n.host.Processes, pid)
		return
	case 1:
		podLogs(n.t, n, "shop_web_"+uid)
	case 2:
		n.logLink(id)
	case 3:
		if n.host.Processes[pid] == nil {
			n.newborn(pid, "0::/kubepods/burstable/pod"+uid+"/"+id)
		}
	}
	if n.host.Processes[pid] != nil {
		used[pid] = int64(random.IntN(100))
	}
}
