// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeEnergy runs both commands once, and returns the result and the exit status that the test set.
const fakeEnergy = `#!/usr/bin/env bash
echo "$*" >"$FAKE/arguments"
./head && ./base || exit 7
cp "$FAKE/result.json" energy.json
echo '| a table |' >energy.md
exit "$(cat "$FAKE/status")"
`

// fakeGH stores one comment of the action, and lists it on the second page of comments.
const fakeGH = `#!/usr/bin/env bash
echo "$*" >>"$FAKE/calls"
last=${@: -1}
if [ -e "$FAKE/fork" ]; then echo "gh: Resource not accessible by integration (HTTP 403)" >&2; exit 1; fi
case "$*" in
*--field*) cp "${last#body=@}" "$FAKE/comment" ;;
*) echo '[{"id": 1, "user": {"login": "somebody"}, "body": "<!-- energy: Energy -->"}]'
	test ! -e "$FAKE/comment" || jq -n --rawfile body "$FAKE/comment" '[{id: 42, user: {login: "github-actions[bot]"}, body: $body}]' ;;
esac
`

// pullRequest is the environment of a job, with a shallow clone of the branch feature. The base of
// feature is main.
type pullRequest struct {
	t               *testing.T
	fake, clone     string
	environment     []string
	base, head      string // commits
	summary, output string // paths
}

func newPullRequest(t *testing.T) *pullRequest {
	for _, tool := range []string{"bash", "git", "jq", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("the script needs this tool: ", err)
		}
	}
	p := &pullRequest{t: t, fake: t.TempDir()}
	p.clone, p.summary, p.output = filepath.Join(p.fake, "clone"), filepath.Join(p.fake, "summary"), filepath.Join(p.fake, "output")
	p.environment = []string{
		"PATH=" + p.fake + ":" + os.Getenv("PATH"), "HOME=" + p.fake, "TMPDIR=" + p.fake, "FAKE=" + p.fake,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GITHUB_BASE_REF=main", "GITHUB_REPOSITORY=owner/name", "GITHUB_STEP_SUMMARY=" + p.summary, "GITHUB_OUTPUT=" + p.output,
		"ENERGY_PULL_REQUEST=7", "ENERGY_BUILD=cp source built", // the command must not see the files of the job
		`ENERGY_COMMAND=printf '%s ' "$(cat built)${GITHUB_OUTPUT-}${GITHUB_STEP_SUMMARY-}" >>"$FAKE/ran"`,
	}
	p.write("energy", fakeEnergy)
	p.write("gh", fakeGH)
	p.result("1.01", "false", 0)
	p.shell(`git init -q -b main origin && cd origin
		echo base >source && git add . && git commit -qm base && git checkout -qb feature
		echo head >source && git commit -qam head
		git clone -q --depth=1 --branch feature "file://$PWD" ../clone`)
	p.base, p.head = p.shell("git -C origin rev-parse main"), p.shell("git -C origin rev-parse feature")
	return p
}

func (p *pullRequest) write(name, content string) {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(filepath.Join(p.fake, name), []byte(content), 0o755))
}

// result sets the result of the fake energy.
func (p *pullRequest) result(ratio, significant string, status int) {
	p.write("result.json", fmt.Sprintf(`{"commands": [{"joules": {"mean": 1234.5}}], "ratios": {"compared_by": "cpu_seconds",
		"joules": {"a_to_b": 9, "significant": false}, "cpu_seconds": {"a_to_b": %s, "significant": %s}}}`, ratio, significant))
	p.write("status", fmt.Sprint(status))
}

// shell runs a script in the directory fake, and returns its output.
func (p *pullRequest) shell(script string) string {
	p.t.Helper()
	status, out := p.run(p.fake, "bash", "-euc", script)
	require.Zero(p.t, status, out)
	return out
}

// compare runs the script of the action with further environment variables, and returns its exit
// status and its output.
func (p *pullRequest) compare(what string, settings ...string) (int, string) {
	p.t.Helper()
	script, err := filepath.Abs("action/compare.sh")
	require.NoError(p.t, err)
	return p.run(p.clone, append(append([]string{"env"}, settings...), script, what)...)
}

