// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"net"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/httpmeter"
)

const (
	deviceInterval    = 10 * time.Second
	deviceTimeout     = 5 * time.Second // default time limit of a request
	minDeviceInterval = time.Second
)

// AddressConfig configures the connection to a TCP server.
type AddressConfig struct {
	// Endpoint is the address of the device or of its server, as host:port.
	Endpoint string `mapstructure:"endpoint"`
	// Timeout is the time limit of a poll.
	Timeout time.Duration `mapstructure:"timeout"`

	_ struct{}
}

func (c *AddressConfig) validate(wrong invalid.Reporter) {
	host, port, err := net.SplitHostPort(c.Endpoint)
	if number, badPort := strconv.ParseUint(port, 10, 16); err != nil || badPort != nil || number == 0 || host == "" {
		wrong("endpoint", "must be an address host:port, is %q", c.Endpoint)
	}
	if c.Timeout <= 0 {
		wrong("timeout", "must be positive, is %v", c.Timeout)
	}
}

// NumberConfig describes a number that a device provides.
type NumberConfig struct {
	// Unit is the unit of the number, a unit of power or of energy.
	Unit string `mapstructure:"unit"`
	// Zone is the zone kind whose power or energy the number measures.
	Zone power.Kind `mapstructure:"zone"`

	_ struct{}
}

func (c *NumberConfig) validate(wrong invalid.Reporter) {
	invalid.OneOf(wrong, "unit", c.Unit, httpmeter.Units()...)
	invalid.OneOf(wrong, "zone", c.Zone, power.Platform, power.Package, power.DRAM, power.GPU)
}

func (c *NumberConfig) zones() map[string]power.Kind { return map[string]power.Kind{"zone": c.Zone} }
