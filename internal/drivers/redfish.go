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

	// Username is the name of an account on the BMC. Without it, auth authorizes requests, or
	// requests are not authorized.
	Username string `mapstructure:"username"`
	// Password is the password of the account.
	Password configopaque.String `mapstructure:"password"`
	// PasswordFile is the path of a file that contains the password. It is read at each login and
	// replaces password.
	PasswordFile string `mapstructure:"password_file"`
	// System is the ID of this machine's system. Set it if the service has several systems, and
	// no system has this machine's UUID.
	System string `mapstructure:"system"`
	// Chassis is the ID of this machine's chassis. Set it if the system has several chassis.
	Chassis string `mapstructure:"chassis"`

	_ struct{}
}

const (
	redfishInterval    = 10 * time.Second
	redfishTimeout     = time.Minute // of one request: some BMCs take half of it
	minRedfishInterval = time.Second
	// A poll that searches for the machine sends about ten requests. A poll that reads power
	// supplies sends one for each.
	redfishRequests = 20
	// redfishGap is the maximum number of timeouts between readings that are integrated. Some BMCs
	// take long to answer.
	redfishGap = 5
	// redfishStandsStill allows for counters of 1 kWh, which some BMCs have without a power
	// reading.
	redfishStandsStill = 24 * time.Hour
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

// readPassword returns the account's password. It never blocks.
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
		LongestGap: max(3*interval, redfishGap*timeout), StandsStill: redfishStandsStill,
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
