// SPDX-License-Identifier: Apache-2.0

// Command mutants reports which small changes of a package its tests do not notice.
//
// It draws mutants: a negated condition, another operator or constant, a missing statement, an
// early return. It runs the package's tests on each mutant, and prints whether they failed. Source
// and seed determine the draw, so that a run before a change of the tests and a run after it
// compare line by line:
//
//	go run ./receiver/test/mutants -n 20 internal/attribution internal/window internal/usage/cpu
//
// With -set it runs chosen faults, such as the sets in dev/mutants, and writes a page with the number of tests that
// notice each fault:
//
//	go run ./receiver/test/mutants -set dev/mutants/command.yaml >dev/mutants/command.md
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

func main() {
	count := flag.Int("n", 20, "mutants of each package")
	seed := flag.Uint64("seed", 33, "seed of the draw")
	timeout := flag.Duration("timeout", 10*time.Minute, "longest run of a package's tests; a mutant that takes longer is killed")
	chosen := flag.String("set", "", "file with a set of chosen faults")
	workers := flag.Int("p", runtime.NumCPU(), "packages of a set whose tests run at the same time")
	flag.Parse()
	if *chosen != "" {
		if err := runSet(os.Stdout, os.Stderr, *chosen, *timeout, max(*workers, 1)); err != nil {
			fmt.Fprintln(os.Stderr, "mutants:", err)
			os.Exit(1)
		}
	}
	for _, dir := range flag.Args() {
		if err := run(os.Stdout, dir, *count, *seed, *timeout); err != nil {
			fmt.Fprintln(os.Stderr, "mutants:", err)
			os.Exit(1)
		}
	}
}

// run prints the fate of count mutants of the package in dir. It skips mutants that do not compile.
func run(out io.Writer, dir string, count int, seed uint64, timeout time.Duration) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	candidates, err := drawn(dir, seed)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	killed, tested := 0, 0
	for _, m := range candidates {
		if tested == count {
			break
		}
		overlay, err := overlayOf(m, work)
		if err != nil {
			return err
		}
		if goTool(dir, "build", "-overlay", overlay, ".") != nil {
			continue
		}
		tested++
		fate := "survived"
		if goTool(dir, "test", "-count=1", "-failfast", "-vet=off", "-timeout", timeout.String(), "-overlay", overlay, ".") != nil {
			fate = "killed  "
			killed++
		}
		fmt.Fprintf(out, "%s %s/%v\n", fate, filepath.Base(dir), m)
	}
	fmt.Fprintf(out, "%s: %d of %d killed\n", filepath.Base(dir), killed, tested)
	return nil
}

// overlayOf writes the mutant and the overlay that puts it in the place of the file, and returns the overlay's path.
func overlayOf(m mutant, work string) (string, error) {
	text, err := m.apply()
	if err != nil {
		return "", err
	}
	changed := filepath.Join(work, filepath.Base(m.at.Filename))
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {m.at.Filename: changed}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(work, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}

func goTool(dir string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	return cmd.Run()
}
