// SPDX-License-Identifier: Apache-2.0

// Package extensioncheck provides a configuration converter that checks how components refer to each
// other. It does not change the configuration. It returns an error if
//
//   - service::extensions lacks an extension that an energy receiver refers to,
//   - energyprofile receives CPU samples of a receiver other than the profiler, unless foreign_samples
//     is true,
//   - energyspans receives profiles that have not passed energyprofile, or that a processor sends
//     without the context that proves that,
//   - energyspans receives energy from two pipelines, which both have all energy.
//
// Validation passes each component only its own section, and creates receivers without a host. A
// converter receives the whole configuration, so the command validate reports these errors as well.
// To add the converter to a builder configuration:
//
//	converters:
//	  - gomod: github.com/energyreceiver/energyreceiver v0.1.0
//	    import: github.com/energyreceiver/energyreceiver/converter/extensioncheck
package extensioncheck // import "github.com/energyreceiver/energyreceiver/converter/extensioncheck"

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
)

// NewFactory returns the factory of the converter.
func NewFactory() confmap.ConverterFactory {
	return confmap.NewConverterFactory(func(confmap.ConverterSettings) confmap.Converter { return converter{} })
}

type converter struct{}

// receiverType is the type of the energy receiver.
const receiverType = "energy"

// Convert returns the errors of a configuration. It does not change conf. It ignores malformed parts,
// which the collector reports.
func (converter) Convert(_ context.Context, conf *confmap.Conf) error {
	all := conf.ToStringMap()
	return errors.Join(append(missingExtensions(all), foreignProfiles(all)...)...)
}

// missingExtensions returns an error for each extension that service::extensions lacks although an
// energy receiver of a pipeline refers to it.
func missingExtensions(all map[string]any) (errs []error) {
	enabled := idsOf(at(all, "service", "extensions"))
	used := map[component.ID]bool{}
	pipelines, _ := at(all, "service", "pipelines").(map[string]any)
	for _, pipeline := range pipelines {
		for _, id := range idsOf(at(pipeline, "receivers")) {
			used[id] = true
		}
	}
	receivers, _ := all["receivers"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(receivers)) {
		var id component.ID
		if id.UnmarshalText([]byte(name)) != nil || id.Type().String() != receiverType || !used[id] {
			continue
		}
		for _, key := range named {
			for _, extension := range idsOf(at(receivers[name], key.path...)) {
				if !slices.Contains(enabled, extension) {
					err := fmt.Errorf("receivers::%s::%s: extension %q is not enabled: add it to extensions and to service::extensions%s", name, key, extension, key.hint)
					errs = append(errs, err)
				}
			}
		}
	}
	return errs
}

// named are the settings of the receiver that refer to extensions.
var named = []setting{
	{[]string{"storage"}, ", or set the absolute path of a directory"},
	{[]string{"meters", "gpu", "extensions"}, ""},
}

type setting struct {
	path []string
	hint string // the end of the error
}

// String returns the setting in the notation of the collector's errors.
func (s setting) String() (name string) {
	for i, key := range s.path {
		if i > 0 {
			name += "::"
		}
		name += key
	}
	return name
}

// at returns the value at a path of keys, or nil if there is none.
func at(value any, path ...string) any {
	for _, key := range path {
		section, _ := value.(map[string]any)
		value = section[key]
	}
	return value
}

// idsOf returns the component IDs in a list or in a single string. An absolute path, which storage
// may be, is not an ID.
func idsOf(value any) (ids []component.ID) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	for _, element := range list {
		var id component.ID
		if text, ok := element.(string); ok && !filepath.IsAbs(text) && id.UnmarshalText([]byte(text)) == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
