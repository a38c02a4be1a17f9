// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// needPython skips a test of joules.py on a machine without Python, which no other test requires.
func needPython(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("joules.py needs python3, which is not installed")
	}
}

// A total before the window is subtracted, a restarted total is added, and a series continues when
// it gets names.
func TestJoulesOfAFile(t *testing.T) {
	needPython(t)
	end := time.Unix(1_760_000_000, 0)
	var text []byte
	for _, p := range []struct {
		container, name string
		start, ago      time.Duration // before the end
		joules          float64
	}{
		{"long", "", 2 * time.Hour, 90 * time.Minute, 100},
		{"long", "shop", 2 * time.Hour, 30 * time.Minute, 150},
		{"long", "shop", 20 * time.Minute, 10 * time.Minute, 7},
		{"short", "shop", 50*time.Minute + time.Millisecond, 50 * time.Minute, 0},
		{"short", "shop", 50*time.Minute + time.Millisecond, 49 * time.Minute, 3},
		{"short", "shop", 50*time.Minute + time.Millisecond, -time.Minute, 1000},
		{"ended", "", 3 * time.Hour, 2 * time.Hour, 40},
	} {
		resource := map[string]string{"container.id": p.container}
		if p.name != "" {
			resource["k8s.namespace.name"] = p.name
		}
		text = append(text, energyLine(t, "container.energy", resource, end.Add(-p.start), end.Add(-p.ago), p.joules)...)
	}
	f := &file{path: filepath.Join(t.TempDir(), "energy.json")}
	require.NoError(t, os.WriteFile(f.path, text, 0o600))

	rows, err := f.Query(added("container.energy", "container.id"), end)
	require.NoError(t, err)
	assert.Equal(t, []series.Row{
		{Labels: map[string]string{"container.id": "long"}, Value: 57},
		{Labels: map[string]string{"container.id": "short"}, Value: 3},
		{Labels: map[string]string{"container.id": "ended"}, Value: 0},
	}, rows)
	rows, err = f.Query(added("container.energy", ""), end)
	require.NoError(t, err)
	assert.Equal(t, []series.Row{{Labels: map[string]string{}, Value: 60}}, rows)
}

// Programs and overflow series have no ID: their names identify them.
func TestJoulesOfSeriesWithoutAnID(t *testing.T) {
	needPython(t)
	end := time.Unix(1_760_000_000, 0)
	var text []byte
	for metric, all := range map[string][]map[string]string{
		"container.energy": {{"k8s.namespace.name": "shop"}, {"k8s.namespace.name": "batch"}},
		"process.energy":   {{"container.id": "a", "process.executable.name": "make"}, {"container.id": "a", "process.executable.name": "cc"}},
	} {
		for _, attributes := range all {
			text = append(text, energyLine(t, metric, attributes, end.Add(-time.Hour), end.Add(-time.Minute), 5)...)
		}
	}
	f := &file{path: filepath.Join(t.TempDir(), "energy.json")}
	require.NoError(t, os.WriteFile(f.path, text, 0o600))
	for _, metric := range []string{"container.energy", "process.energy"} {
		rows, err := f.Query(added(metric, ""), end)
		require.NoError(t, err)
		assert.Equal(t, []series.Row{{Labels: map[string]string{}, Value: 10}}, rows, metric)
	}
}

func TestJoulesOfANodeWhoseResourceHasANewAttribute(t *testing.T) {
	needPython(t)
	end := time.Unix(1_760_000_000, 0)
	start := end.Add(-3 * time.Hour)
	text := energyLine(t, "system.energy", map[string]string{"host.name": "node"}, start, end.Add(-2*time.Hour), 100)
	text = append(text, energyLine(t, "system.energy", map[string]string{"host.name": "node", "k8s.node.name": "node"}, start, end.Add(-time.Minute), 110)...)
	f := &file{path: filepath.Join(t.TempDir(), "energy.json")}
	require.NoError(t, os.WriteFile(f.path, text, 0o600))
	rows, err := f.Query(added("system.energy", ""), end)
	require.NoError(t, err)
	assert.Equal(t, []series.Row{{Labels: map[string]string{}, Value: 10}}, rows)
}

// energyLine returns a line of the file exporter with one point of a metric.
func energyLine(t *testing.T, metric string, resource map[string]string, start, at time.Time, joules float64) []byte {
	t.Helper()
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	for name, value := range resource {
		rm.Resource().Attributes().PutStr(name, value)
	}
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName(metric)
	dp := m.SetEmptySum().DataPoints().AppendEmpty()
	dp.Attributes().PutStr("energy.zone", "package")
	dp.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
	dp.SetTimestamp(pcommon.NewTimestampFromTime(at))
	dp.SetDoubleValue(joules)
	line, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(md)
	require.NoError(t, err)
	return append(line, '\n')
}
