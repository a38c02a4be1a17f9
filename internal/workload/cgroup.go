// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// ParseCgroup reads the content of /proc/<pid>/cgroup, whose format is cgroups(7)'s: one line
// "hierarchy-id:controllers:/path" for each cgroup v1 hierarchy, and "0::/path" for cgroup v2. It never
// fails: a line it cannot read says nothing, and a path it does not know is in no container.
//
// In each path the innermost container and the innermost pod win, so a container of Docker in Docker or
// of a kind cluster is found rather than the one around it. The pod is always the container's. Where hierarchies disagree, the path that
// names the most levels of pods and containers wins; among equals cgroup v2, then cpuacct, cpu,
// name=systemd and the rest. The order of the lines makes no difference.
//
// IDs of what is named by a delegate, such as a user's own service manager or a container, start with the
// delegate's name and a slash; see delegate.
//
// A path that starts with "/.." is seen from a cgroup namespace; Cgroup then starts so too, and is
// relative to the reader's own cgroup.
//
// The strings of the result share no memory with b.
func ParseCgroup(b []byte) Placement {
	p, _ := parseCgroup(b)
	return p
}

// parseCgroup returns what ParseCgroup does, and the delegate of the virtual machine if there is one, else of the process.
func parseCgroup(b []byte) (Placement, delegate) {
	var inside, guest, below *cgroupLine // the best line for the container and the pod, the VM, and the delegate
	for line := range bytes.Lines(b) {
		l, ok := readCgroupLine(line)
		if !ok {
			continue
		}
		if l.levels > 0 && (inside == nil || l.betterThan(inside)) {
			inside = &l
		}
		if l.VM.ID != "" && (guest == nil || l.betterThan(guest)) {
			guest = &l
		}
		if l.delegate.name != "" && (below == nil || l.betterThan(below)) {
			below = &l
		}
	}
	var p Placement
	if inside != nil {
		p = inside.Placement
	}
	p.VM = units.VM{}
	var by delegate
	switch {
	case guest != nil:
		p.VM, by = guest.VM, guest.delegate
	case below != nil:
		by = below.delegate
	}
	p.bound()
	return p, by
}

// ProcessCgroup reads the path of the process's own cgroup from the content of /proc/<pid>/cgroup: that of the hierarchy
// that ParseCgroup prefers among those where it is not the root. It is empty where there is none.
func ProcessCgroup(b []byte) string {
	var best *cgroupLine
	for line := range bytes.Lines(b) {
		l, ok := readCgroupLine(line)
		if !ok {
			continue
		}
		l.levels = 0 // whatever it names
		if l.path != "/" {
			l.levels = 1
		}
		if best == nil || l.betterThan(best) {
			best = &l
		}
	}
	if best == nil {
		return ""
	}
	return best.path
}

// cgroupLine is one hierarchy's answer.
type cgroupLine struct {
	Placement
	levels    int // pods and containers that the path names, one inside the other
	hierarchy int // how far the hierarchy is to be preferred, 0 the most
	path      string
	delegate  delegate // of the VM, else of the process
}

func (l *cgroupLine) betterThan(o *cgroupLine) bool {
	if l.levels != o.levels {
		return l.levels > o.levels
	}
	if l.hierarchy != o.hierarchy {
		return l.hierarchy < o.hierarchy
	}
	return l.path < o.path // any rule will do that does not depend on the order of the lines
}

func readCgroupLine(line []byte) (cgroupLine, bool) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	id, rest, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return cgroupLine{}, false
	}
	controllers, raw, ok := bytes.Cut(rest, []byte(":")) // whatever colons follow are the path's own
	if !ok || len(raw) == 0 || raw[0] != '/' {
		return cgroupLine{}, false
	}
	// The kernel marks a cgroup that was removed under its last, dying processes.
	path := strings.TrimSuffix(string(raw), " (deleted)")
	unified := string(id) == "0" && len(controllers) == 0
	l := readCgroupPath(path, unified)
	l.path = path
	l.hierarchy = hierarchyRank(controllers, unified)
	return l, true
}

