// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configopaque"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/redfish"
	"github.com/energyreceiver/energyreceiver/internal/regular"
)

// RedfishConfig is this machine's BMC.
type RedfishConfig struct {
	confighttp.ClientConfig `mapstructure:",squash"`

	// Username and Password are the account's. Without them requests are authorized by auth, or not at all.
	Username string              `mapstructure:"username"`
	Password configopaque.String `mapstructure:"password"`
	// PasswordFile has the password in place of Password. It is read at each login.
	PasswordFile string `mapstructure:"password_file"`
	// Interval is the time from one request to the next. 0 means 10 s.
	Interval time.Duration `mapstructure:"interval"`
	// System and Chassis are the IDs of this machine's resources, where they are not found.
	System  string `mapstructure:"system"`
	Chassis string `mapstructure:"chassis"`

	_ struct{}
}

const (
	redfishInterval    = 10 * time.Second
	redfishTimeout     = time.Minute // of one request: some BMCs take half of it
	minRedfishInterval = time.Second
	// A poll that looks for the machine sends some ten requests, one that reads power supplies one for each.
	redfishRequests = 20
	// redfishGap is how many timeouts readings may be apart to be integrated, as they are where requests take long.
	redfishGap = 5
	// redfishStandsStill is for counters of 1 kWh, which some BMCs have and no power beside.
	redfishStandsStill = 24 * time.Hour
)

// Validate checks what can be checked without asking. Each error names its field, and none has the address or the
// credentials.
func (c *RedfishConfig) Validate() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
	}
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
		wrong("password", "must not be empty where username is set: set it or password_file")
	}
	if c.Username != "" && c.Auth.HasValue() {
		wrong("auth", "must not be set together with username")
	}
	if c.Interval != 0 && c.Interval < minRedfishInterval {
		wrong("interval", "must be 0 or at least %v, is %v", minRedfishInterval, c.Interval)
	}
	if c.Timeout < 0 {
		wrong("timeout", "must not be negative, is %v", c.Timeout)
	}
	return errors.Join(errs...)
}

func openRedfish(ctx context.Context, o *meterOptions) (power.Meter, error) {
	if !o.Redfish.HasValue() {
		return nil, nil
	}
	c := o.Redfish.Get()
	sensor, err := c.sensor(ctx, o)
	if err != nil {
		return nil, err
	}
	interval, timeout := cmp.Or(c.Interval, redfishInterval), cmp.Or(c.Timeout, redfishTimeout)
	return power.NewPoller(sensor, power.PollOptions{
		Name: string(MeterRedfish), Every: interval, Timeout: redfishRequests * timeout,
		LongestGap: max(3*interval, redfishGap*timeout), StandsStill: redfishStandsStill,
	}), nil
}

func (c *RedfishConfig) sensor(ctx context.Context, o *meterOptions) (*redfish.Sensor, error) {
	client, err := o.client(ctx, c.ClientConfig, cmp.Or(c.Timeout, redfishTimeout))
	if err != nil {
		return nil, err
	}
	return redfish.New(redfish.Options{
		Client: client, Endpoint: c.Endpoint, Username: c.Username, Password: c.password, System: c.System, Chassis: c.Chassis,
		Root: o.RootPath,
	})
}

// password returns the account's password. It never blocks.
func (c *RedfishConfig) password() (string, error) {
	if c.PasswordFile == "" {
		return string(c.Password), nil
	}
	password, err := regular.Secret(c.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("password_file: %w", err)
	}
	return password, nil
}
