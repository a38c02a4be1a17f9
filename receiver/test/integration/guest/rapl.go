// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	results   = "/tmp/results"
	truth     = "/proc/emulated_rapl"
	hierarchy = "/sys/fs/cgroup"
	module    = "/sys/module/emulated_rapl/parameters/"
	// patience is how long the guest waits for anything. It only ends runs that went wrong.
	patience = 5 * time.Minute
	// user is an arbitrary unprivileged user.
	user = 1000
)

// facts is the record of a run that the test outside reads.
type facts struct {
	Kernel string
	// Zones are the names of the zones by ID.
	Zones map[string]string
	// Modes are the permissions of the energy counters at the start.
	Modes map[string]string
	// Powered is when the zones began to draw power.
	Powered time.Time
	// Granted is when the counters became readable for every user.
	Granted time.Time
	// Paranoid is the kernel's perf_event_paranoid at the start.
	Paranoid string
	// Moved is when the CPU that counts the second package's events went offline, Back when it was online again. CPUMasks
	// are the masks of the power PMU before, meanwhile and after that.
	Moved, Back time.Time
	CPUMasks    []string
	// Failing is when the second package began to fail, Recovered when it worked again.
	Failing, Recovered time.Time
	// Groups are the final CPU times of the containers by their cgroups' counters, in microseconds.
	Groups map[string]uint64
	// Measured are the exit statuses of `energy measure`, by the name of its result. Left are the cgroups that it left.
	Measured map[string]int
	Left     []string
	// Exits are the exit states of the collectors.
	Exits map[string]string
}

// Containers that use the CPU, by cgroup. The receiver identifies them by these ids.
var containers = []struct{ group, load string }{
	{"/kubepods/burstable/pod0f7e4c3a-5b1d-4e62-9c8f-2a6d1b3c4d5e/" + strings.Repeat("a1", 32), "burn 60 0"},
	{"/system.slice/docker-" + strings.Repeat("b2", 32) + ".scope", "burn 20 0"},
	{"/system.slice/docker-" + strings.Repeat("c3", 32) + ".scope", "fork 100000"},
}

// collector is a collector that runs as some user.
type collector struct {
	name string
	cmd  *exec.Cmd
	ends chan error

	out     *os.File // its output
	emitted int
	rest    []byte // incomplete line
}

