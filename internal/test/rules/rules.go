// SPDX-License-Identifier: Apache-2.0

// Package rules contains the attribution rules of other tools, after their source code, so that the
// simulator can run them next to the receiver's rules. A rule is a function of the values that its
// tool reads in an interval; some rules train a model. Each rule's comment names the inputs that
// the simulator does not have.
package rules

// Energy is energy by zone kind, in J.
type Energy struct{ Package, DRAM float64 }

// Sum returns the energy of both.
func (e Energy) Sum() float64 { return e.Package + e.DRAM }

// Plus returns e + o.
func (e Energy) Plus(o Energy) Energy { return Energy{e.Package + o.Package, e.DRAM + o.DRAM} }

// Times returns e with both energies multiplied.
func (e Energy) Times(f float64) Energy { return Energy{e.Package * f, e.DRAM * f} }

// Machine describes the hardware as a tool is configured for it, or detects it.
type Machine struct {
	// CPUs is the number of logical CPUs.
	CPUs int
	// Threads is the number of hardware threads per core. 0 means 1.
	Threads int
	// TDP is the sum over all packages, in W.
	TDP float64
	// Rest is the power at rest of each socket, in W, for tools that measure an idle machine first.
	Rest []Energy
}

// Interval holds the values that a tool can read on a machine between two of its readings.
type Interval struct {
	// Seconds is the length of the interval.
	Seconds float64
	Sockets []Socket
	Users   []User
}

// Socket is a package with its memory.
type Socket struct {
	// Energy is the energy by the counters.
	Energy Energy
	// Busy is the CPU time without idle, I/O wait and stolen time, Steal the stolen time, in s.
	Busy, Steal float64
	// Total is all CPU time, in s.
	Total float64
	// Memory is the memory in use, in bytes.
	Memory float64
}

// User is a workload, or all of the machine outside workloads.
type User struct {
	// Ticks is the CPU time in s by procfs, in whole ticks, of the processes that exist at the end
	// of the interval.
	Ticks float64
	// CPU is the exact CPU time in s, including exited processes, as a cgroup or a BPF program
	// counts.
	CPU float64
	// Processes is the number of processes at the end.
	Processes int
	// On holds the usage of each socket.
	On []Part
}

// Part is a user's usage of a socket.
type Part struct {
	// CPU is the exact CPU time in s.
	CPU float64
	// Last is the part of Ticks on the socket, if each process is sampled every 10 ms for its last
	// CPU.
	Last float64
	// Cycles is CPU time multiplied by the clock rate relative to the nominal one.
	Cycles float64
	// Alone is the part of Cycles while the sibling thread of the core was not busy.
	Alone float64
	// Instructions and Misses are the instructions and the cache misses, 0 without counters.
	Instructions, Misses float64
	// Memory is the resident memory on the socket, in bytes.
	Memory float64
}

// Report is a tool's result for an interval.
type Report struct {
	// Whole is the tool's own figure of the node, which Parts divide.
	Whole float64
	// Parts are the energies of the interval's users: active energy, if the rule separates active
	// and idle energy.
	Parts []Energy
	// Unattributed is the energy that the rule would assign to busy CPU time and memory outside all
	// users: of interrupts, and of exited processes. It is zero if the rule divides all energy
	// among the users.
	Unattributed Energy
}

// Rule is the attribution rule of a tool.
type Rule interface {
	// Observe returns the tool's report for an interval. Intervals follow each other.
	Observe(i *Interval) Report
}

// Energy returns the energy of all sockets.
func (i *Interval) Energy() (e Energy) {
	for _, s := range i.Sockets {
		e = e.Plus(s.Energy)
	}
	return e
}

// busy returns the busy, the stolen and the total CPU time of all sockets.
func (i *Interval) busy() (busy, steal, total float64) {
	for _, s := range i.Sockets {
		busy, steal, total = busy+s.Busy, steal+s.Steal, total+s.Total
	}
	return busy, steal, total
}

// rest returns the busy CPU time of all sockets less the CPU time of the users. It may be below 0,
// because ticks of the previous interval can count in this one.
func (i *Interval) rest(of func(*User) float64) float64 {
	busy, _, _ := i.busy()
	return busy - i.sum(of)
}

// sum returns the sum of a figure over all users.
func (i *Interval) sum(of func(*User) float64) (sum float64) {
	for u := range i.Users {
		sum += of(&i.Users[u])
	}
	return sum
}

// shared divides energy in proportion to a figure of the users. All parts are 0 if all figures are
// 0.
func (i *Interval) shared(e Energy, of func(*User) float64) []Energy {
	parts := make([]Energy, len(i.Users))
	if sum := i.sum(of); sum > 0 {
		for u := range i.Users {
			parts[u] = e.Times(of(&i.Users[u]) / sum)
		}
	}
	return parts
}

func ticks(u *User) float64 { return u.Ticks }

func cpu(u *User) float64 { return u.CPU }

// counted returns a function that returns the events of a user on a socket, or on all sockets if
// the socket is negative. It returns otherwise if no user has any event.
func (i *Interval) counted(socket int, event func(*Part) float64, otherwise func(*User) float64) func(*User) float64 {
	of := func(u *User) (n float64) {
		for s := range u.On {
			if socket < 0 || s == socket {
				n += event(&u.On[s])
			}
		}
		return n
	}
	if i.sum(of) == 0 {
		return otherwise
	}
	return of
}

func instructions(p *Part) float64 { return p.Instructions }

func misses(p *Part) float64 { return p.Misses }

// over returns a / b, or 0 if b is 0.
func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
