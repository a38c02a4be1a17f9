// SPDX-License-Identifier: Apache-2.0

package hostsim

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// GPU is a graphics or compute card of a Machine, with the true energy of each context on it.
//
// The physics: contexts keep units of engines busy. If contexts demand more units of an engine than
// it has, they share the units in proportion to demand. The card's load is the busy part of each
// engine times the engine's Weight and the context's Intensity. The card draws Idle plus the
// difference between Curve at the load and at Curve's first point. The running contexts cause all
// power above Idle, in proportion to their contributions to the load. The card's energy is the sum
// of its idle energy and of its contexts' energy.
type GPU struct {
	Address string // on the PCI bus: "0000:03:00.0"
	// Driver is "amdgpu", which exposes engine times and power, "xe", which exposes cycles and an
	// energy counter, or "nvidia", which exposes no files in /proc and sysfs; see Library.
	Driver  string
	Engines []Engine
	// Idle is the power at rest, in W.
	Idle float64
	// Curve is the power by load. Only the difference to its first point counts.
	Curve model.Curve
	// Slices are the parts of the first engine that MIG makes; empty without MIG. A context is
	// confined to the part of its Slice.
	Slices []float64

	// Energy is the total energy and Idled the part of it that was drawn at rest, in µJ.
	Energy, Idled float64
	// Busy is the time while any context ran.
	Busy time.Duration
	// Watts is the power of the last step.
	Watts float64
	// Contexts are the open contexts, oldest first.
	Contexts []*Context

	machine *Machine
	number  int
	clients uint64
	closed  []*Context // since the library's last sample
	ran     []float64  // scratch of Step, by context: its contribution to the load
}

// Engine is a part of a GPU, such as those for compute, copies and video.
type Engine struct {
	Name string // as in fdinfo: "gfx", "ccs"
	// Units is the number of units of the engine. 0 means 1.
	Units int
	// Weight is the load of the card while all units are busy.
	Weight float64
}

func (e *Engine) units() float64 { return float64(max(e.Units, 1)) }

// Context is an open GPU handle of a task: a DRM client or a CUDA context. Callers may change its
// exported settings at any time.
type Context struct {
	GPU  *GPU
	Task *Task
	// Demand is how many units of each engine the context keeps busy, by the index in GPU.Engines.
	Demand []float64
	// Intensity is the power per GPU time relative to other contexts. OpenGPU sets 1.
	Intensity float64
	// Memory is the card's memory that it holds, in bytes.
	Memory uint64
	// Slice is the index in GPU.Slices, if there are any.
	Slice int

	// Used is the GPU time, by engine.
	Used []time.Duration
	// Energy is the energy that the context has caused, in µJ.
	Energy float64
	// Last is the end of the context's last busy step, since boot.
	Last time.Duration

	client   uint64
	fd       int
	fraction []float64 // of a ns, by engine
}

// AddGPU adds a card to the machine.
func (m *Machine) AddGPU(g *GPU) *GPU {
	g.machine, g.number = m, len(m.GPUs)
	m.GPUs = append(m.GPUs, g)
	return g
}

// OpenGPU opens a context that does not use the card yet.
func (t *Task) OpenGPU(g *GPU) *Context {
	g.clients++
	c := &Context{
		GPU: g, Task: t, Intensity: 1, client: g.clients, fd: 3,
		Demand: make([]float64, len(g.Engines)), Used: make([]time.Duration, len(g.Engines)), fraction: make([]float64, len(g.Engines)),
	}
	for _, other := range t.contexts {
		c.fd = max(c.fd, other.fd+1)
	}
	t.contexts = append(t.contexts, c)
	g.Contexts = append(g.Contexts, c)
	return c
}

// Close closes the context. Its energy stays as it is.
func (c *Context) Close() {
	is := func(other *Context) bool { return other == c }
	c.Task.contexts = slices.DeleteFunc(c.Task.contexts, is)
	c.GPU.Contexts = slices.DeleteFunc(c.GPU.Contexts, is)
	if c.GPU.Driver == "nvidia" && c.GPU.machine.library != nil {
		c.GPU.closed = append(c.GPU.closed, c)
	}
}

// Contexts returns the task's open GPU contexts.
func (t *Task) Contexts() []*Context { return t.contexts }

// step lets time pass on the card, and returns its energy in µJ.
func (g *GPU) step(d time.Duration) float64 {
	seconds := d.Seconds()
	g.ran = g.ran[:0]
	for range g.Contexts {
		g.ran = append(g.ran, 0)
	}
	load, busy := 0.0, 0.0
	for e := range g.Engines {
		engine := &g.Engines[e]
		units := engine.units()
		ran := 0.0
		for i, c := range g.Contexts {
			run := c.Demand[e] * g.rate(e, c)
			ran += run
			if run > 0 {
				c.Last = g.machine.Now() + d
			}
			c.add(e, run*seconds)
			part := run / units * engine.Weight * c.Intensity
			g.ran[i] += part
			load += part
		}
		busy = max(busy, min(ran/units, 1))
	}
	g.Busy += time.Duration(math.Round(busy * float64(d)))
	above := g.above(load)
	if load > 0 {
		for i, c := range g.Contexts {
			c.Energy += above * seconds * joule * g.ran[i] / load
		}
	}
	g.Watts = g.Idle + above
	g.Energy += g.Watts * seconds * joule
	g.Idled += g.Idle * seconds * joule
	return g.Watts * seconds * joule
}

// rate returns the part of its demand for an engine that a context gets.
func (g *GPU) rate(engine int, c *Context) float64 {
	have, demand := g.Engines[engine].units(), 0.0
	confined := engine == 0 && g.Slices != nil
	if confined {
		have *= g.Slices[c.Slice]
	}
	for _, other := range g.Contexts {
		if !confined || other.Slice == c.Slice {
			demand += other.Demand[engine]
		}
	}
	if demand <= have {
		return 1
	}
	return have / demand
}

