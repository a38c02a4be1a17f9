// SPDX-License-Identifier: Apache-2.0

//go:build linux

package crowd

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

//go:embed testdata/crowd.c
var source []byte

// ErrNoCompiler is returned if no C compiler is installed.
var ErrNoCompiler = errors.New("no C compiler (gcc or cc) was found")

// Start compiles the program into dir and starts n processes. Of these, active run for about 50 µs
// ten times a second, and the others sleep. Start returns when all run. stop ends them and waits
// for their exit.
func Start(dir string, n, active int) (stop func() error, err error) {
	return launch(filepath.Join(dir, "crowd"), source, strconv.Itoa(n), strconv.Itoa(active))
}

// program is a running program. When its input is closed, it ends its children, waits for them and
// exits.
type program struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func (p *program) pid() int { return p.cmd.Process.Pid }

func (p *program) stop() error { return errors.Join(p.stdin.Close(), p.cmd.Wait()) }

// start compiles a program and starts it. It returns when the program is ready.
func start(path string, code []byte, args ...string) (*program, error) {
	if err := Compile(path, code); err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
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
	p := &program{cmd, stdin}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		return nil, errors.Join(fmt.Errorf("%s printed %q: %w", path, line, err), p.stop())
	}
	return p, nil
}

// launch calls start for callers that need only stop.
func launch(path string, code []byte, args ...string) (stop func() error, err error) {
	p, err := start(path, code, args...)
	if err != nil {
		return nil, err
	}
	return p.stop, nil
}

// Compile compiles a C program to path. It returns ErrNoCompiler if no C compiler is installed.
func Compile(path string, code []byte) error {
	compiler, err := findCompiler()
	if err != nil {
		return err
	}
	file := path + ".c"
	if err := os.WriteFile(file, code, 0o600); err != nil {
		return err
	}
	if out, err := exec.Command(compiler, "-O1", "-static", "-o", path, file).CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w: %s", file, err, out)
	}
	return nil
}

func findCompiler() (string, error) {
	for _, name := range []string{"gcc", "cc"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoCompiler
}
