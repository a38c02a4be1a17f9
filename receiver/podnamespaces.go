package receiver

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
	known  map[string]string    // namespaces by UID
	asked  map[string]time.Time // when it was last looked for pods that have no directory
	failed error                // to list the directories
}

// lookForPodAgain is how often it is looked for a pod that has no directory.
const lookForPodAgain = 10 * time.Second

func newPodNamespaces(root string) *podNamespaces {
	return &podNamespaces{
		dir: filepath.Join(root, "var/log/pods"), known: map[string]string{}, asked: map[string]time.Time{},
	}
}

// of returns the namespace of a pod, empty where it is not known.
func (p *podNamespaces) of(uid string, now time.Time) string {
	if uid == "" {
		return ""
	}
	if namespace, ok := p.known[uid]; ok {
		return namespace
	}
	if _, ok := p.asked[uid]; ok && now.Sub(p.asked[uid]) < lookForPodAgain {
		return ""
	}
	p.list()
	maps.DeleteFunc(p.asked, func(_ string, asked time.Time) bool { return now.Sub(asked) >= lookForPodAgain })
	if _, ok := p.known[uid]; !ok {
		p.asked[uid] = now
	}
	return p.known[uid]
}

// list looks at all directories that are there, and forgets all others.
func (p *podNamespaces) list() {
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
