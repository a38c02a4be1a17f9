// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

// in moves a process to a cgroup, and returns the container that it is in then.
func (i *identified) in(pid int, cgroup string) identity.Container {
	i.t.Helper()
	if i.host.Processes[pid] == nil {
		i.host.Processes[pid] = &hostsim.Process{Comm: "app", Exe: "/bin/app"}
	}
	i.host.Processes[pid].Cgroup = cgroup
	found, _ := i.round(pid)
	return found.Container
}

func (i *identified) end(pid int) {
	i.id.Forget(int32(pid))
	delete(i.host.Processes, pid)
}

func TestTheFirstCgroupKeepsAContainersID(t *testing.T) {
	t.Parallel()
	i := newIdentified(t, false)
	const first, second = "/system.slice/docker-" + hexA + ".scope", "/team/docker-" + hexA + ".scope"
	assert.Equal(t, hexA, i.in(10, "0::"+first).ID)
	assert.Equal(t, second, i.in(11, "0::"+second).ID)
	assert.Equal(t, hexA, i.in(12, "0::"+first+"/child").ID)
	i.end(10)
	assert.Equal(t, second, i.in(13, "0::"+second).ID, "process 12 has the ID still")
	i.end(12)
	assert.Equal(t, second, i.in(14, "0::"+second).ID, "it keeps the ID that it has")
	assert.Equal(t, hexA, i.in(15, "0::"+first).ID)
	assert.Equal(t, second, i.in(11, "0::"+second+"/child").ID)
	for _, pid := range []int{11, 13, 14, 15} {
		i.end(pid)
	}
	assert.Equal(t, hexA, i.in(16, "0::"+second).ID, "no other container has it")
	assert.Len(t, i.id.holders, 1)
}

func TestContainersOfTwoRuntimesWithOneNameAreTwo(t *testing.T) {
	t.Parallel()
	i := newIdentified(t, false)
	assert.Equal(t, identity.Container{ID: "web", Runtime: "lxc"}, i.in(10, "0::/lxc.payload.web"))
	assert.Equal(t, identity.Container{ID: "/machine.slice/machine-web.scope/payload", Runtime: "systemd-nspawn"},
		i.in(11, "0::/machine.slice/machine-web.scope/payload/init.scope"))
	long := "/" + strings.Repeat("x", 250) + "/lxc.payload.web"
	assert.Equal(t, boundID(long), i.in(12, "0::"+long).ID)
}

func TestKatasTwoCgroupsAreOneContainer(t *testing.T) {
	t.Parallel()
	i := newIdentified(t, false)
	assert.Equal(t, hexA, i.in(10, "0::/kata_overhead/"+hexA).ID)
	assert.Equal(t, hexA, i.in(11, "0::"+podDir+"/kata_"+hexA).ID)
	i.end(10)
	assert.Equal(t, hexA, i.in(12, "0::/kata_overhead/"+hexA).ID)
	assert.Equal(t, podDir+"/"+hexA, i.in(13, "0::"+podDir+"/"+hexA).ID, "which is none of Kata's")
}

func TestAContainersIDIsFreeWhenItsProcessesHaveLeft(t *testing.T) {
	t.Parallel()
	i := newIdentified(t, false)
	i.in(10, "0::/docker/"+hexA)
	assert.Equal(t, hexB, i.in(10, "0::/docker/"+hexB).ID)
	assert.Equal(t, hexA, i.in(11, "0::/team/"+hexA).ID)
	assert.Empty(t, i.in(10, "0::/").ID)
	i.end(11)
	assert.Empty(t, i.id.holders)
}

func TestShortLivedCgroupsAreIdentifiedLikeOthers(t *testing.T) {
	t.Parallel()
	i := newIdentified(t, false)
	i.in(10, "0::/docker/"+hexA)
	assert.Equal(t, contained(hexA, "docker", "/docker/"+hexA), i.id.PlaceShortLived("/docker/"+hexA+"/child"))
	assert.Equal(t, contained("/team/"+hexA, "", "/team/"+hexA), i.id.PlaceShortLived("/team/"+hexA))
	assert.Equal(t, contained(hexB, "docker", "/docker/"+hexB), i.id.PlaceShortLived("/docker/"+hexB))
	assert.Equal(t, Placement{}, i.id.PlaceShortLived("/system.slice"))
	assert.Len(t, i.id.holders, 1)
}

func TestContainersKeepTheirIDsWhenTheNamespaceIsFound(t *testing.T) {
	t.Parallel()
	i := newIdentified(t, false)
	i.found("", errors.New("no tree"))
	i.in(10, "0::/../docker-"+hexA+".scope")
	i.in(11, "0::/../docker-"+hexA+".scope")
	require.Error(t, i.id.Outside(now))
	i.found("/system.slice/own", nil)
	require.NoError(t, i.id.Outside(now.Add(lookForNamespaceAgain+time.Second)))
	for _, pid := range []int32{10, 11} {
		found, _ := i.id.Identity(pid)
		assert.Equal(t, contained(hexA, "docker", "/system.slice/docker-"+hexA+".scope"), found.Placement)
		i.end(int(pid))
	}
	assert.Empty(t, i.id.holders)
}
