// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// modules returns the go.mod files of the checkout.
func modules(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", "..", "ls-files", "--", "go.mod", "*/go.mod").Output()
	if err != nil || len(out) == 0 {
		t.Skip("not a checkout: ", err)
	}
	return strings.Fields(string(out))
}

func TestDependabotSeesEveryModule(t *testing.T) {
	var want []string
	for _, module := range modules(t) {
		want = append(want, path.Join("/", path.Dir(module)))
	}
	for _, update := range at(t, documents(t, "../.github/dependabot.yml")[0], "updates").([]any) {
		if at(t, update, "package-ecosystem") == "gomod" {
			assert.ElementsMatch(t, want, strs(t, at(t, update, "directories")))
			return
		}
	}
	assert.Fail(t, "no updates of Go modules")
}

func TestEachDirectDependencyHasAReason(t *testing.T) {
	reasons := map[string]bool{} // by module or prefix: used
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| \\S").FindAllStringSubmatch(read(t, "../dev/dependencies.md"), -1) {
		reasons[row[1]] = false
	}
	direct := regexp.MustCompile(`(?m)^(?:(?:require )?\t?(\S+) v\S+|(?:tool |\t)([^\s()]+))$`) // not "// indirect"
	for _, module := range modules(t) {
		for _, found := range direct.FindAllStringSubmatch(read(t, "../"+module), -1) {
			name := found[1] + found[2]
			if strings.HasPrefix(name, "github.com/energyreceiver/") {
				continue
			}
			reason := name
			for _, known := reasons[reason]; !known && strings.Contains(name, "/"); _, known = reasons[reason] {
				name = path.Dir(name)
				reason = name + "/*"
			}
			if _, known := reasons[reason]; assert.True(t, known, "%s: %s has no reason in dev/dependencies.md", module, found[1]+found[2]) {
				reasons[reason] = true
			}
		}
	}
	for reason, used := range reasons {
		assert.True(t, used, "%s of dev/dependencies.md is no direct dependency", reason)
	}
}
