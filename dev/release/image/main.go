// SPDX-License-Identifier: Apache-2.0

// Command image writes an image of a collector, without a container engine, a base image or network.
// The same input has the same digest.
//
//	go -C dev/release run ./image -program build/ARCH/otelcol-energy -out DIRECTORY.oci [-archs "amd64 arm64"]
//	go -C dev/release run ./image -program build/otelcol-energy -out FILE.tar -tag otelcol-energy:latest
//
// The first form writes an OCI layout with one image for each architecture. ARCH in the path of the
// program is replaced by the architecture. The second form writes an archive for docker load. The
// environment variables VERSION, REVISION and SOURCE_DATE_EPOCH become labels, CA_BUNDLE names the
// certificates.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// stateDirectory is the mount point of the volume with the totals. It belongs to user 0, who measures.
const stateDirectory = "/var/lib/otelcol-energy"

// recipe describes the images of one collector.
type recipe struct {
	title   string
	program string // ARCH is replaced by the architecture
	gpu     bool
	version string
	created time.Time
	labels  map[string]string
}

// file is the content of an image at a path. A path that ends with a slash is a directory.
type file struct {
	source string
	mode   int64
}

func main() {
	program := flag.String("program", "", "path of the collector")
	out := flag.String("out", "", "an OCI layout, or an archive for docker load if it ends with .tar")
	archs := flag.String("archs", runtime.GOARCH, "architectures of the layout")
	title := flag.String("title", "otelcol-energy", "name of the image: otelcol-energy, otelcol-energy-gpu or otelcol-energy-profiles")
	tag := flag.String("tag", "", "tag in the archive")
	flag.Parse()
	err := os.Chdir("../..")
	if err == nil {
		r := newRecipe(*title, *program)
		if strings.HasSuffix(*out, ".tar") {
			err = r.writeArchive(*out, *tag)
		} else {
			err = r.writeLayout(*out, strings.Fields(*archs))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func newRecipe(title, program string) recipe {
	epoch, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	version, created := cmp.Or(os.Getenv("VERSION"), "0.1.0-dev"), time.Unix(epoch, 0).UTC()
	return recipe{
		title, program, title == "otelcol-energy-gpu", version, created,
		map[string]string{
			"org.opencontainers.image.title":       title,
			"org.opencontainers.image.version":     version,
			"org.opencontainers.image.revision":    os.Getenv("REVISION"),
			"org.opencontainers.image.created":     created.Format(time.RFC3339),
			"org.opencontainers.image.source":      "https://github.com/energyreceiver/energyreceiver",
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.description": "OpenTelemetry Collector that measures the energy of a node, its pods, containers and processes",
		},
	}
}

func (r recipe) writeArchive(out, tag string) error {
	reference, err := name.NewTag(tag)
	if err != nil {
		return err
	}
	image, err := r.image(runtime.GOARCH)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(out, reference, image)
}

func (r recipe) writeLayout(out string, archs []string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range archs {
		image, err := r.image(arch)
		if err != nil {
			return err
		}
		platform := &v1.Platform{OS: "linux", Architecture: arch}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	index = mutate.Annotations(index, r.labels).(v1.ImageIndex)
	directory, err := layout.Write(out, empty.Index)
	if err != nil {
		return err
	}
	return directory.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version}))
}

// image has two layers, so that a new version of the collector downloads only the second.
func (r recipe) image(arch string) (v1.Image, error) {
	base := map[string]file{
		"etc/ssl/certs/ca-certificates.crt": {cmp.Or(os.Getenv("CA_BUNDLE"), "/etc/ssl/certs/ca-certificates.crt"), 0o644},
		stateDirectory[1:] + "/":            {mode: 0o755},
	}
	program := map[string]file{
		"otelcol-energy":                 {strings.ReplaceAll(r.program, "ARCH", arch), 0o755},
		"etc/otelcol-energy/config.yaml": {"deploy/docker/config.yaml", 0o644},
	}
	if r.gpu {
		program["etc/otelcol-energy/gpu.yaml"] = file{"deploy/docker/gpu.yaml", 0o644}
		if err := addGlibc(base, arch); err != nil {
			return nil, err
		}
	}
	config := &v1.ConfigFile{
		Architecture: arch, OS: "linux", Created: v1.Time{Time: r.created},
		Config: r.command(),
		RootFS: v1.RootFS{Type: "layers"},
	}
	image, err := mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), config)
	if err != nil {
		return nil, err
	}
	for _, part := range []struct {
		what  string
		files map[string]file
	}{{"certificates and directories", base}, {"collector", program}} {
		layer, err := r.layer(part.files)
		if err != nil {
			return nil, err
		}
		history := v1.History{Created: v1.Time{Time: r.created}, CreatedBy: part.what}
		if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: history}); err != nil {
			return nil, err
		}
	}
	return mutate.Annotations(image, r.labels).(v1.Image), nil
}

// command is run by an unprivileged user. To measure, it runs as another: docs/permissions.md.
func (r recipe) command() v1.Config {
	c := v1.Config{
		User: "65532:65532", WorkingDir: stateDirectory, Labels: r.labels,
		Entrypoint: []string{"/otelcol-energy"}, Cmd: []string{"--config", "/etc/otelcol-energy/config.yaml"},
	}
	switch r.title {
	case "otelcol-energy-profiles":
		c.Cmd = append(c.Cmd, "--feature-gates=service.profilesSupport")
	case "otelcol-energy-gpu":
		c.Cmd = append(c.Cmd, "--config", "/etc/otelcol-energy/gpu.yaml")
		c.Env = []string{
			// The directories into which NVIDIA's runtimes put the driver's library.
			"LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/local/nvidia/lib64",
			// All GPUs, and only the management library of the driver.
			"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility",
		}
	}
	return c
}

// addGlibc adds the libraries that the collector and NVIDIA's library need. For another
// architecture, Debian's package libc6-ARCH-cross has them.
func addGlibc(files map[string]file, arch string) error {
	triplet, loader := "x86_64-linux-gnu", "lib64/ld-linux-x86-64.so.2"
	if arch == "arm64" {
		triplet, loader = "aarch64-linux-gnu", "lib/ld-linux-aarch64.so.1"
	}
	from := "/lib/" + triplet
	if _, err := os.Stat(from + "/libc.so.6"); err != nil {
		from = "/usr/" + triplet + "/lib"
	}
	if _, err := os.Stat(from + "/libc.so.6"); err != nil {
		return fmt.Errorf("glibc for %s was not found: apt-get install libc6-%s-cross", arch, arch)
	}
	files[loader] = file{filepath.Join(from, path.Base(loader)), 0o755}
	for _, library := range []string{"libc.so.6", "libm.so.6", "librt.so.1", "libpthread.so.0", "libdl.so.2"} {
		files[path.Join("lib", triplet, library)] = file{filepath.Join(from, library), 0o644}
	}
	return nil
}

func (r recipe) layer(files map[string]file) (v1.Layer, error) {
	for name := range maps.Clone(files) {
		for dir := path.Dir(path.Clean(name)); dir != "."; dir = path.Dir(dir) {
			files[dir+"/"] = file{mode: 0o755}
		}
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		var content []byte
		if f.source != "" {
			var err error
			if content, err = os.ReadFile(f.source); err != nil {
				return nil, err
			}
		}
		header := tar.Header{Name: name, Mode: f.mode, Size: int64(len(content)), ModTime: r.created, Format: tar.FormatGNU}
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil },
		tarball.WithCompressedCaching, tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithMediaType(types.OCILayer))
}
