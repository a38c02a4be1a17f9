// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// PodLogs finds the Kubernetes namespaces and names of pods without an API server. Before the
// kubelet starts a container of a pod, it creates a directory for the pod's logs:
// <namespace>_<name>_<uid> below /var/log/pods (pkg/kubelet/kuberuntime/helpers.go,
// BuildPodLogsDirectory). A PodLogs is not safe for concurrent use.
type PodLogs struct {
	dir     string
	known   map[string]podName   // by UID
	missing map[string]time.Time // UIDs of pods without a directory, and when they were first requested
	found   bool                 // the directory of a missing pod was found since the last call of lookAgain
	looked  time.Time
	failed  error // why the directories could not be listed
}

type podName struct {
	namespace, name string
	gone            time.Time // since when the pod has no directory
}

const (
	// lookForPodsAgain is the time between attempts to find pods without a directory.
	lookForPodsAgain = 10 * time.Second
	// forgetNames is the maximum time to search for a pod without a directory. It is also the time
	// for which a name is kept after the directory of the pod was removed, because processes may
	// outlive the directory. Callers that need a name for longer keep it.
	forgetNames = 10 * time.Minute
	// maxMissing is the maximum number of pods that are searched for without a time limit while
	// directories cannot be listed.
	maxMissing = 1000
)

// NewPodLogs returns a PodLogs that lists a directory. It does not read files.
func NewPodLogs(dir string) *PodLogs {
	return &PodLogs{dir: dir, known: map[string]podName{}, missing: map[string]time.Time{}}
}

// of returns the name of a pod, or the zero podName if its directory was not found. The directories
// are listed at most once for the same now.
func (p *PodLogs) of(uid string, now time.Time) podName {
	name, ok := p.known[uid]
	if _, missing := p.missing[uid]; ok || missing {
		return name
	}
	if now != p.looked {
		p.list(now)
	}
	if name, ok = p.known[uid]; !ok {
		p.missing[uid] = now
	}
	return name
}

// again is like of, and also searches again for a pod without a directory.
func (p *PodLogs) again(uid string, now time.Time) podName {
	name := p.of(uid, now)
	if name.name == "" && now != p.looked {
		p.list(now)
		name = p.known[uid]
	}
	return name
}

// lookAgain searches for pods without a directory, at most every lookForPodsAgain. It reports
// whether a directory was found since the last call.
func (p *PodLogs) lookAgain(now time.Time) (found bool) {
	if len(p.missing) > 0 && now.Sub(p.looked) >= lookForPodsAgain {
		p.list(now)
	}
	found, p.found = p.found, false
	return found
}

// list reads the names of all directories, and removes missing pods after forgetNames.
func (p *PodLogs) list(now time.Time) {
	p.looked = now
	dirs, err := listDir(p.dir)
	if p.failed = err; err != nil {
		p.failed = fmt.Errorf("cannot read the names of pods: %w", err)
	} else {
		p.note(dirs, now)
	}
	maps.DeleteFunc(p.known, func(_ string, n podName) bool { return !n.gone.IsZero() && now.Sub(n.gone) >= forgetNames })
	maps.DeleteFunc(p.missing, func(_ string, since time.Time) bool {
		return now.Sub(since) >= forgetNames && (p.failed == nil || len(p.missing) > maxMissing)
	})
}

// note records the pods that have these directories, and since when other pods have none.
func (p *PodLogs) note(dirs []string, now time.Time) {
	seen := map[string]bool{}
	for _, dir := range dirs {
		if name, uid, ok := parsePodLogs(dir); ok {
			seen[uid] = true
			p.set(uid, name)
		}
	}
	for uid, n := range p.known {
		if !seen[uid] && n.gone.IsZero() {
			n.gone = now
			p.known[uid] = n
		}
	}
}

// add adds the name of a pod without a directory, from the logs of its containers.
func (p *PodLogs) add(uid string, name podName, now time.Time) {
	if _, ok := p.known[uid]; !ok {
		name.gone = now
		p.set(uid, name)
	}
}

func (p *PodLogs) set(uid string, name podName) {
	p.known[uid] = name
	if _, missing := p.missing[uid]; missing {
		delete(p.missing, uid)
		p.found = true
	}
}

// maxListed is the maximum number of entries of a directory that are read.
const maxListed = 50_000

// listDir returns the names in a directory in any order.
func listDir(dir string) ([]string, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would block
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(maxListed)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

// parsePodLogs parses the name of a directory of logs. Namespaces, names and UIDs have no
// underscores.
func parsePodLogs(dir string) (name podName, uid string, ok bool) {
	parts := strings.Split(dir, "_")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return podName{}, "", false
	}
	return podName{namespace: bound(parts[0], maxName), name: bound(parts[1], maxName)}, parts[2], true
}
