// SPDX-License-Identifier: Apache-2.0

package extensioncheck

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"
)

// check converts a configuration whose pipeline has the receivers energy and energy/b.
func check(t *testing.T, receivers, extensions string) error {
	t.Helper()
	var values map[string]any
	require.NoError(t, yaml.Unmarshal([]byte("receivers: "+receivers+"\nservice: {extensions: "+extensions+
		", pipelines: {metrics: {receivers: [energy, energy/b], exporters: [debug]}}}"), &values))
	conf := confmap.NewFromStringMap(values)
	before := conf.ToStringMap()
	err := NewFactory().Create(confmap.ConverterSettings{}).Convert(t.Context(), conf)
	assert.Equal(t, before, conf.ToStringMap())
	return err
}

func TestExtensionsThatAreNotEnabledAreErrors(t *testing.T) {
	for receivers, want := range map[string]string{
		"{energy: {storage: file_storage}}":                       `receivers::energy::storage: extension "file_storage" is not enabled: add it to extensions and to service::extensions, or set the absolute path of a directory`,
		"{energy/b: {storage: nvml/b}}":                           `receivers::energy/b::storage: extension "nvml/b" is not enabled: add it to extensions and to service::extensions, or set the absolute path of a directory`,
		"{energy: {meters: {gpu: {extensions: [nvml, nvml/a]}}}}": `receivers::energy::meters::gpu::extensions: extension "nvml/a" is not enabled: add it to extensions and to service::extensions`,
		"{energy: {storage: a}, energy/b: {storage: b}}": "receivers::energy::storage: extension \"a\" is not enabled: add it to extensions and to service::extensions, or set the absolute path of a directory\n" +
			`receivers::energy/b::storage: extension "b" is not enabled: add it to extensions and to service::extensions, or set the absolute path of a directory`,
	} {
		assert.EqualError(t, check(t, receivers, "[nvml, health_check]"), want, receivers)
	}
	assert.Error(t, check(t, "{energy: {storage: file_storage}}", "null"))
}

func TestOtherConfigurationsHaveNoErrors(t *testing.T) {
	for _, receivers := range []string{
		"{energy: null}", "{energy: {storage: nvml}}", "{energy: {meters: {gpu: {extensions: [nvml]}}}}", "{energy: {storage: /var/lib/otelcol-energy}}",
		"{energy: {storage: ''}}", "{energy/unused: {storage: a}}", "{otlp: {storage: a}}", "null", "{energy: {storage: [[1]], meters: 5}}", "[a]",
	} {
		assert.NoError(t, check(t, receivers, "[nvml]"), receivers)
	}
	assert.NoError(t, NewFactory().Create(confmap.ConverterSettings{}).Convert(t.Context(), confmap.New()))
}
