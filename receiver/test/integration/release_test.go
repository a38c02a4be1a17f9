// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	receiverModule = "github.com/energyreceiver/energyreceiver"
	checkout       = "../../.."
)

// The modules of the last commit, released, can be installed and built into a collector without the checkout. A module proxy
// in the file system has them; everything else comes from the module cache.
func TestReleasedModules(t *testing.T) {
	need(t)
	dir := t.TempDir()
	version, env := releaseModules(t, dir)

	energy := exec.Command("go", "install", receiverModule+"/cmd/energy@"+version)
	energy.Dir, energy.Env = dir, env
	run(t, energy)
	assert.Contains(t, run(t, exec.Command(filepath.Join(dir, "bin/energy"), "version")), strings.TrimPrefix(version, "v"))

	tools := exec.Command("go", "-C", filepath.Join(checkout, "internal/tools"), "build", "-o", dir+"/", "tool")
	tools.Env = append(os.Environ(), "GOWORK=off")
	run(t, tools)
	config := pageBuilderConfig(t)
	nvml := "extensions:\n  - gomod: " + receiverModule + "/extension/nvml " + version + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "builder-config.yaml"), []byte(config+nvml), 0o600))
	builder := exec.Command("./builder", "--config", "builder-config.yaml")
	builder.Dir, builder.Env = dir, env
	run(t, builder)
	components := run(t, exec.Command(filepath.Join(dir, "otelcol/otelcol"), "components"))
	for _, name := range []string{"", "/processor/emissions", "/extension/nvml"} {
		assert.Contains(t, components, "module: "+receiverModule+name+" "+version+"\n")
	}
}

// releaseModules writes the modules of the last commit into a proxy below dir, in the version that they require of each other, and
// returns the version and an environment of go that uses the proxy.
func releaseModules(t *testing.T, dir string) (version string, env []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout, "go.work"))
	require.NoError(t, err)
	work, err := modfile.ParseWork("go.work", text, nil)
	require.NoError(t, err)
	require.Len(t, work.Replace, 1)
	version = work.Replace[0].Old.Version
	proxy := filepath.Join(dir, "proxy")
	for _, use := range work.Use {
		if use.Path != "./receiver/test" {
			releaseModule(t, proxy, path.Clean(use.Path), version)
		}
	}
	modules := strings.TrimSpace(run(t, exec.Command("go", "env", "GOMODCACHE")))
	return version, append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw", "GOSUMDB=off", "GOBIN="+filepath.Join(dir, "bin"),
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(modules, "cache/download"), "GOMODCACHE="+filepath.Join(dir, "modules"))
}

// releaseModule writes a module of the last commit into a proxy.
func releaseModule(t *testing.T, proxy, dir, version string) {
	t.Helper()
	text := run(t, exec.Command("git", "-C", checkout, "show", "HEAD:"+path.Join(dir, "go.mod")))
	mod, err := modfile.Parse("go.mod", []byte(text), nil)
	require.NoError(t, err)
	assert.Empty(t, mod.Replace, "go install refuses a module that replaces others")
	for _, r := range mod.Require {
		if strings.HasPrefix(r.Mod.Path, receiverModule) {
			assert.Equal(t, version, r.Mod.Version, "%s requires %s", dir, r.Mod.Path)
		}
	}

	versions := filepath.Join(proxy, mod.Module.Mod.Path, "@v")
	require.NoError(t, os.MkdirAll(versions, 0o755))
	for name, content := range map[string]string{
		version + ".mod": text, version + ".info": fmt.Sprintf("{%q: %q}", "Version", version), "list": version + "\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(versions, name), []byte(content), 0o600))
	}
	archive, err := os.Create(filepath.Join(versions, version+".zip"))
	require.NoError(t, err)
	root, err := filepath.Abs(checkout)
	require.NoError(t, err)
	if dir == "." {
		dir = ""
	}
	m := module.Version{Path: mod.Module.Mod.Path, Version: version}
	require.NoError(t, zip.CreateFromVCS(archive, m, root, "HEAD", dir))
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
