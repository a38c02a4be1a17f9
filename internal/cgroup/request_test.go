// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSharesAreFoundFromWeights(t *testing.T) {
	for shares, weight := range map[uint64]uint64{2: 1, 1024: 39, 512: 20, 102: 4, 262144: 10000} { // by runc's old formula
		assert.InEpsilon(t, float64(shares), float64(sharesOfLinear(weight)), 0.1, shares)
		assert.Equal(t, weight, 1+(sharesOfLinear(weight)-2)*9999/262142, "and back")
	}
	for shares, weight := range map[uint64]uint64{2: 1, 100: 17, 512: 59, 1024: 100, 2000: 170, 2048: 174, 262144: 10000} { // by runc's new formula
		assert.InEpsilon(t, float64(shares), float64(sharesOfQuadratic(weight)), 0.03, shares)
	}
	assert.Equal(t, sharesOfQuadratic(10000), sharesOfQuadratic(1<<40))
	assert.Equal(t, sharesOfLinear(1), sharesOfLinear(0))
}

// With a request of one CPU and a limit of four. An unset weight and a limit look the same in other
// environments.
func TestTheKubeletSetsEachContainersWeight(t *testing.T) {
	for _, container := range []string{
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx.slice/cri-containerd-y.scope",
		"/system.slice/containerd.service/kubepods-burstable-podx.slice:cri-containerd:y",
	} {
		for name, files := range map[string]map[string]string{
			v2: {"cpu.weight": "100\n", "cpu.max": "400000 100000\n"},
			v1: {"cpu.shares": "1024\n", "cpu.cfs_quota_us": "400000\n", "cpu.cfs_period_us": "100000\n"},
		} {
			n := newNode(t)
			n.write(mountV2+mountCPU, "proc/1/mountinfo")
			for file, content := range files {
				n.write(content, name, container, file)
			}
			assert.InEpsilon(t, 1024, n.Request(n.Node(container), time.Unix(1000, 0)), 0.01, name)
		}
	}
}

// A container of Docker in a pod has no request, and a limit.
func TestTheKubeletDoesNotSetTheWeightsOfContainersInItsContainers(t *testing.T) {
	const inner = "/kubepods/burstable/pod11111111-2222-3333-4444-555555555555/x/docker/y"
	n := newNode(t)
	n.write(mountV2, "proc/1/mountinfo")
	n.write("100\n", v2, inner, "cpu.weight")
	n.write("400000 100000\n", v2, inner, "cpu.max")
	assert.EqualValues(t, 4096, n.Request(n.Node(inner), time.Unix(1000, 0)))
}

func TestRequestsAreReadFromCgroupsOfBothVersions(t *testing.T) {
	const mountOtherCPU = "30 24 0:26 / /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"weight":               {map[string]string{"x/cpu.weight": "170\n", "x/cpu.max": "max 100000\n"}, 1993},
		"unset":                {map[string]string{"x/cpu.weight": "100\n", "x/cpu.max": "max 100000\n"}, 1024},
		"unset with a limit":   {map[string]string{"x/cpu.weight": "100\n", "x/cpu.max": "50000 100000\n"}, 512},
		"broken limit":         {map[string]string{"x/cpu.weight": "100\n", "x/cpu.max": "50000 0\n"}, 1024},
		"v1":                   {map[string]string{"cpu,cpuacct/x/cpu.shares": "512\n"}, 512},
		"v1, other mount":      {map[string]string{"cpu/x/cpu.shares": "2\n"}, 2},
		"v1 unset, limited":    {map[string]string{"cpu/x/cpu.shares": "1024\n", "cpu/x/cpu.cfs_quota_us": "200000\n", "cpu/x/cpu.cfs_period_us": "100000\n"}, 2048},
		"v1 unset, no limit":   {map[string]string{"cpu/x/cpu.shares": "1024\n", "cpu/x/cpu.cfs_quota_us": "-1\n", "cpu/x/cpu.cfs_period_us": "100000\n"}, 1024},
		"nothing there at all": {nil, 0},
	} {
		n := newNode(t)
		n.write(mountV2+mountCPU+mountOtherCPU, "proc/1/mountinfo")
		for path, content := range c.files {
			n.write(content, v2, path)
		}
		now := time.Unix(1000, 0)
		assert.Equal(t, c.want, n.Request(n.Node("/x"), now), name)
		assert.Zero(t, n.Request(nil, now), name)
		assert.Zero(t, n.Request(n.Node("/../x"), now), name)
	}
}

func TestARequestIsReadAgainAfterAMinute(t *testing.T) {
	n := newNode(t)
	n.write(mountV2, "proc/1/mountinfo")
	n.write("39\n", v2, "x/cpu.weight")
	now := time.Unix(1000, 0)
	linear := New(Options{Root: n.Root(), LinearWeights: true})
	defer func() { require.NoError(t, linear.Close()) }()
	x := linear.Node("/x")
	assert.InEpsilon(t, 1024, linear.Request(x, now), 0.02, "by the old formula")
	n.write("20\n", v2, "x/cpu.weight")
	assert.InEpsilon(t, 1024, linear.Request(x, now.Add(RereadRequest-1)), 0.02)
	assert.InEpsilon(t, 512, linear.Request(x, now.Add(RereadRequest)), 0.02)
}

func FuzzParseLimit(f *testing.F) {
	for _, content := range []string{"max 100000\n", "50000 100000\n", "1 1", "4294967295 1\n", "4294967296 1\n", "0 5\n", "5 0\n", "-1 5\n", "5\n", "1 2 3\n", ""} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		shares, ok := parseLimit(content)
		if !ok {
			return
		}
		fields := strings.Fields(string(content))
		require.Len(t, fields, 2)
		quota, quotaOK := new(big.Int).SetString(fields[0], 10)
		period, periodOK := new(big.Int).SetString(fields[1], 10)
		require.True(t, quotaOK && periodOK, "%q", content)
		want, _ := new(big.Rat).SetFrac(quota, period).Float64()
		require.InDelta(t, max(OneCPU*want, 1), float64(shares), 1, "%q", content)
	})
}

func FuzzParseNumber(f *testing.F) {
	for _, content := range []string{"100\n", "1024", "0\n", "-1\n", "18446744073709551615\n", "18446744073709551616\n", "70369281052674\n", " 7 \n", "7 8\n", "1e3\n", "0x10\n", "\n", ""} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		n, err := parseNumber(content)
		ok := err == nil
		if charge, err := parseLine(content); err == nil && (!ok || charge != n || content[len(content)-1] != '\n') {
			t.Fatalf("%q is a charge of %d", content, charge)
		}
		digits := bytes.TrimLeft(bytes.TrimSpace(content), "0")
		if ok && n > 0 && fmt.Sprint(n) != string(digits) || ok && n == 0 && len(digits) > 0 {
			t.Fatalf("%q is %d", content, n)
		}
		for _, sharesOf := range []func(uint64) uint64{sharesOfLinear, sharesOfQuadratic} {
			shares, least := sharesOf(n), sharesOf(n/2)
			require.True(t, least >= 2 && shares >= least && shares <= 262144, "a weight of %d is %d shares, of its half %d", n, shares, least)
		}
	})
}
