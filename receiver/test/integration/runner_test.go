// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The runner is run with a fake go test.
func TestRunnerCountsFailedTests(t *testing.T) {
	for name, test := range map[string]struct {
		output, status string
		fails          bool
		says           []string
	}{
		"all pass":     {"--- PASS: TestA (1s)\n--- SKIP: TestB (0s)\n", "0", false, []string{"1 passed, 0 failed, 1 skipped"}},
		"one fails":    {"--- PASS: TestA (1s)\n--- FAIL: TestB (0s)\n    --- FAIL: TestB/part (0s)\n", "1", true, []string{"1 passed, 1 failed, 0 skipped", "    --- FAIL: TestB/part"}},
		"none runs":    {"--- SKIP: TestB (0s)\n", "0", true, []string{"0 passed, 0 failed, 1 skipped", "no test ran"}},
		"does not end": {"--- PASS: TestA (1s)\npanic: test timed out\n", "2", true, []string{"1 passed, 0 failed, 0 skipped", "status 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "output"), []byte(test.output), 0o600))
			script := "#!/bin/sh\ncat '" + dir + "/output'\nexit " + test.status + "\n"
			require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o700))
			bash, err := exec.LookPath("bash")
			if err != nil {
				t.Skip("lacks bash")
			}
			cmd := exec.Command(bash, "-euo", "pipefail", "-c", `. ./tests.sh; tests "$0"`, filepath.Join(dir, "log"))
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			said, err := cmd.CombinedOutput()
			assert.Equal(t, test.fails, err != nil, "%v", err)
			for _, what := range test.says {
				assert.Contains(t, string(said), what)
			}
		})
	}
}
