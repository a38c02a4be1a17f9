// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// strict parses a YAML file into value. A field that value lacks fails the test.
func strict(t *testing.T, path string, value any) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(read(t, path)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(value), path)
}

// composeService has the fields of the Compose specification that compose.yaml uses.
type composeService struct {
	Image, User, PID, Restart string
	Command, Ports, Volumes   []string
	Environment               map[string]string
	ReadOnly                  bool     `yaml:"read_only"`
	CapDrop                   []string `yaml:"cap_drop"`
	CapAdd                    []string `yaml:"cap_add"`
	SecurityOpt               []string `yaml:"security_opt"`
}

func composeServices(t *testing.T) map[string]composeService {
	t.Helper()
	var file struct {
		Name     string
		Services map[string]composeService
		Volumes  map[string]any
	}
	strict(t, "compose/compose.yaml", &file)
	return file.Services
}

// source returns the file of the checkout that a container has at a path, which must exist.
func (s composeService) source(t *testing.T, path string) string {
	t.Helper()
	for _, volume := range s.Volumes {
		from, to, _ := strings.Cut(strings.TrimSuffix(volume, ":ro"), ":")
		if below, found := strings.CutPrefix(path, to); found && from[0] == '.' {
			from = filepath.Join("compose", from, below)
			_, err := os.Stat(from)
			require.NoError(t, err, volume)
			return from
		}
	}
	require.Fail(t, "nothing is mounted", path)
	return ""
}

func TestComposeGrantsTheCollectorWhatThePageGrants(t *testing.T) {
	_, page, _ := strings.Cut(read(t, "../docs/server.md"), "$ docker run ")
	page, _, _ = strings.Cut(page, "\n```")
	flags := map[string][]string{}
	for _, found := range regexp.MustCompile(`--([a-z-]+)(?:[= ]([^\s-]\S*))?`).FindAllStringSubmatch(page, -1) {
		flags[found[1]] = append(flags[found[1]], found[2])
	}
	c := composeServices(t)["collector"]
	assert.True(t, strings.HasSuffix(page, " "+c.Image), c.Image)
	assert.Equal(t, []string{c.User}, flags["user"])
	assert.Equal(t, []string{c.PID}, flags["pid"])
	assert.Equal(t, flags["cap-add"], c.CapAdd)
	assert.Equal(t, flags["volume"], c.Volumes[:len(flags["volume"])])
	assert.Empty(t, c.Ports)
}

func TestComposePinsAndConfinesEachService(t *testing.T) {
	for name, s := range composeServices(t) {
		assert.Regexp(t, `:v?\d+\.\d+\.\d+$`, s.Image)
		assert.Equal(t, []string{"ALL"}, s.CapDrop, name)
		assert.Equal(t, []string{"no-new-privileges"}, s.SecurityOpt, name)
		assert.Equal(t, name != "grafana", s.ReadOnly, "%s: Grafana stores its database in the container", name)
		for _, port := range s.Ports {
			assert.Regexp(t, `^127\.0\.0\.1:`, port)
		}
		for _, volume := range s.Volumes {
			if volume[0] == '.' {
				assert.Regexp(t, `:ro$`, volume)
				s.source(t, strings.Split(volume, ":")[1])
			}
		}
	}
}

func TestComposeMountsTheConfigurationsThatItsServicesRead(t *testing.T) {
	services, files := composeServices(t), []string{}
	for _, name := range []string{"collector", "prometheus", "grafana"} {
		s := services[name]
		words := strings.Join(s.Command, " ") + " " + s.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
		for _, path := range regexp.MustCompile(`/etc/\S+`).FindAllString(words, -1) {
			files = append(files, s.source(t, path))
		}
	}
	assert.Equal(t, []string{"prometheus/collector.yaml", "compose/collector.yaml", "prometheus/prometheus.yaml", "dashboards/energy.json"}, files)
}

func TestComposeAddsTheHostAndItsNameToTheCollector(t *testing.T) {
	base, added, image := documents(t, "prometheus/collector.yaml")[0], documents(t, "compose/collector.yaml")[0], documents(t, "docker/config.yaml")[0]
	for _, keys := range []string{"receivers energy root_path", "receivers energy storage", "processors resource", "service telemetry resource"} {
		assert.Equal(t, at(t, image, strings.Fields(keys)...), at(t, added, strings.Fields(keys)...))
	}
	processors := []string{"service", "pipelines", "metrics", "processors"}
	assert.Equal(t, append(strs(t, at(t, base, processors...)), "resource"), strs(t, at(t, added, processors...)))
}

// The fields are those of Grafana's documentation of provisioning.
func TestGrafanaShowsTheDashboardWithTheDataSourceOfCompose(t *testing.T) {
	type entry struct {
		Name, UID, Type, Access, URL string
		IsDefault                    bool `yaml:"isDefault"`
		DisableDeletion              bool `yaml:"disableDeletion"`
		Options                      struct{ Path string }
	}
	var sources, providers struct {
		APIVersion             int `yaml:"apiVersion"`
		Datasources, Providers []entry
	}
	services := composeServices(t)
	const provisioning = "/etc/grafana/provisioning/"
	strict(t, services["grafana"].source(t, provisioning+"datasources/energy.yaml"), &sources)
	strict(t, services["grafana"].source(t, provisioning+"dashboards/energy.yaml"), &providers)
	require.True(t, len(sources.Datasources) == 1 && len(providers.Providers) == 1 && sources.APIVersion == 1 && providers.APIVersion == 1)

	source, provider := sources.Datasources[0], providers.Providers[0]
	assert.True(t, source.Name != "" && source.Access == "proxy" && source.IsDefault, "%+v", source)
	assert.Equal(t, "http://prometheus:9090", source.URL, "the service and its port")
	assert.Equal(t, source.URL, services["collector"].Environment["PROMETHEUS"])
	assert.True(t, provider.Name != "" && provider.Type == "file", "%+v", provider)
	assert.Equal(t, "dashboards", services["grafana"].source(t, provider.Options.Path))

	dashboard := read(t, "dashboards/energy.json")
	for _, found := range regexp.MustCompile(`"type": "(\w+)",\s*"uid": "([^"]*)"`).FindAllStringSubmatch(dashboard, -1) {
		assert.Equal(t, source.Type, found[1])
		assert.Contains(t, []string{"${datasource}", source.UID}, found[2], "the variable selects the default data source")
	}
	assert.Regexp(t, `"type": "datasource",\s*"query": "`+source.Type+`"`, dashboard)
}