func hierarchyRank(controllers []byte, unified bool) int {
	if unified {
		return 0
	}
	rank := 4
	for c := range bytes.SplitSeq(controllers, []byte(",")) {
		switch string(c) {
		case "cpuacct":
			rank = min(rank, 1)
		case "cpu":
			rank = min(rank, 2)
		case "name=systemd":
			rank = min(rank, 3)
		}
	}
	return rank
}

// readCgroupPath walks a path from the root to the leaf and keeps the innermost of what it finds.
func readCgroupPath(path string, unified bool) cgroupLine {
	var l cgroupLine
	var pod units.Pod // the innermost so far
	var in delegate
	parts := strings.Split(path, "/")
	above := 0 // parts[above:i] are the directories between the innermost container and parts[i]
	end := -1
	for i, name := range parts {
		end += 1 + len(name)
		if name == "" {
			if above == i {
				above++
			}
			continue
		}
		dirs := parts[above:i]
		slice, unit := splitSystemdPath(name)
		if inner, ok := podAt(dirs, slice); ok && in.mayRunKubelet() {
			pod = inner
			pod.UID = in.qualify(inner.UID)
			l.levels++
			// A process in a pod and in none of its containers. Inside a container that runs pods of its
			// own it stays with that container, so that container and pod agree.
			if l.Container.ID == "" {
				l.Pod = pod
			}
		}
		if vm, ok := vmAt(dirs, name); ok {
			vm.ID = in.qualify(vm.ID)
			l.VM, l.delegate = vm, in
			in = in.below(name)
			continue
		}
		c, ok := containerAt(dirs, unit)
		if !ok {
			in = in.below(name)
			continue
		}
		var next string
		if i+1 < len(parts) {
			next = parts[i+1]
		}
		own := end
		switch {
		case c.monitor != "" && next == c.monitor:
			// The supervisor beside the payload is not inside. This is an answer all the same: it must
			// outrank a hierarchy where the two are not told apart.
			l.levels++
			if l.VM.ID == "" {
				l.delegate = in
			}
			return l
		case c.payload != "" && next == c.payload:
			own += 1 + len(next)
		case c.payloadInV2 && unified:
			in = in.below(name)
			continue
		}
		in = in.container(c.id)
		l.levels++
		l.Pod = pod
		l.Container = units.Container{ID: in.name, Runtime: c.runtime, PodUID: pod.UID}
		l.Cgroup = path[:own]
		above = i + 1
	}
	if l.VM.ID == "" {
		l.delegate = in
	}
	return l
}

// delegate is who may create cgroups in a part of the tree besides root (cgroup-v2.rst, "Delegation"). Names of cgroups
// are all that tells a container, and a delegate is free to give another's. So the ID of whatever is below a delegate is
// qualified by the delegate's name: it never equals the ID of anything outside.
//
// The delegate of a user is the user's own service manager, also for login sessions: user@1000.service. Other delegates
// are containers, by their IDs, and units of systemd except those that are known to run containers or virtual machines
// for the host. Names of delegates within each other are joined by slashes.
//
// The zero delegate is the host itself, whose IDs are not qualified.
type delegate struct {
	name   string
	isUser bool // units of the same user are not told apart
	noPods bool // no kubelet runs below
}

// qualify returns the ID of what the delegate calls id.
func (d delegate) qualify(id string) string {
	if d.name == "" {
		return id
	}
	return boundID(d.name + "/" + id)
}

// mayRunKubelet reports whether a kubelet may have its root below the delegate: on the host, or in a container as kind's
// nodes are. A user's manager and other units could only pretend to.
func (d delegate) mayRunKubelet() bool { return !d.noPods }

// container returns the delegate that a container below d is, by its qualified ID.
func (d delegate) container(id string) delegate {
	return delegate{name: d.qualify(id), noPods: d.noPods}
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
	return delegate{name: d.qualify(dir), isUser: ok, noPods: true}
}

// userOf returns the service manager of the user whose directory this is: user-1000.slice with all sessions, or
// user@1000.service itself.
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

// isUnit reports whether a directory is one that systemd may delegate: Delegate= is a setting of services and scopes.
func isUnit(dir string) bool {
	return strings.HasSuffix(dir, ".service") || strings.HasSuffix(dir, ".scope")
}

