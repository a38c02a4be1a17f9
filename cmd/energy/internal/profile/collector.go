// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/pdata/pprofile"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/note"
)

// CollectorName is the name of the collector with the eBPF profiler, next to this program or in PATH.
const CollectorName = "otelcol-energy-profiles"

var errNoCollector = errors.New("--profile requires the collector with the eBPF profiler: " +
	"copy it from the image " + CollectorName + " to this name in PATH or next to energy, " +
	"or name it with --profiler (" + note.Pages + "code.md)")

// findCollector returns the path of the collector: next to this program, in the build directory of
// a checkout, or in PATH.
func findCollector() (string, error) {
	own, _ := os.Executable()
	dir := filepath.Dir(own)
	for _, name := range []string{filepath.Join(dir, CollectorName), filepath.Join(dir, "profiles", "otelcol-energy"), CollectorName} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNoCollector
}

const (
	// samplesPerSecond is no multiple of common timer frequencies.
	samplesPerSecond = 97
	// reportInterval is the time between two batches. The profiler sends no batch without samples.
	reportInterval = time.Second
	// endsWithin is how long the collector may take to end.
	endsWithin = 5 * time.Second
)

// configuration returns the configuration of the collector, which writes batches to its file
// descriptor 3.
func configuration() string {
	return fmt.Sprintf(`yaml:
receivers: {profiling: {samples_per_second: %d, reporter_interval: %v, reporter_jitter: 0, clock_sync_interval: 10s,
  pid_namespace_translation: %t}}
exporters: {file: {path: /dev/fd/3, format: proto, flush_interval: 100ms}}
service: {telemetry: {metrics: {level: none}, logs: {encoding: json}},
  pipelines: {profiles: {receivers: [profiling], exporters: [file]}}}`, samplesPerSecond, reportInterval, inPIDNamespace())
}

// collector is the running collector.
type collector struct {
	batches *os.File
	end     context.CancelFunc
	ended   chan struct{} // closed when the collector has ended
	failure string        // output that is no log message; read it after ended
}

// startCollector starts a collector. It ends if this program is killed.
func startCollector(path string) (*collector, error) {
	batches, batchesIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = batchesIn.Close() }()
	ctx, end := context.WithCancel(context.Background())
	c := &collector{batches: batches, end: end, ended: make(chan struct{})}
	process := exec.CommandContext(ctx, path, "--feature-gates=service.profilesSupport", "--config="+configuration()) //nolint:gosec // the user names it
	process.Cancel, process.WaitDelay = func() error { return process.Process.Signal(syscall.SIGTERM) }, endsWithin
	process.ExtraFiles, process.SysProcAttr = []*os.File{batchesIn}, &syscall.SysProcAttr{
		Setpgid:   true, // Ctrl-C does not end it: its last samples are needed
		Pdeathsig: syscall.SIGTERM,
	}
	started := make(chan error)
	go c.run(process, started)
	if err := <-started; err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// maxFailure is the length in bytes beyond which further lines are left out: a crash prints stacks.
const maxFailure = 500

// run runs the collector, and reads its log until it ends.
func (c *collector) run(process *exec.Cmd, started chan<- error) {
	defer close(c.ended)
	runtime.LockOSThread() // the child is signaled when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG)
	messages, err := process.StderrPipe()
	if err == nil {
		err = process.Start()
	}
	if started <- err; err != nil {
		return
	}
	c.watch(messages)
	_ = process.Wait() // its exit status does not matter
}

// watch reads the log until its end.
func (c *collector) watch(messages io.Reader) {
	for lines := bufio.NewReader(messages); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 && !json.Valid(line) && len(c.failure) < maxFailure { // the error that ends it is no entry of the log
			c.failure = strings.Join(strings.Fields(c.failure+" "+string(line)), " ")
		}
		if err != nil {
			return
		}
	}
}

// why returns why the collector has ended.
func (c *collector) why() string {
	text := strings.TrimPrefix(strings.TrimPrefix(c.failure, "Error: "), "cannot start pipelines: ")
	return cmp.Or(text, "it exited without an error message")
}

// close ends the collector.
func (c *collector) close() {
	c.end()
	<-c.ended
	_ = c.batches.Close()
}

// maxBatch is the maximum size of a batch in bytes. Batches of 256 busy CPUs have about 15 MB.
const maxBatch = 64 << 20

// readBatch reads a batch of profiles as the file exporter writes it: the length in four bytes, and
// protobuf. It returns io.EOF after the last one.
func readBatch(r io.Reader) (none pprofile.Profiles, err error) {
	var length uint32
	if err := binary.Read(r, binary.BigEndian, &length); err != nil {
		return none, err
	}
	if length > maxBatch {
		return none, fmt.Errorf("a batch of %d bytes is too long", length)
	}
	b := make([]byte, length)
	if _, err := io.ReadFull(r, b); err != nil {
		return none, io.ErrUnexpectedEOF
	}
	return (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(b)
}

// inPIDNamespace reports whether PIDs differ from the PIDs of the host (PROC_PID_INIT_INO in
// linux/proc_ns.h).
func inPIDNamespace() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link != "pid:[4026531836]"
}

// missing returns a sentence with the unmet requirements of the profiler, empty if all are met.
func missing() string {
	var names []string
	var have [2]unix.CapUserData
	if unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &have[0]) == nil {
		for _, c := range []struct {
			name string
			bit  uint32
		}{{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN}, {"CAP_SYS_RESOURCE", unix.CAP_SYS_RESOURCE}} {
			if have[0].Effective&(1<<c.bit) == 0 {
				names = append(names, c.name)
			}
		}
	}
	if _, err := os.Stat("/sys/kernel/tracing/events"); os.IsNotExist(err) {
		names = append(names, "tracefs at /sys/kernel/tracing")
	}
	if len(names) == 0 {
		return ""
	}
	return ". Missing here: " + strings.Join(names, ", ")
}
