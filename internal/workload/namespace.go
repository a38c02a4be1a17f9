// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"strings"
	"time"
)

// namespace converts paths of cgroup v2 that are relative to the reader's cgroup namespace to
// absolute paths.
type namespace struct {
	find    func() (begin string, err error)
	sought  bool      // find was called
	begin   string    // path of the namespace's root
	failed  error     // why begin could not be found
	again   time.Time // when find is called again
	outside bool      // a cgroup has no path below the host's mount point
}

// unified begins the line of cgroup v2 in a cgroup file.
const unified = "0::"

// lookForNamespaceAgain is the time between attempts to find the namespace.
const lookForNamespaceAgain = time.Minute

// findAgain searches again for a namespace that could not be found. It reports whether it found the
// namespace.
func (n *namespace) findAgain(now time.Time) bool {
	if n.failed == nil || now.Before(n.again) {
		return false
	}
	n.again = now.Add(lookForNamespaceAgain)
	n.begin, n.failed = n.find()
	return n.failed == nil
}

// absolute returns the text of a cgroup file with the path of cgroup v2 relative to the mount point
// of the host's tree.
func (n *namespace) absolute(text []byte) []byte {
	if !n.sought {
		n.sought = true
		n.begin, n.failed = n.find()
	}
	if n.failed != nil || n.begin == "/" {
		return text
	}
	var out []byte
	for line := range bytes.Lines(text) {
		if seen, ok := bytes.CutPrefix(line, []byte(unified)); ok {
			seen, whole := bytes.CutSuffix(seen, []byte{'\n'})
			line = append([]byte(unified), absolutePath(n.begin, string(seen))...)
			if whole {
				line = append(line, '\n')
			}
		}
		out = append(out, line...)
	}
	return out
}

// absolutePath returns the absolute path of a cgroup that has the path seen in a namespace whose
// root is at begin. The path of a cgroup outside of the tree begins with the required number of
// "/..".
func absolutePath(begin, seen string) string {
	begin = strings.TrimSuffix(begin, "/")
	for begin != "" && (seen == "/.." || strings.HasPrefix(seen, "/../")) {
		begin, seen = begin[:strings.LastIndexByte(begin, '/')], seen[len("/.."):]
	}
	if seen == "/" {
		seen = ""
	}
	if begin+seen == "" {
		return "/"
	}
	return begin + seen
}
