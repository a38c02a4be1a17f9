// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// LoadCommand is the hidden command of this program that is a load:
//
//	energy verify-load LOAD CPU BYTES
const LoadCommand = "verify-load"

// RunLoad runs a load until standard input is closed, so that it ends with the process that started
// it. It returns only if the arguments are wrong.
func RunLoad(args []string) error {
	if len(args) != 3 {
		return errors.New("the arguments must be LOAD CPU BYTES")
	}
	cpu, err := strconv.Atoi(args[1])
	bytes, sizeErr := strconv.Atoi(args[2])
	if err = errors.Join(err, sizeErr); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("run on CPU %d: %w", cpu, err)
	}
	if Load(args[0]) == Memory {
		stream(make([]uint64, bytes/8))
	}
	spin()
	return nil
}

// spin computes in registers forever.
func spin() {
	a, b, c, d := uint64(1), uint64(2), uint64(3), 1.5
	for {
		for range 1 << 20 {
			a, b, c = a*6364136223846793005+1, b^a>>7, c+b
			d = d*0.999 + 0.001
		}
		runtime.KeepAlive(a + b + c + uint64(d))
	}
}

// cacheLine is the number of words of a cache line.
const cacheLine = 8

// stream changes one word of each cache line forever.
func stream(words []uint64) {
	for {
		for i := 0; i < len(words); i += cacheLine {
			words[i]++
		}
	}
}

// processes is the Loader of this machine.
type processes struct {
	commands []*exec.Cmd
	inputs   []io.Closer // each process ends once its own is closed
}

// NewLoader returns a Loader that starts this program again with LoadCommand.
func NewLoader() Loader { return &processes{} }

// CPUs implements Loader.
func (*processes) CPUs() (cpus []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// Start implements Loader.
func (p *processes) Start(load Load, cpus []int) (pids []int, err error) {
	// The memory is more than a program's share of the largest caches, and a quarter of the
	// machine's at most.
	size := min(max(1<<30/len(cpus), 16<<20), 128<<20)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		size = min(size, int(uint64(info.Totalram)*uint64(info.Unit)/4)/len(cpus)) //nolint:unconvert // types differ by architecture
	}
	for _, cpu := range cpus {
		cmd := exec.Command("/proc/self/exe", LoadCommand, string(load), strconv.Itoa(cpu), strconv.Itoa(size))
		cmd.Stderr = os.Stderr
		cmd.Env = append(os.Environ(), "GOMAXPROCS=2", "GOGC=off")
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // Ctrl-C is for this process, which ends them
		input, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			_, ended := p.End()
			return nil, errors.Join(err, ended)
		}
		p.commands, p.inputs = append(p.commands, cmd), append(p.inputs, input)
		pids = append(pids, cmd.Process.Pid)
	}
	return pids, nil
}

// pauses is the time until all threads of a process have stopped.
const pauses = 20 * time.Millisecond

// Pause implements Loader.
func (p *processes) Pause() {
	for _, cmd := range p.commands {
		_ = cmd.Process.Signal(unix.SIGSTOP) // End reports a program that has ended
	}
	time.Sleep(pauses)
}

// End implements Loader.
func (p *processes) End() (times []time.Duration, err error) {
	for _, cmd := range p.commands {
		_ = cmd.Process.Kill()
	}
	for i, cmd := range p.commands {
		_ = cmd.Wait() // it was killed
		_ = p.inputs[i].Close()
		if code := cmd.ProcessState.ExitCode(); code > 0 {
			err = fmt.Errorf("a program of the load exited with status %d", code)
		}
		times = append(times, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	*p = processes{}
	return times, err
}
