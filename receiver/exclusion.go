// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"slices"

	"go.opentelemetry.io/collector/filter"

	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// newExclusion returns who is excluded, nil where nobody is.
func newExclusion(c *ExcludeConfig, root string) *workload.Exclusion {
	return workload.NewExclusion(workload.Excluded{
		Cgroup: matchAny(fromTheRoot(c.Cgroup)), Container: matchAny(c.ContainerID), Pod: matchAny(c.PodUID),
		Namespace: matchAny(c.Namespace), Executable: matchAny(c.ExecutableName),
	}, root)
}

// matchAny returns what matches a value that any filter matches, nil without filters.
func matchAny(configs []filter.Config) workload.Match {
	if len(configs) == 0 {
		return nil
	}
	f := filter.CreateFilter(configs)
	return func(value string) bool { return f.Matches(value) }
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
