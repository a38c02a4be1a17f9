// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// kernel is a kernel of Debian that run.sh has downloaded.
type kernel struct {
	release, architecture string // 6.1.0-56-amd64
	root                  string // directory of the unpacked packages
}

// guestKernel unpacks a kernel and its modules, once. The version is the beginning of its release,
// "6.18.". The test is skipped if the kernel was not downloaded.
func guestKernel(t *testing.T, version, architecture string) kernel {
	t.Helper()
	if architecture == "amd64" && runtime.GOARCH != architecture {
		t.Skip("lacks an amd64 machine: the collector and the modules are built for it")
	}
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
	k := kernel{release: release, architecture: architecture, root: filepath.Join(cache(t), name)}
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

// qemu returns the path of the program that emulates a machine for the kernel, or skips the test.
func (k kernel) qemu(t *testing.T) string {
	t.Helper()
	if k.architecture == "arm64" {
		return program(t, "qemu-system-aarch64", "qemu-system-arm")
	}
	return program(t, "qemu-system-x86_64", "qemu-system-x86")
}

// unpackHeaders unpacks the files for building modules, once. The test is skipped if a file was not
// downloaded.
func (k kernel) unpackHeaders(t *testing.T) {
	t.Helper()
	ready := filepath.Join(k.root, "headers-ready")
	if _, err := os.Stat(ready); err == nil {
		return
	}
	packages := filepath.Join(cache(t), "debs")
	base, version := strings.TrimSuffix(k.release, "-amd64"), strings.Join(strings.Split(k.release, ".")[:2], ".")
	for _, name := range []string{"linux-headers-" + k.release + "_", "linux-headers-" + base + "-common_", "linux-kbuild-" + version + "[_.]", "linux-compiler-gcc-12-x86_"} {
		found, err := filepath.Glob(filepath.Join(packages, name+"*.deb"))
		require.NoError(t, err)
		if len(found) == 0 {
			t.Skipf("lacks %s*.deb in %s: apt-get download could not get it", name, packages)
		}
		for _, deb := range found {
			run(t, exec.Command("dpkg-deb", "-x", deb, k.root))
		}
	}
	// The headers refer to each other by their installed paths.
	makefile := filepath.Join(k.headers(), "Makefile")
	text, err := os.ReadFile(makefile)
	require.NoError(t, err)
	text = []byte(strings.ReplaceAll(string(text), "/usr/src/", k.root+"/usr/src/"))
	require.NoError(t, os.WriteFile(makefile, text, 0o644))
	require.NoError(t, os.WriteFile(ready, nil, 0o644))
}

func (k kernel) headers() string { return filepath.Join(k.root, "usr/src/linux-headers-"+k.release) }

func (k kernel) image() string { return filepath.Join(k.root, "boot/vmlinuz-"+k.release) }

// buildModule builds a kernel module from a directory's Kbuild file.
func (k kernel) buildModule(t *testing.T, dir, name string) string {
	t.Helper()
	k.unpackHeaders(t)
	program(t, "make", "make")
	compiler := "gcc-12" // the kernel's compiler
	if _, err := exec.LookPath(compiler); err != nil {
		compiler = filepath.Base(program(t, "gcc", "gcc"))
	}
	out := t.TempDir()
	require.NoError(t, os.CopyFS(out, os.DirFS(dir)))
	// Type information for BPF requires pahole, and is not used here.
	run(t, exec.Command("make", "-C", k.headers(), "M="+out, "CC="+compiler, "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"))
	return filepath.Join(out, name+".ko")
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

// addModules adds kernel modules, and their dependencies, to the files of an initial file system.
// It returns their paths there in the order of loading. A module without a file is built in.
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

// decompressed returns the path of a decompressed module.
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

// dependencies returns the modules that a module needs, by its own information.
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
