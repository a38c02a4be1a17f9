// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"fmt"
	"time"
)

// A process has about twenty samples per second of CPU time. If processes with at least muchCPUTime
// have no samples, and their energy is more than maxMissed of the energy that was sent, the profiler
// does not sample all processes.
const (
	muchCPUTime   = time.Second
	maxMissed     = 0.1
	coverageCheck = time.Minute
)

// coverage checks whether the profiler samples all processes.
type coverage struct {
	check        time.Time // when the sums are compared
	sent, missed uint64    // µJ since the last comparison
	example      string
	started      bool
}

// miss adds energy of a process that had no samples.
func (c *coverage) miss(of *process) {
	if of.unsampled >= muchCPUTime {
		c.missed += of.cpu
		c.example = fmt.Sprintf("%s (PID %d)", of.executable, of.pid)
	}
}

// settled compares the sums every coverageCheck. checked is false if the sums were not compared. It
// is also false for the first comparison, because the profiler may still be starting.
func (c *coverage) settled(now time.Time, wait time.Duration) (checked bool, err error) {
	if c.check.IsZero() {
		c.check = now.Add(wait)
	}
	if now.Before(c.check) {
		return false, nil
	}
	if c.sent > 0 && float64(c.missed) > maxMissed*float64(c.sent) {
		err = fmt.Errorf("%d %% of the energy is of processes that used much CPU time and have no samples, such as %s: "+
			"the profiler must sample all processes on all CPUs, in the PID namespace of the receiver "+
			"(probabilistic_threshold: 100, no pin_cpu_ids, no filter_min_process_age, pid_namespace_translation: false)",
			100*c.missed/c.sent, c.example)
	}
	checked = c.started
	*c = coverage{check: now.Add(coverageCheck), started: true}
	return checked, err
}
