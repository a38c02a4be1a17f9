// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"reflect"
	"slices"

	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/ledger"
)

// SettingsOfTotals describes the settings that determine the meaning of totals. The description
// does not depend on the order of zones. It omits settings with their default values, so that later
// versions with more settings return the same description.
func (c *Config) SettingsOfTotals() string {
	own, defaults := c.Attribution, Default().Attribution
	set := map[string]any{"zones": slices.Sorted(slices.Values(c.Zones))}
	v, of := reflect.ValueOf(own), reflect.ValueOf(defaults)
	for i := range v.NumField() {
		if field := v.Type().Field(i); field.IsExported() && field.Tag.Get(confmap.MapstructureTag) != "-" && !reflect.DeepEqual(v.Field(i).Interface(), of.Field(i).Interface()) {
			set[field.Name] = v.Field(i).Interface()
		}
	}
	if c.Series.Processes.GroupBy != "" {
		set["GroupBy"] = c.Series.Processes.GroupBy
	}
	if !c.ResourceAttributes.ProcessOwner.Enabled { // programs are merged across users
		set["Owner"] = false
	}
	if names := c.HiddenNames(); names != (ledger.GroupNames{}) { // groups are merged across names
		set["Names"] = names
	}
	if c.Series.Processes.GroupBy != GroupByPID && !c.ResourceAttributes.SystemdUnitName.Enabled {
		set["Unit"] = false
	}
	description, err := json.Marshal(set)
	if err != nil {
		return err.Error() // the same text each time
	}
	return string(description)
}
