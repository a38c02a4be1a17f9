// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cilium/ebpf"
)

func TestTicksFollowANameWithBlanksAndParentheses(t *testing.T) {
	line := "42 (a) b (c) R 1 42 42 0 -1 4194560 101 102 103 104 1234 567 9 8 20 0 1 0 100 200 300"
	got, err := parseTicks([]byte(line))
	require.NoError(t, err)
	assert.Equal(t, ticks{user: 1234, system: 567}, got)
	_, err = parseTicks([]byte("42 (short) R 1 2"))
	assert.Error(t, err)
	_, err = parseTicks([]byte("42 (a) R 1 42 42 0 -1 4194560 101 102 103 104 x 567"))
	assert.Error(t, err)
}

func TestTheRollupHasAnonymousAndFileMemory(t *testing.T) {
	got, err := parseRollup("00400000-7ffd rollup [rollup]\nRss:   300 kB\nPss:  250 kB\nAnonymous:    100 kB\nAnonHugePages: 2048 kB\n")
	require.NoError(t, err)
	assert.Equal(t, memory{resident: 300 << 10, anonymous: 100 << 10}, got)
	assert.InDelta(t, 200<<10, got.file(), 0)
	for _, text := range []string{"", "Rss: 300 MB\n", "Rss: x kB\n", "Anonymous: 5 kB\n"} {
		_, err := parseRollup(text)
		assert.Error(t, err, text)
	}
}

func TestHooksAreLinksCalledByOtherProcesses(t *testing.T) {
	h := heldBPF{programs: map[ebpf.ProgramID]bool{}}
	for _, text := range []string{
		"pos:\t0\nprog_type:\t26\nmemlock:\t4096\nprog_id:\t7\n",
		"map_type:\t1\nmemlock:\t8192\nmap_id:\t3\n",
		"link_type:\ttracing\nlink_id:\t1\nprog_id:\t7\nattach_type:\t23\n",
		"link_type:\titer\nlink_id:\t2\nprog_id:\t8\n",
	} {
		require.NoError(t, h.add(parseFdinfo(text)))
	}
	assert.Equal(t, heldBPF{programs: map[ebpf.ProgramID]bool{7: true, 8: false}, memory: 12288}, h)
	assert.Error(t, h.add(map[string]string{"link_type": "tracing", "prog_id": "x"}))
	assert.Error(t, h.add(map[string]string{"memlock": "x"}))
}

func TestTheCostOfHooksToOthersIsTheirTimeLessTheMeasurementPlusTheCall(t *testing.T) {
	p := price{call: 80, stats: 40}
	programs := []program{{hook: true, calls: 10, run: 1400}, {hook: true, calls: 100, run: 3900}, {calls: 1000, run: 1 << 20}}
	assert.Equal(t, time.Duration(1400-400+800+0+8000), p.outside(programs), "no hook takes less than no time")
}

func TestCPUTimeIsOfTheNamedProcess(t *testing.T) {
	own, err := cpuTime(os.Getpid())
	require.NoError(t, err)
	assert.Positive(t, own)
	idle := exec.Command("sleep", "60")
	require.NoError(t, idle.Start())
	defer func() { _ = idle.Process.Kill(); _ = idle.Wait() }()
	_, err = cpuTime(idle.Process.Pid)
	require.NoError(t, err)
	_, err = cpuTime(1 << 22)
	assert.Error(t, err, "no such process")
}

func TestAProcessThatExitsEarlyIsAnErrorWithItsOutput(t *testing.T) {
	p, _, err := startProcess([]string{"sh", "-c", "echo broken; exit 3"}, "")
	require.NoError(t, err)
	assert.ErrorContains(t, p.wait(time.Minute), "broken")
}

func TestTheFirstLineWithATextIsFound(t *testing.T) {
	p, found, err := startProcess([]string{"sh", "-c", "echo one; echo two; exec sleep 60"}, "two")
	require.NoError(t, err)
	<-found
	require.NoError(t, p.stop())
}
