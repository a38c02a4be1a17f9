// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// hanging returns paths whose plain read fails, blocks or never ends, by the type of the file.
func hanging(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	require.NoError(t, os.Symlink(pipe, link))
	return map[string]string{"a pipe": pipe, "a link to a pipe": link, "zeros": "/dev/zero", "a directory": dir}
}

func TestAPasswordFileThatIsNoRegularFileIsAnErrorAndDelaysNothing(t *testing.T) {
	for name, path := range hanging(t) {
		t.Run(name, func(t *testing.T) {
			server, c := bmc(t)
			c.Password, c.PasswordFile = "", path
			meter, err := openRedfish(t.Context(), &Config{Redfish: configoptional.Some(*c)}, testEnv())
			require.NoError(t, err)
			assert.Eventually(t, func() bool {
				_, err = meter.Read(t.Context(), power.Sample{})
				return err != nil
			}, 10*time.Second, time.Millisecond)
			assert.ErrorContains(t, err, "password_file: not a regular file")
			began := time.Now()
			assert.NoError(t, meter.Close())
			assert.Less(t, time.Since(began), 30*time.Second)
			assert.Empty(t, server.Requests())
		})
	}
}

func TestACertificateFileThatIsNoRegularFileFailsAtTheStart(t *testing.T) {
	for name, path := range hanging(t) {
		for setting, set := range map[string]func(c *RedfishConfig){
			"tls::ca_file":   func(c *RedfishConfig) { c.TLS.CAFile = path },
			"tls::cert_file": func(c *RedfishConfig) { c.TLS.CertFile = path },
			"tls::key_file":  func(c *RedfishConfig) { c.TLS.KeyFile = path },
		} {
			_, c := bmc(t)
			set(c)
			_, err := c.sensor(t.Context(), testEnv())
			assert.ErrorContains(t, err, setting+": ", name)
			assert.ErrorContains(t, err, "not a regular file", name)
		}
	}
}
