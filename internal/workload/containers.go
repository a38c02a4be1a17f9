// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

const kata = "kata"

// containerShape is the naming pattern of a runtime for the cgroups of containers.
type containerShape struct {
	// dir is the prefix of the directory's name before the id for namedContainers, and the name of
	// an ancestor of the directory for containersBelow.
	dir     string
	runtime string            // container.runtime.name, spelled as in Kubernetes' container statuses
	id      func(string) bool // reports whether an id has the runtime's format
	where   where

	// payload and monitor are the children that some runtimes create for the container itself and
	// for its monitor process.
	payload, monitor string
	payloadInV2      bool // in cgroup v2 the container is always in the payload child

	escaped bool // the id is escaped for systemd
	tagged  bool // dir may have a tag or a unit's suffix: garden-1, garden.service
}

// where is the position of the id.
type where int

const (
	asScope      where = iota // a systemd scope: dir + id + ".scope"
	asScopeOrDir              // or the same without suffix, from a cgroupfs driver
	asService                 // dir + id + ".service"
	directly                  // the id is the child of dir
	directlyAtTop
	anywhere // the id is somewhere below dir
)

// namedContainers are the shapes whose directory's name starts with a prefix of the runtime. After
// the prefix, the name of a monitor (crio-conmon-<id>, libpod-conmon-<id>) is not an id, so a
// monitor is not in the container.
//
// To support another runtime, add a line here or to containersBelow.
var namedContainers = []containerShape{
	// Docker Engine docs, "Runtime metrics", and moby's daemon; Kepler also finds the directory
	// without suffix. BuildKit's build steps have shorter IDs.
	{dir: "docker-", runtime: "docker", id: isHex64, where: asScopeOrDir},
	{dir: "docker-", runtime: "docker", id: isBuildkitID, where: asScope},
	{dir: "cri-containerd-", runtime: "containerd", id: isHex64, where: asScope}, // containerd's CRI plugin
	{dir: "nerdctl-", runtime: "containerd", id: isHex64, where: asScope},        // nerdctl's generateCgroupPath
	{dir: "crio-", runtime: "cri-o", id: isHex64, where: asScopeOrDir},           // CRI-O's cgmgr
	// podman-run(1) --cgroups=split (the default of Quadlet units), and libpod's getOCICgroupPath.
	{dir: "libpod-payload-", runtime: "podman", id: isHex64, where: asScopeOrDir},
	{dir: "libpod-", runtime: "podman", id: isHex64, where: asScopeOrDir},
	// LXC's cgroup.h; also LXD and Incus, which write <project>_<name> outside the default project.
	// If a name is in use, a number is appended, which cannot be distinguished from a part of the
	// name.
	{dir: "lxc.payload.", runtime: "lxc", id: isLXCName, where: asScopeOrDir},
	{dir: "kata_", runtime: kata, id: isHex64, where: asScopeOrDir}, // Kata's host-cgroups.md
	// systemd-nspawn(1). Other registered machines, such as QEMU of systemd-vmspawn, have the same
	// name, but only nspawn creates the payload child.
	{
		dir: "machine-", runtime: "systemd-nspawn", id: isName, where: asScope, escaped: true,
		payload: "payload", monitor: "supervisor", payloadInV2: true,
	},
	{
		dir: "systemd-nspawn@", runtime: "systemd-nspawn", id: isName, where: asService, escaped: true,
		payload: "payload", monitor: "supervisor", payloadInV2: true,
	},
}

// containersBelow are the shapes whose directory's name is only the id. The nearest ancestor that
// matches a shape identifies the runtime.
var containersBelow = []containerShape{
	{dir: "docker", runtime: "docker", id: isHex64, where: anywhere}, // moby; buildx has /docker/buildx/<id>
	// BuildKit's executor/oci: <parent>/buildkit/<id>.
	{dir: "buildkit", runtime: "buildkit", id: isBuildkitID, where: directly},
	// containerd's oci package: /<namespace>/<id> unless the client selects another path. The id
	// can be any name.
	{dir: "default", runtime: "containerd", id: isName, where: directlyAtTop},
	{dir: "k8s.io", runtime: "containerd", id: isName, where: directlyAtTop},
	// The Amazon ECS agent creates /ecs/<task>, and Docker creates the container in it. AWS Fargate
	// runs containerd from platform version 1.4 on, with its own format of ids.
	{dir: "ecs", runtime: "docker", id: isHex64, where: anywhere},
	{dir: "ecs", runtime: "containerd", id: isFargateID, where: anywhere},
	// Cloud Foundry's Guardian: garden or garden-<tag>, and with CPU throttling good or bad below
	// it.
	{dir: "garden", runtime: "garden", id: isGardenHandle, where: anywhere, tagged: true},
	{dir: "mesos", runtime: "mesos", id: isUUID, where: directly},       // Mesos' cgroups2-support.md
	{dir: "kata_overhead", runtime: kata, id: isHex64, where: anywhere}, // Kata's host-cgroups.md
	// lxc.system.conf(5), lxc.cgroup.pattern = lxc/%n; older LXC and Proxmox VE without the
	// children.
	{dir: "lxc", runtime: "lxc", id: isLXCName, where: directly, payload: "payload", monitor: "monitor"},
}

