// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// NameSource is a program that stores names of containers in files.
type NameSource string

// The sources of names.
const (
	NamesKubelet    NameSource = "kubelet"    // the names of logs: namespaces, pods and containers
	NamesContainerd NameSource = "containerd" // OCI bundles of its CRI plugin and of nerdctl
	NamesCRIO       NameSource = "cri-o"
	NamesPodman     NameSource = "podman"
	NamesDocker     NameSource = "docker"
)

// NameSources are all sources.
var NameSources = []NameSource{NamesKubelet, NamesContainerd, NamesCRIO, NamesPodman, NamesDocker}

// nameDirs has the directories of each source, below the host's root. The directories of containerd
// include the state directories of k3s, RKE2, k0s and MicroK8s.
var nameDirs = map[NameSource][]string{
	NamesKubelet:    {"/var/log"},
	NamesContainerd: {"/run/containerd", "/run/k3s/containerd", "/run/k0s/containerd", "/var/snap/microk8s/common/run/containerd"},
	NamesCRIO:       {"/run/containers/storage"},
	NamesPodman:     {"/var/lib/containers/storage", "/run/containers/storage"},
	NamesDocker:     {"/var/lib/docker", "/var/snap/docker/common/var-lib-docker"},
}

// subdirectories has the subdirectory of nameDirs that contains the files of each source.
var subdirectories = map[NameSource]string{
	NamesKubelet:    "containers",
	NamesContainerd: "io.containerd.runtime.v2.task",
	NamesCRIO:       "overlay-containers",
	NamesPodman:     "overlay-containers",
	NamesDocker:     "containers",
}

// NamesOptions are the sources of names.
type NamesOptions struct {
	// Root is the path of the host's root directory.
	Root string
	// Sources are the sources that are read.
	Sources []NameSource
	// Directories are the directories of sources, below Root, that replace the usual directories:
	// for the kubelet the parent of pods and containers, for containerd its state, for CRI-O its run
	// root, for Podman its graph root and for Docker its data root.
	Directories map[NameSource]string
	// Pods has the names of pods. It must be set if the kubelet is a source.
	Pods *PodLogs
}

// Dirs returns the directories of a source.
func (o *NamesOptions) Dirs(s NameSource) (dirs []string) {
	usual := nameDirs[s]
	if dir := o.Directories[s]; dir != "" {
		usual = []string{dir}
	}
	for _, dir := range usual {
		dirs = append(dirs, filepath.Join(o.Root, dir))
	}
	return dirs
}

// Readable returns the sources that can be read now, and the sources that cannot be read for lack
// of a permission.
func (o *NamesOptions) Readable() (readable, denied []NameSource) {
	for _, s := range o.Sources {
		var failed []error
		for _, dir := range o.Dirs(s) {
			_, err := listDir(filepath.Join(dir, subdirectories[s]))
			failed = append(failed, err)
		}
		if slices.Contains(failed, nil) {
			readable = append(readable, s)
		} else if errors.Is(errors.Join(failed...), fs.ErrPermission) {
			denied = append(denied, s)
		}
	}
	return readable, denied
}

// Names finds the human-readable names of containers and pods in the files of the kubelet and of
// container runtimes, without requests to either.
//
// A container's names are read once, when its first process is identified. The kubelet links a
// container's log right after it has started the container, so the name of a container in a pod may
// become available a moment later: until then, for at most awaitLink, its names are Pending. Names
// that exceed the budget of a round are Pending as well. The files belong to root, but the user of
// a container controls part of their content: the lengths of names and of the text that is read are
// limited.
//
// A Names is not safe for concurrent use.
type Names struct {
	options NamesOptions
	// known are the containers and pods that were requested since swept. before are the containers
	// and pods of the previous period.
	known, before map[string]*named
	swept         time.Time
	pending       []*named
	now           time.Time // start of the scan
	round         time.Time // when pending names were last looked for
	budget        int64     // bytes of runtimes' files that may be read until the next round

	logs   map[string]logLink        // by the container's ID, nil if they were not listed in this round
	noLogs bool                      // they could not be listed
	podman map[string]identity.Names // by the container's ID, nil if they were not listed in this scan
}

// named is a container, or a pod with processes outside of its containers, such as the monitors of
// CRI-O.
type named struct {
	*identity.Names
	id, runtime, pod string    // id is empty for a pod; pod is its UID
	read             bool      // its runtime's files were read
	sandbox          bool      // the container holds the namespaces of its pod, and has no name
	until            time.Time // until when to search for the log
}

const (
	// lookForNamesAgain is the minimum time between rounds. Each round searches for pending names
	// again.
	lookForNamesAgain = 500 * time.Millisecond
	// roundBudget is the maximum number of bytes of runtimes' files that are read in a round. The
	// first round, at the baseline, has no limit.
	roundBudget = 2 << 20
	// fileCost is the cost of opening a file in addition to its size.
	fileCost = 2 << 10
	// awaitLink is the maximum time to search for the log of a container in a pod. The kubelet
	// creates the link in the call that starts the container, a few milliseconds after the first
	// process runs.
	awaitLink = 5 * time.Second
)

// NewNames returns a Names. It does not read files.
func NewNames(o NamesOptions) *Names {
	return &Names{options: o, known: map[string]*named{}, budget: 1 << 40}
}

