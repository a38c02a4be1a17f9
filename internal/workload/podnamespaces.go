// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// podNamespaces finds the Kubernetes namespaces of pods without asking an API server: the kubelet makes a directory for
// each pod's logs before it starts any of its containers, <namespace>_<name>_<uid> below /var/log/pods
// (pkg/kubelet/kuberuntime/helpers.go, BuildPodLogsDirectory).
type podNamespaces struct {
	dir    string
	known  map[string]podNamespace // by UID
	asked  map[string]time.Time    // UIDs of pods without a directory, and since when these are looked for
	found  bool                    // the directory of any of these was found since the last call of lookAgain
	looked time.Time
	failed error // why the directories could not be listed
}

type podNamespace struct {
	name   string
	missed time.Time // since when the pod has no directory
}

// lookForPodsAgain is how often pods without a directory are looked for, and forgetPods for how long. A pod whose directory
// was removed is remembered for as long: its processes may outlive it. While no directory can be listed, up to maxAsked pods
// are looked for without an end.
const (
	lookForPodsAgain = 10 * time.Second
	forgetPods       = 10 * time.Minute
	maxAsked         = 1000
)

func newPodNamespaces(root string) *podNamespaces {
	return &podNamespaces{
		dir: filepath.Join(root, "var/log/pods"), known: map[string]podNamespace{}, asked: map[string]time.Time{},
	}
}

// of returns the namespace of a pod, empty if it is not known yet.
func (p *podNamespaces) of(uid string, now time.Time) string {
	namespace, ok := p.known[uid]
	if _, asked := p.asked[uid]; ok || asked {
		return namespace.name
	}
	p.list(now)
	if namespace, ok = p.known[uid]; !ok {
		p.asked[uid] = now
	}
	return namespace.name
}

// lookAgain looks from time to time for pods that of was called for and that had no directory. It reports whether any was
// found since the last call.
func (p *podNamespaces) lookAgain(now time.Time) (found bool) {
	if len(p.asked) > 0 && now.Sub(p.looked) >= lookForPodsAgain {
		p.list(now)
		maps.DeleteFunc(p.asked, func(_ string, since time.Time) bool {
			return now.Sub(since) >= forgetPods && (p.failed == nil || len(p.asked) > maxAsked)
		})
	}
	found, p.found = p.found, false
	return found
}

// list reads the names of all directories.
func (p *podNamespaces) list(now time.Time) {
	p.looked = now
	entries, err := os.ReadDir(p.dir)
	if p.failed = err; err != nil {
		p.failed = fmt.Errorf("the namespaces of pods are not known: %w", err)
		return
	}
	there := map[string]bool{}
	for _, e := range entries {
		if namespace, uid, ok := parsePodLogs(e.Name()); ok {
			there[uid] = true
			p.known[uid] = podNamespace{name: namespace}
			if _, asked := p.asked[uid]; asked {
				delete(p.asked, uid)
				p.found = true
			}
		}
	}
	maps.DeleteFunc(p.known, func(uid string, n podNamespace) bool {
		if !there[uid] && n.missed.IsZero() {
			n.missed = now
			p.known[uid] = n
		}
		return !there[uid] && now.Sub(n.missed) >= forgetPods
	})
}

// parsePodLogs parses the name of a directory of logs. Namespaces, names and UIDs have no underscores.
func parsePodLogs(dir string) (namespace, uid string, ok bool) {
	parts := strings.Split(dir, "_")
	if len(parts) != 3 || parts[0] == "" || parts[2] == "" {
		return "", "", false
	}
	return parts[0], parts[2], true
}
