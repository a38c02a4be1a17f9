// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
)

func TestEveryDriverIsDocumentedAndSelectable(t *testing.T) {
	page, err := os.ReadFile("../../docs/hardware.md")
	require.NoError(t, err)
	table := regexp.MustCompile(`(?s)\| machine \|.*?\n\n`).Find(page)
	for _, d := range All {
		assert.NotEmpty(t, d.Energy, d.Name)
		assert.NotNil(t, d.Open, d.Name)
		assert.Regexp(t, "\\[`"+d.Name+"`\\]\\(", string(table), "docs/hardware.md: the table of machines")
		assert.True(t, d.Local || d.StandsIn || d.Sections != nil, "%s: is neither local nor configured by a section", d.Name)
	}
}

// A section without a driver would be decoded, but neither validated nor opened.
func TestEverySectionBelongsToADriver(t *testing.T) {
	for field := range reflect.TypeFor[Config]().Fields() {
		key := strings.TrimPrefix(field.Tag.Get("mapstructure")+field.Tag.Get("keys"), ",remain")
		if !field.IsExported() || key == "use" {
			continue
		}
		kind, _, _ := strings.Cut(key, "/")
		d, of := Lookup(kind), field.Type
		if of.Kind() == reflect.Map {
			of = of.Elem()
		} else if get, ok := reflect.PointerTo(of).MethodByName("Get"); ok { // of an Optional
			of = get.Type.Out(0).Elem()
		}
		_, corrected := of.FieldByName("CorrectionConfig")
		assert.NotNil(t, d.Sections, key)
		assert.Equal(t, key, d.Key())
		assert.Equal(t, corrected, d.Corrected, key)
	}
}

// hwmon names its zones after devices, so that it would get the zones of a meter without a driver.
func TestAZoneIsCorrectedByItsOwnMeter(t *testing.T) {
	for _, d := range All {
		if d.IDs == nil && d.Corrected {
			assert.Equal(t, strings.Replace(d.Key(), "NAME", "1", 1), CorrectedBy(d.Name+":1"))
		}
	}
	for id, want := range map[string]string{
		"ipmi0": "ipmi", "ipmi": "ipmi", "redfish:4c4c4544-0042": "redfish", "http:feed-a": "http/feed-a", "http:0000:65:00.0": "http/0000:65:00.0",
		"ACPI000D:00:power1": "hwmon", "0-0040:VDD_IN": "hwmon", "0000:03:00.0:PPT": "", "intel-rapl:1": "", "intel-rapl-mmio:0": "",
		"power:energy-psys:0": "", "pm_counters:energy": "", "model:0": "", "vsock:0": "", "CPUs and memory": "",
	} {
		assert.Equal(t, want, CorrectedBy(id), id)
	}
}

func TestConfiguredMetersPrecedeTheOnesInUse(t *testing.T) {
	c := Default()
	names := func() (names []string) {
		for _, d := range c.Selected() {
			names = append(names, d.Name)
		}
		return names
	}
	assert.Equal(t, append(Local(), "model"), names())
	c.Use = []string{"ipmi", "powercap"}
	c.Redfish = configoptional.Some(RedfishConfig{})
	c.HTTP = map[component.ID]HTTPConfig{component.MustNewIDWithName("http", "a"): {}}
	assert.Equal(t, []string{"http", "redfish", "ipmi", "powercap", "model"}, names())
}

func TestAMeterWithSettingsThatIsNotInUseIsUnused(t *testing.T) {
	for _, sensors := range []map[string]any{nil, {}, {"chip/sensor": "package"}} {
		c := Default()
		conf := confmap.NewFromStringMap(map[string]any{"use": []any{"powercap"}, "hwmon": map[string]any{"sensors": sensors}})
		require.NoError(t, conf.Unmarshal(&c))
		assert.Len(t, c.Unused(), len(sensors))
	}
}

func TestNamedSectionsHaveTheirDefaults(t *testing.T) {
	c := Default()
	decode := func(meters map[string]any) error { return confmap.NewFromStringMap(meters).Unmarshal(&c) }
	require.NoError(t, decode(map[string]any{"http/a": map[string]any{"unit": "W"}, "http/b": nil}))
	for id, section := range c.HTTP {
		assert.Equal(t, deviceTimeout, section.Timeout, id)
	}
	assert.Len(t, c.HTTP, 2)
	assert.ErrorContains(t, decode(map[string]any{"http/c": "secret"}), "http/c: must be a map of settings")
	assert.ErrorContains(t, decode(map[string]any{"http/c": map[string]any{"zones": "gpu"}}), "http/c: unknown settings: zones")
}
