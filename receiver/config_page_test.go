// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
)

// configurationBlock returns the first code block of docs/configuration.md.
func configurationBlock(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/configuration.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, block)
	return string(block[1])
}

func TestConfigurationPageHasTheDefaults(t *testing.T) {
	retrieved, err := confmap.NewRetrievedFromYAML([]byte(configurationBlock(t)))
	require.NoError(t, err)
	all, err := retrieved.AsConf()
	require.NoError(t, err)
	conf, err := all.Sub("receivers::energy")
	require.NoError(t, err)
	defaults, documented := createDefaultConfig().(*Config), createDefaultConfig().(*Config)
	require.NoError(t, conf.Unmarshal(documented))
	assert.Equal(t, defaults, documented)
}

func TestConfigurationPageHasEverySetting(t *testing.T) {
	block := configurationBlock(t)
	for _, option := range optionsOf(reflect.TypeFor[Config](), "") {
		name := option[strings.LastIndex(option, ":")+1:]
		assert.Regexp(t, `[\s{#]`+regexp.QuoteMeta(name)+`:`, block, option)
	}
}