// above returns the card's power above Idle at a load, in W. It is linear in loads above 1.
func (g *GPU) above(load float64) float64 {
	if len(g.Curve) == 0 {
		return 0
	}
	return (g.Curve.Watts(min(load, 1)) - g.Curve[0].Watts) * max(load, 1)
}

func (c *Context) add(engine int, seconds float64) {
	ns := seconds*1e9 + c.fraction[engine]
	whole := math.Floor(ns)
	c.fraction[engine] = ns - whole
	c.Used[engine] += time.Duration(whole)
}

// node returns the name of the card's device node: "renderD128".
func (g *GPU) node() string { return fmt.Sprintf("renderD%d", 128+g.number) }

// vendors are the PCI vendors and one device of each driver.
var vendors = map[string][2]string{"amdgpu": {"0x1002", "0x744c"}, "xe": {"0x8086", "0xe20b"}, "nvidia": {"0x10de", "0x2330"}}

// show adds the sysfs files of the card's driver to the host's files. hwmon chips have the numbers
// of their cards.
func (g *GPU) show(h *Host) {
	device := path.Join("sys/devices/pci0000:00", g.Address)
	ids := vendors[g.Driver]
	h.Files[path.Join(device, "vendor")] = ids[0] + "\n"
	h.Files[path.Join(device, "device")] = ids[1] + "\n"
	h.Files[path.Join(device, "class")] = "0x030000\n"
	h.Links[path.Join(device, "driver")] = "../../../bus/pci/drivers/" + g.Driver
	h.Links[path.Join("sys/bus/pci/devices", g.Address)] = "../../../devices/pci0000:00/" + g.Address
	if g.Driver == "nvidia" {
		return // its driver has neither DRM nor hwmon files
	}
	for _, node := range [...]string{g.node(), fmt.Sprintf("card%d", g.number)} {
		dir := path.Join(device, "drm", node)
		minor := 128 + g.number
		if node != g.node() {
			minor = g.number
		}
		h.Files[path.Join(dir, "dev")] = fmt.Sprintf("226:%d\n", minor)
		h.Links[path.Join(dir, "device")] = "../../../" + g.Address
		h.Links[path.Join("sys/class/drm", node)] = "../../devices/pci0000:00/" + path.Join(g.Address, "drm", node)
	}
	chip := fmt.Sprintf("hwmon%d", g.number)
	dir := path.Join(device, "hwmon", chip)
	h.Files[path.Join(dir, "name")] = g.Driver + "\n"
	h.Links[path.Join(dir, "device")] = "../../../" + g.Address
	h.Links[path.Join("sys/class/hwmon", chip)] = "../../devices/pci0000:00/" + path.Join(g.Address, "hwmon", chip)
	if g.Driver == "xe" {
		h.Files[path.Join(dir, "energy1_label")] = "card\n"
		h.Files[path.Join(dir, "energy1_input")] = fmt.Sprintf("%.0f\n", math.Floor(g.Energy))
	} else {
		h.Files[path.Join(dir, "power1_label")] = "PPT\n"
		h.Files[path.Join(dir, "power1_average")] = fmt.Sprintf("%.0f\n", g.Watts*1e6)
	}
}

// cycles is the frequency of xe's cycle counters, in Hz.
const cycles = 19_200_000

// Info returns the context's fdinfo (Documentation/gpu/drm-usage-stats.rst). amdgpu omits unused
// engines (drivers/gpu/drm/amd/amdgpu/amdgpu_fdinfo.c); xe lists the cycles of all engines
// (drivers/gpu/drm/xe/xe_drm_client.c).
func (c *Context) Info() string {
	g := c.GPU
	var b strings.Builder
	fmt.Fprintf(&b, "pos:\t0\nflags:\t02100002\nmnt_id:\t28\nino:\t%d\n", 700+g.number)
	fmt.Fprintf(&b, "drm-driver:\t%s\ndrm-client-id:\t%d\ndrm-pdev:\t%s\n", g.Driver, c.client, g.Address)
	fmt.Fprintf(&b, "drm-total-vram0:\t%d KiB\ndrm-resident-vram0:\t%d KiB\n", c.Memory>>10, c.Memory>>10)
	inCycles := func(d time.Duration) int64 { return int64(d.Seconds() * cycles) }
	for i := range g.Engines {
		e := &g.Engines[i]
		switch {
		case g.Driver == "xe":
			fmt.Fprintf(&b, "drm-cycles-%s:\t%d\ndrm-total-cycles-%s:\t%d\n", e.Name, inCycles(c.Used[i]), e.Name, inCycles(g.machine.Now()))
		case c.Used[i] > 0:
			fmt.Fprintf(&b, "drm-engine-%s:\t%d ns\n", e.Name, int64(c.Used[i]))
		}
		if e.Units > 1 && (g.Driver == "xe" || c.Used[i] > 0) {
			fmt.Fprintf(&b, "drm-engine-capacity-%s:\t%d\n", e.Name, e.Units)
		}
	}
	return b.String()
}

// files returns the task's descriptors of DRM devices.
func (t *Task) files() []OpenFile {
	var files []OpenFile
	for _, c := range t.contexts {
		if c.GPU.Driver == "nvidia" {
			files = append(files, OpenFile{FD: c.fd, Target: fmt.Sprintf("/dev/nvidia%d", c.GPU.number), Info: "pos:\t0\nflags:\t02100002\nmnt_id:\t28\n"})
			continue
		}
		files = append(files, OpenFile{FD: c.fd, Target: "/dev/dri/" + c.GPU.node(), Info: c.Info()})
	}
	return files
}