// hostRuntimes are the services that make cgroups for containers or virtual machines below their own, in some setups.
// One that is missing here only has its name in IDs.
var hostRuntimes = map[string]bool{
	"containerd": true, "crio": true, "docker": true, "podman": true, "buildkit": true, "buildkitd": true,
	"k3s": true, "k3s-agent": true, "rke2-server": true, "rke2-agent": true, "k0scontroller": true, "k0sworker": true,
	"snap.docker.dockerd": true, "snap.microk8s.daemon-containerd": true,
	"lxc": true, "lxd": true, "incus": true, "snap.lxd.daemon": true,
	"garden": true, "guardian": true, "mesos-agent": true, "mesos-slave": true,
	"libvirtd": true, "virtqemud": true, "virtchd": true, "virtlxcd": true,
}

// runsForHost reports whether a unit is a service that runs containers or virtual machines for the host.
func runsForHost(unit string) bool {
	service, ok := strings.CutSuffix(unit, ".service")
	service, _, _ = strings.Cut(service, "@") // lxc@web
	return ok && hostRuntimes[service]
}

// splitSystemdPath takes apart "slice:prefix:name", the OCI cgroupsPath of the systemd driver. It appears
// as a directory's name where runc or kata was not told to use that driver (runc's docs/systemd.md); it
// means the slice, and in it the scope prefix-name. Other names are both slice and unit.
func splitSystemdPath(name string) (slice, unit string) {
	slice, rest, ok := strings.Cut(name, ":")
	if !ok {
		return name, name
	}
	prefix, id, ok := strings.Cut(rest, ":")
	if !ok || (slice != "" && !strings.HasSuffix(slice, ".slice")) {
		return name, name
	}
	return slice, prefix + "-" + id + ".scope"
}

const kata = "kata"

// containerShape is one way in which a runtime names the cgroup of a container.
type containerShape struct {
	// dir is the directory's name up to the id for namedContainers, and the name of a directory above
	// it for containersBelow.
	dir     string
	runtime string // as container.runtime.name; Kubernetes' spelling in container statuses
	id      func(string) bool
	where   where

	// payload and monitor are the children that some runtimes make for the container itself and for
	// the process that looks after it.
	payload, monitor string
	payloadInV2      bool // in cgroup v2 the container is always in the payload child

	escaped bool // the id is escaped for systemd
	tagged  bool // dir may have a tag or a unit's suffix: garden-1, garden.service
}

type where int

const (
	asScope      where = iota // a systemd scope: dir + id + ".scope"
	asScopeOrDir              // or the same without suffix, from a cgroupfs driver
	asService                 // dir + id + ".service"
	directly                  // the id is the child of dir
	directlyAtTop
	anywhere // the id is somewhere below dir
)

// namedContainers are the shapes whose directory's name starts with the runtime's mark. What a monitor's
// name leaves after the mark (crio-conmon-<id>, libpod-conmon-<id>) is no id, so it is not inside.
//
// To support another runtime, add a line here or to containersBelow.
var namedContainers = []containerShape{
	// Docker Engine docs, "Runtime metrics", and moby's daemon; build steps have BuildKit's shorter ids.
	{dir: "docker-", runtime: "docker", id: isDockerOrBuildkitID, where: asScope},
	{dir: "cri-containerd-", runtime: "containerd", id: isHex64, where: asScope}, // containerd's CRI plugin
	{dir: "nerdctl-", runtime: "containerd", id: isHex64, where: asScope},        // nerdctl's generateCgroupPath
	{dir: "crio-", runtime: "cri-o", id: isHex64, where: asScopeOrDir},           // CRI-O's cgmgr
	// podman-run(1) --cgroups=split (the default of Quadlet units), and libpod's getOCICgroupPath.
	{dir: "libpod-payload-", runtime: "podman", id: isHex64, where: asScopeOrDir},
	{dir: "libpod-", runtime: "podman", id: isHex64, where: asScopeOrDir},
	// LXC's cgroup.h; also LXD and Incus, which write <project>_<name> outside the default project. A
	// name in use gets a number behind it, which cannot be told from a name.
	{dir: "lxc.payload.", runtime: "lxc", id: isLXCName, where: asScopeOrDir},
	{dir: "kata_", runtime: kata, id: isHex64, where: asScopeOrDir}, // Kata's host-cgroups.md
	// systemd-nspawn(1). Other machines that registered themselves have the same name, QEMU of
	// systemd-vmspawn among them, but only nspawn makes the payload child.
	{
		dir: "machine-", runtime: "systemd-nspawn", id: isName, where: asScope, escaped: true,
		payload: "payload", monitor: "supervisor", payloadInV2: true,
	},
	{
		dir: "systemd-nspawn@", runtime: "systemd-nspawn", id: isName, where: asService, escaped: true,
		payload: "payload", monitor: "supervisor", payloadInV2: true,
	},
}

