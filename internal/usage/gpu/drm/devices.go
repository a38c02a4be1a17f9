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

// device is a GPU, and its usage in the interval.
type device struct {
	name    string // its PCI address or platform device
	domain  units.Domain
	driver  string // of the kernel
	present bool
	// counts is set once a client had counters, silent once a client had no counters.
	counts, silent   bool
	compute          compute
	status, activity kernfs.File // power/runtime_status and gpu_busy_percent

	engines []engine
	uses    []use
	since   time.Time // end of the last interval whose usage was read, or zero
	elapsed time.Duration
	asleep  bool
	slept   bool // the GPU was asleep at the last Read, and is not asleep now
}

// compute is the state of a GPU in KFD.
type compute struct {
	present bool // KFD lists the GPU
	hidden  bool // KFD does not show which processes use it
	// unknown lists the PIDs of processes whose GPU time KFD does not report. held lists their GPU
	// memory in bytes. used is their total GPU time, which is divided among them. parts is scratch.
	unknown []int32
	held    []uint64
	parts   []units.CPUTime
	used    units.CPUTime
}

// hold adds memory of a process whose GPU time KFD does not show. All partitions of a process are
// added before the next process.
func (c *compute) hold(pid int32, bytes uint64) {
	if n := len(c.unknown); n > 0 && c.unknown[n-1] == pid {
		c.held[n-1] = units.AddSaturating(c.held[n-1], bytes)
		return
	}
	c.unknown, c.held, c.parts = append(c.unknown, pid), append(c.held, bytes), append(c.parts, 0)
}

// engine is an engine class of a GPU.
type engine struct {
	name string
	used units.CPUTime // in the interval, by all clients, divided by the number of engines
	hz   uint64        // rate of its total cycles, 0 until it is measured
}

// use is the GPU time of a process. last is as in gpu.User.
type use struct {
	pid  int32
	used units.CPUTime
	last time.Time
}

// counting lists the drivers that count the time of their clients. The first client of a GPU shows
// whether the driver does so in this kernel and with this hardware.
var counting = []string{"amdgpu", "etnaviv", "i915", "lima", "msm", "msm_dpu", "msm_mdp", "panfrost", "panthor", "v3d", "xe"}

// reports reports whether the source returns the usage of the GPU.
func (d *device) reports() bool {
	return d.present && !d.compute.hidden && (d.counts || d.compute.present || !d.silent && slices.Contains(counting, d.driver))
}

// mayReport reports whether the driver may show the users of the GPU.
func (d *device) mayReport() bool { return d.driver != "nvidia" }

// wakes reports whether reading the counters of a client wakes the GPU up
// (drivers/gpu/drm/xe/xe_drm_client.c, show_run_ticks).
func (d *device) wakes() bool { return d.driver == "xe" }

// begin starts the interval from the last Read until now. No time passes for a GPU that sleeps.
func (d *device) begin(last, now time.Time, buf []byte) {
	before := d.asleep
	c := &d.compute
	c.hidden, c.unknown, c.held, c.parts, c.used = false, c.unknown[:0], c.held[:0], c.parts[:0], 0
	d.asleep = false
	if d.wakes() {
		text, err := d.status.Read(buf)
		d.asleep = err == nil && bytes.HasPrefix(text, []byte("suspend"))
	}
	d.slept = before && !d.asleep
	if before && d.asleep && !d.since.IsZero() {
		d.since = d.since.Add(now.Sub(last))
	}
	d.elapsed, d.uses = 0, d.uses[:0]
	if !d.since.IsZero() && !d.asleep {
		d.elapsed = max(0, now.Sub(d.since))
	}
	for i := range d.engines {
		d.engines[i].used = 0
	}
}

