// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"math"
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
	for _, sharesOf := range []func(uint64) uint64{sharesOfLinear, sharesOfQuadratic} {
		last := uint64(2)
		for _, weight := range []uint64{0, 1, 2, 99, 100, 101, 9999, 10000, 10001, 1 << 40, 70369281052674, 70369281052675, math.MaxUint64} {
			shares := sharesOf(weight)
			require.True(t, shares >= last && shares <= 262144, "a weight of %d is %d shares", weight, shares)
			last = shares
		}
	}
}

func TestRequestsAreReadFromCgroupsOfBothVersions(t *testing.T) {
	const (
		mountOtherCPU = "30 24 0:26 / /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu\n"
		both, other   = mountV2 + mountCPU, mountV2 + mountOtherCPU
		// The kubelet sets each weight, so one CPU is a request, also with a limit of four.
		pod    = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx.slice/cri-containerd-y.scope"
		inName = "/system.slice/containerd.service/kubepods-burstable-podx.slice:cri-containerd:y"
		docker = "/kubepods/burstable/pod11111111-2222-3333-4444-555555555555/x/docker/y" // in a container
	)
	type files map[string]string
	v2Limited := files{"cpu.weight": "100\n", "cpu.max": "400000 100000\n"}
	v1Limited := files{"cpu.shares": "1024\n", "cpu.cfs_quota_us": "400000\n", "cpu.cfs_period_us": "100000\n"}
	for _, c := range []struct {
		name, mounts, in, cgroup string
		files                    files
		want                     uint64
	}{
		{"weight", both, v2, "/x", files{"cpu.weight": "170\n", "cpu.max": "max 100000\n"}, 1993},
		{"unset", both, v2, "/x", files{"cpu.weight": "100\n", "cpu.max": "max 100000\n"}, 1024},
		{"unset with a limit", both, v2, "/x", v2Limited, 4096},
		{"broken limit", both, v2, "/x", files{"cpu.weight": "100\n", "cpu.max": "50000 0\n"}, 1024},
		{"v1", both, v1, "/x", files{"cpu.shares": "512\n"}, 512},
		{"v1, other mount", other, "sys/fs/cgroup/cpu", "/x", files{"cpu.shares": "2\n"}, 2},
		{"v1 unset, limited", both, v1, "/x", v1Limited, 4096},
		{"v1 unset, no limit", both, v1, "/x", files{"cpu.shares": "1024\n", "cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, 1024},
		{"v2 in a pod", both, v2, pod, v2Limited, 1017},
		{"v1 in a pod", both, v1, pod, v1Limited, 1024},
		{"v2 in a pod in one name", both, v2, inName, v2Limited, 1017},
		{"v1 in a pod in one name", both, v1, inName, v1Limited, 1024},
		{"container of a container in a pod", both, v2, docker, v2Limited, 4096},
		{"nothing there at all", both, v2, "/x", nil, 0},
		{"outside of the namespace", both, v2, "/../x", v2Limited, 0},
		{"no cgroup", both, v2, "", nil, 0},
	} {
		n := newNode(t)
		n.write(c.mounts, "proc/1/mountinfo")
		for file, content := range c.files {
			n.write(content, c.in, c.cgroup, file)
		}
		assert.Equal(t, c.want, n.Request(n.Node(c.cgroup), time.Unix(1000, 0)), c.name)
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
	for _, content := range []string{"max 100000\n", "50000 100000\n", "1 1", "4294967295 1\n", "4294967296 1\n", "18446744073709551615 1\n", "0 5\n", "5 0\n", "-1 5\n", "5\n", "1 2 3\n", ""} {
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
