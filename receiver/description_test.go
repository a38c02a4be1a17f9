// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.yaml.in/yaml/v3"

	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// description is the part of metadata.yaml that the metrics of the recorded hosts must agree with.
type description struct {
	Attributes map[string]struct {
		Description string
		Enum        []string
		Level       string `yaml:"requirement_level"`
	}
	Metrics map[string]struct{ Attributes []string }
}

func TestPointsHaveTheAttributesThatTheirDescriptionRequires(t *testing.T) {
	var d description
	text, err := os.ReadFile("metadata.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &d))
	hosts, err := filepath.Glob(filepath.Join(hostsDir, "*", "expected.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, hosts)
	for _, host := range hosts {
		md, err := golden.ReadMetrics(host)
		require.NoError(t, err)
		for _, rm := range md.ResourceMetrics().All() {
			for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
				for _, p := range dataPoints(m).All() {
					d.check(t, m.Name(), p.Attributes())
				}
			}
		}
	}
	model := config.Default().Attribution.PresetRules().Static
	assert.Contains(t, d.Attributes["energy.state"].Description, "`"+string(model)+"`", "the default static power model")
}

func (d *description) check(t *testing.T, metric string, attributes pcommon.Map) {
	t.Helper()
	for _, name := range d.Metrics[metric].Attributes {
		about := d.Attributes[name]
		value, ok := attributes.Get(name)
		if about.Level == "required" {
			assert.True(t, ok, "%s lacks %s", metric, name)
		}
		if ok && len(about.Enum) > 0 {
			assert.Contains(t, about.Enum, value.AsString(), "%s of %s", name, metric)
		}
	}
	for name := range attributes.All() {
		assert.Contains(t, d.Metrics[metric].Attributes, name, metric)
	}
}
