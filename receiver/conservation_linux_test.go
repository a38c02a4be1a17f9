// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package energyreceiver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// unifiedMount returns the mount point of this machine's v2 hierarchy.
func unifiedMount(t *testing.T) string {
	t.Helper()
	mounts, err := procfs.GetMounts()
	require.NoError(t, err)
	for _, m := range mounts {
		if m.FSType == "cgroup2" && m.Root == "/" {
			return m.MountPoint
		}
	}
	t.Skip("needs the root of a v2 hierarchy")
	return ""
}

func TestAContainerOfThisMachineThatLivedBetweenTwoScansHasItsEnergy(t *testing.T) {
	id := fmt.Sprintf("%064x", os.Getpid())
	dir := filepath.Join(unifiedMount(t), "docker-"+id+".scope")
	cfg := simpleConfig()
	cfg.Meters.Use, cfg.CPUTime = only(), cpu.KindBPF
	cfg.Model = configoptional.Some(linear(40, 120))
	s, err := newEnergyScraper(cfg, receivertest.NewNopSettings(metadata.Type))
	require.NoError(t, err)
	if err := s.start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Skipf("no BPF here: %v", err)
	}
	defer func() { require.NoError(t, s.shutdown(t.Context())) }()
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		t.Skip("cannot make a cgroup:", err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })

	n := &testNode{t: t}
	// A kernel may miss calls of a tracepoint just after another program has left it (seen with Linux 6.18).
	for range 20 {
		live(t, dir)
		require.NoError(t, os.Remove(dir))
		for range 100 { // the kernel reports an end an RCU grace period later
			time.Sleep(20 * time.Millisecond)
			n.md, err = s.scrape(t.Context())
			require.NoError(t, err)
			if p := n.points("container.energy", nil, "container.id="+id, "energy.zone=package"); len(p) == 1 && p[0].value > 0 {
				return
			}
		}
		require.NoError(t, os.Mkdir(dir, 0o755))
	}
	t.Error("its energy was never found")
}

// live runs a process in a cgroup for some milliseconds.
func live(t *testing.T, cgroup string) {
	t.Helper()
	dir, err := os.Open(cgroup)
	require.NoError(t, err)
	defer func() { require.NoError(t, dir.Close()) }()
	burn := exec.Command("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
	burn.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	require.NoError(t, burn.Run())
}
