// SPDX-License-Identifier: Apache-2.0

//go:build linux

package crowd

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

//go:embed testdata/crowd.c
var source []byte

// ErrNoCompiler is returned if there is no C compiler to build the crowd's program.
var ErrNoCompiler = errors.New("no C compiler (gcc or cc) was found")

// Start compiles the program into dir and starts n processes. active of them run for about 50 µs ten times a second,
// and the others sleep. Start returns when all run. stop ends them and waits until they are gone.
func Start(dir string, n, active int) (stop func() error, err error) {
	return start(filepath.Join(dir, "crowd"), strconv.Itoa(n), strconv.Itoa(active))
}

// Disguise is the appearance of processes.
type Disguise struct {
	Program string // name of the executable
	// Fill is the content of a command line of 900 kB: "nul" for NUL bytes, "short" for arguments of one letter, "long"
	// for long arguments, which follow Arguments. If it is set, each process renames itself whenever it runs; if it is
	// "short", it changes its command line too.
	Fill      string
	Arguments []string
}

// StartDisguised starts n active processes like Start.
func StartDisguised(dir string, n int, d Disguise) (stop func() error, err error) {
	const longest, arguments = 128<<10 - 1, 7 // MAX_ARG_STRLEN with its NUL, and about 900 kB
	args := []string{strconv.Itoa(n), strconv.Itoa(n)}
	if d.Fill != "" {
		args = append(append(args, d.Fill), d.Arguments...)
		for range arguments {
			args = append(args, strings.Repeat("x", longest))
		}
	}
	return start(filepath.Join(dir, d.Program), args...)
}

func start(program string, args ...string) (stop func() error, err error) {
	compiler, err := findCompiler()
	if err != nil {
		return nil, err
	}
	code := program + ".c"
	if err := os.WriteFile(code, source, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command(compiler, "-O1", "-static", "-o", program, code).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the crowd: %w: %s", err, out)
	}
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		// The program ends its children, waits for them and exits when its input is closed.
		return errors.Join(stdin.Close(), cmd.Wait())
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		return nil, errors.Join(fmt.Errorf("the crowd said %q: %w", line, err), stop())
	}
	return stop, nil
}

func findCompiler() (string, error) {
	for _, name := range []string{"gcc", "cc"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoCompiler
}
