// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"encoding/pem"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configopaque"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/redfish/redfishtest"
)

// bmc is a BMC with TLS, and the settings that read it.
func bmc(t *testing.T) (*redfishtest.Server, *RedfishConfig) {
	t.Helper()
	server := redfishtest.New(redfishtest.Dell(redfishtest.Live{Watts: 300}))
	web := httptest.NewTLSServer(server)
	t.Cleanup(web.Close)
	ca := filepath.Join(t.TempDir(), "bmc.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	require.NoError(t, os.WriteFile(ca, text, 0o600))
	all := Default()
	c := all.Redfish.GetOrInsertDefault()
	c.Username, c.Password = redfishtest.Username, redfishtest.Password
	c.Endpoint, c.TLS.CAFile = web.URL, ca
	return server, c
}

// ask opens the sensor, polls it once, and returns the error.
func ask(t *testing.T, c *RedfishConfig) error {
	t.Helper()
	sensor, err := c.sensor(t.Context(), testEnv())
	require.NoError(t, err)
	defer func() { require.NoError(t, sensor.Close()) }()
	answer, err := sensor.Answer(t.Context(), power.Sample{})
	assert.Equal(t, err == nil, len(answer.Shown) == 1)
	return err
}

func TestTheBMCIsReadWithTheCollectorsClient(t *testing.T) {
	server, c := bmc(t)
	require.NoError(t, ask(t, c))
	open, created, _ := server.Sessions()
	assert.Equal(t, [2]int{0, 1}, [2]int{open, created}, "the session is ended")
}

func TestACertificateThatIsNotTrustedIsToldWithItsSetting(t *testing.T) {
	_, c := bmc(t)
	c.TLS.CAFile = ""
	assert.ErrorContains(t, ask(t, c), "set tls::ca_file to the certificate that signed it, or tls::insecure_skip_verify")
	c.TLS.InsecureSkipVerify = true
	assert.NoError(t, ask(t, c))
}

func TestThePasswordFileIsReadAtEachLogin(t *testing.T) {
	server, c := bmc(t)
	file := filepath.Join(t.TempDir(), "password")
	c.Password, c.PasswordFile = "", file
	err := ask(t, c)
	assert.ErrorContains(t, err, "password_file: no such file or directory")
	assert.NotErrorIs(t, err, fs.ErrNotExist, "the BMC is not missing")
	for content, want := range map[string]string{"\n": "password_file: the file is empty", "wrong": "the BMC refuses the login"} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		assert.ErrorContains(t, ask(t, c), want)
	}
	require.NoError(t, os.WriteFile(file, []byte(redfishtest.Password+"\n"), 0o600))
	assert.NoError(t, ask(t, c))
	_, _, refused := server.Sessions()
	assert.Equal(t, 1, refused)
}

func TestHeadersAndCredentialsDoNotFollowARedirect(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request went elsewhere") }))
	t.Cleanup(elsewhere.Close)
	server, c := bmc(t)
	server.Fail(redfishtest.Redirect(elsewhere.URL), nil)
	c.Headers.Set("X-Key", "secret")
	assert.ErrorContains(t, ask(t, c), fmt.Sprintf("not followed: if %q is right, set endpoint to it", elsewhere.URL))
}

func TestPasswordsAreNotShown(t *testing.T) {
	_, c := bmc(t)
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v", c, c, c), redfishtest.Password)
	assert.IsType(t, configopaque.String(""), c.Password)
}
