// SPDX-License-Identifier: Apache-2.0

package ipmi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The commands of DCMI 1.5 that are used: sections 6.1.1 and 6.6.1 of its specification. A request
// begins with the group, a response with the completion code and the group.
const (
	groupDCMI           = 0xdc
	commandCapabilities = 0x01
	commandPowerReading = 0x02

	parameterStatistics = 0x05 // of commandCapabilities: enhanced system power statistics

	modeStatistics = 0x01 // of commandPowerReading: the power now, and statistics since they were reset
	modeRolling    = 0x02 // statistics of the window that the request names
)

// window is the period of a rolling average as DCMI encodes it: bits 7 and 6 are the unit, the
// others a number. 0 means no average.
type window byte

// windowUnits are the units of a window.
var windowUnits = [...]time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}

func (w window) duration() time.Duration { return time.Duration(w&0x3f) * windowUnits[w>>6] }

// powerReading is a response to Get Power Reading. Powers are in watts.
type powerReading struct {
	current uint16
	// The fields below are statistics: of the window, or since they were reset.
	least, most, average uint16
	// period is the time of the statistics: in milliseconds since they were reset, or the window.
	period uint32
	active bool // the BMC measures power
}

// hasPower reports whether watts is the power of a machine. BMCs without a sensor report 0 or all
// ones.
func hasPower(watts uint16) bool { return watts != 0 && watts != 0xffff }

// isOf reports whether the statistics cover the window, and not the time since they were reset.
// period must be the encoded window, as the specification requires, or the length of the window in
// seconds or milliseconds.
func (r *powerReading) isOf(w window, sinceReset *powerReading) bool {
	length := w.duration()
	periods := []uint32{uint32(w), uint32(length / time.Second), uint32(length / time.Millisecond)}
	same := r.least == sinceReset.least && r.most == sinceReset.most && r.average == sinceReset.average
	return r.active && hasPower(r.average) && r.least <= r.average && r.average <= r.most && !same && slices.Contains(periods, r.period)
}

// powerRequest returns the data of a Get Power Reading for the statistics of a window. The window 0
// selects the statistics since their reset.
func powerRequest(w window) []byte {
	if w == 0 {
		return []byte{groupDCMI, modeStatistics, 0, 0}
	}
	return []byte{groupDCMI, modeRolling, byte(w), 0}
}

// parsePower returns the reading in the response to Get Power Reading.
func parsePower(response []byte) (powerReading, error) {
	data, err := parseResponse(response)
	if err != nil {
		return powerReading{}, err
	}
	if len(data) < 17 {
		return powerReading{}, fmt.Errorf("%w: %d of 17 bytes of a power reading", errMalformed, len(data))
	}
	le := binary.LittleEndian
	return powerReading{
		current: le.Uint16(data),
		least:   le.Uint16(data[2:]),
		most:    le.Uint16(data[4:]),
		average: le.Uint16(data[6:]),
		period:  le.Uint32(data[12:]), // after the BMC's time
		active:  data[16]&0x40 != 0,
	}, nil
}

// parseWindows returns the rolling averages that the BMC has, from the response to Get DCMI
// Capabilities.
func parseWindows(response []byte) ([]window, error) {
	data, err := parseResponse(response)
	if err != nil {
		return nil, err
	}
	// Before the parameter are the version of DCMI and the revision of the parameter.
	if len(data) < 4 || len(data) < 4+int(data[3]) {
		return nil, fmt.Errorf("%w: %d bytes of capabilities", errMalformed, len(data))
	}
	var windows []window
	for _, b := range data[4 : 4+int(data[3])] {
		windows = append(windows, window(b))
	}
	return windows, nil
}

// parseResponse returns the data of a response, without its completion code and group.
func parseResponse(response []byte) ([]byte, error) {
	switch {
	case len(response) == 0:
		return nil, fmt.Errorf("%w: no completion code", errMalformed)
	case response[0] != 0:
		return nil, completionCode(response[0])
	case len(response) == 1 || response[1] != groupDCMI:
		return nil, fmt.Errorf("%w: not of DCMI's group", errMalformed)
	}
	return response[2:], nil
}

// errMalformed is the error of a response that does not match the request.
var errMalformed = errors.New("malformed response")

// completionCode is the reason why a BMC rejected a request (IPMI 2.0, table 5-2). It is an error.
type completionCode byte

// codes are the completion codes that a BMC, the kernel or QEMU gives to Get Power Reading.
var codes = map[completionCode]struct {
	text    string
	lasting bool // a repeated request gets the same code
}{
	0xc0: {"node busy", false},
	0xc1: {"invalid command", true},
	0xc2: {"command invalid for the logical unit", true},
	0xc3: {"timeout", false},
	0xc7: {"request length invalid", true},
	0xc9: {"parameter out of range", true},
	0xcb: {"requested data not present", true},
	0xcc: {"invalid data in the request", true},
	0xd1: {"firmware update in progress", false},
	0xd2: {"BMC initialization in progress", false},
	0xd4: {"insufficient privilege", true},
	0xd5: {"not supported in the present state", true},
	0xd6: {"function disabled", true},
	0xff: {"unspecified error", false},
}

func (c completionCode) Error() string {
	if known := codes[c]; known.text != "" {
		return fmt.Sprintf("completion code %#x (%s)", byte(c), known.text)
	}
	return fmt.Sprintf("completion code %#x", byte(c))
}

// isRefused reports whether the error is a permanent rejection by the BMC.
func isRefused(err error) bool {
	var code completionCode
	return errors.As(err, &code) && codes[code].lasting
}