// measureRAPL runs four collectors side by side on the same registers: as root, as a user with the one capability that
// the counters need, and as a user without; and by perf events, as a user with the one capability that these need.
func measureRAPL(atLeast time.Duration) error {
	f := facts{Zones: map[string]string{}, Modes: map[string]string{}, Groups: map[string]uint64{}, Measured: map[string]int{}, Exits: map[string]string{}}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	f.Kernel = unix.ByteSliceToString(uts.Release[:])
	if err := os.Mkdir(results, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(results, 0o1777); err != nil { //nolint:gosec // collectors of several users write there
		return err
	}
	if err := insertModule("/intel_rapl_common.ko", ""); err != nil {
		return err
	}
	if err := insertModule("/emulated_rapl.ko", "package_room_mj=100000 core_room_mj=20000 dram_room_mj=16000 psys_room_mj=250000"); err != nil {
		return err
	}
	counters, err := filepath.Glob("/sys/class/powercap/intel-rapl:*/energy_uj")
	if err != nil {
		return err
	}
	for _, c := range counters {
		info, err := os.Stat(c)
		if err != nil {
			return err
		}
		name, err := os.ReadFile(filepath.Join(filepath.Dir(c), "name"))
		if err != nil {
			return err
		}
		id := filepath.Base(filepath.Dir(c))
		f.Zones[id], f.Modes[id] = strings.TrimSpace(string(name)), fmt.Sprintf("%04o", info.Mode().Perm())
	}
	following, stopFollowing := context.WithCancel(context.Background())
	defer stopFollowing()
	followed := make(chan error, 1)
	go func() { followed <- follow(following) }()

	root, err := start("root", "powercap", nil, 0)
	if err != nil {
		return err
	}
	capable, err := start("capability", "powercap", []uintptr{unix.CAP_DAC_READ_SEARCH}, user)
	if err != nil {
		return err
	}
	plain, err := start("plain", "powercap", nil, user)
	if err != nil {
		return err
	}
	byPerf, err := start("perf", "perf", []uintptr{unix.CAP_PERFMON}, user)
	if err != nil {
		return err
	}
	every := []*collector{root, capable, plain}
	all := append([]*collector{byPerf}, every...)
	defer func() { // after a failure, so that they do not write into what is sent
		for _, c := range all {
			_ = c.cmd.Process.Kill()
		}
		stopFollowing()
	}()

	// No power is drawn until the baselines are taken, so that the collectors count all energy.
	steps := []func() error{
		func() error { return root.emits(1) },
		func() error { return capable.emits(1) },
		func() error { return allowPerf(&f, byPerf) },
		func() error { return plain.says("Collection degraded") },
		func() error { f.Powered = time.Now(); return set("powered", "1") },
		func() error { return root.emits(3) },
		func() error { return capable.emits(3) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}

	stopLoads, err := startLoads(&f)
	if err != nil {
		return err
	}
	if err := root.emits(2); err != nil {
		return err
	}
	f.Granted = time.Now()
	for _, c := range counters {
		if err := os.Chmod(c, 0o444); err != nil { //nolint:gosec // that is the grant
			return err
		}
	}
	if err := plain.says("Collection recovered"); err != nil {
		return err
	}
	if err := plain.emits(1); err != nil {
		return err
	}
	begun := time.Now()
	if err := emit(every, 12); err != nil { // enough to compare, however slow the machine
		return err
	}
	if err := until("every counter wrapped", func() bool { return time.Since(begun) > atLeast && allWrapped() }); err != nil {
		return err
	}

	if err := moveCounters(&f, all); err != nil {
		return err
	}

	second := ""
	for id, name := range f.Zones {
		if name == "package-1" {
			second = id
		}
	}
	f.Failing = time.Now()
	if err := set("failing", "2"); err != nil {
		return err
	}
	for _, c := range every {
		if err := c.says("cannot read " + second); err != nil {
			return err
		}
	}
	if err := emit(every, 4); err != nil {
		return err
	}
	f.Recovered = time.Now()
	if err := set("failing", "0"); err != nil {
		return err
	}
	if err := emit(every, 3); err != nil {
		return err
	}

	if err := measureCommands(&f); err != nil {
		return err
	}
	if err := stopLoads(); err != nil {
		return err
	}
	if err := emit(all, 3); err != nil {
		return err
	}
	// From here on the counters stand still, and the last figures contain all energy.
	if err := set("powered", "0"); err != nil {
		return err
	}
	if err := emit(all, 3); err != nil {
		return err
	}
	for _, c := range all {
		f.Exits[c.name] = c.stop()
	}
	stopFollowing()
	if err := <-followed; err != nil {
		return err
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(results+"/facts.json", text, 0o600)
}

// allowPerf lets CAP_PERFMON be enough for perf events. Debian's kernel wants CAP_SYS_ADMIN at its own level 3.
func allowPerf(f *facts, byPerf *collector) error {
	const paranoid = "/proc/sys/kernel/perf_event_paranoid"
	level, err := os.ReadFile(paranoid)
	if err != nil {
		return err
	}
	f.Paranoid = strings.TrimSpace(string(level))
	if err := byPerf.says("Collection degraded"); err != nil {
		return err
	}
	if err := os.WriteFile(paranoid, []byte("2"), 0o600); err != nil {
		return err
	}
	if err := byPerf.says("Collection recovered"); err != nil {
		return err
	}
	return byPerf.emits(1)
}

// measureConfiguration has the module's constant powers, of both packages together.
const measureConfiguration = `
meters: {use: [powercap]}
zones: [package, dram, core]
attribution: {preset: kepler, static_power: {package: {model: fixed, power: 40}, dram: {model: fixed, power: 8}, core: {model: fixed, power: 0}}}
`

// measureCommands measures a command that uses three seconds of CPU time, beside the loads: as root
// with a limit that it exceeds, and as a user that can read the counters by now and cannot create a
// cgroup.
func measureCommands(f *facts) error {
	const config = "/tmp/measure.yaml"
	if err := os.WriteFile(config, []byte(measureConfiguration), 0o644); err != nil { //nolint:gosec // read by another user
		return err
	}
	for name, uid := range map[string]uint32{"root": 0, "user": user} {
		args := []string{"measure", "--config", config, "--json", "-o", filepath.Join(results, "measure-"+name+".json")}
		if uid == 0 {
			args = append(args, "--max-joules", "10")
		}
		cmd := exec.Command("/energy", append(args, "/load", "child", "3")...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		fmt.Println("guest: measures as", name)
		if err := cmd.Run(); cmd.ProcessState == nil {
			return err
		}
		f.Measured[name] = cmd.ProcessState.ExitCode()
	}
	var err error
	f.Left, err = filepath.Glob(hierarchy + "/energy-measure-*")
	return err
}

// moveCounters takes the CPU that counts the second package's events offline for some collections.
func moveCounters(f *facts, collectors []*collector) error {
	const cpu = "/sys/devices/system/cpu/cpu2/online"
	note := func() error {
		mask, err := os.ReadFile("/sys/bus/event_source/devices/power/cpumask")
		f.CPUMasks = append(f.CPUMasks, strings.TrimSpace(string(mask)))
		return err
	}
	for _, step := range []func() error{
		note,
		func() error { f.Moved = time.Now(); return os.WriteFile(cpu, []byte("0"), 0o600) },
		func() error { return emit(collectors, 4) },
		note,
		func() error { f.Back = time.Now(); return os.WriteFile(cpu, []byte("1"), 0o600) },
		func() error { return emit(collectors, 3) },
		note,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func insertModule(path, params string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := unix.FinitModule(int(file.Fd()), params, 0); err != nil {
		return fmt.Errorf("insert %s: %w", path, err)
	}
	return nil
}

func set(parameter, value string) error {
	return os.WriteFile(module+parameter, []byte(value), 0o600)
}

// follow records the true energy ten times a second.
func follow(ctx context.Context) error {
	out, err := os.Create(results + "/truth.txt")
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		line, err := os.ReadFile(truth)
		if err == nil {
			_, err = out.Write(line)
		}
		if err != nil {
			return errors.Join(err, out.Close())
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return out.Close()
}

// allWrapped reports whether every register has wrapped: "0/core=12,1" has once.
func allWrapped() bool {
	line, err := os.ReadFile(truth)
	if err != nil {
		return false
	}
	for _, zone := range strings.Fields(string(line))[1:] {
		if strings.HasSuffix(zone, ",0") {
			return false
		}
	}
	return true
}

// configuration gives every process a series, so that every wrong share shows.
const configuration = `
receivers:
  energy:
    collection_interval: 1s
    initial_delay: 0s
    meters: {use: [METER]}
    zones: [package, dram, core, psys]
    model: none
    attribution: {preset: kepler}
    series: {processes: {group_by: pid, min_energy: 0, max: 0}}
    metrics:
      process.cpu.time: {enabled: true}
      container.cpu.time: {enabled: true}
exporters:
  file:
    path: RESULTS/NAME.json
    flush_interval: 100ms
service:
  telemetry: {metrics: {level: none}, logs: {encoding: json}}
  pipelines:
    metrics: {receivers: [energy], exporters: [file]}
`

func start(name, meter string, capabilities []uintptr, uid uint32) (*collector, error) {
	c := &collector{name: name, ends: make(chan error, 1)}
	config := filepath.Join("/tmp", name+".yaml")
	text := strings.NewReplacer("RESULTS", results, "NAME", name, "METER", meter).Replace(configuration)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil { //nolint:gosec // read by another user
		return nil, err
	}
	log, err := os.Create(filepath.Join(results, name+".log"))
	if err != nil {
		return nil, err
	}
	c.cmd = exec.Command("/otelcol-energy", "--config", config)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: uid, Gid: uid},
		AmbientCaps: capabilities,
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { c.ends <- errors.Join(c.cmd.Wait(), log.Close()) }()
	return c, nil
}

// emissions returns how often the collector has sent figures of the hardware. It reads the new part of the file.
func (c *collector) emissions() int {
	if c.out == nil {
		var err error
		if c.out, err = os.Open(filepath.Join(results, c.name+".json")); err != nil {
			return 0 // not created yet
		}
	}
	more, err := io.ReadAll(c.out)
	if err != nil {
		return c.emitted
	}
	c.rest = append(c.rest, more...)
	for {
		line, rest, whole := bytes.Cut(c.rest, []byte("\n"))
		if !whole {
			return c.emitted
		}
		if bytes.Contains(line, []byte(`"hw.energy"`)) {
			c.emitted++
		}
		c.rest = rest
	}
}

// emits waits for more emissions.
func (c *collector) emits(more int) error { return emit([]*collector{c}, more) }

// emit waits until each collector has emitted n more times.
func emit(collectors []*collector, more int) error {
	want := map[*collector]int{}
	for _, c := range collectors {
		want[c] = c.emissions() + more
	}
	for _, c := range collectors {
		if err := until(fmt.Sprintf("%s emits %d times more", c.name, more), func() bool { return c.emissions() >= want[c] }); err != nil {
			return err
		}
	}
	return nil
}

// says waits for a message in the collector's log.
func (c *collector) says(message string) error {
	return until(fmt.Sprintf("%s logs %q", c.name, message), func() bool {
		log, _ := os.ReadFile(filepath.Join(results, c.name+".log"))
		return bytes.Contains(log, []byte(message))
	})
}

func (c *collector) stop() string {
	if err := c.cmd.Process.Signal(unix.SIGTERM); err != nil {
		return err.Error()
	}
	if err := <-c.ends; err != nil {
		return err.Error()
	}
	return ""
}

func until(what string, holds func() bool) error {
	fmt.Println("guest: until", what)
	for began := time.Now(); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > patience {
			return fmt.Errorf("not within %v: %s", patience, what)
		}
	}
	return nil
}

// startLoads starts the containers. The returned function ends them and reads their CPU time.
func startLoads(f *facts) (stop func() error, err error) {
	var running []*exec.Cmd
	for _, c := range containers {
		dir := hierarchy + c.group
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the kernel makes them so, too
			return nil, err
		}
		group, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		cmd := exec.Command("/load", strings.Fields(c.load)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
		if err := errors.Join(cmd.Start(), group.Close()); err != nil {
			return nil, fmt.Errorf("start %s: %w", c.load, err)
		}
		running = append(running, cmd)
	}
	return func() error {
		for i, cmd := range running {
			if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
				return err
			}
			if err := cmd.Wait(); err != nil {
				return fmt.Errorf("%s: %w", containers[i].load, err)
			}
		}
		for _, c := range containers {
			// A child that the load has just started ends by itself.
			if err := until("nothing runs in "+c.group, func() bool {
				procs, err := os.ReadFile(hierarchy + c.group + "/cgroup.procs")
				return err == nil && len(procs) == 0
			}); err != nil {
				return err
			}
			text, err := os.ReadFile(hierarchy + c.group + "/cpu.stat")
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				if usage, ok := strings.CutPrefix(strings.TrimSpace(line), "usage_usec "); ok {
					if f.Groups[c.group], err = strconv.ParseUint(usage, 10, 64); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}, nil
}

// send archives a directory and writes it to the second serial port.
func send(dir string) error {
	port, err := openRaw("/dev/ttyS1")
	if err != nil {
		return err
	}
	if err := pack(port, dir); err != nil {
		return err
	}
	if err := unix.IoctlSetInt(int(port.Fd()), unix.TCSBRK, 1); err != nil { // wait until all is sent
		return err
	}
	return port.Close()
}

// openRaw opens a serial port that passes bytes as they are.
func openRaw(path string) (*os.File, error) {
	port, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	fd := int(port.Fd())
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return port, unix.IoctlSetTermios(fd, unix.TCSETS, t)
}

func pack(to io.Writer, dir string) error {
	zipped := gzip.NewWriter(to)
	archive := tar.NewWriter(zipped)
	if err := archive.AddFS(os.DirFS(dir)); err != nil {
		return err
	}
	return errors.Join(archive.Close(), zipped.Close())
}