func (p *pullRequest) run(directory string, args ...string) (int, string) {
	c := exec.Command(args[0], args[1:]...)
	c.Dir, c.Env = directory, p.environment
	out, _ := c.CombinedOutput()
	return c.ProcessState.ExitCode(), strings.TrimSpace(string(out))
}

func TestTheActionMeasuresHeadAndBaseInTheirOwnTrees(t *testing.T) {
	p := newPullRequest(t)
	status, out := p.compare("measure", "ENERGY_PAIRS=3", "ENERGY_BADGE=site/badge.svg")
	require.Zero(t, status, out)
	assert.Equal(t, "head base ", read(t, p.fake+"/ran"))
	assert.Equal(t, "measure --runs=3 --warmup=1 --max-ratio=1.02 -o energy.json -o energy.md --vs ./base -- ./head\n", read(t, p.fake+"/arguments"))
	for _, text := range []string{"<!-- energy: Energy -->\n", "| a table |", "Passed: the limit of the ratio of CPU time is 1.02",
		fmt.Sprintf("A is the head, %s. B is the base, %s.\n\n| a table |", p.head[:12], p.base[:12])} {
		assert.Contains(t, read(t, p.summary), text)
	}
	assert.Equal(t, "joules=1234.5\nratio=1.01\nsignificant=false\n", read(t, p.output))
	assert.Equal(t, []string{"Energy", "1.23 kJ, no difference shown"}, badge(t, p.clone+"/site/badge.svg"))
	assert.NotContains(t, p.shell("git -C clone worktree list"), "\n", "the work trees are removed")
}

// badge returns the texts of an SVG image, which must be well-formed.
func badge(t *testing.T, path string) []string {
	t.Helper()
	var image struct {
		Texts []string `xml:"g>text"`
	}
	require.NoError(t, xml.Unmarshal([]byte(read(t, path)), &image))
	return image.Texts
}

func TestTheActionFailsIfEnergyOrABuildFails(t *testing.T) {
	p := newPullRequest(t)
	p.result("1.048", "true", 124)
	status, _ := p.compare("measure", "ENERGY_BADGE=badge.svg")
	assert.Equal(t, 124, status)
	assert.Contains(t, read(t, p.summary), "**Failed: the ratio of CPU time is above 1.02, and the difference is significant**")
	assert.Contains(t, read(t, p.output), "ratio=1.048\nsignificant=true\n")
	assert.Equal(t, []string{"Energy", "1.23 kJ, +4.8 % CPU time"}, badge(t, p.clone+"/badge.svg"))

	status, out := p.compare("measure", "ENERGY_COMMAND=echo broken; exit 3")
	assert.Equal(t, 7, status, "the status of energy, which wrote no result")
	assert.Contains(t, out, "broken")
	assert.Contains(t, out, "This script has no --ignore-failure")
	p.write("energy", "#!/bin/sh\nexit 125")
	status, out = p.compare("measure")
	assert.Equal(t, 125, status)
	assert.NotContains(t, out, "tail", "no command ran")
	status, out = p.compare("measure", "ENERGY_BUILD=test $(cat source) = head")
	assert.Equal(t, 1, status)
	assert.Contains(t, out, "the build of the base failed")
	assert.NoFileExists(t, p.clone+"/energy-results/energy.md", "an earlier result is removed")
}

func TestTheActionChecksItsInputsBeforeTheBuilds(t *testing.T) {
	p := newPullRequest(t)
	for settings, want := range map[string]string{
		"ENERGY_MAX_RATIO=0.9": "ENERGY_MAX_RATIO must be 0 or at least 1, not 0.9", "ENERGY_MAX_RATIO=x": "must be 0 or at least 1, not x",
		"ENERGY_PAIRS=1": "ENERGY_MAX_RATIO needs at least 2 pairs", "ENERGY_PAIRS=0": "ENERGY_PAIRS must be a number of at least 1, not 0",
	} {
		status, out := p.compare("measure", settings)
		assert.Equal(t, 1, status, settings)
		assert.Contains(t, out, want)
		assert.NotContains(t, out, "== build")
	}
	status, out := p.compare("measure", "ENERGY_PAIRS=1", "ENERGY_MAX_RATIO=0.0")
	assert.Zero(t, status, out)
	assert.Contains(t, out, "No limit is set")
}

