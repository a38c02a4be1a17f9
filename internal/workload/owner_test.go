// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// cgroupOwners are directories in which others than the host may create cgroups, with the prefixes
// of IDs below them.
var cgroupOwners = map[string]struct{ dir, prefix string }{
	"a user's manager":          {userUnit + "/", aUsers},
	"an application of a user":  {userUnit + "/app.slice/app-x-1.scope/", aUsers},
	"a login session":           {"/user.slice/user-1000.slice/session-3.scope/", aUsers},
	"a service":                 {"/system.slice/ci.service/", "ci.service/"},
	"a service's child":         {"/system.slice/ci.service/jobs/1/", "ci.service/"},
	"a user's pretended docker": {userUnit + "/docker.service/", aUsers},
	"a container":               {"/docker/" + idC + "/", idC + "/"},
	"a user in a container":     {"/docker/" + idC + userUnit + "/", idC + "/" + aUsers},
	"a container of a user":     {userUnit + "/user.slice/libpod-" + idC + ".scope/container/", aUsers + idC + "/"},
	"a machine":                 {"/machine.slice/machine-box.scope/", "machine-box.scope/"},
}

// forgeries are cgroup names that imitate the host's.
func forgeries() map[string]string {
	names := map[string]string{}
	for _, c := range cgroupCases() {
		if path, ok := strings.CutPrefix(c.file, "/"); ok && !strings.HasPrefix(path, "..") {
			names[c.name] = path
		}
	}
	return names
}

func TestCgroupOwnersCannotForgeIdentitiesOfTheHost(t *testing.T) {
	t.Parallel()
	for where, owner := range cgroupOwners {
		around := ParseCgroup([]byte("0::" + owner.dir))
		for what, path := range forgeries() {
			p := ParseCgroup([]byte("0::" + owner.dir + path))
			for _, id := range []string{p.Container.ID, p.VM.ID, p.Job.ID, p.Pod.UID} {
				if id != "" && id != around.Container.ID && !strings.HasPrefix(id, owner.prefix) {
					t.Errorf("%s, %s: %q does not start with %q", where, what, id, owner.prefix)
				}
			}
			if p.Unit != around.Unit || p.Pod.UID != "" && where != "a container" {
				t.Errorf("%s, %s: unit %q, pod %q", where, what, p.Unit.Name, p.Pod.UID)
			}
		}
	}
}

// FuzzCgroupOwnersCannotForge compares everything that a user creates below the user's own manager
// with everything outside.
func FuzzCgroupOwnersCannotForge(f *testing.F) {
	for _, path := range forgeries() {
		f.Add(path, "/"+path, uuid1)
		f.Add(path, userUnit+"/"+path, uuid1)
		f.Add(path, strings.ReplaceAll(userUnit, "1000", "1001")+"/"+path, uuid1)
		f.Add(path, "/docker/"+idC+userUnit+"/"+path, uuid2)
	}
	f.Fuzz(func(t *testing.T, forged, outside, uuid string) {
		if strings.Contains(forged+outside, "\n") {
			return // not a valid name of a cgroup
		}
		isUsers := func(path string) bool {
			return strings.HasPrefix(path, "/user.slice/user-1000.slice/") || strings.HasPrefix(path, "/user.slice/user-1000.slice (deleted)")
		}
		if isUsers(outside) || !strings.HasPrefix(outside, "/") || strings.Contains("/"+outside+"/", "/user@1000.service") ||
			strings.Contains(outside, "/user-1000.slice") && !strings.HasPrefix(outside, "/docker/"+idC+"/") {
			return
		}
		ids := func(path string) (ids [5]string) {
			p, d := parseCgroup([]byte("0::" + path + "\n"))
			return [5]string{p.Container.ID, p.Pod.UID, p.VM.ID, d.qualify(uuid), p.Job.ID}
		}
		users, others := ids(userUnit+"/"+forged), ids(outside)
		if users[1]+users[4] != "" {
			t.Errorf("the pod %q and the job %q below a user's manager", users[1], users[4])
		}
		if unit := ParseCgroup([]byte("0::" + userUnit + "/" + forged + "\n")).Unit.Name; unit != "user@1000.service" {
			t.Errorf("the unit %q below a user's manager", unit)
		}
		for i, id := range users {
			if id != "" && (!strings.HasPrefix(id, aUsers) || id == others[i]) {
				t.Errorf("%q names %q, and %q names %q", forged, id, outside, others[i])
			}
		}
	})
}

func TestHostRuntimesNameContainersForTheHost(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/system.slice/garden.service/" + gardenID:                                                            gardenID,
		"/system.slice/k3s-agent.service/kubepods-burstable-pod" + uidXSlice + ".slice:cri-containerd:" + idA: idA,
		"/system.slice/lxc@web.service/lxc.payload.web":                                                       "web",
		"/system.slice/docker.service/docker/" + idA:                                                          idA,
		"/system.slice/docker.service/web.service/docker/" + idA:                                              "web.service/" + idA,
		"/system.slice/docker.service.d/docker/" + idA:                                                        idA, // not a unit
		"/system.slice/mydocker.service/docker/" + idA:                                                        "mydocker.service/" + idA,
		"/system.slice/docker.scope/docker/" + idA:                                                            "docker.scope/" + idA,
		"/user.slice/user-x.slice/docker/" + idA:                                                              idA, // not a user
	} {
		assert.Equal(t, want, ParseCgroup([]byte("0::"+path)).Container.ID, path)
	}
}

