// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/filter"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
)

// exclusion says whose energy counts as static.
type exclusion struct {
	cgroup, container, pod, namespace, executable filter.Filter // nil: none
	namespaces                                    *podNamespaces
}

// newExclusion returns nil where nobody is excluded.
func newExclusion(c *ExcludeConfig, root string) *exclusion {
	create := func(configs []filter.Config) filter.Filter {
		if len(configs) == 0 {
			return nil
		}
		return filter.CreateFilter(configs)
	}
	e := &exclusion{
		cgroup: create(fromTheRoot(c.Cgroup)), container: create(c.ContainerID), pod: create(c.PodUID), namespace: create(c.Namespace),
		executable: create(c.ExecutableName),
	}
	if *e == (exclusion{}) {
		return nil
	}
	if e.namespace != nil {
		e.namespaces = newPodNamespaces(root)
	}
	return e
}

// fromTheRoot has patterns match from the begin of a path on. A user can create cgroups with any name below the user's
// own, so a pattern that matches the end of a path matches what everybody likes.
func fromTheRoot(configs []filter.Config) []filter.Config {
	anchored := slices.Clone(configs)
	for i := range anchored {
		if c := &anchored[i]; c.Regex != "" {
			c.Regex = "^(?:" + c.Regex + ")"
		}
	}
	return anchored
}

// isHosts reports whether the host named what has this id. Other ids are names in somebody else's part of the cgroup
// tree, or paths of cgroups, and both have slashes.
func isHosts(id string) bool { return !strings.Contains(id, "/") }

// matches reports whether an owner is excluded, by what it is and by any of the cgroups that it is in.
func (e *exclusion) matches(o *attribution.Owner, now time.Time, cgroups ...string) bool {
	if e == nil {
		return false
	}
	match := func(f filter.Filter, value string) bool {
		return f != nil && value != "" && isHosts(value) && f.Matches(value)
	}
	return slices.ContainsFunc(cgroups, e.matchesCgroup) || match(e.container, o.Container.ID) || match(e.pod, o.Pod.UID) ||
		match(e.executable, o.Process.Executable) || e.matchesPod(o.Pod.UID, now)
}

// matchesCgroup says whether all of a cgroup is excluded.
func (e *exclusion) matchesCgroup(path string) bool {
	return e != nil && e.cgroup != nil && path != "" && e.cgroup.Matches(path)
}

// matchesPod says whether all of a pod is excluded by its namespace.
func (e *exclusion) matchesPod(uid string, now time.Time) bool {
	if e.namespace == nil || uid == "" || !isHosts(uid) {
		return false
	}
	namespace := e.namespaces.of(uid, now)
	return namespace != "" && e.namespace.Matches(namespace)
}

// learned says whether namespaces have become known that were asked for before.
func (e *exclusion) learned(now time.Time) bool {
	return e != nil && e.namespaces != nil && e.namespaces.lookAgain(now)
}

// trouble is why it cannot be told who is excluded.
func (e *exclusion) trouble() error {
	if e == nil || e.namespaces == nil {
		return nil
	}
	return e.namespaces.failed
}

func (e *exclusion) byCgroup() bool { return e != nil && e.cgroup != nil }
