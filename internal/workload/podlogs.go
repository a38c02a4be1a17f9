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

// PodLogs finds the Kubernetes namespaces and names of pods without asking an API server: the
// kubelet makes a directory for each pod's logs before it starts any of its containers,
// <namespace>_<name>_<uid> below /var/log/pods (pkg/kubelet/kuberuntime/helpers.go,
// BuildPodLogsDirectory). A PodLogs is not safe for concurrent use.
type PodLogs struct {
	dir    string
	known  map[string]podName   // by UID
	asked  map[string]time.Time // UIDs of pods without a directory, and since when these are looked for
	found  bool                 // the directory of any of these was found since the last call of lookAgain
	looked time.Time
	failed error // why the directories could not be listed
}

type podName struct {
	namespace, name string
	missed          time.Time // since when the pod has no directory
}

// lookForPodsAgain is how often pods without a directory are looked for, and forgetPods for how
// long. A pod whose directory was removed is remembered for as long: its processes may outlive it.
// While no directory can be listed, up to maxAsked pods are looked for without an end.
const (
	lookForPodsAgain = 10 * time.Second
	forgetPods       = 10 * time.Minute
	maxAsked         = 1000
)

// NewPodLogs returns a PodLogs that lists a directory. It reads nothing yet.
func NewPodLogs(dir string) *PodLogs {
	return &PodLogs{dir: dir, known: map[string]podName{}, asked: map[string]time.Time{}}
}

// of returns the name of a pod, the zero podName if it is not known yet. The directories are listed
// at most once for the same now.
func (p *PodLogs) of(uid string, now time.Time) podName {
	name, ok := p.known[uid]
	if _, asked := p.asked[uid]; ok || asked {
		return name
	}
	if now != p.looked {
		p.list(now)
	}
	if name, ok = p.known[uid]; !ok {
		p.asked[uid] = now
	}
	return name
}

// again returns the name of a pod like of, and looks for it again if the directories were not
// listed a moment ago.
func (p *PodLogs) again(uid string, now time.Time) podName {
	name := p.of(uid, now)
	if name.name == "" && now.Sub(p.looked) >= listAgain {
		p.list(now)
		name = p.known[uid]
	}
	return name
}

// lookAgain looks from time to time for pods that of was called for and that had no directory. It
// reports whether any was found since the last call.
func (p *PodLogs) lookAgain(now time.Time) (found bool) {
	if len(p.asked) > 0 && now.Sub(p.looked) >= lookForPodsAgain {
		p.list(now)
	}
	found, p.found = p.found, false
	return found
}

// list reads the names of all directories, and gives up pods that were looked for long enough.
func (p *PodLogs) list(now time.Time) {
	p.looked = now
	dirs, err := listDir(p.dir)
	if p.failed = err; err != nil {
		p.failed = fmt.Errorf("the namespaces of pods are not known: %w", err)
	} else {
		p.note(dirs, now)
	}
	maps.DeleteFunc(p.known, func(_ string, n podName) bool { return !n.missed.IsZero() && now.Sub(n.missed) >= forgetPods })
	maps.DeleteFunc(p.asked, func(_ string, since time.Time) bool {
		return now.Sub(since) >= forgetPods && (p.failed == nil || len(p.asked) > maxAsked)
	})
}

// note notes the pods that have these directories, and since when others have none.
func (p *PodLogs) note(dirs []string, now time.Time) {
	there := map[string]bool{}
	for _, dir := range dirs {
		if name, uid, ok := parsePodLogs(dir); ok {
			there[uid] = true
			p.set(uid, name)
		}
	}
	for uid, n := range p.known {
		if !there[uid] && n.missed.IsZero() {
			n.missed = now
			p.known[uid] = n
		}
	}
}

// learn notes the name of a pod of which the directory is not known, as its containers' logs show
// it.
func (p *PodLogs) learn(uid string, name podName, now time.Time) {
	if _, ok := p.known[uid]; !ok {
		name.missed = now
		p.set(uid, name)
	}
}

func (p *PodLogs) set(uid string, name podName) {
	p.known[uid] = name
	if _, asked := p.asked[uid]; asked {
		delete(p.asked, uid)
		p.found = true
	}
}

// maxListed bounds how many entries of a directory are read.
const maxListed = 50_000

// listDir returns the names in a directory, in no order.
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