// containersBelow are the shapes where the directory is the id alone and one above it tells the runtime;
// the nearest counts.
var containersBelow = []containerShape{
	{dir: "docker", runtime: "docker", id: isHex64, where: anywhere}, // moby; buildx has /docker/buildx/<id>
	// BuildKit's executor/oci: <parent>/buildkit/<id>.
	{dir: "buildkit", runtime: "buildkit", id: isBuildkitID, where: directly},
	// containerd's oci package: /<namespace>/<id> unless the client says otherwise, with any name as id.
	{dir: "default", runtime: "containerd", id: isName, where: directlyAtTop},
	{dir: "k8s.io", runtime: "containerd", id: isName, where: directlyAtTop},
	// The Amazon ECS agent makes /ecs/<task> and lets Docker make the container in it; AWS Fargate runs
	// containerd from platform version 1.4, with ids of its own.
	{dir: "ecs", runtime: "docker", id: isHex64, where: anywhere},
	{dir: "ecs", runtime: "containerd", id: isFargateID, where: anywhere},
	// Cloud Foundry's Guardian: garden or garden-<tag>, and with CPU throttling good or bad below it.
	{dir: "garden", runtime: "garden", id: isGardenHandle, where: anywhere, tagged: true},
	{dir: "mesos", runtime: "mesos", id: isUUID, where: directly},       // Mesos' cgroups2-support.md
	{dir: "kata_overhead", runtime: kata, id: isHex64, where: anywhere}, // Kata's host-cgroups.md
	// lxc.system.conf(5), lxc.cgroup.pattern = lxc/%n; older LXC and Proxmox VE without the children.
	{dir: "lxc", runtime: "lxc", id: isLXCName, where: directly, payload: "payload", monitor: "monitor"},
}

// notContainersBelow are directories whose children look like a container's id and are not one.
var notContainersBelow = map[string]bool{
	"libpod_parent": true, // Podman's pods; their containers are libpod-<id>
	"firecracker":   true, // Firecracker's jailer: virtual machines
}

// match is the container that a directory is.
type match struct {
	*containerShape
	id, runtime string
}

// containerAt tells whether the directory name, below the directories dirs, is a container's own cgroup.
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
	// A container under a parent of the user's own, as by docker run --cgroup-parent, or in a pod with
	// the cgroupfs driver. Nothing but a container's id has this shape.
	if isHex64(name) && (len(dirs) == 0 || !notContainersBelow[dirs[len(dirs)-1]]) {
		return match{&plainShape, name, ""}, true
	}
	return match{}, false
}

// containersAnywhere reports whether the name may be that of a container whose runtime is told by any directory above
// it. Few names may, so a deep path of others is read in one pass.
func containersAnywhere(name string) bool {
	for i := range containersBelow {
		if s := &containersBelow[i]; s.where == anywhere && s.id(name) {
			return true
		}
	}
	return false
}

// plainShape is what containers have whose cgroup has no children of its runtime's.
var plainShape containerShape

// cut takes the id from the name of a directory.
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

// isAbove tells whether dir is the directory that the shape has above its ids.
func (s *containerShape) isAbove(dir string) bool {
	rest, ok := strings.CutPrefix(dir, s.dir)
	return ok && (rest == "" || s.tagged && (rest[0] == '-' || rest[0] == '.'))
}

