// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// guestKernel unpacks a kernel that run.sh has downloaded and its modules, once. The version is the
// beginning of its release, "6.18.". The test is skipped where it was not downloaded.
func guestKernel(t *testing.T, version, architecture string) kernel {
	t.Helper()
	program(t, "dpkg-deb", "dpkg")
	packages := filepath.Join(cache(t), "debs")
	images, err := filepath.Glob(filepath.Join(packages, "linux-image-"+version+"*_"+architecture+".deb"))
	require.NoError(t, err)
	if len(images) == 0 {
		t.Skipf("lacks linux-image-%s*_%s.deb in %s: apt-get download could not get it", version, architecture, packages)
	}
	image := images[len(images)-1]
	name := strings.TrimSuffix(filepath.Base(image), ".deb")
	release, _, _ := strings.Cut(strings.TrimPrefix(name, "linux-image-"), "_")
	k := kernel{release: release, root: filepath.Join(cache(t), "sensors-"+name)}
	ready := filepath.Join(k.root, "ready")
	if _, err := os.Stat(ready); err == nil {
		return k
	}
	require.NoError(t, os.RemoveAll(k.root))
	require.NoError(t, os.MkdirAll(k.root, 0o755))
	run(t, exec.Command("sh", "-c", `dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --wildcards "./boot/vmlinuz-*" "*/kernel/*.ko*"`,
		"sh", image, k.root))
	require.NoError(t, os.WriteFile(ready, nil, 0o644))
	return k
}

// modules returns the paths of the kernel's modules by name.
func (k kernel) modules(t *testing.T) map[string]string {
	t.Helper()
	available := map[string]string{}
	require.NoError(t, filepath.WalkDir(k.root, func(path string, _ fs.DirEntry, err error) error {
		if name, _, ok := strings.Cut(filepath.Base(path), ".ko"); ok {
			available[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	}))
	return available
}

// addModules adds kernel modules, and those that they need, to the files of an initial file system.
// It returns their paths there in the order in which they can be loaded. A module of a name that
// the kernel has not as a file is taken to be built in.
func (k kernel) addModules(t *testing.T, files map[string]string, names ...string) []string {
	t.Helper()
	available := k.modules(t)
	var order []string
	var add func(string)
	add = func(name string) {
		name = strings.ReplaceAll(name, "-", "_")
		path, ok := available[name]
		if !ok || slices.Contains(order, "/"+name+".ko") {
			return
		}
		plain := decompressed(t, path)
		for _, needed := range dependencies(t, plain) {
			add(needed)
		}
		files[name+".ko"] = plain
		order = append(order, "/"+name+".ko")
	}
	for _, name := range names {
		add(name)
	}
	return order
}

// decompressed returns the path of a module that is decompressed.
func decompressed(t *testing.T, path string) string {
	t.Helper()
	plain, compressed := strings.CutSuffix(path, ".xz")
	if !compressed {
		return path
	}
	if _, err := os.Stat(plain); err != nil {
		run(t, exec.Command(program(t, "xz", "xz-utils"), "--decompress", "--keep", path))
	}
	return plain
}

// dependencies returns the modules that a module needs, as it says itself.
func dependencies(t *testing.T, module string) []string {
	t.Helper()
	file, err := elf.Open(module)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	information, err := file.Section(".modinfo").Data()
	require.NoError(t, err)
	for entry := range strings.SplitSeq(string(information), "\x00") {
		if names, ok := strings.CutPrefix(entry, "depends="); ok && names != "" {
			return strings.Split(names, ",")
		}
	}
	return nil
}
