// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

// Package nvmltest builds a libnvidia-ml.so.1 whose GPUs are described by a script, so that tests
// can load a real library on machines without a GPU. The statements of scripts are documented at
// the top of libnvidia-ml/libnvidia-ml.c.
package nvmltest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed libnvidia-ml/libnvidia-ml.c
var source []byte

// Library is a libnvidia-ml.so.1 with its own script. Libraries are independent of each other.
type Library struct {
	Path string
}

// New builds a library with an empty script. The library lacks the functions in without, as the
// library of an older driver does. New skips the test if no C compiler is installed.
func New(t testing.TB, without ...string) *Library {
	t.Helper()
	l := &Library{Path: filepath.Join(t.TempDir(), "libnvidia-ml.so.1")}
	require.NoError(t, os.WriteFile(l.Path, compile(t, without), 0o600))
	l.Script(t, "")
	return l
}

// compiled holds the built libraries by the list of their missing functions.
var compiled sync.Map

func compile(t testing.TB, without []string) []byte {
	t.Helper()
	key := strings.Join(without, " ")
	if library, ok := compiled.Load(key); ok {
		return library.([]byte)
	}
	compiler := compiler(t)
	dir := t.TempDir()
	input, output := filepath.Join(dir, "libnvidia-ml.c"), filepath.Join(dir, "libnvidia-ml.so")
	require.NoError(t, os.WriteFile(input, source, 0o600))
	args := []string{"-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", output, input}
	for _, function := range without {
		args = append(args, "-D"+function+"=without_"+function)
	}
	text, err := exec.Command(compiler, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", compiler, args, text)
	library, err := os.ReadFile(output)
	require.NoError(t, err)
	compiled.Store(key, library)
	return library
}

// compiler returns the C compiler that Go uses.
func compiler(t testing.TB) string {
	t.Helper()
	name, err := exec.Command("go", "env", "CC").Output()
	require.NoError(t, err)
	path, err := exec.LookPath(strings.TrimSpace(string(name)))
	if err != nil {
		t.Skipf("The scripted NVIDIA library needs a C compiler: %v", err)
	}
	return path
}

// Script replaces the script. It applies to calls that begin afterwards.
func (l *Library) Script(t testing.TB, script string) {
	t.Helper()
	next := l.Path + ".next"
	require.NoError(t, os.WriteFile(next, []byte(script), 0o600))
	require.NoError(t, os.Rename(next, l.Path+".script"))
}

// Calls returns the function name and the device handle of each call since the last Calls. Calls
// are recorded while the script contains the statement trace.
func (l *Library) Calls(t testing.TB) []string {
	t.Helper()
	path := l.Path + ".calls"
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
