// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configopaque"

	"github.com/energyreceiver/energyreceiver/internal/regular"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal/provider"
)

// ElectricityMapsConfig is a zone of Electricity Maps.
type ElectricityMapsConfig struct {
	confighttp.ClientConfig `mapstructure:",squash"`

	// Zone is Electricity Maps' name of the zone, such as FR.
	Zone string `mapstructure:"zone"`
	// Token is that of an account.
	Token configopaque.String `mapstructure:"token"`

	_ struct{}
}

// WattTimeConfig is a region of WattTime.
type WattTimeConfig struct {
	confighttp.ClientConfig `mapstructure:",squash"`

	// Region is WattTime's name of the region, such as CAISO_NORTH.
	Region string `mapstructure:"region"`
	// Username and Password are those of an account. PasswordFile has the password in place of Password, and is read
	// at each login.
	Username     string              `mapstructure:"username"`
	Password     configopaque.String `mapstructure:"password"`
	PasswordFile string              `mapstructure:"password_file"`

	_ struct{}
}

// UKCarbonIntensityConfig is Great Britain.
type UKCarbonIntensityConfig struct {
	confighttp.ClientConfig `mapstructure:",squash"`

	// Region is the number of a region, from 1 to 17. 0 is all of Great Britain.
	Region int `mapstructure:"region"`

	_ struct{}
}

// PrometheusConfig is a query of Prometheus' API.
type PrometheusConfig struct {
	confighttp.ClientConfig `mapstructure:",squash"`

	// Query returns a scalar, or a vector of one series, in g CO2e per kWh.
	Query string `mapstructure:"query"`
	// PollInterval is the time from one query to the next.
	PollInterval time.Duration `mapstructure:"poll_interval"`

	_ struct{}
}

// FileConfig is a file with a number or with periods.
type FileConfig struct {
	// Path is where the file is. It is read again when it changes.
	Path string `mapstructure:"path"`

	_ struct{}
}

const (
	providerMaxAge     = 2 * time.Hour
	prometheusMaxAge   = 10 * time.Minute
	prometheusInterval = time.Minute
	minPollInterval    = time.Second
	fileInterval       = 10 * time.Second
	localBackoff       = time.Minute // servers of the user's own, and files
	// maxForecast is how far ahead a forecast may end: services provide three days at most.
	maxForecast = 8 * 24 * time.Hour
)

// clientAt returns the default settings of a client.
func clientAt(endpoint string) confighttp.ClientConfig {
	c := confighttp.NewDefaultClientConfig()
	c.Endpoint = endpoint
	return c
}

// remote returns how a service is asked.
func (o *opening) remote(c *confighttp.ClientConfig) signal.Options {
	return signal.Options{Timeout: c.Timeout, MaxAge: cmp.Or(o.maxAge, providerMaxAge), Ahead: maxForecast}
}

// Validate checks the settings.
func (c *ElectricityMapsConfig) Validate() error {
	errs := validateClient(&c.ClientConfig)
	if c.Zone == "" {
		errs = append(errs, errors.New("zone: must not be empty"))
	}
	if _, inHeaders := c.Headers.Get("auth-token"); c.Token == "" && !inHeaders && !c.Auth.HasValue() {
		errs = append(errs, errors.New("token: must not be empty"))
	}
	return errors.Join(errs...)
}

func (c *ElectricityMapsConfig) open(o *opening) (*source, error) {
	at, err := o.server(c.ClientConfig)
	if err != nil {
		return nil, err
	}
	p, err := provider.NewElectricityMaps(at, c.Zone, string(c.Token))
	if err != nil {
		return nil, err
	}
	return o.poll("electricity_maps", c.Zone, p, o.remote(&c.ClientConfig)), nil
}

// Validate checks the settings.
func (c *WattTimeConfig) Validate() error {
	errs := validateClient(&c.ClientConfig)
	if c.Region == "" {
		errs = append(errs, errors.New("region: must not be empty"))
	}
	if c.Username == "" {
		errs = append(errs, errors.New("username: must not be empty"))
	}
	switch {
	case c.Password != "" && c.PasswordFile != "":
		errs = append(errs, errors.New("password: must not be set together with password_file"))
	case c.Password == "" && c.PasswordFile == "":
		errs = append(errs, errors.New("password: must not be empty: set it or password_file"))
	}
	if c.Auth.HasValue() {
		errs = append(errs, errors.New("auth: must not be set: the provider logs in"))
	}
	return errors.Join(errs...)
}

func (c *WattTimeConfig) open(o *opening) (*source, error) {
	at, err := o.server(c.ClientConfig)
	if err != nil {
		return nil, err
	}
	p, err := provider.NewWattTime(at, c.Region, c.Username, c.password)
	if err != nil {
		return nil, err
	}
	return o.poll("watttime", c.Region, p, o.remote(&c.ClientConfig)), nil
}

// password returns the account's password. It never blocks.
func (c *WattTimeConfig) password() (string, error) {
	if c.PasswordFile == "" {
		return string(c.Password), nil
	}
	password, err := regular.Secret(c.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("password_file: %w", err)
	}
	return password, nil
}

// Validate checks the settings.
func (c *UKCarbonIntensityConfig) Validate() error {
	errs := validateClient(&c.ClientConfig)
	if c.Region < 0 || c.Region > provider.MaxUKRegion {
		errs = append(errs, fmt.Errorf("region: must be from 1 to %d, or 0 for all of Great Britain, is %d", provider.MaxUKRegion, c.Region))
	}
	return errors.Join(errs...)
}

func (c *UKCarbonIntensityConfig) open(o *opening) (*source, error) {
	at, err := o.server(c.ClientConfig)
	if err != nil {
		return nil, err
	}
	p, err := provider.NewUKCarbonIntensity(at, c.Region)
	if err != nil {
		return nil, err
	}
	region := "GB"
	if c.Region != 0 {
		region = fmt.Sprintf("GB:%d", c.Region)
	}
	return o.poll("uk_carbon_intensity", region, p, o.remote(&c.ClientConfig)), nil
}

// Validate checks the settings.
func (c *PrometheusConfig) Validate() error {
	errs := validateClient(&c.ClientConfig)
	if c.Query == "" {
		errs = append(errs, errors.New("query: must not be empty"))
	}
	if c.PollInterval < minPollInterval {
		errs = append(errs, fmt.Errorf("poll_interval: must be at least %v, is %v", minPollInterval, c.PollInterval))
	}
	return errors.Join(errs...)
}

func (c *PrometheusConfig) open(o *opening) (*source, error) {
	at, err := o.server(c.ClientConfig)
	if err != nil {
		return nil, err
	}
	p, err := provider.NewPrometheus(at, provider.PrometheusOptions{Query: c.Query, Every: c.PollInterval})
	if err != nil {
		return nil, err
	}
	return o.poll("prometheus", "", p, signal.Options{
		Timeout: c.Timeout, MaxAge: cmp.Or(o.maxAge, prometheusMaxAge), MaxBackoff: localBackoff,
	}), nil
}

// Validate checks the settings.
func (c *FileConfig) Validate() error {
	if c.Path == "" {
		return errors.New("path: must not be empty")
	}
	return nil
}

func (c *FileConfig) open(o *opening) (*source, error) {
	p := provider.NewFile(provider.FileOptions{
		Path: c.Path, Every: fileInterval, MaxAge: o.maxAge,
	})
	// Periods end when the file says so: what follows is not known.
	return o.poll("file", "", p, signal.Options{MaxBackoff: localBackoff}), nil
}
