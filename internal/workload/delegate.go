// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"strings"
)

// delegate is the user or program that may create cgroups in a part of the tree besides root
// (cgroup-v2.rst, "Delegation"). A container is known only by its cgroup's name, and a delegate may
// use another container's. So the ID of whatever is below a delegate is qualified by the delegate's
// name: it never equals the ID of anything outside.
//
// The delegate of a user is the user's own service manager, also for login sessions:
// user@1000.service. Other delegates are containers, by their IDs, and units of systemd except
// those that are known to run containers or virtual machines for the host. Names of delegates
// within each other are joined by slashes.
//
// The zero delegate is the host itself, whose IDs are not qualified.
type delegate struct {
	name   string
	isUser bool // units of the same user are not distinguished
	// untrusted marks a user's manager, a unit and what is below them: what looks like the root of
	// a kubelet or slurmd there only pretends to be one. The host runs these agents, and so do
	// containers, as kind's nodes are.
	untrusted bool
}

// qualify returns the ID of what the delegate calls id.
func (d delegate) qualify(id string) string {
	if d.name == "" {
		return id
	}
	return boundID(d.name + "/" + id)
}

// container returns the delegate that a container below d is, by its qualified ID.
func (d delegate) container(id string) delegate {
	return delegate{name: d.qualify(id), untrusted: d.untrusted}
}

// below returns the delegate of the directory that is no container, below d.
func (d delegate) below(dir string) delegate {
	user, ok := userOf(dir)
	switch {
	case ok && d.isUser && (d.name == user || strings.HasSuffix(d.name, "/"+user)):
		return d
	case ok:
		dir = user
	case d.isUser || !isUnit(dir) || runsForHost(dir):
		return d
	case !printable(dir):
		dir = strconv.QuoteToASCII(dir)
	}
	return delegate{name: d.qualify(dir), isUser: ok, untrusted: true}
}

// userOf returns the service manager of the user whose directory this is: user-1000.slice with all
// sessions, or user@1000.service itself.
func userOf(dir string) (manager string, ok bool) {
	uid, ok := strings.CutPrefix(dir, "user")
	if !ok || uid == "" {
		return "", false
	}
	suffix := ".service"
	if uid[0] == '-' {
		suffix = ".slice"
	} else if uid[0] != '@' {
		return "", false
	}
	uid, ok = strings.CutSuffix(uid[1:], suffix)
	return "user@" + uid + ".service", ok && isDigits(uid)
}

// isUnit reports whether a directory is one that systemd may delegate: Delegate= is a setting of
// services and scopes.
func isUnit(dir string) bool {
	return strings.HasSuffix(dir, ".service") || strings.HasSuffix(dir, ".scope")
}

// hostRuntimes are the services that make cgroups for containers or virtual machines below their
// own, in some setups. One that is missing here only has its name in IDs.
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
