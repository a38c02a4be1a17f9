// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"math"
	"path"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// OneCPU is the CPU shares of one CPU, as container runtimes have it.
const OneCPU = 1024

// RereadRequest is how long a request is good: it may be resized.
const RereadRequest = time.Minute

// unsetWeight is the cpu.weight of a cgroup that was never set (cgroup-v2.rst).
const unsetWeight = 100

// request is how much CPU time a cgroup requests.
type request struct {
	shares uint64
	read   time.Time
}

// Request returns how much CPU time the cgroup requests, in shares of which OneCPU are one CPU, 0
// if no hierarchy has it or n is nil. It is read from the weight that the container runtime gave
// the cgroup, at most once a minute.
func (t *Tree) Request(n *Node, now time.Time) (shares uint64) {
	if n == nil {
		return 0
	}
	if r := &n.request; r.read.IsZero() || now.Sub(r.read) >= RereadRequest {
		r.shares, r.read = t.readRequest(n), now
	}
	return n.request.shares
}

// readRequest reads a cgroup's request. Without a request the limit counts, without either one CPU.
// cpu.weight 100 may mean "not set"; the kubelet always sets it, so there it means one CPU.
func (t *Tree) readRequest(n *Node) (shares uint64) {
	all, _ := t.mounts.hierarchies()
	if n.dir == "" {
		return 0
	}
	for i := range all {
		if h := &all[i]; h.v2 || h.has(controllerCPU) {
			if shares, ok := t.readRequestIn(h, n); ok {
				return shares
			}
		}
	}
	return 0
}

func (t *Tree) readRequestIn(h *hierarchy, n *Node) (shares uint64, ok bool) {
	weight, unset, limit := "cpu.weight", uint64(unsetWeight), []string{"cpu.max"}
	if !h.v2 {
		weight, unset, limit = "cpu.shares", OneCPU, []string{"cpu.cfs_quota_us", "cpu.cfs_period_us"}
	}
	number, ok := t.readNumber(h, n, weight)
	switch {
	case !ok:
		return 0, false
	case number == unset && !isKubelets(n.path):
		return t.readLimit(h, n, limit), true
	case !h.v2:
		return number, true
	case t.options.LinearWeights:
		return sharesOfLinear(number), true
	}
	return sharesOfQuadratic(number), true
}

// readLimit returns a cgroup's limit in shares, OneCPU without a limit. The files hold the quota
// and the period.
func (t *Tree) readLimit(h *hierarchy, n *Node, files []string) uint64 {
	var both []byte
	for _, name := range files {
		text, err := t.lookups.read(h, n.dir, name)
		if err != nil {
			return OneCPU
		}
		both = append(both, text...)
	}
	if shares, ok := parseLimit(both); ok {
		return shares
	}
	return OneCPU
}

// isKubelets reports whether the kubelet made a container's cgroup and so set its weight.
func isKubelets(cgroup string) bool {
	return strings.Contains(path.Base(cgroup), "kubepods") || // in one name, runc's of a path for systemd
		strings.Contains(cgroup, "kubepods") && strings.Contains(path.Base(path.Dir(cgroup)), "pod")
}

func (t *Tree) readNumber(h *hierarchy, n *Node, name string) (number uint64, ok bool) {
	text, err := t.lookups.read(h, n.dir, name)
	if err == nil {
		number, err = parseNumber(text)
	}
	return number, err == nil
}

// sharesOfLinear undoes weight = 1 + (shares-2)*9999/262142, as runc before 1.3.2 and crun before
// 1.23 have it. Of the 26 shares with the same weight it returns those in the middle, and for the
// lowest weight the lowest shares.
func sharesOfLinear(weight uint64) uint64 {
	if weight <= 1 {
		return 2
	}
	weight = min(weight, 10000)
	return min(2+((weight-1)*262142+262142/2)/9999, 262144)
}

// sharesOfQuadratic undoes weight = ceil(10^(l²/612 + 125*l/612 - 7/34)) with l = log2(shares), as
// runc 1.3.2 and crun 1.23 have it: 2, 1024 and 262144 shares are weights of 1, 100 and 10000. Many
// shares have the same weight; it returns those that are in the middle of them.
func sharesOfQuadratic(weight uint64) uint64 {
	weight = min(max(weight, 1), 10000)
	if weight == 1 {
		return 2
	}
	exact := func(weight float64) float64 {
		return math.Exp2((-125 + math.Sqrt(125*125+4*(126+612*math.Log10(weight)))) / 2)
	}
	return uint64(math.Round(math.Sqrt(exact(float64(weight-1)) * exact(float64(weight)))))
}

// parseLimit reads the quota and the period of a limit, in shares. It is not ok if there is no
// quota, which is "max" or -1.
func parseLimit(content []byte) (shares uint64, ok bool) {
	fields := bytes.Fields(content)
	if len(fields) != 2 {
		return 0, false
	}
	quota, quotaErr := kernfs.ParseUint(fields[0])
	period, err := kernfs.ParseUint(fields[1])
	if quotaErr != nil || err != nil || quota > math.MaxUint32 || period == 0 {
		return 0, false
	}
	return max(OneCPU*quota/period, 1), true
}
