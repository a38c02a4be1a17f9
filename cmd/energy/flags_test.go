// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parseArgs parses the flags of a subcommand, and checks them.
func parseArgs(c *cobra.Command, args []string) error {
	if err := c.ParseFlags(args); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}

// parsed returns the options of a subcommand.
func parsed[O any, P interface {
	*O
	subcommand() *cobra.Command
}](args []string) (O, error) {
	var o O
	err := parseArgs(P(&o).subcommand(), args)
	return o, err
}

// said runs energy, and returns its exit status and what it writes.
func said(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	wasOut, wasErr := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr = wasOut, wasErr }()
	var files [2]*os.File
	for i := range files {
		var err error
		files[i], err = os.Create(filepath.Join(t.TempDir(), "out"))
		require.NoError(t, err)
		defer func() { _ = files[i].Close() }()
	}
	os.Stdout, os.Stderr = files[0], files[1]
	status = exitCode(args)
	return status, read(t, files[0].Name()), read(t, files[1].Name())
}

func TestAnEndpointIsAURLOrAHostWithAPort(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:8889/metrics": "http://127.0.0.1:8889/metrics",
		"https://node.example/a?b=c":    "https://node.example/a?b=c",
		"http://node.example":           "http://node.example/metrics",
		"127.0.0.1:9464":                "http://127.0.0.1:9464/metrics",
		"localhost:9464":                "http://localhost:9464/metrics",
		"node.example":                  "http://node.example:8889/metrics",
		"node.example:28282/metrics":    "http://node.example:28282/metrics",
		"[::1]:8889":                    "http://[::1]:8889/metrics",
		"[::1]":                         "http://[::1]:8889/metrics",
		":8889":                         "http://127.0.0.1:8889/metrics",
	} {
		var e endpoint
		require.NoError(t, e.Set(text), text)
		assert.Equal(t, want, e.String(), text)
	}
	for _, text := range []string{"", "node:", "unix:///run/s", "http://", "a b:1", "node:port"} {
		var e endpoint
		assert.Error(t, e.Set(text), text)
	}
	f := &follower{source: &source{name: "http://node", hint: func(error) string { return "hint" }}}
	assert.Equal(t, "no figures from http://node: no such host\nhint", f.missing(&url.Error{Op: "Get", URL: "http://node", Err: errors.New("no such host")}))
	o, err := parsed[options]([]string{"--endpoint", "node:1"})
	require.NoError(t, err)
	assert.Equal(t, "http://node:1/metrics", o.endpoint)
}

func TestWrongArgumentsAreAnErrorOfOneLine(t *testing.T) {
	for _, tt := range []struct {
		args   string
		status int
		want   string
	}{
		{"top --interval 5", 2, `energy top: invalid argument "5" for "--interval" flag: the unit is missing: write 5s (see energy top --help)`},
		{"top --interval 5x", 2, `energy top: invalid argument "5x" for "--interval" flag: must be a duration with a unit, such as 500ms, 5s or 2m (see energy top --help)`},
		{"top --rows x", 2, `energy top: invalid argument "x" for "--rows" flag: must be an integer (see energy top --help)`},
		{"measure --max-joules 5J true", exitFailed,
			`energy measure: invalid argument "5J" for "--max-joules" flag: must be a number without a unit (see energy measure --help)`},
		{"measure --json=maybe true", exitFailed, `energy measure: invalid argument "maybe" for "--json" flag: must be true or false (see energy measure --help)`},
		{"top --local --endpoint node", 2, "energy top: --local and --endpoint are mutually exclusive (see energy top --help)"},
		{"top --rows 0", 2, "energy top: --rows must be at least 1 (see energy top --help)"},
		{"measure --baseline 5 true", exitFailed, `energy measure: invalid argument "5" for "--baseline" flag: the unit is missing: write 5s (see energy measure --help)`},
		{"measure", exitFailed, "energy measure: a command or --pid is required (see energy measure --help)"},
		{"measure --for 2s true", exitFailed, "energy measure: --for requires --pid (see energy measure --help)"},
		{"verify --nope", 2, "energy verify: unknown flag: --nope (see energy verify --help)"},
		{"verify --for 5s", 2, "energy verify: --for must be at least 20s (see energy verify --help)"},
		{"verify extra", 2, `energy verify: unexpected argument "extra" (see energy verify --help)`},
		{"phase start", 2, "energy phase: expected \"begin NAME\" or \"end\" (see energy phase --help)"},
		{"version x", 2, `energy version: unexpected argument "x" (see energy version --help)`},
		{"measur", 2, `energy: unknown command "measur": did you mean measure? (see energy --help)`},
		{"help measur", 2, `energy help: unknown command "measur": did you mean measure? (see energy help --help)`},
		{"bottom", 2, `energy: unknown command "bottom" (see energy --help)`},
		{"completion", 2, "energy completion: a shell is required: bash, zsh or fish (see energy completion --help)"},
		{"completion csh", 2, `energy completion: unknown command "csh" for "energy completion" (see energy completion --help)`},
	} {
		status, stdout, stderr := said(t, strings.Fields(tt.args)...)
		assert.Equal(t, tt.status, status, tt.args)
		assert.Equal(t, tt.want+"\n", stderr)
		assert.Empty(t, stdout)
	}
	status, stdout, stderr := said(t)
	assert.Equal(t, 2, status)
	assert.Contains(t, stderr, "measure")
	assert.Empty(t, stdout)
}

