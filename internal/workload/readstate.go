// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// readState is the state of the reads of a process's files. It decides when the files are read
// again.
type readState struct {
	seen                   time.Duration // start of the scan in which the process was last examined
	execs, cgroups, cgroup uint64        // counters and ID of the cgroup in that scan
	comm                   proc.Comm     // task's name in that scan
	userSeen               int32         // when the user was last read, in seconds, if the source does not provide it
	executed               execution     // since the command line was last read
	attempts               uint8         // consecutive failures to read the files, at most maxAttempts
	settled                bool          // all files were read, or cannot be read for lack of a permission
	deferred               bool          // Identify skipped the process
	stray                  bool          // the cgroup file cannot be read and the path of the cgroup is not available
	found                  bool          // the names of the files that readFound reads were looked up
}

// execution is the probability that a process has executed a program since it was last examined.
type execution int8

const (
	unlikely execution = iota
	possible           // the process has another name, and the source does not count executions
	certain
)

// Even if the source counts executions and moves, and a process has neither executed a program nor
// moved, the process is examined again, because its executable or (version 1) its cgroup may have
// been renamed.
const (
	// lookAgain is the maximum time between examinations.
	lookAgain = time.Hour
	// lookSoon is the minimum time between examinations of a process that has another name, or
	// whose files could not be read maxAttempts times.
	lookSoon    = time.Minute
	maxAttempts = 3
	// settledAge is the age from which Identify may skip a process.
	settledAge = 5 * time.Second
)

// isFresh reports whether the process need not be examined: the scan shows no change, or the
// process was examined a moment ago. A process may rename itself at any rate, which must not cause
// reads.
func (r *readState) isFresh(p *proc.Process, now time.Duration) bool {
	switch {
	case p.Cgroups == 0 || p.Cgroups != r.cgroups || p.Cgroup != r.cgroup || p.Execs != r.execs || now < r.seen:
		return false
	case !r.settled && r.attempts < maxAttempts:
		return false
	case !r.settled, p.Comm != r.comm:
		return now-r.seen < lookSoon
	}
	return now < nextLook(p.Slot, r.seen)
}

// nextLook returns the time of the next examination of the process in a slot, at most lookAgain
// after seen. The time differs between slots, so that processes that were identified in the same
// scan are not all examined again in the same scan.
func nextLook(slot int32, seen time.Duration) time.Duration {
	phase := lookAgain * time.Duration(uint32(slot)*2654435761>>16) >> 16
	return seen + lookAgain - (seen+lookAgain-phase)%lookAgain
}

// canWait reports whether Identify may skip a process.
func (r *readState) canWait(p *proc.Process, now time.Duration) bool {
	return p.Cgroups == 0 && r.settled && p.Comm == r.comm && r.seen-p.Start >= settledAge && now >= r.seen
}

// noteExecution updates executed from the scan.
func (r *readState) noteExecution(p *proc.Process, isNew bool) {
	counted := p.Cgroups != 0 && r.cgroups != 0
	switch {
	case isNew, counted && p.Execs != r.execs:
		r.executed = certain
	case !counted && p.Comm != r.comm:
		r.executed = max(r.executed, possible)
	}
}

// record records that the process was examined. The values of the scan are older than the files: a
// change in between shows in the next scan.
func (r *readState) record(p *proc.Process, now time.Duration) {
	if r.settled || p.Cgroups != r.cgroups || p.Execs != r.execs {
		r.attempts = 0
	}
	if !r.settled {
		r.attempts = min(r.attempts+1, maxAttempts)
	}
	r.seen, r.comm, r.deferred = now, p.Comm, false
	r.execs, r.cgroups, r.cgroup = p.Execs, p.Cgroups, p.Cgroup
}
