// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVerifyOfThisMachine(t *testing.T) {
	t.Setenv(standIn, "energy")
	dir := filepath.Join(t.TempDir(), "report")
	o := verifyOptions{length: 3 * time.Second, out: dir, backend: "http://127.0.0.1:1"} // nothing listens there
	var out, messages bytes.Buffer
	require.ErrorIs(t, failed(o.run(t.Context(), &out, &messages)), errFaults)
	assert.Contains(t, messages.String(), "to report a fault, attach "+filepath.Join(dir, "verify.md")+" to an issue\n")
	assert.Contains(t, messages.String(), "energy verify: step 1 of ")
	assert.Contains(t, out.String(), "\nOK sums: The receiver's sums hold to the microjoule")
	assert.Contains(t, painter.Replace(out.String()), "\n\x1b[32mOK\x1b[m sums: ")
	host, err := os.Hostname()
	require.NoError(t, err)
	for _, name := range []string{"verify.json", "verify.md"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.NotContains(t, string(text), host)
	}
}

func TestVerifyEndsWithItsContext(t *testing.T) {
	t.Setenv(standIn, "energy")
	ctx, cancel := context.WithCancel(t.Context())
	o := verifyOptions{length: time.Hour}
	say, said := io.Pipe()
	go func() {
		_, _ = say.Read(make([]byte, 1)) // the first step begins
		cancel()
		_, _ = io.Copy(io.Discard, say)
	}()
	require.ErrorIs(t, o.run(ctx, io.Discard, said), context.Canceled)
}
