// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
)

func TestFilesThatAreNoRegularFilesAreErrorsAndNeverBlock(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{pipe, "/dev/zero", t.TempDir()} {
		c := WattTimeConfig{PasswordFile: path}
		_, err := c.password()
		assert.EqualError(t, err, "password_file: not a regular file", path)
		c.Endpoint = "https://watttime.example"
		c.TLS.CAFile = path
		o := &opening{Context: t.Context(), host: componenttest.NewNopHost(), set: componenttest.NewNopTelemetrySettings()}
		_, err = o.server(c.ClientConfig)
		assert.ErrorContains(t, err, "tls::ca_file: ", path)
	}
}
