// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// findPod is the finder of pods.
func findPod(w *walk, name string) verdict {
	slice, _ := splitSystemdPath(name)
	pod, ok := podAt(w.dirs(), slice)
	if !ok || w.owner.untrusted {
		return passed
	}
	pod.UID = w.owner.qualify(pod.UID)
	w.pod = pod
	w.line.levels++
	// The process is in a pod, but not in a container. A container that runs pods of its own keeps its
	// pod, so that container and pod agree.
	if w.line.Container.ID == "" {
		w.line.Pod = pod
	}
	return passed
}

// podAt reports whether the directory name, below dirs, is the cgroup of a Kubernetes pod. The
// kubelet's cgroup manager writes kubepods/burstable/pod<uid> with the cgroupfs driver. With the
// systemd driver, it writes kubepods-burstable-pod<uid>.slice and replaces the dashes of the uid
// with underscores. Both are below a root that the administrator can select
// (kubelet.slice/kubelet-kubepods… in kind). Guaranteed pods have no class in their path.
func podAt(dirs []string, name string) (identity.Pod, bool) {
	if slice, ok := strings.CutSuffix(name, ".slice"); ok {
		at := strings.LastIndex(slice, "kubepods-")
		if at < 0 || at > 0 && slice[at-1] != '-' {
			return identity.Pod{}, false
		}
		rest := slice[at+len("kubepods-"):]
		class := "Guaranteed"
		if q, after, ok := strings.Cut(rest, "-"); ok && qosClass(q) != "" {
			class, rest = qosClass(q), after
		}
		uid, ok := strings.CutPrefix(rest, "pod")
		uid = strings.ReplaceAll(uid, "_", "-")
		if !ok || !isPodUID(uid) {
			return identity.Pod{}, false
		}
		return identity.Pod{UID: uid, QoSClass: class}, true
	}
	uid, ok := strings.CutPrefix(name, "pod")
	if !ok || !isPodUID(uid) || len(dirs) == 0 {
		return identity.Pod{}, false
	}
	// In a cgroup namespace, the common directories of the reader and the pod are "..".
	class := ""
	parent := dirs[len(dirs)-1]
	if c := qosClass(parent); c != "" && len(dirs) > 1 {
		class, parent = c, dirs[len(dirs)-2]
	} else if parent == "kubepods" {
		class = "Guaranteed"
	}
	if parent != "kubepods" && parent != ".." {
		return identity.Pod{}, false
	}
	return identity.Pod{UID: uid, QoSClass: class}, true
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