// notContainersBelow are directories whose children only look like a container's id.
var notContainersBelow = map[string]bool{
	"libpod_parent": true, // Podman's pods; their containers are libpod-<id>
	"firecracker":   true, // Firecracker's jailer: virtual machines
}

// match is the result of containerAt.
type match struct {
	*containerShape
	id, runtime string
}

// findContainer is the finder of containers.
func findContainer(w *walk, name string) verdict {
	_, unit := splitSystemdPath(name)
	c, ok := containerAt(w.dirs(), unit)
	if !ok {
		return passed
	}
	own := w.end
	switch next := w.next(); {
	case c.monitor != "" && next == c.monitor:
		// The supervisor next to the payload is not in the container. The line still counts a
		// level, because it must have precedence over a hierarchy that does not distinguish the
		// two.
		w.line.levels++
		return stopped
	case c.payload != "" && next == c.payload:
		own += 1 + len(next)
	case c.payloadInV2 && w.unified:
		return passed
	}
	w.owner = w.owner.container(c.id)
	w.line.levels++
	w.line.Pod = w.pod
	w.line.Container = identity.Container{ID: w.owner.name, Runtime: c.runtime}
	w.line.Cgroup = w.path[:own]
	w.above = w.at + 1
	return entered
}

// containerAt reports whether the directory name, below the directories dirs, is a container's own
// cgroup.
func containerAt(dirs []string, name string) (match, bool) {
	if driver, id, ok := libvirtMachine(name); ok {
		if driver.vm {
			return match{}, false
		}
		return match{&plainShape, id, driver.name}, true
	}
	for i := range namedContainers {
		s := &namedContainers[i]
		id, ok := s.cut(name)
		if ok && s.id(id) {
			return match{s, id, s.runtime}, true
		}
	}
	farthest := len(dirs) - 1
	if containersAnywhere(name) {
		farthest = 0
	}
	for d := len(dirs) - 1; d >= farthest && d >= 0; d-- {
		for i := range containersBelow {
			s := &containersBelow[i]
			if s.where != anywhere && d != len(dirs)-1 {
				continue
			}
			if s.where == directlyAtTop && d > 0 && dirs[d-1] != ".." {
				continue
			}
			if s.isAbove(dirs[d]) && s.id(name) {
				return match{s, name, s.runtime}, true
			}
		}
	}
	// A container below a parent that the user chose (docker run --cgroup-parent), or in a pod with
	// the cgroupfs driver. Only ids of containers have this format.
	if isHex64(name) && (len(dirs) == 0 || !notContainersBelow[dirs[len(dirs)-1]]) {
		return match{&plainShape, name, ""}, true
	}
	return match{}, false
}

// containersAnywhere reports whether the name has the format of an id whose runtime may be any
// ancestor. Few names have this format, so deep paths with other names are read in one pass.
func containersAnywhere(name string) bool {
	for i := range containersBelow {
		if s := &containersBelow[i]; s.where == anywhere && s.id(name) {
			return true
		}
	}
	return false
}

// plainShape is the shape of containers without children of their cgroup.
var plainShape containerShape

// cut returns the id in the name of a directory.
func (s *containerShape) cut(name string) (id string, ok bool) {
	id, ok = strings.CutPrefix(name, s.dir)
	if !ok {
		return "", false
	}
	switch s.where {
	case asScope:
		id, ok = strings.CutSuffix(id, ".scope")
	case asService:
		id, ok = strings.CutSuffix(id, ".service")
	default:
		id = strings.TrimSuffix(id, ".scope")
	}
	if s.escaped {
		id = unescapeUnit(id)
	}
	return id, ok
}

// isAbove reports whether dir is the ancestor of ids in the shape.
func (s *containerShape) isAbove(dir string) bool {
	rest, ok := strings.CutPrefix(dir, s.dir)
	return ok && (rest == "" || s.tagged && (rest[0] == '-' || rest[0] == '.'))
}
