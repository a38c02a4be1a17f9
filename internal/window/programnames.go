// SPDX-License-Identifier: Apache-2.0

package window

import (
	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/workload"
)

// programs holds a Collector's state about the programs of short-lived processes. The zero programs
// is ready to use.
type programs struct {
	standIns map[ownerKey]attribution.Claimant // of the interval
	families []row                             // of the interval: descendants outside of workloads, with the claimants of their ancestors
	long     map[longName]string
}

// longName is the part of a program's name that fits in a task's name, with its workload and user.
type longName struct {
	begin, owner string
	in           identity.Key
}

const (
	// maxTaskName is the length of the longest name of a task (TASK_COMM_LEN, proc_pid_comm(5)).
	maxTaskName = 15
	// maxLongNames is the maximum number of names kept. When it is exceeded, all are dropped.
	maxLongNames = 4096
	// burst is the number of stand-ins above which their map is discarded, because clearing a map
	// costs in proportion to its largest size.
	burst = 1024
)

// endInterval drops the claimants of the interval, which are closed.
func (g *programs) endInterval() {
	if len(g.standIns) > burst {
		g.standIns = nil
	}
	clear(g.standIns)
	g.families = g.families[:0]
}

// note records the name of a process's executable if it does not fit in a task's name.
func (g *programs) note(i *workload.Identity) {
	name := i.Executable
	if len(name) <= maxTaskName {
		return
	}
	key := longName{name[:maxTaskName], i.Owner, identity.ProcessEntity.Key(&i.Workload)}
	known, ok := g.long[key]
	switch {
	case ok && known != name:
		g.long[key] = "" // there are several
	case !ok:
		if g.long == nil || len(g.long) >= maxLongNames {
			g.long = map[longName]string{}
		}
		g.long[key] = name
	}
}

// nameOf returns the name of a process's program by the name of its task. It is the name of the
// task, or a longer name that begins with it, if only one program of its workload and user has such
// a name.
func (g *programs) nameOf(name, user string, in *identity.Workload) string {
	switch len(name) {
	case 0:
		return "?"
	case maxTaskName:
		if long := g.long[longName{name, user, identity.ProcessEntity.Key(in)}]; long != "" {
			return long
		}
	}
	return name
}
