// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"strings"
)

// cgroupOwner is a user or program other than the host that may create cgroups in a delegated
// subtree (cgroup-v2.rst, "Delegation"). A container is identified only by its cgroup's name, and
// an owner may use the name of another container. Therefore the ID of each workload in the subtree
// is qualified by the owner's name, and never equals the ID of a workload outside.
//
// The owner of a user's cgroups is the user's own service manager, also for login sessions:
// user@1000.service. Other owners are containers, by their IDs, and units of systemd except those
// that run containers or virtual machines for the host. Names of nested owners are joined by
// slashes.
//
// The zero cgroupOwner is the host itself, whose IDs are not qualified.
type cgroupOwner struct {
	name   string
	isUser bool // units of the same user are not distinguished
	// untrusted marks a user's manager, a unit and their subtrees. A directory there that looks
	// like the root of a kubelet or slurmd is a forgery, because only the host and containers, such
	// as the nodes of kind, run these agents.
	untrusted bool
}

// qualify returns the ID of a workload whose owner uses the name id. The ID is unique on the node.
func (o cgroupOwner) qualify(id string) string {
	if o.name == "" {
		return id
	}
	return boundID(o.name + "/" + id)
}

// container returns the owner of the cgroups in a container.
func (o cgroupOwner) container(id string) cgroupOwner {
	return cgroupOwner{name: o.qualify(id), untrusted: o.untrusted}
}

// below returns the owner of the cgroups in a directory of the owner that is not a container.
func (o cgroupOwner) below(dir string) cgroupOwner {
	user, ok := userOf(dir)
	switch {
	case ok && o.isUser && (o.name == user || strings.HasSuffix(o.name, "/"+user)):
		return o
	case ok:
		dir = user
	case o.isUser || !isUnit(dir) || runsForHost(dir):
		return o
	case !printable(dir):
		dir = strconv.QuoteToASCII(dir)
	}
	return cgroupOwner{name: o.qualify(dir), isUser: ok, untrusted: true}
}

// userOf returns the service manager of the user to whom a directory belongs: user-1000.slice with
// all sessions, or user@1000.service itself.
func userOf(dir string) (manager string, ok bool) {
	uid, ok := strings.CutPrefix(dir, "user@")
	suffix := ".service"
	if !ok {
		uid, ok = strings.CutPrefix(dir, "user-")
		suffix = ".slice"
	}
	uid, cut := strings.CutSuffix(uid, suffix)
	if !ok || !cut || !isDigits(uid) {
		return "", false
	}
	return "user@" + uid + ".service", true
}

// isUnit reports whether systemd may delegate a directory: Delegate= is a setting of services and
// scopes.
func isUnit(dir string) bool {
	return strings.HasSuffix(dir, ".service") || strings.HasSuffix(dir, ".scope")
}

// hostRuntimes are the services that, in some setups, create the cgroups of containers or virtual
// machines below their own. The IDs of a service that is missing here are qualified by its name.
var hostRuntimes = map[string]bool{
	"containerd": true, "crio": true, "docker": true, "podman": true, "buildkit": true, "buildkitd": true,
	"k3s": true, "k3s-agent": true, "rke2-server": true, "rke2-agent": true, "k0scontroller": true, "k0sworker": true,
	"snap.docker.dockerd": true, "snap.microk8s.daemon-containerd": true,
	"lxc": true, "lxd": true, "incus": true, "snap.lxd.daemon": true,
	"garden": true, "guardian": true, "mesos-agent": true, "mesos-slave": true,
	"libvirtd": true, "virtqemud": true, "virtchd": true, "virtlxcd": true,
}

// runsForHost reports whether a unit is a service that runs containers or virtual machines for the
// host.
func runsForHost(unit string) bool {
	service, ok := strings.CutSuffix(unit, ".service")
	service, _, _ = strings.Cut(service, "@") // lxc@web
	return ok && hostRuntimes[service]
}
