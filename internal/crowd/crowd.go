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
	"syscall"
)

//go:embed testdata/crowd.c
var source []byte

// ErrNoCompiler says that there is no C compiler to build the crowd's program with.
var ErrNoCompiler = errors.New("no C compiler (gcc or cc) was found")

// Start compiles the program into dir and starts n processes, of which active run for some 50 µs ten times
// a second and the others sleep. It returns when all run; stop ends them and waits until they are gone.
func Start(dir string, n, active int) (stop func() error, err error) {
	compiler, err := findCompiler()
	if err != nil {
		return nil, err
	}
	code, program := filepath.Join(dir, "crowd.c"), filepath.Join(dir, "crowd")
	if err := os.WriteFile(code, source, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command(compiler, "-O1", "-static", "-o", program, code).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the crowd: %w: %s", err, out)
	}
	cmd := exec.Command(program, strconv.Itoa(n), strconv.Itoa(active))
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
		// The program ends its children, waits for them and ends when its input does.
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
