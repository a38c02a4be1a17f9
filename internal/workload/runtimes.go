// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/regular"
)

// runtimeFiles has a reader for each source that is a runtime. A reader reports whether the runtime
// has the container.
var runtimeFiles = []struct {
	source NameSource
	read   func(n *Names, dir string, c *named) (found bool)
}{
	{NamesContainerd, (*Names).readContainerd},
	{NamesCRIO, (*Names).readCRIO},
	{NamesPodman, (*Names).readPodman},
	{NamesDocker, (*Names).readDocker},
}

// readRuntime reads the names of a container from the files of its runtime. If the cgroup's path
// does not contain the runtime, as with the kubelet's cgroupfs driver, it tries all.
func (n *Names) readRuntime(c *named) {
	if !isHex64(c.id) && (c.runtime != string(NamesContainerd) || !isName(c.id)) {
		return
	}
	for _, r := range runtimeFiles {
		if c.runtime != "" && c.runtime != kata && c.runtime != string(r.source) || !slices.Contains(n.options.Sources, r.source) {
			continue
		}
		for _, dir := range n.options.Dirs(r.source) {
			if r.read(n, filepath.Join(dir, subdirectories[r.source]), c) {
				return
			}
		}
	}
}

// readContainerd reads the OCI bundle of containerd's shim. containerd creates it before the
// container starts, below a directory for each of its namespaces (core/runtime/v2/bundle.go,
// NewBundle).
func (n *Names) readContainerd(dir string, c *named) bool {
	namespaces, err := listDir(dir)
	if err != nil {
		return false
	}
	for _, namespace := range namespaces {
		if namespace == "moby" {
			continue // Docker's, which keeps names elsewhere
		}
		if spec, ok := n.readSpec(dir, filepath.Join(namespace, c.id, "config.json")); ok {
			c.sandbox = spec["io.kubernetes.cri.container-type"] == "sandbox"
			c.fill(&identity.Names{
				Namespace:           spec["io.kubernetes.cri.sandbox-namespace"],
				Pod:                 spec["io.kubernetes.cri.sandbox-name"],
				KubernetesContainer: spec["io.kubernetes.cri.container-name"],
				Container:           spec["nerdctl/name"],
				Image:               spec["io.kubernetes.cri.image-name"],
			})
			return true
		}
	}
	return false
}

// readCRIO reads the OCI bundle of CRI-O, which is created before the container starts.
func (n *Names) readCRIO(dir string, c *named) bool {
	spec, ok := n.readSpec(dir, filepath.Join(c.id, "userdata/config.json"))
	if !ok || spec["io.kubernetes.pod.name"] == "" {
		return false // Podman has the same directory
	}
	names := identity.Names{
		Namespace:           spec["io.kubernetes.pod.namespace"],
		Pod:                 spec["io.kubernetes.pod.name"],
		KubernetesContainer: spec["io.kubernetes.container.name"],
		Container:           spec["io.kubernetes.cri-o.Name"],
		Image:               spec["io.kubernetes.cri-o.ImageName"],
	}
	if c.sandbox = spec["io.kubernetes.cri-o.ContainerType"] == "sandbox"; c.sandbox {
		names.KubernetesContainer = ""
	}
	c.fill(&names)
	return true
}

// readPodman reads the list of all containers in Podman's storage, at most once in a scan. A
// container is listed before it starts. Containers that are removed when they end have a separate
// list.
func (n *Names) readPodman(_ string, c *named) bool {
	if n.podman == nil {
		n.podman = map[string]identity.Names{}
		for _, dir := range n.options.Dirs(NamesPodman) {
			for _, list := range []string{"containers.json", "volatile-containers.json"} {
				n.listPodman(filepath.Join(dir, subdirectories[NamesPodman]), list)
			}
		}
	}
	names, ok := n.podman[c.id]
	c.fill(&names)
	return ok
}

func (n *Names) listPodman(dir, list string) {
	var containers []struct {
		ID       string
		Names    []string
		Metadata string
	}
	if n.readJSON(dir, list, maxRuntimeList, &containers) != nil {
		return
	}
	for i := range containers {
		at := &containers[i]
		var metadata struct {
			Image string `json:"image-name"`
		}
		_ = json.Unmarshal([]byte(at.Metadata), &metadata) // without an image on error
		names := identity.Names{Image: metadata.Image}
		if len(at.Names) > 0 {
			names.Container = at.Names[0]
		}
		n.podman[at.ID] = names
	}
}

// readDocker reads the state that Docker's daemon keeps of a container. It is written when the
// container is created.
func (n *Names) readDocker(dir string, c *named) bool {
	var state struct {
		Name   string
		Config struct {
			Image  string
			Labels map[string]string
		}
	}
	if n.readJSON(dir, filepath.Join(c.id, "config.v2.json"), maxRuntimeFile, &state) != nil {
		return false
	}
	labels := state.Config.Labels // of cri-dockerd; without cri-dockerd, the user of a container can set them
	names := identity.Names{Container: strings.TrimPrefix(state.Name, "/"), Image: state.Config.Image}
	if c.pod != "" {
		names.Namespace, names.Pod = labels["io.kubernetes.pod.namespace"], labels["io.kubernetes.pod.name"]
		if c.sandbox = labels["io.kubernetes.docker.type"] == "podsandbox"; !c.sandbox {
			names.KubernetesContainer = labels["io.kubernetes.container.name"]
		}
	}
	c.fill(&names)
	return true
}

// The maximum sizes in bytes of the state of one container, and of a list of containers.
const (
	maxRuntimeFile = 1 << 20
	maxRuntimeList = 8 << 20
)

// readSpec returns the annotations of an OCI runtime configuration.
func (n *Names) readSpec(dir, path string) (annotations map[string]string, ok bool) {
	var spec struct{ Annotations map[string]string }
	err := n.readJSON(dir, path, maxRuntimeFile, &spec)
	return spec.Annotations, err == nil
}

// readJSON reads a regular file below dir of at most size bytes.
func (n *Names) readJSON(dir, path string, size int64, into any) error {
	n.budget -= fileCost
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	text, err := regular.ReadBelow(root, path, size)
	n.budget -= int64(len(text)) // also if the read failed
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
