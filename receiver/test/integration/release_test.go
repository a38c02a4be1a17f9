// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	receiverModule = "github.com/energyreceiver/energyreceiver"
	checkout       = "../../.."
)

// The modules of the last commit, released, can be installed and built into a collector without the
// checkout. A module proxy in the file system has these modules; all others come from the module
// cache.
func TestReleasedModules(t *testing.T) {
	need(t)
	dir := t.TempDir()
	version, modules, env := releaseModules(t, dir)

	energy := exec.Command("go", "install", receiverModule+"/cmd/energy@"+version)
	energy.Dir, energy.Env = dir, env
	run(t, energy)
	assert.Contains(t, run(t, exec.Command(filepath.Join(dir, "bin/energy"), "version")), strings.TrimPrefix(version, "v"))

	// The collector of the page, with the components of all modules.
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(pageBuilderConfig(t)), &config))
	components := []string{receiverModule + " " + version}
	for _, m := range modules {
		kind, _, _ := strings.Cut(m, "/")
		if kind != "processor" && kind != "connector" && kind != "extension" {
			continue
		}
		component := receiverModule + "/" + m + " " + version
		list, _ := config[kind+"s"].([]any)
		if !slices.ContainsFunc(list, func(c any) bool { return c.(map[string]any)["gomod"] == component }) {
			config[kind+"s"] = append(list, map[string]any{"gomod": component})
		}
		components = append(components, component)
	}
	text, err := yaml.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "builder-config.yaml"), text, 0o600))
	find := exec.Command("go", "-C", filepath.Join(checkout, "internal/tools"), "tool", "-n", "builder")
	find.Env = append(os.Environ(), "GOWORK=off")
	builder := exec.Command(strings.TrimSpace(run(t, find)), "--config", "builder-config.yaml")
	builder.Dir, builder.Env = dir, env
	run(t, builder)
	listed := run(t, exec.Command(filepath.Join(dir, "otelcol/otelcol"), "components"))
	for _, component := range components {
		assert.Contains(t, listed, "module: "+component+"\n")
	}
}

// releaseModules writes the modules of the last commit into a proxy below dir, in the version that
// they require of each other. It returns the version, the directories of the modules, and an
// environment for go with the proxy.
func releaseModules(t *testing.T, dir string) (version string, modules, env []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout, "go.work"))
	require.NoError(t, err)
	work, err := modfile.ParseWork("go.work", text, nil)
	require.NoError(t, err)
	require.NotEmpty(t, work.Replace)
	version = work.Replace[0].Old.Version
	for _, r := range work.Replace {
		require.Equal(t, version, r.Old.Version, r.Old.Path)
	}
	// The checkout may be a linked worktree, which package zip does not recognize.
	proxy, clone := filepath.Join(dir, "proxy"), filepath.Join(dir, "clone")
	run(t, exec.Command("git", "clone", "--quiet", "--shared", checkout, clone))
	for _, use := range work.Use {
		if use.Path != "./receiver/test" {
			modules = append(modules, path.Clean(use.Path))
			releaseModule(t, proxy, clone, path.Clean(use.Path), version)
		}
	}
	cached := strings.TrimSpace(run(t, exec.Command("go", "env", "GOMODCACHE")))
	// The flags of make build, so that the build cache has the dependencies.
	return version, modules, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-modcacherw -trimpath", "GOSUMDB=off", "GOBIN="+filepath.Join(dir, "bin"),
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(cached, "cache/download"), "GOMODCACHE="+filepath.Join(dir, "modules"))
}

// releaseModule writes a module of a clone into a proxy.
func releaseModule(t *testing.T, proxy, clone, dir, version string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(clone, dir, "go.mod"))
	require.NoError(t, err)
	mod, err := modfile.Parse("go.mod", text, nil)
	require.NoError(t, err)
	require.Empty(t, mod.Replace, "go install refuses a module that replaces others")
	for _, r := range mod.Require {
		if strings.HasPrefix(r.Mod.Path, receiverModule) {
			require.Equal(t, version, r.Mod.Version, "%s requires %s", dir, r.Mod.Path)
		}
	}

	versions := filepath.Join(proxy, mod.Module.Mod.Path, "@v")
	require.NoError(t, os.MkdirAll(versions, 0o755))
	for name, content := range map[string]string{
		version + ".mod": string(text), version + ".info": fmt.Sprintf("{%q: %q}", "Version", version), "list": version + "\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(versions, name), []byte(content), 0o600))
	}
	archive, err := os.Create(filepath.Join(versions, version+".zip"))
	require.NoError(t, err)
	if dir == "." {
		dir = ""
	}
	m := module.Version{Path: mod.Module.Mod.Path, Version: version}
	require.NoError(t, zip.CreateFromVCS(archive, m, clone, "HEAD", dir))
	require.NoError(t, archive.Close())
}

// pageBuilderConfig returns the builder configuration of docs/server.md.
func pageBuilderConfig(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(checkout, "docs/server.md"))
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(page), "\n## A collector of your own\n")
	require.True(t, ok)
	_, block, ok := strings.Cut(section, "```yaml\n")
	require.True(t, ok)
	block, _, ok = strings.Cut(block, "```")
	require.True(t, ok)
	return block
}
