// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"bytes"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// requests finds how much CPU time containers request, in shares: 1024 of them are one CPU, as the container runtimes
// have it. It is read from the cgroup, so that no API server is needed.
type requests struct {
	root      string
	quadratic bool
	known     map[string]request // by cgroup
	looked    time.Time
}

type request struct {
	shares uint64
	at     time.Time
}

// lookAtRequestsAgain is how often a request is read again: it may be resized.
const lookAtRequestsAgain = time.Minute

const (
	oneCPU = 1024 // shares
	// unsetWeight is the cpu.weight of a cgroup of which nobody said anything (Documentation/admin-guide/cgroup-v2.rst).
	unsetWeight = 100
)

// newRequests returns the requests of the containers below root. quadratic is how the runtime makes a weight of shares.
func newRequests(root string, quadratic bool) *requests {
	return &requests{root: root, quadratic: quadratic, known: map[string]request{}}
}

// of returns the shares of the container with this cgroup, 0 where there is none.
func (r *requests) of(cgroup string, now time.Time) uint64 {
	if cgroup == "" {
		return 0
	}
	if known, ok := r.known[cgroup]; ok && now.Sub(known.at) < lookAtRequestsAgain {
		return known.shares
	}
	shares := r.read(cgroup)
	r.known[cgroup] = request{shares, now}
	return shares
}

// due says whether it is time to look at all requests again, and forgets those that nobody asked for since then.
func (r *requests) due(now time.Time) bool {
	if now.Sub(r.looked) < lookAtRequestsAgain {
		return false
	}
	r.looked = now
	maps.DeleteFunc(r.known, func(_ string, known request) bool { return now.Sub(known.at) >= 2*lookAtRequestsAgain })
	return true
}

// read reads a cgroup's request. Where there is none, its limit stands for it, as Kubernetes has it; without either
// it is one CPU, what an unset weight stands for. The kubelet sets the weight of each container, so there a request of
// one CPU is no unset one.
func (r *requests) read(cgroup string) uint64 {
	sys := filepath.Join(r.root, "sys/fs/cgroup")
	isSet := strings.Contains(path.Base(cgroup), "kubepods") || // in one name, runc's of a path for systemd
		strings.Contains(cgroup, "kubepods") && strings.Contains(path.Base(path.Dir(cgroup)), "pod")
	if weight, ok := readNumber(filepath.Join(sys, cgroup, "cpu.weight")); ok {
		if weight != unsetWeight || isSet {
			if r.quadratic {
				return sharesOfQuadratic(weight)
			}
			return sharesOfLinear(weight)
		}
		if limit, ok := readLimit(filepath.Join(sys, cgroup, "cpu.max")); ok {
			return limit
		}
		return oneCPU
	}
	for _, controller := range []string{"cpu,cpuacct", "cpu"} {
		dir := filepath.Join(sys, controller, cgroup)
		shares, ok := readNumber(filepath.Join(dir, "cpu.shares"))
		if !ok {
			continue
		}
		quota, hasQuota := readNumber(filepath.Join(dir, "cpu.cfs_quota_us")) // -1 is none, and no number
		period, hasPeriod := readNumber(filepath.Join(dir, "cpu.cfs_period_us"))
		if shares == oneCPU && !isSet && hasQuota && hasPeriod && period > 0 {
			return max(oneCPU*min(quota, math.MaxUint32)/period, 1)
		}
		return shares
	}
	return 0
}

// sharesOfLinear undoes weight = 1 + (shares-2)*9999/262142, as runc before 1.3.2 and crun before 1.23 have it. Of the
// 26 shares with the same weight it returns those in the middle, and for the lowest weight the lowest shares.
func sharesOfLinear(weight uint64) uint64 {
	if weight <= 1 {
		return 2
	}
	weight = min(weight, 10000)
	return min(2+((weight-1)*262142+262142/2)/9999, 262144)
}

// sharesOfQuadratic undoes weight = ceil(10^(l²/612 + 125*l/612 - 7/34)) with l = log2(shares), as runc 1.3.2 and crun
// 1.23 have it: 2, 1024 and 262144 shares are weights of 1, 100 and 10000. Many shares have the same weight; it returns
// those that are in the middle of them.
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

// readLimit reads a file that holds a limit.
func readLimit(path string) (shares uint64, ok bool) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	return parseLimit(content)
}

// parseLimit reads the "quota period" of cpu.max, in shares. It is not ok where the quota is "max".
func parseLimit(content []byte) (shares uint64, ok bool) {
	fields := bytes.Fields(content)
	if len(fields) != 2 {
		return 0, false
	}
	quota, err := strconv.ParseUint(string(fields[0]), 10, 32)
	if err != nil {
		return 0, false
	}
	period, err := strconv.ParseUint(string(fields[1]), 10, 32)
	if err != nil || period == 0 {
		return 0, false
	}
	return max(oneCPU*quota/period, 1), true
}

// readNumber reads a file that holds a number.
func readNumber(path string) (uint64, bool) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	return parseNumber(content)
}

func parseNumber(content []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(bytes.TrimSpace(content)), 10, 64)
	return n, err == nil
}
