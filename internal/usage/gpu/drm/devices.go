// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// device is a GPU.
type device struct {
	name   string // its PCI address or platform device
	domain units.Domain
	driver string // the kernel's, empty if not known
	// counts reports whether a client's counters were seen; silent reports whether a client was
	// seen that has none.
	counts, silent bool
	isKFD          bool // KFD knows it
	hidden         bool // KFD does not show which processes compute with it
	// unknown are the PIDs of processes of which KFD does not show for how long the GPU computed for
	// them, and unknownUsed is how long it did for all of them.
	unknown     []int32
	unknownUsed units.CPUTime
	present     bool
	engines     []engine
	status      kernfs.File // power/runtime_status
	activity    kernfs.File // gpu_busy_percent

	since   time.Time // until when its users are known, zero before the first time
	elapsed time.Duration
	asleep  bool
	slept   bool // it was asleep at the last Read, and is not now
}

// engine is an engine class of a GPU.
type engine struct {
	name string
	used units.CPUTime // in the interval, by all clients and by its capacity
	hz   uint64        // rate of its total cycles, 0 where it is not known
}

// counting lists the drivers that count their clients' time. One that counts nothing in this
// kernel, or with this hardware, is found out when its first client is.
var counting = []string{"amdgpu", "etnaviv", "i915", "lima", "msm", "msm_dpu", "msm_mdp", "panfrost", "panthor", "v3d", "xe"}

// reported reports whether the source reports the users of the GPU.
func (d *device) reported() bool {
	return d.present && !d.hidden && (d.counts || d.isKFD || !d.silent && slices.Contains(counting, d.driver))
}

// reportsUsers reports whether the driver may report the users of the GPU.
func (d *device) reportsUsers() bool { return d.driver != "nvidia" }

// wakes reports whether reading a client's counters wakes the GPU up
// (drivers/gpu/drm/xe/xe_drm_client.c, show_run_ticks).
func (d *device) wakes() bool { return d.driver == "xe" }

// begin starts the interval from the last Read until now. While the GPU sleeps, no time passes for
// it.
func (d *device) begin(last, now time.Time, buf []byte) {
	before := d.asleep
	d.asleep, d.hidden, d.unknown = false, false, d.unknown[:0]
	if d.wakes() {
		text, err := d.status.Read(buf)
		d.asleep = err == nil && bytes.HasPrefix(text, []byte("suspend"))
	}
	d.slept = before && !d.asleep
	if before && d.asleep && !d.since.IsZero() {
		d.since = d.since.Add(now.Sub(last))
	}
	d.elapsed = 0
	if !d.since.IsZero() && !d.asleep {
		d.elapsed = max(0, now.Sub(d.since))
	}
	for i := range d.engines {
		d.engines[i].used = 0
	}
}

// engine returns the index of the engine class with the name, -1 if there are too many.
func (d *device) engine(name []byte) int {
	for i := range d.engines {
		if d.engines[i].name == string(name) {
			return i
		}
	}
	if len(d.engines) == maxEngines {
		return -1
	}
	d.engines = append(d.engines, engine{name: string(name)})
	return len(d.engines) - 1
}

// add adds time of an engine class.
func (d *device) add(name []byte, used units.CPUTime) {
	if i := d.engine(name); i >= 0 {
		d.engines[i].used += used
	}
}

// busy returns the time of the busiest engine class, at most the interval.
func (d *device) busy() (busy units.CPUTime) {
	for i := range d.engines {
		busy = max(busy, d.engines[i].used)
	}
	return min(busy, units.CPUTime(d.elapsed))
}

func (d *device) close() error { return errors.Join(d.status.Close(), d.activity.Close()) }

// discovered is the result of a search for GPUs.
type discovered struct {
	nodes   map[string]string // the device of each node: renderD128
	devices []foundDevice
	kfd     []foundKFD
}

// foundDevice is a GPU as its directory describes it.
type foundDevice struct {
	name, driver     string
	status, activity kernfs.File // open if they could be opened and reads must not open them
	isKFD            bool
}

