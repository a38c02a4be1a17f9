// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
)

func TestUnitsAreNamedAsBySystemd(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 255-len(".service"))
	for path, want := range map[string]string{
		"/system.slice/nginx.service":                                   "nginx.service",
		"/system.slice/nginx.service (deleted)":                         "nginx.service",
		"/system.slice/system-getty.slice/getty@tty1.service":           "getty@tty1.service",
		`/system.slice/system-systemd\x2dcryptsetup.slice/a\x2db.mount`: `a\x2db.mount`,
		"/system.slice/cups.socket":                                     "cups.socket",
		"/system.slice/dev-sda2.swap":                                   "dev-sda2.swap",
		"/init.scope":                                                   "init.scope",
		"/system.slice/_cpu.service":                                    "cpu.service", // cpu.* are the kernel's files
		"/system.slice/__a.service":                                     "_a.service",
		"/system.slice/docker-" + idA + ".scope":                        "docker-" + idA + ".scope",
		podSlice + "/cri-containerd-" + idA + ".scope":                  "cri-containerd-" + idA + ".scope",
		slurmScope + "/job_7/step_0":                                    "slurmstepd.scope",
		"/system.slice/" + long + ".service":                            long + ".service",

		// Cgroups of a user, a unit or a container are part of the host's unit.
		userUnit + "/app.slice/app-x.scope":                       "user@1000.service",
		userUnit + "/system.slice/nginx.service":                  "user@1000.service",
		"/user.slice/user-1000.slice/session-3.scope/a.service":   "session-3.scope",
		"/system.slice/ci.service/system.slice/nginx.service":     "ci.service",
		"/system.slice/docker-" + idA + ".scope/init.scope":       "docker-" + idA + ".scope",
		"/docker/" + idA + "/system.slice/nginx.service":          "",
		"/lxc/101/ns/system.slice/nginx.service":                  "",
		"/kubepods/burstable/pod" + uidX + "/" + idA + "/a.scope": "",

		"/":                                         "",
		"/system.slice":                             "",
		"/system.slice/system-getty.slice":          "",
		"/../nginx.service":                         "", // its position in the host's tree is unknown
		"/mygroup/nginx.service":                    "",
		"/system.slice/getty@.service":              "", // a template
		"/system.slice/@a.service":                  "",
		"/system.slice/a@b@.service":                "a@b@.service",
		"/system.slice/.service":                    "",
		"/system.slice/service":                     "",
		"/system.slice/nginx.target":                "", // a target has no cgroup
		"/system.slice/nginx.service.d":             "",
		"/system.slice/a b.service":                 "",
		"/system.slice/\xff.service":                "",
		"/system.slice/a" + long + ".service":       "",
		"/system.slice/x/nginx.service":             "",
		"/x:y.slice:cri-containerd:z/nginx.service": "",
	} {
		assert.Equal(t, want, ParseCgroup([]byte("0::"+path+"\n")).Unit.Name, path)
	}
	assert.Equal(t, "ssh.service", ParseCgroup([]byte("4:memory:/\n1:name=systemd:/system.slice/ssh.service\n0::/\n")).Unit.Name)
}

// Otherwise a process that moves from one service to another would start a new series.
func TestUnitsAreOmittedUnlessEnabled(t *testing.T) {
	t.Parallel()
	i := newIdentified(t, false)
	p := &hostsim.Process{Comm: "app", Exe: "/bin/app", Cgroup: "0::/system.slice/nginx.service"}
	i.host.Processes[10] = p
	i.round(10)
	p.Cgroup = "0::/system.slice/ssh.service"
	found, changed := i.round(10)
	assert.False(t, changed)
	assert.Equal(t, Placement{}, found.Placement)
	assert.Equal(t, Placement{}, i.id.PlaceShortLived("/system.slice/ssh.service"))
}

func TestAProcessThatMovesToAnotherUnitOrStepIsAnother(t *testing.T) {
	t.Parallel()
	i := newIdentified(t, false)
	i.id.wanted.Unit = true
	p := &hostsim.Process{Comm: "app", Exe: "/bin/app", Cgroup: "0::/system.slice/nginx.service"}
	i.host.Processes[10] = p
	found, _ := i.round(10)
	assert.Equal(t, identity.SystemdUnit{Name: "nginx.service"}, found.Unit)
	for _, step := range []string{"0", "1"} {
		p.Cgroup = "0::" + slurmScope + "/job_7/step_" + step + "/user/task_0"
		found, changed := i.round(10)
		assert.True(t, changed)
		assert.Equal(t, identity.SlurmStep{ID: "7", Step: step}, found.Job)
		assert.Equal(t, slurmScope+"/job_7/step_"+step, found.Cgroup)
		assert.Equal(t, found.Placement, i.id.PlaceShortLived(p.Cgroup[len("0::"):]))
	}
}
