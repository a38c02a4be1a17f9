package receiver

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/filter"
)

const (
	uidA = "0a1b2c3d-0000-4000-8000-00000000000a"
	uidB = "0a1b2c3d0000400080000000000000bb" // of a static pod
)

// etcd is a service of the host's, or one of an operator's that has moved itself into a cgroup below.
func TestAServiceIsExcludedByItsCgroup(t *testing.T) {
	const service = "/system.slice/etcd.service"
	for path, f := range map[string]filter.Config{
		service:            {Strict: service},
		service + "/child": {Regex: "^" + service},
	} {
		n := sharedNode(t, func(a *AttributionConfig) { a.Exclude.Cgroup = []filter.Config{f} })
		n.host.Processes[40].Cgroup = "2:cpu,cpuacct:/\n1:name=systemd:" + service + "\n0::" + path
		n.start()
		n.run(600*joule, map[int]int64{10: 100, 20: 100, 40: 500})
		requireFigures(t, figures{60, 60, 0, 0, 120}, n.figures("active"), path)

		n.host.Processes[40].Cgroup = "0::/user.slice"
		before := n.figures("active")
		n.run(600*joule, map[int]int64{10: 100, 20: 100, 40: 500})
		requireFigures(t, figures{60, 60, 0, 300, 420}, n.figures("active").less(before), "it has moved out of it")
	}
}

func podLogs(t *testing.T, n *testNode, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, os.MkdirAll(filepath.Join(n.host.Root(), "var/log/pods", name), 0o755))
	}
}

func TestPodsAreExcludedByTheirNamespace(t *testing.T) {
	for name, f := range map[string]filter.Config{"strict": {Strict: "kube-system"}, "a pattern": {Regex: "^kube-.*"}} {
		n := sharedNode(t, func(a *AttributionConfig) { a.Exclude.Namespace = []filter.Config{f} })
		n.host.Processes[10].Cgroup = "0::/kubepods/burstable/pod" + uidA + "/" + idA
		n.host.Processes[20].Cgroup = "0::/kubepods/burstable/pod" + uidB + "/" + idB
		podLogs(t, n, "shop_web_"+uidA, "kube-system_etcd-node1_"+uidB, "junk")
		n.start()
		n.run(600*joule, map[int]int64{10: 100, 20: 500})
		requireFigures(t, figures{a: 60, node: 60}, n.figures("active"), name)
		assert.Empty(t, n.status, name)
	}
}

func TestAPodThatComesLaterIsExcludedToo(t *testing.T) {
	n := sharedNode(t, func(a *AttributionConfig) { a.Exclude.Namespace = []filter.Config{{Strict: "kube-system"}} })
	late := n.host.Processes[20]
	delete(n.host.Processes, 20)
	podLogs(t, n, "shop_web_"+uidA)
	n.start()
	n.run(600*joule, map[int]int64{10: 100})
	podLogs(t, n, "kube-system_proxy_"+uidB)
	late.Cgroup = "0::/kubepods/burstable/pod" + uidB + "/" + idB
	late.Start = int64(n.host.Uptime / (10 * time.Millisecond))
	n.host.Processes[20] = late
	before := n.figures("active")
	n.run(600*joule, map[int]int64{10: 100, 20: 500})
	requireFigures(t, figures{a: 60, node: 60}, n.figures("active").less(before))
}

func TestWithoutTheKubeletsDirectoriesNobodyIsExcludedAndOneLineSaysSo(t *testing.T) {
	n := sharedNode(t, func(a *AttributionConfig) { a.Exclude.Namespace = []filter.Config{{Strict: "kube-system"}} })
	n.start()
	require.Empty(t, n.told(), "nobody is in a pod")
	n.host.Processes[20].Cgroup = "0::/kubepods/burstable/pod" + uidB + "/" + idB
	for range 3 {
		n.run(600*joule, map[int]int64{10: 100, 20: 500})
	}
	assert.Equal(t, []string{"Degraded exclusion"}, n.told())
	assert.Contains(t, n.logs.FilterMessage("Degraded").All()[0].ContextMap()["error"], "the namespaces of pods are not known: open ")
	assert.InDelta(t, 3*360, n.figures("active").node, 1)
}

// Pods whose directories were removed may have processes for a while. The directories are not listed for each of these.
func TestDirectoriesAreNotListedAgainAtOnceForAPodThatHasNone(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "var/log/pods")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a_b_"+uidA), 0o755))
	p, now := newPodNamespaces(root), time.Unix(1000, 0)
	assert.Equal(t, "a", p.of(uidA, now))
	assert.Empty(t, p.of("", now))
	assert.Empty(t, p.of("x", now))
	assert.Empty(t, p.of("y", now))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "c_d_x"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "e_f_y"), 0o755))
	assert.Empty(t, p.of("x", now.Add(lookForPodAgain-1)))
	assert.Empty(t, p.of("y", now.Add(lookForPodAgain-1)))
	assert.Equal(t, "c", p.of("x", now.Add(lookForPodAgain)))
	assert.Equal(t, "e", p.of("y", now.Add(lookForPodAgain)))
	require.NoError(t, os.RemoveAll(dir))
	assert.Equal(t, "a", p.of(uidA, now), "what is known stays")
	assert.Empty(t, p.of("z", now.Add(lookForPodAgain)))
	require.ErrorIs(t, p.failed, fs.ErrNotExist)
}

func FuzzParsePodLogs(f *testing.F) {
	f.Add("kube-system_etcd-node1_" + uidB)
	f.Add("a_b")
	f.Add("__x")
	f.Fuzz(func(t *testing.T, dir string) {
		namespace, uid, ok := parsePodLogs(dir)
		if ok && (namespace == "" || uid == "" || !strings.HasPrefix(dir, namespace+"_") || !strings.HasSuffix(dir, "_"+uid) ||
			strings.Count(dir, "_") != 2) {
			t.Fatal(fmt.Sprint(dir, " is ", namespace, " and ", uid))
		}
	})
}
