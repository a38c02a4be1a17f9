// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/nut"
)

var nutDriver = Driver{
	Name: "nut", Energy: "measured by the UPS of meters::nut", Only: power.Platform,
	Sections: func(c *Config) []Section { return named(c.NUT) }, Corrected: true,
	Decode: func(c *Config, id component.ID, conf *confmap.Conf) error { return add(&c.NUT, id, conf) },
	Open:   openNUT,
}

// NUTConfig configures the section nut/NAME. A section reads the power of one UPS that Network UPS
// Tools (NUT) monitors.
type NUTConfig struct {
	AddressConfig    `mapstructure:",squash"`
	PollConfig       `mapstructure:",squash"`
	CorrectionConfig `mapstructure:",squash"`

	// UPS is the name of the UPS in ups.conf, the configuration of NUT.
	UPS string `mapstructure:"ups"`

	_ struct{}
}

// Unmarshal implements confmap.Unmarshaler. It sets the defaults of a section.
func (c *NUTConfig) Unmarshal(conf *confmap.Conf) error {
	*c = NUTConfig{
		AddressConfig: AddressConfig{Endpoint: "localhost:3493", Timeout: deviceTimeout},
		PollConfig:    PollConfig{PollInterval: deviceInterval}, CorrectionConfig: uncorrected,
	}
	return conf.Unmarshal(c)
}

func (c *NUTConfig) validate(wrong invalid.Reporter) {
	c.AddressConfig.validate(wrong)
	c.PollConfig.validate(wrong, minDeviceInterval)
	c.CorrectionConfig.validate(wrong, c.PollInterval)
	if err := nut.CheckUPS(c.UPS); err != nil {
		wrong("ups", "%w", err)
	}
}

func openNUT(_ context.Context, all *Config, _ *Env) (power.Meter, error) {
	m := new(power.Several)
	for _, section := range named(all.NUT) {
		_, name, _ := strings.Cut(section.Key, "/")
		c := section.validator.(*NUTConfig)
		zone := power.NewDevice("nut", name, power.Platform)
		m.Add(zone, nut.New(zone, c.Endpoint, c.UPS), power.PollOptions{Name: "nut", Every: c.PollInterval, Timeout: c.Timeout})
	}
	return m, nil
}
