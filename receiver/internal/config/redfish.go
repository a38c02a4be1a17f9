// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"time"

	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configopaque"

	"github.com/energyreceiver/energyreceiver/internal/power/redfish"
	"github.com/energyreceiver/energyreceiver/internal/regular"
)

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
	// System is the ID of this machine's system. Set it if the service has several systems and none
	// has this machine's UUID.
	System string `mapstructure:"system"`
	// Chassis is the ID of this machine's chassis. Set it if the system has several chassis.
	Chassis string `mapstructure:"chassis"`

	_ struct{}
}

const (
	redfishInterval = 10 * time.Second
	// RedfishTimeout is the default time limit of a request.
	RedfishTimeout     = time.Minute // of one request: some BMCs take half of it
	minRedfishInterval = time.Second
)

func defaultRedfishConfig() RedfishConfig {
	return RedfishConfig{
		ClientConfig: confighttp.ClientConfig{Timeout: RedfishTimeout},
		PollConfig:   PollConfig{PollInterval: redfishInterval}, CorrectionConfig: uncorrected,
	}
}

// validate checks the settings. No error contains the endpoint or the credentials.
func (c *RedfishConfig) validate(wrong reporter) {
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

// ReadPassword returns the account's password. It never blocks.
func (c *RedfishConfig) ReadPassword() (string, error) {
	if c.PasswordFile == "" {
		return string(c.Password), nil
	}
	password, err := regular.Secret(c.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("password_file: %w", err)
	}
	return password, nil
}
