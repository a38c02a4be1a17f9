// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"

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
	files := map[string]string{"docs/server.md": ownBuilderConfig(t)}
	for _, path := range []string{"../builder-config.yaml", "builder-config-k8s.yaml", "builder-config-gpu.yaml", "builder-config-profiles.yaml"} {
		files[path] = read(t, path)
	}
	for path, text := range files {
		t.Run(path, func(t *testing.T) {
			var config map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(text), &config))
			for _, kind := range []string{"receivers", "processors", "connectors", "exporters", "extensions", "providers", "converters"} {
				list, _ := config[kind].([]any)
				for _, component := range list {
					assert.NotContains(t, component, "name")
				}
			}
			seen := map[string]string{}
			for name, imported := range generatedImports(t, config) {
				for _, i := range imported {
					assert.Empty(t, seen[name], "%s and %s have one name", seen[name], i)
					seen[name] = i
				}
			}
			assert.NotEmpty(t, seen)
			if strings.Contains(text, "gomod: "+module+" ") {
				assert.Equal(t, module, seen["energyreceiver"])
			}
		})
	}
}

// generatedImports returns the imports, by name, of the code that the builder generates for a configuration.
func generatedImports(t *testing.T, config map[string]any) map[string][]string {
	t.Helper()
	output := t.TempDir()
	config["dist"].(map[string]any)["output_path"] = output
	text, err := yaml.Marshal(config)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "builder-config.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	builder := exec.CommandContext(t.Context(), "go", "tool", "-modfile=internal/tools/go.mod", "builder",
		"--config", path, "--skip-compilation", "--skip-get-modules")
	builder.Dir, builder.Env = "..", append(os.Environ(), "GOWORK=off")
	out, err := builder.CombinedOutput()
	require.NoError(t, err, "%s", out)
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(output, "components.go"), nil, parser.ImportsOnly)
	require.NoError(t, err)
	all := map[string][]string{}
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		require.NoError(t, err)
		name := path[strings.LastIndexByte(path, '/')+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		all[name] = append(all[name], path)
	}
	return all
}

// make tidy writes the versions.
func TestTheProfilesCollectorHasTheCommittedVersionsOfItsComponents(t *testing.T) {
	versions, sums := read(t, "builder-config-profiles.mod"), read(t, "builder-config-profiles.sum")
	config := documents(t, "builder-config-profiles.yaml")[0]
	for _, kind := range []string{"receivers", "processors", "connectors", "exporters", "extensions", "providers", "converters"} {
		for _, component := range config[kind].([]any) {
			gomod := at(t, component, "gomod").(string)
			assert.Contains(t, versions, "\t"+gomod+"\n")
			if !strings.HasPrefix(gomod, module) {
				assert.Contains(t, sums, gomod+" h1:")
			}
		}
	}
}

func TestTheBuilderConfigurationOnThePageWorksOutsideTheCheckout(t *testing.T) {
	var own map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(ownBuilderConfig(t)), &own))
	ours := documents(t, "builder-config-k8s.yaml")[0]
	for _, kind := range []string{"receivers", "processors", "exporters", "providers", "converters"} {
		var versions []any
		for _, component := range ours[kind].([]any) {
			versions = append(versions, component.(map[string]any)["gomod"])
		}
		for _, component := range own[kind].([]any) {
			c := component.(map[string]any)
			assert.NotContains(t, c, "path", kind)
			name, version, _ := strings.Cut(c["gomod"].(string), " ")
			if strings.HasPrefix(name, module) {
				assert.Regexp(t, `^v\d+\.\d+\.\d+$`, version)
			} else {
				assert.Contains(t, versions, c["gomod"], "%s: the version of the checkout", kind)
			}
		}
	}
}

func TestShippedConfigurationsEnableTheirExtensions(t *testing.T) {
	check := extensioncheck.NewFactory().Create(confmap.ConverterSettings{})
	for path, config := range shippedConfigs(t) {
		assert.NoError(t, check.Convert(t.Context(), confmap.NewFromStringMap(config)), path)
	}
}
