package workload

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/hostsim"
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
	n := namespace{asked: true, begin: "/a/b"}
	text := "9:name=systemd:/../x\n1:cpu:/\n0::/../c\n"
	assert.Equal(t, "9:name=systemd:/../x\n1:cpu:/\n0::/a/c\n", string(n.absolute([]byte(text))), "of version 2 only")
	assert.Equal(t, "0::/a/c", string(n.absolute([]byte("0::/../c"))))
	n.failed = errors.New("not found")
	assert.Equal(t, text, string(n.absolute([]byte(text))))
}

// In Kubernetes the receiver's container has a cgroup namespace, unless it is privileged.
func TestContainersAreKnownWholeFromWithinACgroupNamespace(t *testing.T) {
	i := newIdentified(t, false)
	const pod = "/kubepods/burstable/pod"
	own := pod + uidX + "/" + idA
	i.id.namespace = namespace{asked: true, begin: own}
	p := &hostsim.Process{Comm: "app", Exe: "/bin/app"}
	i.host.Processes[10] = p
	for seen, want := range map[string]Placement{
		"/":                                podded(idA, "", own, uidX, "Burstable"),
		"/../../pod" + uidY + "/" + idB:    podded(idB, "", pod+uidY+"/"+idB, uidY, "Burstable"),
		"/../../../pod" + uidY + "/" + idB: podded(idB, "", "/kubepods/pod"+uidY+"/"+idB, uidY, "Guaranteed"),
		"/../../../../system.slice/docker-" + idB + ".scope": contained(idB, "docker", "/system.slice/docker-"+idB+".scope"),
	} {
		p.Cgroup = "0::" + seen
		identity, _ := i.round(10)
		assert.Equal(t, want, identity.Placement, seen)
	}
	require.NoError(t, i.id.Outside(now))
	i.id.wanted.ProcessCgroup = true
	p.Cgroup = "0::/../../../../system.slice/etcd.service"
	identity, _ := i.round(10)
	assert.Equal(t, "/system.slice/etcd.service", identity.ProcessCgroup)
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

func TestWhereNamespacesCannotBeToldApartIsSaidOnceItMatters(t *testing.T) {
	i := newIdentified(t, false)
	failed := errors.New("no tree")
	i.id.namespace = namespace{root: i.host.Root(), asked: true, failed: failed}
	p := &hostsim.Process{Comm: "app", Exe: "/bin/app"}
	i.host.Processes[10] = p
	p.Cgroup = "0::/user.slice"
	i.round(10)
	require.NoError(t, i.id.Outside(now))
	p.Cgroup = "0::/../docker-" + idB + ".scope"
	identity, _ := i.round(10)
	assert.Equal(t, contained(idB, "docker", "/../docker-"+idB+".scope"), identity.Placement)
	require.ErrorIs(t, i.id.Outside(now), failed)
	require.ErrorIs(t, i.id.Outside(now.Add(lookForNamespaceAgain-1)), failed)

	// The host's first process is not known here, and then it is.
	require.NotErrorIs(t, i.id.Outside(now.Add(lookForNamespaceAgain)), failed)
	mounts := filepath.Join(i.host.Root(), "proc/1/mountinfo")
	require.NoError(t, os.MkdirAll(filepath.Dir(mounts), 0o755))
	require.NoError(t, os.WriteFile(mounts, []byte("41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"), 0o600))
	require.ErrorIs(t, i.id.Outside(now.Add(2*lookForNamespaceAgain)), errElsewhere, "until it is looked at again")
	assert.Empty(t, i.id.placements)
	identity, changed := i.round(10)
	assert.False(t, changed, "here it is what it was")
	assert.Equal(t, contained(idB, "docker", "/../docker-"+idB+".scope"), identity.Placement)
	require.ErrorIs(t, i.id.Outside(now.Add(3*lookForNamespaceAgain)), errElsewhere)
}
