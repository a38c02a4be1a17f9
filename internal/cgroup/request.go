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

// OneCPU is the number of CPU shares that container runtimes set for one CPU.
const OneCPU = 1024

// RereadRequest is the time after which a request is read again, because containers can be resized.
const RereadRequest = time.Minute

// unsetWeight is the default cpu.weight of a cgroup (cgroup-v2.rst).
const unsetWeight = 100

// request is the CPU time that a cgroup requests.
type request struct {
	shares uint64
	read   time.Time
}

// Request returns the CPU time that a cgroup requests, in CPU shares. One CPU is OneCPU shares. It
// returns 0 if n is nil or if no hierarchy has the cgroup. The request is derived from the weight
// that the container runtime has set, which is read at most once a minute.
func (t *Tree) Request(n *Node, now time.Time) (shares uint64) {
	if n == nil {
		return 0
	}
	if r := &n.request; r.read.IsZero() || now.Sub(r.read) >= RereadRequest {
		r.shares, r.read = t.readRequest(n), now
	}
	return n.request.shares
}

// readRequest reads a cgroup's request. Without a request, it returns the limit, and without a
// limit one CPU. The default weight usually means that no request is set. The kubelet always sets
// the weight, so in its cgroups the default means a request of one CPU.
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

// readLimit returns a cgroup's limit in shares, or OneCPU without a limit. files are the files of
// the quota and the period.
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

// isKubelets reports whether the kubelet created a container's cgroup, and therefore set its
// weight.
func isKubelets(cgroup string) bool {
	return strings.Contains(path.Base(cgroup), "kubepods") || // runc's name for systemd contains the whole path
		strings.Contains(cgroup, "kubepods") && strings.Contains(path.Base(path.Dir(cgroup)), "pod")
}

func (t *Tree) readNumber(h *hierarchy, n *Node, name string) (number uint64, ok bool) {
	text, err := t.lookups.read(h, n.dir, name)
	if err == nil {
		number, err = parseNumber(text)
	}
	return number, err == nil
}

// sharesOfLinear undoes weight = 1 + (shares-2)*9999/262142, which runc before 1.3.2 and crun
// before 1.23 compute. 26 values of shares have the same weight. sharesOfLinear returns the middle
// of these values, but the lowest value for the lowest weight.
func sharesOfLinear(weight uint64) uint64 {
	if weight <= 1 {
		return 2
	}
	weight = min(weight, 10000)
	return min(2+((weight-1)*262142+262142/2)/9999, 262144)
}

// sharesOfQuadratic undoes weight = ceil(10^(l²/612 + 125*l/612 - 7/34)) with l = log2(shares),
// which runc 1.3.2 and crun 1.23 compute: 2, 1024 and 262144 shares have weights of 1, 100 and
// 10000. Several values of shares have the same weight. sharesOfQuadratic returns the middle of
// these values.
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

// parseLimit returns the limit of a quota and a period, in shares. ok is false without a quota,
// which is written as "max" or -1.
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
