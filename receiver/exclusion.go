package receiver

import (
	"go.opentelemetry.io/collector/filter"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
)

// exclusion says whose energy counts as static.
type exclusion struct {
	cgroup, container, pod, executable filter.Filter // nil: none
}

// newExclusion returns nil where nobody is excluded.
func newExclusion(c *ExcludeConfig) *exclusion {
	create := func(configs []filter.Config) filter.Filter {
		if len(configs) == 0 {
			return nil
		}
		return filter.CreateFilter(configs)
	}
	e := &exclusion{create(c.Cgroup), create(c.ContainerID), create(c.PodUID), create(c.ExecutableName)}
	if *e == (exclusion{}) {
		return nil
	}
	return e
}

func (e *exclusion) matches(o *attribution.Owner, cgroup string) bool {
	if e == nil {
		return false
	}
	match := func(f filter.Filter, value string) bool { return f != nil && value != "" && f.Matches(value) }
	return match(e.cgroup, cgroup) || match(e.container, o.Container.ID) || match(e.pod, o.Pod.UID) ||
		match(e.executable, o.Process.Executable)
}

func (e *exclusion) byCgroup() bool { return e != nil && e.cgroup != nil }
