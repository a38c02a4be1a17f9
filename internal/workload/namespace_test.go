// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

var now = time.Unix(1000, 0)

func TestPathsInACgroupNamespaceAreMadeAbsolute(t *testing.T) {
	const own = "/kubepods/burstable/podA/c"
	for _, tt := range []struct{ begin, seen, want string }{
		{own, "/", own},
		{own, "/child", own + "/child"},
		{own, "/..", "/kubepods/burstable/podA"},
		{own, "/../d", "/kubepods/burstable/podA/d"},
		{own, "/../../podB/e", "/kubepods/burstable/podB/e"},
		{own, "/../../../besteffort/podC/f", "/kubepods/besteffort/podC/f"},
		{own, "/../../../../init.scope", "/init.scope"},
		{own, "/../../../..", "/"},
		{own, "/../../../../../outside", "/../outside"},
		{own, "/..hidden/x", own + "/..hidden/x"},
		{"/a", "/b (deleted)", "/a/b (deleted)"},
		{"/", "/b", "/b"},
		{"/", "/", "/"},
		{"/", "/../b", "/../b"},
	} {
		assert.Equal(t, tt.want, absolutePath(tt.begin, tt.seen), "%s from %s", tt.seen, tt.begin)
	}
	n := namespace{sought: true, begin: "/a/b"}
	text := "9:name=systemd:/../x\n1:cpu:/\n0::/../c\n"
	assert.Equal(t, "9:name=systemd:/../x\n1:cpu:/\n0::/a/c\n", string(n.absolute([]byte(text))), "of version 2 only")
	assert.Equal(t, "0::/a/c", string(n.absolute([]byte("0::/../c"))))
	n.failed = errors.New("not found")
	assert.Equal(t, text, string(n.absolute([]byte(text))))
}

// In Kubernetes the receiver's container has a cgroup namespace, unless it is privileged.
func TestContainersHaveTheirFullIDsInACgroupNamespace(t *testing.T) {
	i := newIdentified(t, false)
	const pod = "/kubepods/burstable/pod"
	own := pod + uidX + "/" + idA
	i.id.namespace = namespace{sought: true, begin: own}
	p := &hostsim.Process{Comm: "app", Exe: "/bin/app"}
	i.host.Processes[10] = p
	for seen, want := range map[string]Placement{
		"/":                                podded(idA, "", own, uidX, "Burstable"),
		"/../../pod" + uidY + "/" + idB:    podded(idB, "", pod+uidY+"/"+idB, uidY, "Burstable"),
		"/../../../pod" + uidY + "/" + idB: podded(idB, "", "/kubepods/pod"+uidY+"/"+idB, uidY, "Guaranteed"),
		"/../../../../system.slice/docker-" + idB + ".scope": contained(idB, "docker", "/system.slice/docker-"+idB+".scope"),
	} {
		p.Cgroup = "0::" + seen
		found, _ := i.round(10)
		assert.Equal(t, want, found.Placement, seen)
	}
	require.NoError(t, i.id.Outside(now))
	i.id.wanted.ProcessCgroup = true
	p.Cgroup = "0::/../../../../system.slice/etcd.service"
	found, _ := i.round(10)
	assert.Equal(t, "/system.slice/etcd.service", found.ProcessCgroup)
	require.NoError(t, i.id.Outside(now))
	p.Cgroup = "0::/../../../../../etcd.service"
	i.round(10)
	require.ErrorIs(t, i.id.Outside(now), errElsewhere)
	p.Cgroup = "0::/"
	i.round(10)
	require.NoError(t, i.id.Outside(now), "it has moved")
	p.Cgroup = "0::/../../../../../docker-" + idB + ".scope"
	i.round(10)
	require.ErrorIs(t, i.id.Outside(now), errElsewhere)
}

// found is a namespace that begins at a path, or cannot be found.
func (i *identified) found(begin string, err error) {
	i.id.namespace.find = func() (string, error) { return begin, err }
}

func TestIndistinguishableNamespacesAreReportedOnceTheyMatter(t *testing.T) {
	i := newIdentified(t, false)
	failed := errors.New("no tree")
	i.found("", failed)
	i.host.Processes[10] = &hostsim.Process{Comm: "app", Cgroup: "0::/user.slice"}
	i.round(10)
	require.NoError(t, i.id.Outside(now))
	i.host.Processes[10].Cgroup = "0::/../docker-" + idB + ".scope"
	found, _ := i.round(10)
	assert.Equal(t, contained(idB, "docker", "/../docker-"+idB+".scope"), found.Placement)
	require.ErrorIs(t, i.id.Outside(now), failed)

	i.host.Processes[10].Cgroup = "0::/user.slice"
	i.round(10)
	require.NoError(t, i.id.Outside(now), "it has moved")
	i.host.Processes[11] = &hostsim.Process{Comm: "app", Cgroup: "0::/../docker-" + idB + ".scope"}
	i.round(10)
	require.ErrorIs(t, i.id.Outside(now), failed, "another one, of which nothing has to be parsed")
}

// This includes sleeping processes, which an exact source does not list again.
func TestANamespaceFoundLaterChangesAllPaths(t *testing.T) {
	i := newIdentified(t, false)
	i.id.wanted.ProcessCgroup = true
	i.found("", errors.New("no tree"))
	i.host.Processes[10] = &hostsim.Process{Comm: "pause", Cgroup: "0::/../docker-" + idB + ".scope"}
	i.host.Processes[11] = &hostsim.Process{Comm: "etcd", Cgroup: "0::/../etcd.service"}
	i.host.Processes[12] = &hostsim.Process{Comm: "init", Cgroup: "0::/"}
	i.round(10)
	i.round(11)
	require.Error(t, i.id.Outside(now))
	i.found("/own", nil)
	require.Error(t, i.id.Outside(now.Add(lookForNamespaceAgain-1)), "it is left alone for a while")
	require.NoError(t, i.id.Outside(now.Add(lookForNamespaceAgain)))
	assert.True(t, i.id.Resolve(), "all processes are to be identified again")
	found, changed := i.id.Identity(10)
	assert.True(t, changed)
	assert.Equal(t, contained(idB, "docker", "/docker-"+idB+".scope"), found.Placement)
	found, changed = i.id.Identity(11)
	assert.False(t, changed)
	assert.True(t, i.id.Moved(11))
	assert.Equal(t, "/etcd.service", found.ProcessCgroup)
	found, _ = i.id.Identity(12)
	assert.Equal(t, "/own", found.ProcessCgroup)
	assert.False(t, i.id.Resolve())
}