func TestHelpIsOnStandardOutputInGroups(t *testing.T) {
	_, want, _ := said(t, "measure", "--help")
	for _, text := range []string{"\nOutput:\n", "\n  -o, --output file ", "--wait duration ", "(default 30s)", "  energy measure -- make -j8 "} {
		assert.Contains(t, want, text)
	}
	assert.NotContains(t, want, "(default )")
	for _, args := range []string{"help measure", "measure -h"} {
		status, stdout, stderr := said(t, strings.Fields(args)...)
		assert.Zero(t, status)
		assert.Equal(t, want, stdout, args)
		assert.Empty(t, stderr)
	}
}

func TestTextThatIsNotWrittenIsAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { _ = full.Close() }()
	for _, args := range []string{"help", "measure --help", "completion bash", "completion zsh", "version"} {
		c := exec.Command(os.Args[0], strings.Fields(args)...)
		var stderr strings.Builder
		c.Env, c.Stdout, c.Stderr = append(os.Environ(), standIn+"=energy"), full, &stderr
		var exit *exec.ExitError
		require.ErrorAs(t, c.Run(), &exit, args)
		assert.Equal(t, 1, exit.ExitCode(), args)
		assert.Regexp(t, "^energy[a-z ]*: write /dev/stdout: no space left on device\n$", stderr.String())
	}
}

func TestHelpHasAtMost100Columns(t *testing.T) {
	for _, c := range append(rootCommand().Commands(), rootCommand()) {
		var b strings.Builder
		writeHelp(&b, c)
		for line := range strings.Lines(b.String()) {
			assert.LessOrEqual(t, len([]rune(line))-1, helpColumns, "%s: %s", c.Name(), line)
		}
	}
}

func TestTheVersionIsACommandAndAFlag(t *testing.T) {
	for _, args := range []string{"version", "--version"} {
		status, stdout, _ := said(t, args)
		assert.Zero(t, status)
		assert.Regexp(t, "^energy .* linux/", stdout)
	}
}

func TestACompletionAndManPagesAreOfTheFlagsThatAreThere(t *testing.T) {
	status, script, _ := said(t, "completion", "bash")
	assert.Zero(t, status)
	assert.Contains(t, script, "__start_energy")
	_, flags, _ := said(t, "__complete", "measure", "--max")
	assert.Contains(t, flags, "--max-joules\texit with 124")

	dir := filepath.Join(t.TempDir(), "man1")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	status, _, stderr := said(t, "man", dir)
	assert.Zero(t, status, stderr)
	assert.FileExists(t, filepath.Join(dir, "energy.1"))
	page := read(t, filepath.Join(dir, "energy-measure.1"))
	assert.Contains(t, page, "max-joules")
	assert.Contains(t, page, "Nov 2023")
}

func TestFilesAreReplacedOnlyWithForce(t *testing.T) {
	dir := t.TempDir()
	file, started := filepath.Join(dir, "verify.json"), filepath.Join(dir, "started")
	require.NoError(t, os.WriteFile(file, []byte("earlier"), 0o600))
	for _, args := range [][]string{
		{"measure", "-o", file, "touch", started}, {"measure", "--html", file, "touch", started},
		{"measure", "--profile", file, "touch", started}, {"verify", "--for", "20s", "-o", dir}, {"model", "-o", file},
		{"model", "-o", started, "--record", file},
	} {
		status, _, stderr := said(t, args...)
		assert.Equal(t, map[bool]int{true: exitFailed, false: 2}[args[0] == "measure"], status)
		assert.Contains(t, stderr, file+" exists: use --force to replace it", args)
	}
	assert.NoFileExists(t, started)
	assert.Equal(t, "earlier", read(t, file))

	status, _, stderr := measured(t, "--force", "--model", tenToFifty, "-o", file, "true")
	assert.Zero(t, status, stderr)
	assert.Regexp(t, "^{", read(t, file))

	open, err := os.OpenFile(file, os.O_RDWR|os.O_TRUNC, 0)
	require.NoError(t, err)
	defer func() { _ = open.Close() }()
	_, err = open.WriteString("written before\n")
	require.NoError(t, err)
	stream := fmt.Sprintf("/proc/self/fd/%d", open.Fd())
	status, _, stderr = measured(t, "--model", tenToFifty, "--csv", "-o", stream, "true")
	assert.Zero(t, status, stderr)
	assert.Regexp(t, "^written before\ncommand,", read(t, file), "what is written to a file that is open is added to it")
}
