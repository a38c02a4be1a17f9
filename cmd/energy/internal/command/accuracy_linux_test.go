// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// What the machine of the accuracy tests needs, in watts. The curve is linear.
const idleWatts, fullWatts = 20.0, 120.0

// burner returns the program of testdata/burn.
func burner(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "burn")
	out, err := exec.Command("go", "build", "-o", path, "./testdata/burn").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// joulesOf returns the energy of CPU time on the machine's curve.
func joulesOf(t testing.TB, used time.Duration) float64 {
	t.Helper()
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	require.NoError(t, err)
	cpus := 0
	require.NoError(t, kernfs.ParseList(online, func(int) { cpus++ }))
	return (fullWatts - idleWatts) * used.Seconds() / float64(cpus)
}

// besides starts processes that keep a CPU busy each, until the test ends. They are not of a group that is made later.
func besides(t *testing.T, burn string, n int) {
	t.Helper()
	for range n {
		c := exec.Command(burn, "5m")
		require.NoError(t, c.Start())
		t.Cleanup(func() {
			assert.NoError(t, c.Process.Kill())
			_ = c.Wait() // killed
		})
	}
}

// measured holds the measurement of a command, and the truth.
type measured struct {
	energies
	truth, wall time.Duration
}

// measure runs a program of testdata/burn, and collects every tenth of a second.
func measure(t *testing.T, g *Group, args ...string) (m measured) {
	t.Helper()
	e := embed(t, g, modeled(idleWatts, fullWatts))
	out, in, err := os.Pipe()
	require.NoError(t, err)
	began := time.Now()
	p, err := g.Start(Command{Args: args, Stdout: in, Stderr: os.Stderr})
	require.NoError(t, err)
	require.NoError(t, in.Close())
	printed, done := new(bytes.Buffer), make(chan error)
	go func() {
		_, err := io.Copy(printed, out)
		done <- err
	}()
	for running := true; running; {
		select {
		case err := <-done:
			require.NoError(t, err)
			running = false
		case <-time.After(100 * time.Millisecond):
			collect(t, e)
		}
	}
	status, err := p.Wait()
	require.NoError(t, err)
	require.Equal(t, Status{}, status)
	m.energies, m.wall = collect(t, e), time.Since(began)
	for line := range strings.Lines(printed.String()) {
		ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		require.NoError(t, err)
		m.truth += time.Duration(ns)
	}
	return m
}

// log prints what was measured, and what the energy of the whole node would have shown, as `perf
// stat -a -e power/energy-pkg/` does.
func (m *measured) log(t *testing.T, what string) {
	truth := joulesOf(t, m.truth)
	percent := func(joules float64) string { return fmt.Sprintf("%+.1f %%", 100*(joules/truth-1)) }
	t.Logf("%s: CPU %v, wall %v, %.3f J by the curve; measured %s; the node's above idle %s; all of the node's %s", what,
		m.truth.Round(time.Millisecond), m.wall.Round(time.Millisecond), truth, percent(m.container.Joules()), percent(m.active.Joules()),
		percent((m.active + m.idle).Joules()))
}

func TestEnergyIsThatOfTheCommandsCPUTimeWhateverElseRuns(t *testing.T) {
	burn := burner(t)
	for _, method := range methods {
		for neighbors := range 3 {
			t.Run(fmt.Sprintf("%s/%d", method, neighbors), func(t *testing.T) {
				besides(t, burn, neighbors)
				m := measure(t, open(t, method), burn, "500ms")
				m.log(t, "one process")
				assert.InEpsilon(t, joulesOf(t, m.truth), m.container.Joules(), 0.02)
				assert.Equal(t, m.active, m.container+m.unattributed)
			})
		}
	}
}