func TestContainersNestedDeeplyHaveIDsOfTheirOwn(t *testing.T) {
	t.Parallel()
	path, ids := "0::", map[string]bool{}
	for n := range 62 {
		path += "/" + fmt.Sprintf("%064x", n%2)
		id := ParseCgroup([]byte(path)).Container.ID
		assert.False(t, ids[id], "%d: %s", n, id)
		assert.LessOrEqual(t, len(id), maxName)
		ids[id] = true
	}
}

// hypervisor starts a hypervisor with this UUID.
func (i *identified) hypervisor(pid, start int, cgroup, uuid string) {
	i.host.Processes[pid] = &hostsim.Process{
		Comm: "qemu-system-x86", Exe: "/usr/bin/qemu-system-x86_64", Start: int64(start), Cgroup: "0::" + cgroup,
		Args: []string{"qemu-system-x86_64", "-name", "guest=vm", "-uuid", uuid},
	}
}

func TestAVirtualMachineIsNamedAfterItsCgroupOwner(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ cgroup, want string }{
		"libvirt":                        {`/machine.slice/machine-qemu\x2d1\x2dvm.scope/libvirt/emulator`, uuid1},
		"libvirt without systemd":        {"/machine/qemu-1-vm.libvirt-qemu/emulator", uuid1},
		"libvirt without cgroups":        {"/system.slice/libvirtd.service", uuid1},
		"proxmox":                        {"/qemu.slice/100.scope", uuid1},
		"jailed":                         {"/firecracker/x", uuid1},
		"no systemd":                     {"/", uuid1},
		"incus":                          {"/system.slice/incus.service", uuid1},
		"kubevirt":                       {podDir + "/" + idA, idA + "/" + uuid1},
		"kubevirt with libvirt's cgroup": {podDir + "/" + idA + "/machine/qemu-1-vm.libvirt-qemu/emulator", idA + "/" + uuid1},
		"kata":                           {podDir + "/kata_" + idA, idA + "/" + uuid1},
		"a unit":                         {"/system.slice/microvm@a.service", "microvm@a.service/" + uuid1},
		"a user's scope":                 {userUnit + `/machine-qemu\x2d1\x2dvm.scope`, aUsers + uuid1},
		"a user's application":           {userUnit + "/app.slice/app-boxes.scope", aUsers + uuid1},
		"a login session":                {"/user.slice/user-1000.slice/session-3.scope", aUsers + uuid1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIdentified(t, false)
			i.hypervisor(10, 100, tt.cgroup, uuid1)
			found, _ := i.round(10)
			assert.Equal(t, identity.VM{ID: tt.want, Name: "vm", Hypervisor: "qemu"}, found.VM)
		})
	}
}

// Every user of the node can read the UUIDs.
func TestNobodyTakesOverAnothersVirtualMachineByArguments(t *testing.T) {
	t.Parallel()
	for name, victim := range map[string]string{
		"libvirt": `/machine.slice/machine-qemu\x2d1\x2dvm.scope`, "proxmox": "/qemu.slice/100.scope",
		"kubevirt": podDir + "/" + idA, "a user": strings.ReplaceAll(userUnit, "1000", "1001") + "/app.slice/boxes.scope",
	} {
		for where, owner := range cgroupOwners {
			for _, start := range []int{100, 300} { // older and younger
				i := newIdentified(t, false)
				i.hypervisor(20, 200, victim, uuid1)
				want, _ := i.round(20)
				i.end(20)
				i.hypervisor(10, start, strings.TrimSuffix(owner.dir, "/"), uuid1)
				i.round(10) // only the forger at first
				i.hypervisor(20, 200, victim, uuid1)
				got, _ := i.round(20)
				forged, _ := i.id.Identity(10)
				assert.Equal(t, want.VM, got.VM, "%s, forged in %s", name, where)
				assert.True(t, strings.HasPrefix(forged.VM.ID, owner.prefix), "%s: %s", where, forged.VM.ID)
				assert.NotEqual(t, got.VM.ID, forged.VM.ID, where)
			}
		}
	}
}

// In version 1 such a process is in the root of each hierarchy, although its other threads stay in
// their cgroups.
func TestAProcessWhoseFirstThreadHasEndedStaysInItsContainer(t *testing.T) {
	t.Parallel()
	i := newIdentified(t, false)
	p := &hostsim.Process{Comm: "app", Exe: "/bin/app", Cgroup: "4:cpu,cpuacct:/docker/" + idA}
	i.host.Processes[10] = p
	i.round(10)
	p.Cgroup = "4:cpu,cpuacct:/"
	row := process(10, p)
	row.Flags |= proc.Zombie
	found, changed := i.look(row, 0)
	assert.Equal(t, contained(idA, "docker", "/docker/"+idA), found.Placement)
	assert.False(t, changed)
}
