// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

func TestEveryMetricAndResourceAttributeOfMetadataIsListed(t *testing.T) {
	cfg := metadata.NewDefaultMetricsBuilderConfig()
	enabled := reflect.ValueOf(&cfg.Metrics).Elem()
	for i := range enabled.NumField() {
		enabled.Field(i).FieldByName("Enabled").SetBool(true)
	}
	emitted := generate(cfg, component.BuildInfo{}).metrics
	info := reflect.ValueOf(metadata.MetricsInfo)
	for i := range info.NumField() {
		assert.Contains(t, emitted, info.Field(i).FieldByName("Name").String(), "recordEach")
	}
	settings, attributes := settingsByName(&cfg.ResourceAttributes), reflect.TypeFor[metadata.ResourceAttributesConfig]()
	assert.Len(t, settings, attributes.NumField())
	for i := range attributes.NumField() {
		assert.Contains(t, settings, attributes.Field(i).Tag.Get("mapstructure"))
	}
}
