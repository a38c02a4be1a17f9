// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWrongSettingsOfRedfishAreNamed(t *testing.T) {
	valid := func() map[string]any {
		return map[string]any{"endpoint": "https://bmc.example", "username": "energy", "password": "secret"}
	}
	require.NoError(t, validated(t, map[string]any{"meters": map[string]any{"redfish": valid()}}))
	for _, c := range []struct {
		setting string
		value   any
		want    string
	}{
		{"endpoint", "", "endpoint: must be the address of a BMC"},
		{"endpoint", "https://root:secret@bmc.example", "endpoint: must be the address of a BMC"},
		{"endpoint", "https://bmc.example/redfish/v1", "endpoint: must be the address of a BMC"},
		{"username", "", "username: must be set together with the password"},
		{"password", "", "password: must be set together with username"},
		{"password_file", "/run/bmc", "password: must not be set together with password_file"},
		{"auth", map[string]any{"authenticator": "basicauth"}, "auth: must not be set together with username"},
		{"poll_interval", "999ms", "poll_interval: must be at least 1s"},
		{"timeout", "-1s", "timeout: must not be negative"},
	} {
		settings := valid()
		settings[c.setting] = c.value
		err := validated(t, map[string]any{"meters": map[string]any{"redfish": settings}})
		assert.ErrorContains(t, err, "meters::redfish::"+c.want, "%s: %v", c.setting, c.value)
		assert.NotContains(t, err.Error(), "secret")
	}
}
