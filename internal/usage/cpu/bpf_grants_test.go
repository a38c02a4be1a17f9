// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cpu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openAsChild is an environment variable. If it is set, the test binary prints which source it can
// open as another user.
const openAsChild = "ENERGY_TEST_OPEN"

func TestMain(m *testing.M) {
	if os.Getenv(openAsChild) == "" {
		code := m.Run()
		_ = os.RemoveAll(burnerDir)
		os.Exit(code)
	}
	source, rejected, err := Open(Options{Kind: Auto, Root: "/"})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(source.Traits().Name, rejected)
	_ = source.Close()
}

// openAsNobody returns the result of Open for a user with only these capabilities, and the source's
// name for this process.
func openAsNobody(t *testing.T, capabilities ...uintptr) (said, here string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	here = openHere(t).Traits().Name
	dir, err := os.MkdirTemp("", "grants") // t.TempDir is accessible to its user only
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	program := filepath.Join(dir, "open")
	require.NoError(t, os.WriteFile(program, self, 0o755)) // #nosec G306: another user runs it
	require.NoError(t, os.Chmod(program, 0o755))
	cmd := exec.Command(program)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), openAsChild+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: 65534, Gid: 65534},
		AmbientCaps: capabilities,
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skip("may not start a program as another user, or lacks a capability to give it:", err)
	}
	require.NoError(t, err, string(out))
	return string(out), here
}

func TestBPFNeedsTwoCapabilitiesAndNoMore(t *testing.T) {
	said, here := openAsNobody(t, unix.CAP_BPF, unix.CAP_PERFMON)
	assert.Contains(t, said, here+" <nil>")
}

func TestWithoutCapabilitiesProcfsIsTakenAndTheReasonGiven(t *testing.T) {
	said, _ := openAsNobody(t)
	assert.Contains(t, said, otherThanBPF()+" ")
	assert.Contains(t, said, "operation not permitted: requires CAP_BPF and CAP_PERFMON")
}