// podAt tells whether the directory name, below dirs, is the cgroup of a Kubernetes pod. The kubelet's
// cgroup manager writes kubepods/burstable/pod<uid> with the cgroupfs driver and, with the systemd driver,
// kubepods-burstable-pod<uid>.slice, where the uid's dashes are underscores; both below a root of the
// administrator's (kubelet.slice/kubelet-kubepods… in kind). Guaranteed pods have no class in their path.
func podAt(dirs []string, name string) (units.Pod, bool) {
	if slice, ok := strings.CutSuffix(name, ".slice"); ok {
		at := strings.LastIndex(slice, "kubepods-")
		if at < 0 || at > 0 && slice[at-1] != '-' {
			return units.Pod{}, false
		}
		rest := slice[at+len("kubepods-"):]
		class := "Guaranteed"
		if q, after, ok := strings.Cut(rest, "-"); ok && qosClass(q) != "" {
			class, rest = qosClass(q), after
		}
		uid, ok := strings.CutPrefix(rest, "pod")
		uid = strings.ReplaceAll(uid, "_", "-")
		if !ok || !isPodUID(uid) {
			return units.Pod{}, false
		}
		return units.Pod{UID: uid, QoSClass: class}, true
	}
	uid, ok := strings.CutPrefix(name, "pod")
	if !ok || !isPodUID(uid) || len(dirs) == 0 {
		return units.Pod{}, false
	}
	// Seen from a cgroup namespace, the directories that the reader shares with the pod are "..".
	class := ""
	parent := dirs[len(dirs)-1]
	if c := qosClass(parent); c != "" && len(dirs) > 1 {
		class, parent = c, dirs[len(dirs)-2]
	} else if parent == "kubepods" {
		class = "Guaranteed"
	}
	if parent != "kubepods" && parent != ".." {
		return units.Pod{}, false
	}
	return units.Pod{UID: uid, QoSClass: class}, true
}

func qosClass(dir string) string {
	switch dir {
	case "burstable":
		return "Burstable"
	case "besteffort":
		return "BestEffort"
	}
	return ""
}

// libvirtDrivers are the drivers of libvirt that make cgroups, by the names that these start with.
var libvirtDrivers = []machineDriver{
	{prefix: "qemu-", name: "qemu", vm: true, legacy: true},
	{prefix: "ch-", name: "cloud-hypervisor", vm: true},
	{prefix: "lxc-", name: "lxc", legacy: true},
}

type machineDriver struct {
	prefix string
	name   string // of the hypervisor or of the container runtime
	vm     bool
	legacy bool // there were releases that did not number their guests
}

// libvirtMachine reads the driver and the machine's name from a cgroup's name. libvirt's "Control Groups
// Resource Management" gives the machine as <driver>-<number>-<name>, and the cgroup as machine-<machine>.scope,
// escaped for systemd, or as <machine>.libvirt-<driver> without systemd.
func libvirtMachine(name string) (machineDriver, string, bool) {
	if scope, ok := strings.CutSuffix(name, ".scope"); ok {
		machine, ok := strings.CutPrefix(scope, "machine-")
		if !ok {
			return machineDriver{}, "", false
		}
		machine = unescapeUnit(machine)
		for _, d := range libvirtDrivers {
			rest, ok := strings.CutPrefix(machine, d.prefix)
			if _, numbered := cutNumber(rest); ok && rest != "" && (numbered || d.legacy) {
				return d, machine, isMachineName(machine)
			}
		}
		return machineDriver{}, "", false
	}
	for _, d := range libvirtDrivers {
		machine, ok := strings.CutSuffix(name, ".libvirt-"+strings.TrimSuffix(d.prefix, "-"))
		if ok && machine != "" {
			return d, machine, isMachineName(machine)
		}
	}
	return machineDriver{}, "", false
}

// vmAt tells whether the directory name, below dirs, holds a virtual machine. The emulator and the vCPUs
// are in children of it, so all of them get this answer.
func vmAt(dirs []string, name string) (units.VM, bool) {
	scope, isScope := strings.CutSuffix(name, ".scope")
	if d, machine, ok := libvirtMachine(name); ok && d.vm {
		vm := units.VM{ID: machine, Name: guestName(strings.TrimPrefix(machine, d.prefix)), Hypervisor: d.name}
		if isScope {
			vm.ID = "machine-" + machine
		}
		return vm, true
	}
	// Proxmox VE puts the machine with the number 100 into qemu.slice/100.scope.
	if isScope && isDigits(scope) && len(dirs) > 0 && dirs[len(dirs)-1] == "qemu.slice" {
		return units.VM{ID: scope, Hypervisor: "qemu"}, true
	}
	return units.VM{}, false
}

