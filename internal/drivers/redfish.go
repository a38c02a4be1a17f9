// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/redfish"
	"github.com/energyreceiver/energyreceiver/internal/regular"
)

var redfishDriver = Driver{
	Name: "redfish", Energy: "measured by the BMC of meters::redfish", Only: power.Platform,
	Sections: func(c *Config) []Section { return single("redfish", c.Redfish.Get()) }, Corrected: true,
	Defaults: func(c *Config) {
		c.Redfish = configoptional.Default(RedfishConfig{
			ClientConfig: confighttp.ClientConfig{Timeout: redfishTimeout},
			PollConfig:   PollConfig{PollInterval: redfishInterval}, CorrectionConfig: uncorrected,
		})
	},
	Open: openRedfish,
}

// RedfishConfig configures the meter redfish.
type RedfishConfig struct {
	confighttp.ClientConfig `mapstructure:",squash"`
	PollConfig              `mapstructure:",squash"`
	CorrectionConfig        `mapstructure:",squash"`

	// Username is the name of an account on the BMC. If it is empty, the extension in auth provides
	// the credentials. Without username and auth, requests are sent without credentials.
	Username string `mapstructure:"username"`
	// Password is the password of the account.
	Password configopaque.String `mapstructure:"password"`
	// PasswordFile is the path of a file that contains the password. The file is read at each login.
	// It must not be set together with password.
	PasswordFile string `mapstructure:"password_file"`
	// System is the Redfish ID of this machine's system. Set it if the service has several systems and
	// the receiver cannot find this machine by its UUID or serial number.
	System string `mapstructure:"system"`
	// Chassis is the Redfish ID of this machine's chassis. Set it if the system has several chassis.
	Chassis string `mapstructure:"chassis"`

	_ struct{}
}

const (
	redfishInterval    = 10 * time.Second
	redfishTimeout     = time.Minute // default time limit of a request; some BMCs take 30 s
	minRedfishInterval = time.Second
	// redfishRequests is the time limit of a poll, in timeouts of a request. A search for the machine
	// sends about ten requests. Reading the power supplies sends one request for each of them.
	redfishRequests = 20
	// redfishGap is the maximum gap between two power readings that are integrated, in timeouts of a
	// request. Some BMCs take a long time to answer.
	redfishGap = 5
	// redfishMaxUnchanged is the time after which an unchanged counter is an error. Some BMCs have only
	// a counter with a resolution of 1 kWh, and no power reading.
	redfishMaxUnchanged = 24 * time.Hour
)

// validate checks the settings. No error contains the endpoint or the credentials.
func (c *RedfishConfig) validate(wrong invalid.Reporter) {
	if _, err := redfish.ParseEndpoint(c.Endpoint); err != nil {
		wrong("endpoint", "%w", err)
	}
	hasPassword := c.Password != "" || c.PasswordFile != ""
	switch {
	case c.Password != "" && c.PasswordFile != "":
		wrong("password", "must not be set together with password_file")
	case c.Username == "" && hasPassword:
		wrong("username", "must be set together with the password")
	case c.Username != "" && !hasPassword:
		wrong("password", "must be set together with username, or password_file")
	}
	if c.Username != "" && c.Auth.HasValue() {
		wrong("auth", "must not be set together with username")
	}
	c.PollConfig.validate(wrong, minRedfishInterval)
	c.CorrectionConfig.validate(wrong, c.PollInterval)
	if c.Timeout < 0 {
		wrong("timeout", "must not be negative, is %v", c.Timeout)
	}
}

// readPassword returns the password from password or password_file. It never blocks.
func (c *RedfishConfig) readPassword() (string, error) {
	if c.PasswordFile == "" {
		return string(c.Password), nil
	}
	password, err := regular.Secret(c.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("password_file: %w", err)
	}
	return password, nil
}

func openRedfish(ctx context.Context, all *Config, env *Env) (power.Meter, error) {
	c := all.Redfish.Get()
	sensor, err := c.sensor(ctx, env)
	if err != nil {
		return nil, err
	}
	interval, timeout := c.PollInterval, cmp.Or(c.Timeout, redfishTimeout)
	return power.Poll(sensor, power.PollOptions{
		Name: "redfish", Every: interval, Timeout: redfishRequests * timeout,
		LongestGap: max(3*interval, redfishGap*timeout), MaxUnchanged: redfishMaxUnchanged,
	}), nil
}

func (c *RedfishConfig) sensor(ctx context.Context, env *Env) (*redfish.Sensor, error) {
	client, err := env.client(ctx, c.ClientConfig, cmp.Or(c.Timeout, redfishTimeout))
	if err != nil {
		return nil, err
	}
	return redfish.New(redfish.Options{
		Client: client, Endpoint: c.Endpoint, Username: c.Username, Password: c.readPassword, System: c.System, Chassis: c.Chassis,
		Root: env.Root,
	})
}