// begin begins a scan at now. At most every lookForNamesAgain it begins a round.
func (n *Names) begin(now time.Time) {
	isFirst := n.now.IsZero()
	n.now, n.podman = now, nil
	if now.Sub(n.round) < lookForNamesAgain {
		return
	}
	if !isFirst {
		n.budget = roundBudget
	}
	n.round, n.logs = now, nil
	n.pending = slices.DeleteFunc(n.pending, func(c *named) bool {
		n.look(c)
		return !c.Pending
	})
	if now.Sub(n.swept) >= forgetNames {
		n.swept, n.before, n.known = now, n.known, map[string]*named{}
	}
}

// of returns the names of a container and its pod. For a process in a pod, but not in a container
// that the host named, it returns the names of the pod. It returns nil without a container and a
// pod.
func (n *Names) of(p *Placement) *identity.Names {
	id, uid := p.Container.ID, p.Pod.UID
	if !isHosts(id) {
		id = ""
	}
	if !isHosts(uid) {
		uid = ""
	}
	key := id
	if id == "" {
		if uid == "" {
			return nil
		}
		key = "pod/" + uid // no host's container has a slash in its ID
	}
	c := n.known[key]
	if c == nil {
		if c = n.before[key]; c == nil {
			c = n.find(id, uid, p.Container.Runtime)
		}
		n.known[key] = c
	}
	return c.Names
}

// find looks for the names of a container, or of a pod if id is empty.
func (n *Names) find(id, pod, runtime string) *named {
	c := &named{Names: &identity.Names{Pending: true}, id: id, pod: pod}
	if id != "" {
		c.runtime = runtime
	}
	if n.look(c); c.Pending {
		n.pending = append(n.pending, c)
	}
	return c
}

// look searches for missing names of a container. Names from the kubelet have precedence, because
// only the kubelet chooses them.
func (n *Names) look(c *named) {
	awaited := n.readLogs(c)
	if !c.read {
		if n.budget <= 0 {
			return
		}
		c.read, c.until = true, n.now.Add(awaitLink)
		n.readRuntime(c)
	}
	c.Pending = awaited && c.lacksNames() && n.now.Before(c.until)
}

// lacksNames reports whether the kubelet may have names that are still missing.
func (c *named) lacksNames() bool {
	return !c.sandbox && (c.Pod == "" || c.KubernetesContainer == "" && c.id != "")
}

// fill sets the names that are still missing.
func (c *named) fill(from *identity.Names) {
	if c.Pod == "" && from.Namespace != "" && from.Pod != "" {
		c.Namespace, c.Pod = bound(from.Namespace, maxName), bound(from.Pod, maxName)
	}
	set := func(into *string, name string) {
		if *into == "" {
			*into = bound(name, maxName)
		}
	}
	set(&c.KubernetesContainer, from.KubernetesContainer)
	set(&c.Container, from.Container)
	set(&c.Image, imageName(from.Image))
}

// imageName returns the name of an image without its tag and digest, or "" for the ID of an image.
func imageName(reference string) string {
	name, _, _ := strings.Cut(reference, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	if name == "sha256" || isHex64(name) {
		return ""
	}
	return name
}

// readLogs reads the names of a container in a pod from the names of its logs. It reports whether
// missing names may appear soon.
func (n *Names) readLogs(c *named) (awaited bool) {
	if c.pod == "" || !slices.Contains(n.options.Sources, NamesKubelet) {
		return false
	}
	if c.Pod == "" {
		pod := n.options.Pods.again(c.pod, n.now)
		c.fill(&identity.Names{Namespace: pod.namespace, Pod: pod.name})
	}
	if !c.lacksNames() {
		return false
	}
	if n.logs == nil {
		n.listLogs()
	}
	if l, ok := n.logs[c.id]; ok {
		n.options.Pods.add(c.pod, l.podName, n.now)
		c.fill(&identity.Names{Namespace: l.namespace, Pod: l.name, KubernetesContainer: l.container})
	}
	return !n.noLogs
}

// logLink is a container with a log.
type logLink struct {
	podName
	container string
}

// listLogs lists the links to the logs of all containers.
func (n *Names) listLogs() {
	n.noLogs, n.logs = true, map[string]logLink{}
	for _, dir := range n.options.Dirs(NamesKubelet) {
		names, err := listDir(filepath.Join(dir, subdirectories[NamesKubelet]))
		n.noLogs = n.noLogs && err != nil
		for _, name := range names {
			if l, id, ok := parseLogLink(name); ok {
				n.logs[id] = l
			}
		}
	}
}

// parseLogLink parses the name of a link to a container's log,
// <pod>_<namespace>_<container>-<id>.log (pkg/kubelet/kuberuntime/legacy.go, logSymlink). The
// kubelet truncates names of more than 255 bytes, including the ID. ok is false for such a link.
// Names of pods, namespaces and containers have no underscores.
func parseLogLink(file string) (l logLink, id string, ok bool) {
	rest, ok := strings.CutSuffix(file, ".log")
	parts := strings.Split(rest, "_")
	if !ok || len(parts) != 3 || parts[0] == "" || parts[1] == "" {
		return logLink{}, "", false
	}
	dash := strings.LastIndexByte(parts[2], '-')
	if dash <= 0 || !isHex64(parts[2][dash+1:]) {
		return logLink{}, "", false
	}
	return logLink{podName{namespace: parts[1], name: parts[0]}, parts[2][:dash]}, parts[2][dash+1:], true
}
