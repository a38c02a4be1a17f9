//go:build linux

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// kernel is Debian's kernel and what modules are built with, as internal/integration/prepare.sh has downloaded
// them.
type kernel struct {
	release string // 6.1.0-56-amd64
	root    string // where the packages are unpacked
}

// debianKernel unpacks the newest 6.1 kernel that was downloaded, once.
func debianKernel(t *testing.T) kernel {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("lacks an amd64 machine, whose RAPL driver this is about")
	}
	program(t, "dpkg-deb", "dpkg")
	packages := filepath.Join(cache(t), "debs")
	images, err := filepath.Glob(packages + "/linux-image-6.1.0-*-amd64_*.deb")
	require.NoError(t, err)
	if len(images) == 0 {
		t.Skipf("lacks linux-image-6.1.0-*-amd64 in %s: apt-get download could not get it (Debian 12 has it)", packages)
	}
	image := slices.MaxFunc(images, func(a, b string) int { return len(a) - len(b) })
	release := regexp.MustCompile(`6\.1\.0-[0-9]+-amd64`).FindString(image)
	k := kernel{release: release, root: filepath.Join(cache(t), "kernel-"+strings.TrimSuffix(filepath.Base(image), ".deb"))}
	ready := filepath.Join(k.root, "ready")
	if _, err := os.Stat(ready); err == nil {
		return k
	}
	require.NoError(t, os.RemoveAll(k.root))
	require.NoError(t, os.MkdirAll(k.root, 0o755))
	run(t, exec.Command("sh", "-c", `dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" "./boot/vmlinuz-$3" "./lib/modules/$3/kernel/drivers/powercap"`,
		"sh", image, k.root, release))
	for _, name := range []string{"linux-headers-" + release, "linux-headers-6.1.0-*-common", "linux-kbuild-6.1", "linux-compiler-gcc-12-x86"} {
		found, err := filepath.Glob(filepath.Join(packages, name+"_*.deb"))
		require.NoError(t, err)
		if len(found) == 0 {
			t.Skipf("lacks %s in %s: apt-get download could not get it", name, packages)
		}
		for _, deb := range found {
			run(t, exec.Command("dpkg-deb", "-x", deb, k.root))
		}
	}
	// The headers name each other by the place that they are to be installed at.
	makefile := filepath.Join(k.headers(), "Makefile")
	text, err := os.ReadFile(makefile)
	require.NoError(t, err)
	text = []byte(strings.ReplaceAll(string(text), "/usr/src/", k.root+"/usr/src/"))
	require.NoError(t, os.WriteFile(makefile, text, 0o644))
	require.NoError(t, os.WriteFile(ready, nil, 0o644))
	return k
}

func (k kernel) headers() string { return filepath.Join(k.root, "usr/src/linux-headers-"+k.release) }

func (k kernel) image() string { return filepath.Join(k.root, "boot/vmlinuz-"+k.release) }

// raplDriver is the kernel's own.
func (k kernel) raplDriver() string {
	return filepath.Join(k.root, "lib/modules", k.release, "kernel/drivers/powercap/intel_rapl_common.ko")
}

// buildModule builds a kernel module from a directory's Kbuild file.
func (k kernel) buildModule(t *testing.T, dir, name string) string {
	t.Helper()
	program(t, "make", "make")
	compiler := "gcc-12" // the kernel's own
	if _, err := exec.LookPath(compiler); err != nil {
		compiler = filepath.Base(program(t, "gcc", "gcc"))
	}
	out := t.TempDir()
	require.NoError(t, os.CopyFS(out, os.DirFS(dir)))
	run(t, exec.Command("make", "-C", k.headers(), "M="+out, "CC="+compiler, "modules"))
	return filepath.Join(out, name+".ko")
}
