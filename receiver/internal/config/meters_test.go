// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
)

func TestWrongSettingsOfHTTPAreNamed(t *testing.T) {
	valid := func() map[string]any {
		return map[string]any{"endpoint": "http://plug.example/status", "pointer": "/total", "unit": "Wh"}
	}
	plug := func(settings map[string]any) map[string]any {
		return map[string]any{"meters": map[string]any{"http/a": settings}}
	}
	for setting, values := range map[string][]any{
		"endpoint":      {"", "plug.example/secret", "ftp://plug.example/secret", "http:///secret", "http://plug.example/secret\x7f"},
		"pointer":       {"total", "/a~2"},
		"unit":          {"", "VA"},
		"zone":          {"psys"},
		"poll_interval": {"-1s", "999ms", "0s"},
		"timeout":       {"-1s"},
	} {
		for _, value := range values {
			entry := valid()
			entry[setting] = value
			err := validated(t, plug(entry))
			assert.ErrorContains(t, err, "meters::http/a::"+setting+": ", "%s: %v", setting, value)
			assert.NotContains(t, err.Error(), "secret")
		}
	}
	require.NoError(t, validated(t, plug(valid())))
	memory := valid()
	memory["zone"] = "dram"
	settings := plug(memory)
	settings["zones"] = []any{"package"}
	assert.ErrorContains(t, validated(t, settings), `zones: must contain "dram", the zone of meters::http/a::zone`)
}

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

func TestWrongSettingsOfThePowercapPathAreNamed(t *testing.T) {
	with := func(path string, others ...string) map[string]any {
		meters := map[string]any{"powercap": map[string]any{"path": path}}
		for _, other := range others {
			meters[other] = map[string]any{"port": 1}
		}
		return map[string]any{"meters": meters}
	}
	assert.NoError(t, validated(t, with("/mnt/energy")))
	assert.ErrorContains(t, validated(t, with("energy")), `meters::powercap::path: must be an absolute path, is "energy"`)
	assert.ErrorContains(t, validated(t, with("/mnt/energy", "vsock")), "meters::powercap::path: must not be set together with vsock")
}

// validated loads settings over the defaults and validates them.
func validated(t *testing.T, settings map[string]any) error {
	t.Helper()
	cfg := Default()
	require.NoError(t, confmap.NewFromStringMap(settings).Unmarshal(cfg))
	return confmap.Validate(cfg)
}