// discover finds the GPUs that have a render node, and those of KFD. It uses no state that Read
// changes.
func (s *Source) discover() (found discovered) {
	found.nodes = map[string]string{}
	entries, _ := os.ReadDir(s.path("sys/class/drm")) // without DRM there is none
	for _, entry := range entries {
		node := entry.Name()
		card, isCard := strings.CutPrefix(node, "card")
		_, isRender := strings.CutPrefix(node, "renderD")
		if !isRender && (!isCard || strings.Contains(card, "-")) { // card0-DP-1 is a connector
			continue
		}
		kernfs.List(s.path("sys/class/drm", node))
		path, err := filepath.EvalSymlinks(s.path("sys/class/drm", node, "device"))
		if err != nil {
			continue
		}
		name := filepath.Base(path)
		if strings.HasPrefix(name, "amdgpu_xcp") { // a partition of a GPU, which its clients name
			continue
		}
		found.nodes[node] = name
		if isRender {
			s.describe(&found, name)
		}
	}
	found.kfd = s.discoverKFD()
	for i := range found.kfd {
		s.describe(&found, found.kfd[i].device).isKFD = true
	}
	for i := range found.devices {
		found.devices[i].open(s.search.IsGuarded())
	}
	return found
}

// describe returns the GPU with the name among those that were found, to which it adds it.
func (s *Source) describe(found *discovered, name string) *foundDevice {
	if i := slices.IndexFunc(found.devices, func(d foundDevice) bool { return d.name == name }); i >= 0 {
		return &found.devices[i]
	}
	d := foundDevice{name: name}
	dir := s.path("sys/bus/pci/devices", name)
	if _, err := os.Stat(dir); err != nil {
		dir = s.path("sys/bus/platform/devices", name)
	}
	if driver, err := os.Readlink(filepath.Join(dir, "driver")); err == nil {
		d.driver = filepath.Base(driver)
	}
	d.status.Path = filepath.Join(dir, "power/runtime_status")
	d.activity.Path = filepath.Join(dir, "gpu_busy_percent")
	found.devices = append(found.devices, d)
	return &found.devices[len(found.devices)-1]
}

// open opens the files that the GPU may need. If guarded is set, reads must not open them, because
// any user may block that (kernfs.Search).
func (d *foundDevice) open(guarded bool) {
	if !guarded {
		return
	}
	if d.driver == "xe" {
		openOnce(&d.status)
	}
	if d.isKFD {
		openOnce(&d.activity)
	}
	d.status.Open, d.activity.Open = notOpen, notOpen
}

func openOnce(f *kernfs.File) {
	if file, err := f.OpenPath(); err == nil {
		f.Use(file)
	}
}

func notOpen(path string) (*os.File, error) {
	return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrClosed} // until the next search
}

// drop closes the opened files.
func (found discovered) drop() {
	for i := range found.devices {
		_ = found.devices[i].status.Close() // nothing was read from them
		_ = found.devices[i].activity.Close()
	}
}

// takeOver adopts the result of a discovery.
func (s *Source) takeOver(found discovered) {
	for _, d := range s.devices {
		d.present, d.isKFD = false, false
	}
	s.nodes = found.nodes
	for i := range found.devices {
		f := &found.devices[i]
		d := s.found(f)
		d.present, d.isKFD = true, f.isKFD
		exchange(&d.status, &f.status)
		exchange(&d.activity, &f.activity)
	}
	s.kfd.takeOver(s, found.kfd)
	found.drop()
	for _, d := range s.devices {
		if !d.present {
			d.since = time.Time{}
			_ = d.close()
		}
	}
	slices.SortFunc(s.devices, func(a, b *device) int { return strings.Compare(a.name, b.name) })
}

// exchange replaces a closed file with the file that was found.
func exchange(f, found *kernfs.File) {
	if !f.IsOpen() {
		*f, *found = *found, kernfs.File{}
	}
}

// found returns the device with the name, which it creates if necessary.
func (s *Source) found(f *foundDevice) *device {
	if i := slices.IndexFunc(s.devices, func(d *device) bool { return d.name == f.name }); i >= 0 {
		return s.devices[i]
	}
	d := &device{name: f.name, domain: units.GPU(f.name), driver: f.driver}
	s.devices = append(s.devices, d)
	return d
}

// deviceOf returns the device of a client that was opened as a node, nil if it is not known.
func (s *Source) deviceOf(f *fdinfo, node []byte) *device {
	for _, d := range s.devices {
		if f.pdev != nil && d.name == string(f.pdev) || f.pdev == nil && d.name == s.nodes[string(node)] {
			if d.driver == "" {
				d.driver = string(f.driver)
			}
			return d
		}
	}
	return nil
}

func (s *Source) path(elem ...string) string {
	return filepath.Join(append([]string{s.root}, elem...)...)
}