// engine returns the index of the engine class with the name, -1 if there are too many.
func (d *device) engine(name []byte) int {
	if i := slices.IndexFunc(d.engines, func(e engine) bool { return e.name == string(name) }); i >= 0 {
		return i
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

// use adds GPU time of a process.
func (d *device) use(pid int32, used units.CPUTime, last time.Time) {
	d.uses = append(d.uses, use{pid, used, last})
}

// busy returns the time of the busiest engine class, at most the interval.
func (d *device) busy() (busy units.CPUTime) {
	for i := range d.engines {
		busy = max(busy, d.engines[i].used)
	}
	return min(busy, units.CPUTime(d.elapsed))
}

func (d *device) close() error { return errors.Join(d.status.Close(), d.activity.Close()) }

// findEvery is the time between two searches for GPUs.
const findEvery = time.Minute

// devices are the GPUs of the node. They are searched for below root.
type devices struct {
	root     string
	list     []*device         // by name
	nodes    map[string]string // the name of the GPU of each device node, such as renderD128
	search   kernfs.Search[discovered]
	searched time.Time
	buf      []byte
}

// discovered is the result of a search for GPUs.
type discovered struct {
	nodes   map[string]string
	devices []*device
	kfd     []*kfdNode
}

func newDevices(o Options) devices {
	return devices{root: o.Root, buf: make([]byte, 256), search: kernfs.Search[discovered]{
		Root: o.Root, Dir: filepath.Join(o.Root, "sys/class/drm"), Waits: o.Waits, Drop: discovered.drop,
	}}
}

// find searches for GPUs if a search is due, and returns the GPUs of KFD if it has finished.
func (ds *devices) find(now time.Time) (found []*kfdNode, ok bool) {
	if !ds.searched.IsZero() && now.Sub(ds.searched) < findEvery && !ds.search.Running() {
		return nil, false
	}
	result, ok := ds.search.Run(func() discovered { return discover(ds.root) })
	if ok {
		ds.takeOver(result)
		ds.searched = now
	}
	return result.kfd, ok
}

// discover finds the GPUs that have a render node, and the GPUs of KFD. It opens their files,
// because a user may block opening them in a Read (kernfs.Search).
func discover(root string) (found discovered) {
	found.nodes = map[string]string{}
	class := filepath.Join(root, "sys/class/drm")
	entries, _ := os.ReadDir(class) // it does not exist without DRM
	for _, entry := range entries {
		node := entry.Name()
		card, isCard := strings.CutPrefix(node, "card")
		isRender := strings.HasPrefix(node, "renderD")
		if !isRender && (!isCard || strings.Contains(card, "-")) { // card0-DP-1 is a connector
			continue
		}
		kernfs.List(filepath.Join(class, node))
		path, err := filepath.EvalSymlinks(filepath.Join(class, node, "device"))
		if err != nil {
			continue
		}
		name := filepath.Base(path)
		if strings.HasPrefix(name, "amdgpu_xcp") { // a partition of a GPU, which its clients name
			continue
		}
		found.nodes[node] = name
		if isRender {
			found.describe(root, name)
		}
	}
	found.kfd = discoverKFD(root)
	for _, node := range found.kfd {
		found.describe(root, node.name).compute.present = true
	}
	for _, d := range found.devices {
		openOnce(&d.status, d.wakes())
		openOnce(&d.activity, d.compute.present)
	}
	return found
}

// describe returns the GPU with the name, which it adds if necessary.
func (found *discovered) describe(root, name string) *device {
	if d := named(found.devices, name); d != nil {
		return d
	}
	dir := filepath.Join(root, "sys/bus/pci/devices", name)
	if _, err := os.Stat(dir); err != nil {
		dir = filepath.Join(root, "sys/bus/platform/devices", name)
	}
	d := &device{name: name, domain: units.GPU(name), present: true}
	if driver, err := os.Readlink(filepath.Join(dir, "driver")); err == nil {
		d.driver = filepath.Base(driver)
	}
	d.status.Path = filepath.Join(dir, "power/runtime_status")
	d.activity.Path = filepath.Join(dir, "gpu_busy_percent")
	found.devices = append(found.devices, d)
	return d
}

// openOnce opens a file if it is needed. A file that is closed after an error stays closed until
// the next search.
func openOnce(f *kernfs.File, needed bool) {
	if needed {
		if file, err := f.OpenPath(); err == nil {
			f.Use(file)
		}
	}
	f.Open = func(path string) (*os.File, error) {
		return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrClosed}
	}
}

// drop closes the opened files.
func (found discovered) drop() {
	for _, d := range found.devices {
		_ = d.close() // it was only read from
	}
}

// takeOver adopts the result of a search. A GPU that is already in the list stays the same device.
func (ds *devices) takeOver(found discovered) {
	for _, d := range ds.list {
		d.present, d.compute.present = false, false
	}
	ds.nodes = found.nodes
	for _, f := range found.devices {
		d := named(ds.list, f.name)
		if d == nil {
			ds.list = append(ds.list, f)
			continue
		}
		_ = d.close() // it was only read from
		d.present, d.compute.present, d.status, d.activity = true, f.compute.present, f.status, f.activity
	}
	for _, d := range ds.list {
		if !d.present {
			d.since = time.Time{}
			_ = d.close() // it was only read from
		}
	}
	slices.SortFunc(ds.list, func(a, b *device) int { return strings.Compare(a.name, b.name) })
}

// named returns the GPU with the name, or nil.
func named(list []*device, name string) *device {
	if i := slices.IndexFunc(list, func(d *device) bool { return d.name == name }); i >= 0 {
		return list[i]
	}
	return nil
}

// of returns the GPU of a client that was opened as a node, nil if it is not in the list.
func (ds *devices) of(f *fdinfo, node []byte) *device {
	name := ds.nodes[string(node)]
	if f.pdev != nil {
		name = string(f.pdev)
	}
	return named(ds.list, name)
}

// asleep appends the device nodes of the GPUs that must not be woken up.
func (ds *devices) asleep(nodes []string) []string {
	for _, d := range ds.list {
		if !d.asleep {
			continue
		}
		for node, name := range ds.nodes {
			if name == d.name {
				nodes = append(nodes, node)
			}
		}
	}
	return nodes
}

func (ds *devices) close() error {
	ds.search.Close()
	var errs []error
	for _, d := range ds.list {
		errs = append(errs, d.close())
	}
	return errors.Join(errs...)
}
