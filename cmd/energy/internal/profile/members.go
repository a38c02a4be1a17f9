// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"maps"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/profiles"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

const (
	// listEvery is the time between two lists of the command's processes. The profiler has no
	// samples of the first 100 ms of a process.
	listEvery = 50 * time.Millisecond
	// forgetAfter is how long samples of an exited process may arrive. Later samples belong to
	// another process with the PID.
	forgetAfter = 10 * time.Second
)

// members has the processes of the command.
type members struct {
	processes func(yield func(pid int32)) error
	reader    *feed.Reader
	stop      chan struct{}

	mu      sync.Mutex
	listed  map[int32]time.Time // when a process was listed last
	scanned map[int32]time.Time // the end of the last window with energy of a process
	end     time.Time           // of the command; zero while it runs
}

// begin observes the processes until close.
func (m *members) begin(processes func(yield func(pid int32)) error) {
	m.processes, m.stop = processes, make(chan struct{})
	m.listed, m.scanned = map[int32]time.Time{}, map[int32]time.Time{}
	m.reader = &feed.Reader{Processes: true, Take: m.take}
	feed.Of(energyreceiver.EmbeddedID).Open(m.reader)
	go func(stop chan struct{}) {
		ticker := time.NewTicker(listEvery)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-ticker.C:
				m.list(now)
			}
		}
	}(m.stop)
}

// take notes the processes of a window. The receiver waits for it.
func (m *members) take(w *feed.Window) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range w.Processes {
		m.scanned[w.Processes[i].PID] = w.End
	}
}

// list notes the processes that run now. Processes that cannot be listed get no samples. Calls may
// overlap.
func (m *members) list(now time.Time) {
	var pids []int32
	_ = m.processes(func(pid int32) { pids = append(pids, pid) })
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pid := range pids {
		if now.After(m.listed[pid]) {
			m.listed[pid] = now
		}
	}
}

// finish sets the end of the command. Later samples are removed.
func (m *members) finish(end time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end = end
}

func (m *members) close() {
	if m.stop != nil {
		close(m.stop)
		m.stop = nil
		feed.Of(energyreceiver.EmbeddedID).Close(m.reader)
	}
}

// keep removes the samples of other processes. It moves samples that exited processes had after
// their last window to resources without a PID: the energy of that time is in the energy of
// short-lived processes.
func (m *members) keep(in pprofile.Profiles) {
	now := time.Now()
	m.list(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	oldest := now.Add(-forgetAfter)
	maps.DeleteFunc(m.listed, func(pid int32, at time.Time) bool {
		if at.Before(oldest) {
			delete(m.scanned, pid)
		}
		return at.Before(oldest)
	})
	late := pprofile.NewResourceProfilesSlice()
	in.ResourceProfiles().RemoveIf(func(rp pprofile.ResourceProfiles) bool {
		pid, ok := rp.Resource().Attributes().Get("process.pid")
		if !ok {
			return true
		}
		if !m.end.IsZero() {
			cut(rp, func(at uint64) bool { return int64(at) > m.end.UnixNano() })
		}
		listed, ok := m.listed[int32(pid.Int())]
		if last, scanned := m.scanned[int32(pid.Int())]; ok && scanned && listed.Before(now) {
			of := late.AppendEmpty()
			rp.CopyTo(of)
			of.Resource().Attributes().Remove("process.pid")
			cut(of, func(at uint64) bool { return int64(at) <= last.UnixNano() })
			cut(rp, func(at uint64) bool { return int64(at) > last.UnixNano() })
		}
		return !ok
	})
	late.MoveAndAppendTo(in.ResourceProfiles())
}

// cut removes the samples of some times.
func cut(in pprofile.ResourceProfiles, remove func(at uint64) bool) {
	for of := range profiles.All(in) {
		of.Samples().RemoveIf(func(s pprofile.Sample) bool {
			s.TimestampsUnixNano().RemoveIf(remove)
			return s.TimestampsUnixNano().Len() == 0
		})
	}
}

// text returns an attribute of a resource, empty if it is missing.
func text(of pcommon.Resource, key string) string {
	value, ok := of.Attributes().Get(key)
	if !ok {
		return ""
	}
	return value.AsString()
}
