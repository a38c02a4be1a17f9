// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"math"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/httpmeter"
	"github.com/energyreceiver/energyreceiver/internal/power/modbus"
)

var modbusDriver = Driver{
	Name: "modbus", Energy: "measured by the devices of meters::modbus",
	Sections: func(c *Config) []Section { return named(c.Modbus) }, Corrected: true,
	Decode: func(c *Config, id component.ID, conf *confmap.Conf) error { return add(&c.Modbus, id, conf) },
	Open:   openModbus,
}

// ModbusConfig configures the section modbus/NAME. A section reads one number, a power or an
// energy, from the registers of a Modbus TCP device.
type ModbusConfig struct {
	AddressConfig    `mapstructure:",squash"`
	PollConfig       `mapstructure:",squash"`
	CorrectionConfig `mapstructure:",squash"`
	NumberConfig     `mapstructure:",squash"`

	// UnitID is the Modbus unit ID, from 0 to 255. It selects a device behind a gateway.
	UnitID int `mapstructure:"unit_id"`
	// Table is the table of the register: holding (function 3) or input (function 4).
	Table string `mapstructure:"table"`
	// Register is the protocol address of the first register of the number, from 0 to 65535. The
	// registers that manuals number 40001 and 30001 have the address 0.
	Register int `mapstructure:"register"`
	// Type is the data type of the number. A number of 32 bits has two registers, and a number of 64
	// bits has four.
	Type string `mapstructure:"type"`
	// WordOrder is the order of the registers of a number. high_first: the first register has the most
	// significant bits. low_first: the first register has the least significant bits.
	WordOrder string `mapstructure:"word_order"`
	// Scale multiplies the number. Set it to 0.1 if the register counts tenths of the unit. It is
	// above 0 and at most 1e9.
	Scale float64 `mapstructure:"scale"`

	_ struct{}
}

const maxModbusScale = 1e9

// Unmarshal implements confmap.Unmarshaler. It sets the defaults of a section.
func (c *ModbusConfig) Unmarshal(conf *confmap.Conf) error {
	*c = ModbusConfig{
		AddressConfig: AddressConfig{Timeout: deviceTimeout}, PollConfig: PollConfig{PollInterval: deviceInterval},
		CorrectionConfig: uncorrected, NumberConfig: NumberConfig{Zone: power.Platform},
		UnitID: 1, Table: "holding", WordOrder: "high_first", Scale: 1,
	}
	return conf.Unmarshal(c)
}

func (c *ModbusConfig) validate(wrong invalid.Reporter) {
	c.AddressConfig.validate(wrong)
	c.PollConfig.validate(wrong, minDeviceInterval)
	c.CorrectionConfig.validate(wrong, c.PollInterval)
	c.NumberConfig.validate(wrong)
	invalid.OneOf(wrong, "table", c.Table, "holding", "input")
	invalid.OneOf(wrong, "type", c.Type, modbus.Types()...)
	invalid.OneOf(wrong, "word_order", c.WordOrder, "high_first", "low_first")
	if c.UnitID < 0 || c.UnitID > math.MaxUint8 {
		wrong("unit_id", "must be between 0 and %d, is %d", math.MaxUint8, c.UnitID)
	}
	of, _ := modbus.LookupType(c.Type)
	if last := math.MaxUint16 + 1 - max(of.Registers(), 1); c.Register < 0 || c.Register > last {
		wrong("register", "must be between 0 and %d, is %d", last, c.Register)
	}
	if !(c.Scale > 0 && c.Scale <= maxModbusScale) {
		wrong("scale", "must be above 0 and at most %g, is %g", maxModbusScale, c.Scale)
	}
}

func openModbus(_ context.Context, c *Config, _ *Env) (power.Meter, error) {
	m := new(power.Several)
	for _, section := range named(c.Modbus) {
		_, name, _ := strings.Cut(section.Key, "/")
		section.validator.(*ModbusConfig).add(m, name)
	}
	return m, nil
}

// add adds the number of the section modbus/name to a meter. The settings must be valid.
func (c *ModbusConfig) add(m *power.Several, name string) {
	number := modbus.Number{LowWordFirst: c.WordOrder == "low_first", Scale: c.Scale}
	number.Type, _ = modbus.LookupType(c.Type)
	unit, _ := httpmeter.LookupUnit(c.Unit)
	zone := power.NewDevice("modbus", name, c.Zone)
	source := modbus.New(modbus.Options{
		Zone: zone, Endpoint: c.Endpoint, UnitID: uint8(c.UnitID), Timeout: c.Timeout,
		Address: uint16(c.Register), Input: c.Table == "input", Number: number, Unit: unit,
	})
	m.Add(zone, source, power.PollOptions{Name: "modbus", Every: c.PollInterval, Timeout: c.Timeout})
}
