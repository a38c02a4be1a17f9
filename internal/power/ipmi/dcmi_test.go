// SPDX-License-Identifier: Apache-2.0

package ipmi

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/command/dcmi"
	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// encode returns a response to Get Power Reading.
func encode(r powerReading) []byte {
	le := binary.LittleEndian
	b := []byte{0, groupDCMI}
	for _, watts := range []uint16{r.current, r.least, r.most, r.average} {
		b = le.AppendUint16(b, watts)
	}
	b = le.AppendUint32(b, 0x665d1234) // the BMC's time
	b = le.AppendUint32(b, r.period)
	if r.active {
		return append(b, 0x40)
	}
	return append(b, 0)
}

func TestWrongResponsesAreErrors(t *testing.T) {
	good := encode(powerReading{current: 214, active: true})
	for length := range len(good) {
		_, err := parsePower(good[:length])
		require.ErrorIs(t, err, errMalformed, length)
	}
	good[1] = 0xdd
	_, err := parsePower(good)
	require.EqualError(t, err, "malformed response: not of DCMI's group")
	_, err = parsePower([]byte{0xc1})
	require.EqualError(t, err, "completion code 0xc1 (invalid command)")
	_, err = parsePower(append([]byte{0x80}, good[1:]...))
	require.EqualError(t, err, "completion code 0x80", "whatever follows")
	_, err = parseWindows([]byte{0, groupDCMI, 1, 5, 2, 3, 5, 30})
	require.EqualError(t, err, "malformed response: 6 bytes of capabilities")
}

func TestStatisticsOfAWindowAreRecognized(t *testing.T) {
	sinceReset := powerReading{current: 214, least: 2, most: 468, average: 184, period: 86_400_000, active: true}
	good := powerReading{current: 214, least: 200, most: 220, average: 211, period: 0x41, active: true}
	for name, c := range map[string]struct {
		change func(*powerReading)
		want   bool
	}{
		"as the specification has it":       {func(*powerReading) {}, true},
		"its period in seconds":             {func(r *powerReading) { r.period = 60 }, true},
		"its period in milliseconds":        {func(r *powerReading) { r.period = 60_000 }, true},
		"another period":                    {func(r *powerReading) { r.period = 86_400_000 }, false},
		"the statistics since the reset":    {func(r *powerReading) { r.least, r.most, r.average = 2, 468, 184 }, false},
		"no average":                        {func(r *powerReading) { r.average, r.least = 0, 0 }, false},
		"an average that is no average":     {func(r *powerReading) { r.average = 300 }, false},
		"a measurement that is not active":  {func(r *powerReading) { r.active = false }, false},
		"an average of unknown, all ones":   {func(r *powerReading) { r.average, r.most = 0xffff, 0xffff }, false},
		"an average below the least of all": {func(r *powerReading) { r.average = 100 }, false},
	} {
		r := good
		c.change(&r)
		assert.Equal(t, c.want, r.isOf(0x41, &sinceReset), name)
	}
}

// A second implementation of the format.
func FuzzPowerReadingAgreesWithGoIPMI(f *testing.F) {
	f.Add(encode(powerReading{current: 214, least: 2, most: 468, average: 184, period: 1000, active: true}))
	f.Add(encode(powerReading{current: 0xffff}))
	f.Add([]byte{0xc1})
	f.Add([]byte{0, groupDCMI, 1, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, response []byte) {
		got, err := parsePower(response)
		if len(response) < 19 || response[0] != 0 { // it takes the last byte for optional, and knows no completion code
			assert.Error(t, err)
			return
		}
		var other dcmi.GetDCMIPowerReadingResponse
		otherErr := other.Unpack(response[1:])
		require.Equal(t, otherErr == nil, err == nil, "%v, %v", otherErr, err)
		if err == nil {
			assert.Equal(t, powerReading{
				other.CurrentPower, other.MinimumPower, other.MaximumPower, other.AveragePower,
				other.ReportingPeriod, other.PowerMeasurementActive,
			}, got)
		}
	})
}

func FuzzWindowsAgreeWithGoIPMI(f *testing.F) {
	f.Add([]byte{0, groupDCMI, 1, 5, 2, 4, 0x05, 0x41, 0x82, 0xc7})
	f.Add([]byte{0, groupDCMI, 1, 5, 2, 0})
	f.Add([]byte{0, groupDCMI, 1, 5, 2, 200, 1})
	f.Add([]byte{0xc9})
	f.Fuzz(func(t *testing.T, response []byte) {
		got, err := parseWindows(response)
		if len(response) == 0 || response[0] != 0 {
			assert.Error(t, err)
			return
		}
		var other dcmi.GetDCMICapParamResponse
		var statistics types.DCMICapParam_EnhancedSystemPowerStatisticsAttributes
		otherErr := other.Unpack(response[1:])
		if otherErr == nil {
			otherErr = statistics.Unpack(other.ParamData)
		}
		require.Equal(t, otherErr == nil, err == nil, "%v, %v", otherErr, err)
		require.Len(t, got, len(statistics.RollingAverageTimePeriodsSec))
		for i, seconds := range statistics.RollingAverageTimePeriodsSec {
			assert.Equal(t, time.Duration(seconds)*time.Second, got[i].duration())
		}
	})
}
