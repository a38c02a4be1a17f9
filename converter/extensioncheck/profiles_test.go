// SPDX-License-Identifier: Apache-2.0

package extensioncheck

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"
)

// checkPipelines converts a configuration with the service's pipelines.
func checkPipelines(t *testing.T, pipelines string) error {
	t.Helper()
	var values map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(`
processors: {energyprofile: , energyprofile/closed: {foreign_samples: false}, energyprofile/open: {foreign_samples: true}}
connectors: {energyspans: {}, energyspans/b: {}, forward: }
service: {pipelines: {`+pipelines+"}}"), &values))
	return NewFactory().Create(confmap.ConverterSettings{}).Convert(t.Context(), confmap.NewFromStringMap(values))
}

func TestEnergyprofileAcceptsOnlyTheProfilerUnlessForeignSamplesIsSet(t *testing.T) {
	for _, receiver := range []string{"otlp", "otlp/b", "kafka", "forward"} {
		for _, processor := range []string{"energyprofile", "energyprofile/closed"} {
			err := checkPipelines(t, "profiles: {receivers: [profiling, "+receiver+"], processors: [memory_limiter, "+processor+"], exporters: [debug]}")
			assert.EqualError(t, err, `service::pipelines::profiles: receiver "`+receiver+`" may receive samples of other processes, and "`+processor+
				`" divides energy among them: use only receivers of the type profiling, or set processors::`+processor+`::foreign_samples to true`)
		}
		assert.NoError(t, checkPipelines(t, "profiles: {receivers: ["+receiver+"], processors: [energyprofile/open], exporters: [debug]}"))
		assert.NoError(t, checkPipelines(t, "profiles: {receivers: ["+receiver+"], processors: [resource], exporters: [debug]}"))
	}
}

func TestEnergyspansAcceptsOnlyEnergyOfEnergyprofile(t *testing.T) {
	for pipelines, want := range map[string]string{
		"profiles/a: {receivers: [profiling], exporters: [energyspans/b]}": `service::pipelines::profiles/a: "energyspans/b" counts only energy of energyprofile, ` +
			`which is not among the processors`,
		"profiles: {receivers: [forward, otlp], processors: [resource], exporters: [debug, energyspans]}": `service::pipelines::profiles: "energyspans" counts only ` +
			`energy of energyprofile, which is not among the processors`,
		"profiles: {receivers: [profiling], processors: [energyprofile, batch/b], exporters: [energyspans]}": `service::pipelines::profiles: "energyspans" counts only ` +
			`energy whose origin is in the pipeline's context, and processor "batch/b" does not pass on the context: ` +
			`remove the processor, or put it before energyprofile`,
	} {
		assert.EqualError(t, checkPipelines(t, pipelines), want)
	}
}

func TestEnergyspansGetsTheEnergyOnce(t *testing.T) {
	const pipelines = "profiles/a: {receivers: [profiling], processors: [energyprofile], exporters: [debug, energyspans]}, " +
		"profiles/b: {receivers: [profiling], processors: [energyprofile], exporters: [%s]}"
	assert.EqualError(t, checkPipelines(t, fmt.Sprintf(pipelines, "energyspans")),
		`service::pipelines::profiles/b: "energyspans" would count all energy twice: pipeline profiles/a sends it as well`)
	assert.NoError(t, checkPipelines(t, fmt.Sprintf(pipelines, "energyspans/b")))
	assert.NoError(t, checkPipelines(t, fmt.Sprintf(pipelines, "debug")))
}

func TestOtherPipelinesHaveNoErrors(t *testing.T) {
	for _, pipelines := range []string{
		"profiles: {receivers: [profiling], processors: [memory_limiter, energyprofile, k8s_attributes, resource, transform], exporters: [energyspans]}",
		"profiles: {receivers: [profiling/b], processors: [batch, energyprofile], exporters: [energyspans]}",
		"profiles: {receivers: [forward], processors: [resource], exporters: [energyspans]}", // energyspans reports at run time
		"traces: {receivers: [otlp], processors: [batch], exporters: [energyspans]}",
		"profiles: , profiles/b: 5, profiles/c: {receivers: 1, processors: [[energyprofile]], exporters: {a: b}}, '': {}",
	} {
		assert.NoError(t, checkPipelines(t, pipelines), pipelines)
	}
}
