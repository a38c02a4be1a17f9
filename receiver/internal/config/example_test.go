// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// loadExample returns the receivers of testdata/config.yaml.
func loadExample(t *testing.T) map[string]*confmap.Conf {
	t.Helper()
	all, err := confmaptest.LoadConf(filepath.Join("..", "..", "testdata", "config.yaml"))
	require.NoError(t, err)
	receivers := map[string]*confmap.Conf{}
	for id := range all.ToStringMap() {
		sub, err := all.Sub(id)
		require.NoError(t, err)
		receivers[id] = sub
	}
	return receivers
}

func TestExampleConfigurationIsValid(t *testing.T) {
	cfgs := map[string]*Config{}
	for id, conf := range loadExample(t) {
		cfg := Default()
		require.NoError(t, conf.Unmarshal(cfg), id)
		require.NoError(t, confmap.Validate(cfg), id)
		cfgs[id] = cfg
	}
	cfg := cfgs["energy"]
	assert.Equal(t, 30*time.Second, cfg.CollectionInterval)
	assert.Equal(t, []power.Kind{power.Package, power.DRAM, power.PSys}, cfg.Zones)
	assert.Len(t, cfg.Model.Get().Points, 3)
	assert.Equal(t, 200, cfg.Series.Containers.Max)
	watts := 55.0
	assert.Equal(t, map[power.Kind]StaticPowerConfig{
		AllZones: {Model: StaticTrained}, power.DRAM: {Model: StaticMinimum}, power.PSys: {Model: StaticFixed, Power: &watts},
	}, cfg.Attribution.StaticPower)
	assert.True(t, cfg.Metrics.ProcessCPUTime.Enabled)
	assert.False(t, cfg.Metrics.ProcessPower.Enabled)
	assert.Equal(t, power.Correction{Lag: 5 * time.Second, Factor: 1_190_000, Offset: -3_000_000}, cfg.Meters.IPMI.Correction())
	assert.Equal(t, power.Correction{Lag: 30 * time.Second, Factor: 1_051_000, Offset: 3_000_000}, cfg.Meters.Redfish.Get().Correction())
	assert.InDelta(t, 120, cfgs["energy/powers"].Model.Get().MaxPower, 0)
	assert.Equal(t, power.Platform, cfgs["energy/powers"].Model.Get().Zone)
	assert.Equal(t, "file_storage/energy", cfg.Storage)
	assert.Equal(t, map[power.Kind]StaticPowerConfig{AllZones: {Model: StaticTrained}}, cfgs["energy/short"].Attribution.StaticPower)
	assert.Equal(t, map[power.Kind]Weight{AllZones: WeightCycles}, cfgs["energy/short"].Attribution.Weight)
	assert.Empty(t, cfgs["energy/estimated"].Meters.Use)
	assert.False(t, cfgs["energy/none"].Model.HasValue())
}

func TestTasksOfTheConfigurationPageAreValid(t *testing.T) {
	page, err := os.ReadFile("../../../docs/configuration.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, block)
	retrieved, err := confmap.NewRetrievedFromYAML(block[1])
	require.NoError(t, err)
	conf, err := retrieved.AsConf()
	require.NoError(t, err)
	receivers, err := conf.Sub("receivers")
	require.NoError(t, err)
	require.Len(t, receivers.ToStringMap(), 5)
	for id := range receivers.ToStringMap() {
		task, err := receivers.Sub(id)
		require.NoError(t, err)
		cfg := Default()
		require.NoError(t, task.Unmarshal(cfg), id)
		assert.NoError(t, confmap.Validate(cfg), id)
	}
}

func TestExampleConfigurationHasEveryOption(t *testing.T) {
	set := map[string]bool{}
	for _, conf := range loadExample(t) {
		collectKeys(conf.ToStringMap(), "", set)
	}
	options := optionsOf(reflect.TypeFor[Config](), "")
	require.Contains(t, options, "meters::http/NAME::pointer", "nested options are found")
	for _, option := range options {
		assert.True(t, set[option], "%s is not in testdata/config.yaml", option)
	}
}

// collectKeys adds the paths of all keys of a map, and of the maps in its lists.
func collectKeys(m map[string]any, path string, into map[string]bool) {
	for key, value := range m {
		if kind, _, ok := strings.Cut(key, "/"); ok && path == "meters::" {
			key = kind + "/NAME"
		}
		into[path+key] = true
		switch v := value.(type) {
		case map[string]any:
			collectKeys(v, path+key+"::", into)
			for _, element := range v { // of a map of settings
				if m, ok := element.(map[string]any); ok {
					collectKeys(m, path+key+"::", into)
				}
			}
		case []any:
			for _, element := range v {
				if m, ok := element.(map[string]any); ok {
					collectKeys(m, path+key+"::", into)
				}
			}
		}
	}
}

// optionsOf lists the options of a configuration struct by their paths. Single metrics and resource attributes are
// generated and have a test of their own.
func optionsOf(t reflect.Type, path string) (options []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if get, ok := reflect.PointerTo(t).MethodByName("Get"); ok && strings.HasPrefix(t.Name(), "Optional[") {
		return optionsOf(get.Type.Out(0), path)
	}
	own := []string{reflect.TypeFor[Config]().PkgPath(), reflect.TypeFor[drivers.Config]().PkgPath()}
	if t.Kind() != reflect.Struct || !slices.Contains(own, t.PkgPath()) && path != "" {
		return nil
	}
	for field := range fields(t) {
		name, flags, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
		switch {
		case !field.IsExported() || name == "-": // not a setting
		case strings.Contains(flags, "squash") && path == "":
			options = append(options, squashed(field.Type)...)
		case strings.Contains(flags, "squash") && field.Type.PkgPath() != t.PkgPath(): // confighttp documents its settings
		case strings.Contains(flags, "squash"):
			options = append(options, optionsOf(field.Type, path)...)
		case strings.Contains(flags, "remain"):
			options = append(options, optionsOf(field.Type, path+field.Tag.Get("keys")+"::")...)
		default:
			options = append(options, path+name)
			options = append(options, optionsOf(field.Type, path+name+"::")...)
		}
	}
	return options
}

// squashed lists the options of an embedded struct of another package.
func squashed(t reflect.Type) (options []string) {
	for field := range fields(t) {
		if name, _, _ := strings.Cut(field.Tag.Get("mapstructure"), ","); field.IsExported() && name != "" && name != "-" {
			options = append(options, name)
		}
	}
	return options
}

func fields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}