// guestName takes the guest's name from "1-vm1", and from "embed-<hash>-1-vm1" of libvirt's embedded driver.
// libvirt may have shortened it.
func guestName(s string) string {
	if rest, ok := strings.CutPrefix(s, "embed-"); ok && len(rest) > 9 && isHex(rest[:8]) && rest[8] == '-' {
		if name, ok := cutNumber(rest[9:]); ok {
			return name
		}
	}
	name, _ := cutNumber(s)
	return name
}

// cutNumber cuts the number of a running domain from "1-vm1".
func cutNumber(s string) (rest string, ok bool) {
	n, rest, ok := strings.Cut(s, "-")
	if !ok || !isDigits(n) {
		return s, false
	}
	return rest, true
}

// unescapeUnit undoes the \x2d of systemd.unit(5), "String Escaping for Inclusion in Unit Names". Dashes
// stay: they stand for the slashes of paths, and no machine has such a name.
func unescapeUnit(s string) string {
	if !strings.Contains(s, `\x`) {
		return s
	}
	var out []byte
	for i := 0; i < len(s); i++ {
		if strings.HasPrefix(s[i:], `\x`) && len(s) >= i+4 {
			if n, err := strconv.ParseUint(s[i+2:i+4], 16, 8); err == nil {
				out = append(out, byte(n))
				i += 3
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// The shapes of ids. None accepts what could not be exported: an id must be UTF-8 without controls.

// isHex64: the id that Docker, containerd's CRI, CRI-O and Podman give.
func isHex64(s string) bool { return len(s) == 64 && isLowerHex(s) }

// isBuildkitID: BuildKit's identity.NewID writes 25 digits to the base 36.
func isBuildkitID(s string) bool {
	return len(s) == 25 && all(s, func(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'z' })
}

func isDockerOrBuildkitID(s string) bool { return isHex64(s) || isBuildkitID(s) }

// isUUID: the text form of RFC 9562.
func isUUID(s string) bool {
	return len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' &&
		isHex(s[:8]) && isHex(s[9:13]) && isHex(s[14:18]) && isHex(s[19:23]) && isHex(s[24:])
}

// isPodUID: a UUID, or the 32 digits of the configuration's hash that a static pod has for a uid.
func isPodUID(s string) bool { return isUUID(s) || len(s) == 32 && isHex(s) }

// isFargateID: the task's 32 digits and a number.
func isFargateID(s string) bool {
	return len(s) > 33 && isLowerHex(s[:32]) && s[32] == '-' && isDigits(s[33:])
}

// isGardenHandle: a UUID, or what Cloud Foundry's Diego makes of one: 8 digits and four groups of 4.
func isGardenHandle(s string) bool {
	return isUUID(s) || len(s) == 28 && isUUID(s+"00000000")
}

// isName: a name as containers and machines may have one, and no systemd unit's.
func isName(s string) bool {
	if s == "" || len(s) > 255 || s[0] == '.' || s[0] == '-' {
		return false
	}
	for _, unit := range []string{".scope", ".service", ".slice"} {
		if strings.HasSuffix(s, unit) {
			return false
		}
	}
	return all(s, func(c byte) bool {
		return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '_' || c == '.'
	})
}

// isLXCName: LXC's own directories (lxc.monitor.<name>, lxc.pivot) are not containers.
func isLXCName(s string) bool { return isName(s) && !strings.HasPrefix(s, "lxc.") }

// isMachineName: libvirt allows anything but slashes and controls.
func isMachineName(s string) bool { return printable(s) && !strings.Contains(s, "/") }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isDigits(s string) bool { return s != "" && all(s, isDigit) }

func isLowerHex(s string) bool {
	return all(s, func(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' })
}

func isHex(s string) bool {
	return all(s, func(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' })
}

func all(s string, is func(byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}

func printable(s string) bool {
	return utf8.ValidString(s) && all(s, func(c byte) bool { return c >= ' ' && c != 0x7f })
}
