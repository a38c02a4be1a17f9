// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.yaml.in/yaml/v3"
)

// documented returns what metadata.yaml says of each metric: its description and unit.
func documented(t *testing.T) map[string][2]string {
	text, err := os.ReadFile("metadata.yaml")
	require.NoError(t, err)
	var doc struct {
		Metrics map[string]struct{ Description, Unit string }
	}
	require.NoError(t, yaml.Unmarshal(text, &doc))
	all := map[string][2]string{}
	for name, m := range doc.Metrics {
		all[name] = [2]string{m.Description, m.Unit}
	}
	return all
}

func sumPoints(m metricdata.Metrics) []metricdata.DataPoint[int64] {
	return m.Data.(metricdata.Sum[int64]).DataPoints
}
