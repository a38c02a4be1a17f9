// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nvml

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvmltest"
)

func TestStructuresAreLaidOutAsByTheCCompiler(t *testing.T) {
	loaded, err := load(nvmltest.New(t).Path)
	require.NoError(t, err)
	defer func() { assert.NoError(t, purego.Dlclose(loaded)) }()
	var layout func() string
	purego.RegisterLibFunc(&layout, loaded, "nvmltest_layout")

	var (
		pci        pciInfo
		rates      utilizationRates
		instant    sample
		entry      processSample
		field      fieldValue
		attributes attributes
		profile    profileInfo
		metric     gpmMetric
		get        gpmGet
	)
	var got strings.Builder
	line := func(name string, value uintptr) { fmt.Fprintln(&got, name, value) }
	line("nvmlPciInfo_t", unsafe.Sizeof(pci))
	line("nvmlPciInfo_t.busId", unsafe.Offsetof(pci.busID))
	line("nvmlUtilization_t", unsafe.Sizeof(rates))
	line("nvmlUtilization_t.gpu", unsafe.Offsetof(rates.gpu))
	line("nvmlProcessInfo_t", processSize)
	line("nvmlProcessInfo_t.pid", 0)
	line("nvmlSample_t", unsafe.Sizeof(instant))
	line("nvmlSample_t.timeStamp", unsafe.Offsetof(instant.timestamp))
	line("nvmlSample_t.sampleValue", unsafe.Offsetof(instant.value))
	line("nvmlProcessUtilizationSample_t", unsafe.Sizeof(entry))
	line("nvmlProcessUtilizationSample_t.pid", unsafe.Offsetof(entry.pid))
	line("nvmlProcessUtilizationSample_t.timeStamp", unsafe.Offsetof(entry.timestamp))
	line("nvmlProcessUtilizationSample_t.smUtil", unsafe.Offsetof(entry.sm))
	line("nvmlProcessUtilizationSample_t.encUtil", unsafe.Offsetof(entry.encoder))
	line("nvmlProcessUtilizationSample_t.decUtil", unsafe.Offsetof(entry.decoder))
	line("nvmlFieldValue_t", unsafe.Sizeof(field))
	line("nvmlFieldValue_t.fieldId", unsafe.Offsetof(field.field))
	line("nvmlFieldValue_t.scopeId", unsafe.Offsetof(field.scope))
	line("nvmlFieldValue_t.valueType", unsafe.Offsetof(field.valueType))
	line("nvmlFieldValue_t.nvmlReturn", unsafe.Offsetof(field.ret))
	line("nvmlFieldValue_t.value", unsafe.Offsetof(field.value))
	line("nvmlDeviceAttributes_t", unsafe.Sizeof(attributes))
	line("nvmlDeviceAttributes_t.multiprocessorCount", unsafe.Offsetof(attributes.multiprocessors))
	line("nvmlGpuInstanceProfileInfo_t", unsafe.Sizeof(profile))
	line("nvmlGpuInstanceProfileInfo_t.multiprocessorCount", unsafe.Offsetof(profile.multiprocessors))
	line("nvmlGpmMetric_t", unsafe.Sizeof(metric))
	line("nvmlGpmMetric_t.metricId", unsafe.Offsetof(metric.id))
	line("nvmlGpmMetric_t.nvmlReturn", unsafe.Offsetof(metric.ret))
	line("nvmlGpmMetric_t.value", unsafe.Offsetof(metric.value))
	line("nvmlGpmMetricsGet_t", unsafe.Sizeof(get))
	line("nvmlGpmMetricsGet_t.version", unsafe.Offsetof(get.version))
	line("nvmlGpmMetricsGet_t.numMetrics", unsafe.Offsetof(get.metricCount))
	line("nvmlGpmMetricsGet_t.sample1", unsafe.Offsetof(get.sample1))
	line("nvmlGpmMetricsGet_t.sample2", unsafe.Offsetof(get.sample2))
	line("nvmlGpmMetricsGet_t.metrics", unsafe.Offsetof(get.metrics))
	assert.Equal(t, layout(), got.String())
}