func TestTheActionUpdatesItsComment(t *testing.T) {
	p := newPullRequest(t)
	p.compare("measure")
	for _, call := range []string{"POST repos/owner/name/issues/7/comments", "PATCH repos/owner/name/issues/comments/42"} {
		status, out := p.compare("comment")
		require.Zero(t, status, out)
		calls := strings.Split(strings.TrimSpace(read(t, p.fake+"/calls")), "\n")
		assert.Contains(t, calls[len(calls)-1], "--method "+call+" --field")
		assert.Equal(t, read(t, p.summary), read(t, p.fake+"/comment"))
	}
	p.write("fork", "")
	status, out := p.compare("comment")
	assert.Zero(t, status)
	assert.Contains(t, out, "::notice::No comment was written")
}

func TestInputsOfTheActionAreNotExecuted(t *testing.T) {
	p := newPullRequest(t)
	const hostile = "\"; touch x; #\n$(touch x)`touch x`'\n--><script>|"
	for _, name := range []string{"NAME", "BASE", "PAIRS", "MAX_RATIO", "VERSION", "BADGE", "RESULTS"} {
		p.compare("measure", "ENERGY_"+name+"="+hostile)
		p.compare("measure", "ENERGY_"+name+"=--upload-pack=touch x;")
		assert.Empty(t, p.shell("find . -name x"), name)
	}
	status, out := p.compare("measure", "ENERGY_BADGE=badge.svg", "ENERGY_NAME="+hostile)
	require.Zero(t, status, out)
	assert.Equal(t, " touch x touch xtouch x--script", badge(t, p.clone+"/badge.svg")[0])
	assert.Contains(t, read(t, p.clone+"/energy-results/energy.md"), "<!-- energy:  touch x touch xtouch x--script -->\n")
}

func TestTheBaseOfAMergeCommitIsItsFirstParent(t *testing.T) {
	p := newPullRequest(t)
	p.shell(`cd clone && git fetch -q --unshallow origin main feature && git checkout -q origin/main 2>/dev/null || git checkout -q FETCH_HEAD
		echo newer >other && git add other && git commit -qm newer && git merge -q --no-edit feature`)
	merge, first := p.shell("git -C clone rev-parse HEAD"), p.shell("git -C clone rev-parse HEAD^1")
	status, out := p.compare("measure", "GITHUB_REF=refs/pull/7/merge", "GITHUB_SHA="+merge)
	require.Zero(t, status, out)
	assert.Contains(t, out, "B is the base, "+first[:12])
	_, out = p.compare("measure", "ENERGY_BASE=no-such-branch")
	assert.Contains(t, out, "the base is not available: no-such-branch")
}

func TestTheChecksumOfADownloadIsVerified(t *testing.T) {
	p := newPullRequest(t)
	p.shell(`mkdir v1.2.3 && cd v1.2.3
		case $(uname -m) in x86_64) name=energy_1.2.3_linux_amd64 ;; *) name=energy_1.2.3_linux_arm64 ;; esac
		mkdir "$name" && mv ../energy "$name" && tar -czf "$name.tar.gz" "$name" && sha256sum *.tar.gz >SHA256SUMS
		echo 0000000000000000000000000000000000000000000000000000000000000000  energy_1.2.3_other.tar.gz >>SHA256SUMS`)
	release := []string{"ENERGY_VERSION=v1.2.3", "ENERGY_RELEASES=file://" + p.fake}
	status, out := p.compare("measure", release...)
	assert.Zero(t, status, out)
	p.shell("echo >>v1.2.3/energy_*.tar.gz")
	status, out = p.compare("measure", release...)
	assert.Equal(t, 1, status)
	assert.Contains(t, out, "differs from the release")
}

func TestTheActionHasNoExpressionInAScript(t *testing.T) {
	action := documents(t, "action/action.yml")[0]
	for _, step := range at(t, action, "runs", "steps").([]any) {
		s := step.(map[string]any)
		assert.NotContains(t, s["run"], "${{")
		for name := range s["env"].(map[string]any) {
			assert.Contains(t, read(t, "action/compare.sh")+"GH_TOKEN", name)
		}
	}
	for name := range at(t, action, "inputs").(map[string]any) {
		assert.Contains(t, read(t, "action/action.yml"), "inputs."+name)
		assert.Contains(t, read(t, "action/README.md"), "`"+name+"`")
	}
}
