// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"strings"
	"time"
)

// Match reports whether a setting selects a value. A nil Match selects no value.
type Match func(value string) bool

func (m Match) matches(value string) bool { return m != nil && value != "" && m(value) }

// Excluded selects the processes that are excluded: each process whose [Identity] any field matches.
type Excluded struct {
	// Cgroup matches the path of the container's cgroup and of the process's own. A user can create
	// cgroups with any name below the user's own cgroup, so Cgroup should match from the start of
	// the path.
	Cgroup Match
	// Namespace matches the Kubernetes namespaces of pods.
	Namespace Match
	// Executable matches names of executables. Any user can give a program any name.
	Executable Match
	// ControlPlane selects the static pods of the Kubernetes control plane.
	ControlPlane bool
}

// controlPlane lists the components of the control plane (kubernetes.io/docs/concepts/architecture).
// The kubelet names a static pod after its manifest and the node, for example etcd-node1. OpenShift
// has its own name for the scheduler.
var controlPlane = []string{
	"kube-apiserver", "etcd", "kube-scheduler", "openshift-kube-scheduler", "kube-controller-manager", "cloud-controller-manager",
}

// Exclusion selects the workloads whose energy counts as static. The zero Exclusion selects no
// workload. An Exclusion is not safe for concurrent use.
type Exclusion struct {
	by     Excluded
	pods   *PodLogs // read only if by can exclude pods
	found  []string // names of excluded pods of the control plane
	listed int      // number of names that ControlPlane returned
	asked  bool     // ControlPlane was called
}

// NewExclusion returns an Exclusion. pods provides the namespaces and names of pods.
func NewExclusion(by Excluded, pods *PodLogs) *Exclusion { return &Exclusion{by: by, pods: pods} }

// Excludes reports whether a process is excluded. An empty field of its identity does not match.
func (e *Exclusion) Excludes(i *Identity, now time.Time) bool {
	return e.ExcludesCgroup(i.Cgroup) || e.ExcludesCgroup(i.ProcessCgroup) ||
		e.by.Executable.matches(i.Executable) || e.ExcludesPod(i.Pod.UID, now)
}

// ExcludesCgroup reports whether all processes in a cgroup are excluded.
func (e *Exclusion) ExcludesCgroup(path string) bool { return e.by.Cgroup.matches(path) }

// ExcludesPod reports whether all processes of a pod are excluded, because of its namespace or
// because it is a static pod of the control plane.
func (e *Exclusion) ExcludesPod(uid string, now time.Time) bool {
	mayControl := e.by.ControlPlane && isStaticPodUID(uid)
	if uid == "" || !isHosts(uid) || e.by.Namespace == nil && !mayControl {
		return false
	}
	pod := e.pods.of(uid, now)
	if mayControl && slices.ContainsFunc(controlPlane, func(c string) bool { return strings.HasPrefix(pod.name, c+"-") }) {
		if !slices.Contains(e.found, pod.name) {
			e.found = append(e.found, pod.name)
		}
		return true
	}
	return e.by.Namespace.matches(pod.namespace)
}

// ControlPlane returns the names of the excluded pods of the control plane that no earlier call
// returned. isNews is true if there are any, and in the first call if the control plane is excluded.
func (e *Exclusion) ControlPlane() (names []string, isNews bool) {
	names, isNews = e.found[e.listed:], e.by.ControlPlane && !e.asked
	e.listed, e.asked = len(e.found), true
	return names, isNews || len(names) > 0
}

// Resolved reports whether, since the last call, a pod's name was found that was missing when
// Excludes was called for the pod. Processes in the pod may now be excluded.
func (e *Exclusion) Resolved(now time.Time) bool {
	return e.byPod() && e.pods.lookAgain(now)
}

// byPod reports whether any pod is excluded by its namespace or its name.
func (e *Exclusion) byPod() bool { return e.by.Namespace != nil || e.by.ControlPlane }

// ByCgroup reports whether any process is excluded by the path of its cgroup.
func (e *Exclusion) ByCgroup() bool { return e.by.Cgroup != nil }

// Err returns the reason why the names of pods cannot be read. It returns nil if no name is needed.
func (e *Exclusion) Err() error {
	if !e.byPod() {
		return nil
	}
	return e.pods.failed
}

// isHosts reports whether the host itself chose an ID. All other IDs contain slashes, because they
// start with the name of a cgroup owner or are paths of cgroups.
func isHosts(id string) bool { return !strings.Contains(id, "/") }
