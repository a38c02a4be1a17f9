// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// NameSource is a program that keeps names of containers in files.
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

// nameDirs has the directories of each source, below the host's root. Those of containerd also are
// where k3s, RKE2, k0s and MicroK8s have it.
var nameDirs = map[NameSource][]string{
	NamesKubelet:    {"/var/log"},
	NamesContainerd: {"/run/containerd", "/run/k3s/containerd", "/run/k0s/containerd", "/var/snap/microk8s/common/run/containerd"},
	NamesCRIO:       {"/run/containers/storage"},
	NamesPodman:     {"/var/lib/containers/storage", "/run/containers/storage"},
	NamesDocker:     {"/var/lib/docker", "/var/snap/docker/common/var-lib-docker"},
}

// subdirectories has the directory that each source is read in.
var subdirectories = map[NameSource]string{
	NamesKubelet:    "containers",
	NamesContainerd: "io.containerd.runtime.v2.task",
	NamesCRIO:       "overlay-containers",
	NamesPodman:     "overlay-containers",
	NamesDocker:     "containers",
}

// NamesOptions say where names are.
type NamesOptions struct {
	// Root is where the host's root directory is.
	Root string
	// Sources are those that are read.
	Sources []NameSource
	// Directories are where sources are, below Root, in place of the usual directories: the
	// kubelet's is that with its directories pods and containers, containerd's its state, that of
	// CRI-O its run root, that of Podman its graph root and that of Docker its data root.
	Directories map[NameSource]string
	// Pods has the names of pods. It must be set where the kubelet is a source.
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

// Readable returns the sources that can be read now, and those that are there and may not be read.
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
// A container's names are read once, when its first process is seen. The kubelet links a
// container's log right after it has started the container, so the name of a container in a pod may
// become known a moment later: its names are Pending until then, at most awaitLink long. So are
// names that a scan had no time to read. The files belong to root, but the user of a container
// controls part of their content: the lengths of names and of the text that is read are bounded.
//
// A nil Names finds none. A Names is not safe for concurrent use.
type Names struct {
	options NamesOptions
	known   map[string]*named // by the container's ID
	pending []*named
	now     time.Time
	budget  int64 // bytes of runtimes' files that this scan may still read
	swept   time.Time

	logs   map[string]logLink // by the container's ID, nil if they were not listed in this scan
	listed time.Time          // when they were
	noLogs bool               // they could not be listed
	podman map[string]identity.Names
}

// named is a container, or a pod with processes outside of its containers, such as the monitors of
// CRI-O.
type named struct {
	*identity.Names
	id, runtime, pod string    // id is empty for a pod; pod is its UID
	read             bool      // its runtime's files were read
	sandbox          bool      // it holds the namespaces of its pod, and has no name of its own
	until            time.Time // when the log is not looked for any more
	asked            bool      // since the last sweep
}

const (
	// awaitLink is how long the log of a container in a pod is looked for. The kubelet makes the
	// link within the call that starts the container, some milliseconds after its first process
	// runs.
	awaitLink = 5 * time.Second
	// listAgain is how often directories are listed while a name is awaited.
	listAgain = 500 * time.Millisecond
	// scanBudget is how much of runtimes' files is read in one scan, in bytes. The first scan has
	// no bound: it is the baseline.
	scanBudget = 2 << 20
	// fileCost is the cost of opening a file in addition to its size.
	fileCost = 2 << 10
	// sweepNames is how often containers without processes are forgotten.
	sweepNames = 10 * time.Minute
)

// NewNames returns a Names. It reads nothing yet.
func NewNames(o NamesOptions) *Names {
	return &Names{options: o, known: map[string]*named{}, budget: 1 << 40}
}

// begin begins a scan at now, and looks again for the names that are pending. running reports
// whether a container has processes.
func (n *Names) begin(now time.Time, running func(id string) bool) {
	if n == nil {
		return
	}
	if !n.now.IsZero() {
		n.budget = scanBudget
	}
	n.now, n.logs, n.podman = now, nil, nil
	n.pending = slices.DeleteFunc(n.pending, func(c *named) bool {
		n.look(c)
		return !c.Pending
	})
	if now.Sub(n.swept) < sweepNames {
		return
	}
	n.swept = now
	maps.DeleteFunc(n.known, func(id string, c *named) bool {
		forget := !c.asked && !c.Pending && !running(id)
		c.asked = false
		return forget
	})
}

// of returns the names of the container that p is in, and of its pod. Of what is in a pod, and in
// no container that the host itself named, it returns those of the pod, nil if there is none.
func (n *Names) of(p *Placement) *identity.Names {
	if n == nil {
		return nil
	}
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
		c = &named{Names: &identity.Names{Pending: true}, id: id, pod: uid}
		if id != "" {
			c.runtime = p.Container.Runtime
		}
		n.known[key] = c
		if n.look(c); c.Pending {
			n.pending = append(n.pending, c)
		}
	}
	c.asked = true
	return c.Names
}

// look looks for the names of a container that are not known yet. Names from the kubelet come
// first: no other program chooses them.
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

// lacksNames reports whether the kubelet may have names that are not known yet.
func (c *named) lacksNames() bool {
	return !c.sandbox && (c.Pod == "" || c.KubernetesContainer == "" && c.id != "")
}

// fill sets the names that are not known yet.
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

// imageName returns the name of an image without its tag and digest, empty if only the image's ID
// is known.
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
// names that are not there may be there soon.
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
	if n.now.Sub(n.listed) >= listAgain {
		n.listLogs()
	}
	if l, ok := n.logs[c.id]; ok {
		n.options.Pods.learn(c.pod, l.podName, n.now)
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
	n.listed, n.noLogs, n.logs = n.now, true, map[string]logLink{}
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
// kubelet cuts a name of more than 255 bytes, and with it the ID: such a link is not ok. Names of
// pods, namespaces and containers have no underscores.
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
