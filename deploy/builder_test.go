// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/converter/extensioncheck"
)

const module = "github.com/energyreceiver/energyreceiver"

// ownBuilderConfig returns the builder configuration of docs/server.md.
func ownBuilderConfig(t *testing.T) string {
	t.Helper()
	_, section, ok := strings.Cut(read(t, "../docs/server.md"), "\n## A collector of your own\n")
	require.True(t, ok)
	_, block, ok := strings.Cut(section, "```yaml\n")
	require.True(t, ok)
	block, _, ok = strings.Cut(block, "```")
	require.True(t, ok)
	return block
}

// The builder names the import of a component after the last element of its path. Two imports with
// one name, or a name that the generated code already uses (receiver), make a collector that does
// not compile.
func TestBuilderConfigurationsNeedNoNames(t *testing.T) {
	page := filepath.Join(t.TempDir(), "builder-config.yaml")
	output := filepath.Join(filepath.Dir(page), "otelcol")
	text := strings.Replace(ownBuilderConfig(t), "output_path: otelcol", "output_path: "+output, 1)
	require.NoError(t, os.WriteFile(page, []byte(text), 0o600))
	generate(t, "tool", "-modfile=internal/tools/go.mod", "builder", "--config", page)
	dirs := []string{output}
	for _, name := range []string{"default", "kubernetes", "gpu", "profiles"} {
		dirs = append(dirs, generateCollector(t, name))
	}
	for _, dir := range dirs {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, "components.go"), nil, parser.ImportsOnly)
		require.NoError(t, err)
		seen := map[string]string{}
		for _, i := range file.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			name := path[strings.LastIndexByte(path, '/')+1:]
			if i.Name != nil {
				name = i.Name.Name
			}
			assert.Empty(t, seen[name], "%s and %s have one name", seen[name], path)
			seen[name] = path
		}
		assert.Equal(t, module, seen["energyreceiver"])
	}
}

// generate runs go in the checkout with flags that leave modules and code as they are.
func generate(t *testing.T, args ...string) {
	t.Helper()
	builder := exec.CommandContext(t.Context(), "go", append(args, "--skip-compilation", "--skip-get-modules")...)
	builder.Dir, builder.Env = "..", append(os.Environ(), "GOWORK=off")
	out, err := builder.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// generateCollector returns a directory with the code and the whole configuration of a collector.
func generateCollector(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	generate(t, "run", "./deploy/collector", "-out", dir, name)
	return dir
}

// make tidy writes the versions.
func TestTheProfilesCollectorHasTheCommittedVersionsOfItsComponents(t *testing.T) {
	versions, sums := read(t, "builder-config-profiles.mod"), read(t, "builder-config-profiles.sum")
	config := read(t, filepath.Join(generateCollector(t, "profiles"), "builder-config.yaml"))
	for _, component := range regexp.MustCompile(`gomod: (.*)`).FindAllStringSubmatch(config, -1) {
		assert.Contains(t, versions, "\t"+component[1]+"\n")
		if !strings.HasPrefix(component[1], module) {
			assert.Contains(t, sums, component[1]+" h1:")
		}
	}
}

func TestTheBuilderConfigurationOnThePageNeedsNoCheckout(t *testing.T) {
	assert.NotRegexp(t, `(?m)^ +path:`, ownBuilderConfig(t))
}

func TestShippedConfigurationsEnableTheirExtensions(t *testing.T) {
	check := extensioncheck.NewFactory().Create(confmap.ConverterSettings{})
	for path, config := range shippedConfigs(t) {
		assert.NoError(t, check.Convert(t.Context(), confmap.NewFromStringMap(config)), path)
	}
}
