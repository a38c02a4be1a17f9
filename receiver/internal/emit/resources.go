// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"reflect"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/filter"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// settingsByName returns the settings of each resource attribute by its name.
func settingsByName(cfg *metadata.ResourceAttributesConfig) map[string]metadata.ResourceAttributeConfig {
	out := map[string]metadata.ResourceAttributeConfig{}
	v := reflect.ValueOf(cfg).Elem()
	for i := range v.NumField() {
		if c, ok := v.Field(i).Interface().(metadata.ResourceAttributeConfig); ok {
			out[v.Type().Field(i).Tag.Get("mapstructure")] = c
		}
	}
	return out
}

// filters are the settings metrics_include and metrics_exclude of resource attributes.
type filters []attributeFilter

type attributeFilter struct {
	attribute string
	filter    filter.Filter
	keep      bool // what a match means
}

func newFilters(settings map[string]metadata.ResourceAttributeConfig) (f filters) {
	for attribute, c := range settings {
		if c.MetricsInclude != nil {
			f = append(f, attributeFilter{attribute, filter.CreateFilter(c.MetricsInclude), true})
		}
		if c.MetricsExclude != nil {
			f = append(f, attributeFilter{attribute, filter.CreateFilter(c.MetricsExclude), false})
		}
	}
	return f
}

// keep reports whether a resource is emitted: each attribute that it has and that is filtered must match what is
// included and must not match what is excluded.
func (f filters) keep(attributes pcommon.Map) bool {
	for _, a := range f {
		value, ok := attributes.Get(a.attribute)
		if ok && a.filter.Matches(value.AsString()) != a.keep {
			return false
		}
	}
	return true
}

// SharedSeries is a disabled resource attribute without which different entities have the same series.
type SharedSeries struct{ Attribute, Entity string }

// FindSharedSeries returns those of a configuration. In one collection such series have several values, of which a
// backend keeps one, or none.
func FindSharedSeries(cfg metadata.MetricsBuilderConfig) (shared []SharedSeries) {
	metrics := generate(cfg, component.BuildInfo{}).metrics
	settings := settingsByName(&cfg.ResourceAttributes)
	for entity := range identity.NumEntities {
		e := newEntityMetrics(entity, metrics, settings)
		if !e.any() {
			continue
		}
		for _, name := range e.shared {
			shared = append(shared, SharedSeries{name, entity.String()})
		}
	}
	return shared
}
