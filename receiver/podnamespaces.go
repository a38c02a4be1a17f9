package receiver

import (
	"fmt"
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
	known  map[string]string    // namespaces by UID
	asked  map[string]time.Time // since when it is looked for pods that have no directory
	looked time.Time
	failed error // to list the directories
}

// lookForPodsAgain is how often it is looked for pods that have no directory, and giveUpPods for how long.
const (
	lookForPodsAgain = 10 * time.Second
	giveUpPods       = 10 * time.Minute
)

func newPodNamespaces(root string) *podNamespaces {
	return &podNamespaces{
		dir: filepath.Join(root, "var/log/pods"), known: map[string]string{}, asked: map[string]time.Time{},
	}
}

// of returns the namespace of a pod, empty where it is not known yet.
func (p *podNamespaces) of(uid string, now time.Time) string {
	namespace, ok := p.known[uid]
	if _, asked := p.asked[uid]; ok || asked {
		return namespace
	}
	p.list(now)
	if namespace, ok = p.known[uid]; !ok {
		p.asked[uid] = now
	}
	return namespace
}

// lookAgain looks from time to time for the pods that were asked for, and says whether any has a directory now.
func (p *podNamespaces) lookAgain(now time.Time) (found bool) {
	if len(p.asked) == 0 || now.Sub(p.looked) < lookForPodsAgain {
		return false
	}
	p.list(now)
	for uid, since := range p.asked {
		if _, ok := p.known[uid]; ok {
			delete(p.asked, uid)
			found = true
		} else if p.failed == nil && now.Sub(since) >= giveUpPods {
			delete(p.asked, uid)
		}
	}
	return found
}

// list looks at all directories that are there, and forgets all others.
func (p *podNamespaces) list(now time.Time) {
	p.looked = now
	entries, err := os.ReadDir(p.dir)
	if p.failed = err; err != nil {
		p.failed = fmt.Errorf("the namespaces of pods are not known: %w", err)
		return
	}
	clear(p.known)
	for _, e := range entries {
		if namespace, uid, ok := parsePodLogs(e.Name()); ok {
			p.known[uid] = namespace
		}
	}
}

// parsePodLogs reads the name of a directory of logs. Neither namespaces nor names nor UIDs have underscores.
func parsePodLogs(dir string) (namespace, uid string, ok bool) {
	parts := strings.Split(dir, "_")
	if len(parts) != 3 || parts[0] == "" || parts[2] == "" {
		return "", "", false
	}
	return parts[0], parts[2], true
}
