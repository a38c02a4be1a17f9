// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The name of a kernel thread may have a slash.
func TestSlashesDoNotCountInNamesOfExecutables(t *testing.T) {
	e := NewExclusion(Excluded{Executable: func(string) bool { return true }}, NewPodLogs("/var/log/pods"))
	for _, executable := range []string{"etcd", "ksoftirqd/0"} {
		assert.True(t, e.Excludes(&Identity{Executable: executable}, time.Time{}), executable)
	}
}

func TestTheControlPlaneIsItsStaticPodsOnly(t *testing.T) {
	const inDocker = "docker/" + uidB
	for name, c := range map[string]struct {
		pod, uid string
		excluded bool
	}{
		"API server":                  {"kube-apiserver-node1", uidB, true},
		"etcd":                        {"etcd-node1", uidB, true},
		"scheduler":                   {"kube-scheduler-node1", uidB, true},
		"scheduler of OpenShift":      {"openshift-kube-scheduler-node1", uidB, true},
		"controller manager":          {"kube-controller-manager-node1", uidB, true},
		"cloud controller manager":    {"cloud-controller-manager-node1", uidB, true},
		"another static pod":          {"nginx-proxy-node1", uidB, false},
		"a pod of the API":            {"etcd-0", uidA, false},
		"a pod of a cgroup's owner":   {"etcd-node1", inDocker, false},
		"a static pod without a name": {"", uidB, false},
	} {
		pods, _ := newPodLogs(t, "kube-system_"+c.pod+"_"+c.uid)
		e := NewExclusion(Excluded{ControlPlane: true}, pods)
		for range 2 { // two processes
			assert.Equal(t, c.excluded, e.ExcludesPod(c.uid, now), name)
		}
		pod, isNews := e.ControlPlane()
		assert.Equal(t, c.excluded, len(pod) == 1, name)
		assert.True(t, isNews, name)
		pod, isNews = e.ControlPlane()
		assert.Empty(t, pod, name)
		assert.False(t, isNews, name)
	}
}

func TestMissingPodNamesOfTheControlPlaneAreACondition(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pods")
	e := NewExclusion(Excluded{ControlPlane: true}, NewPodLogs(dir))
	assert.False(t, e.ExcludesPod(uidA, now))
	require.NoError(t, e.Err(), "no pod on the node needs its name")
	assert.False(t, e.ExcludesPod(uidB, now))
	require.Error(t, e.Err())
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "kube-system_etcd-node1_"+uidB), 0o755))
	assert.True(t, e.Resolved(now.Add(lookForPodsAgain)))
	require.NoError(t, e.Err())
	assert.True(t, e.ExcludesPod(uidB, now.Add(lookForPodsAgain)))
}
