// SPDX-License-Identifier: Apache-2.0

package modbus

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/httpmeter"
	"github.com/energyreceiver/energyreceiver/internal/test/loopback"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var _ power.Source = (*Source)(nil)

// device serves Modbus TCP on loopback until the test ends. answer returns the response to a
// request of 12 bytes. If the response is empty, the device closes the connection.
func device(t *testing.T, answer func(request []byte) []byte) string {
	t.Helper()
	return loopback.Serve(t, func(conn net.Conn) {
		request := make([]byte, 12)
		if _, err := io.ReadFull(conn, request); err == nil {
			if bytes := answer(request); bytes != nil {
				_, _ = conn.Write(bytes)
				_, _ = io.Copy(io.Discard, conn) // until the other side ends the connection
			}
		}
	})
}

// frame returns a response: the header of the request with the new length, then the given bytes.
func frame(request []byte, pdu ...byte) []byte {
	header := binary.BigEndian.AppendUint16(request[:4:4], uint16(1+len(pdu)))
	return append(append(header, request[6]), pdu...)
}

// registersOf returns a response that contains registers, which are given in hexadecimal digits.
func registersOf(t *testing.T, digits string) func(request []byte) []byte {
	bytes, err := hex.DecodeString(digits)
	require.NoError(t, err)
	return func(request []byte) []byte {
		return frame(request, append([]byte{request[7], byte(len(bytes))}, bytes...)...)
	}
}

func source(t *testing.T, endpoint, of, unit string, scale float64) *Source {
	t.Helper()
	format, ok := LookupType(of)
	require.True(t, ok, of)
	u, ok := httpmeter.LookupUnit(unit)
	require.True(t, ok, unit)
	return New(Options{
		Zone: power.NewDevice("modbus", "pdu", power.Platform), Endpoint: endpoint, UnitID: 1, Timeout: 5 * time.Second,
		Number: Number{Type: format, Scale: scale}, Unit: u,
	})
}

func TestNumbersOfEveryTypeAreRead(t *testing.T) {
	for _, c := range []struct {
		of, registers, unit string
		scale               float64
		want                uint64
	}{
		{"uint16", "ffff", "W", 1, 65_535_000_000},
		{"int16", "7fff", "W", 0.1, 3_276_700_000},
		{"uint32", "80000001", "Wh", 1, 2_147_483_649 * 3_600_000_000},
		{"int32", "0000002a", "kWh", 0.01, 1_512_000_000_000},
		{"uint64", "0020000000000001", "mJ", 1, 9_007_199_254_740_993_000}, // no double is 2^53+1
		{"int64", "0000000000000007", "J", 1000, 7_000_000_000},
		{"float32", "43a80000", "W", 1, 336_000_000},
		{"float64", "3ff8000000000000", "kWh", 1, 5_400_000_000_000},
	} {
		answer, err := source(t, device(t, registersOf(t, c.registers)), c.of, c.unit, c.scale).Answer(t.Context(), power.Sample{})
		require.NoError(t, err, c.of)
		require.Len(t, answer.Shown, 1, c.of)
		shown := answer.Shown[0]
		assert.Equal(t, c.want, uint64(shown.Power)+uint64(shown.Counter), c.of)
		assert.Equal(t, c.unit == "W", shown.IsPower, c.of)
		assert.Equal(t, "modbus:pdu", shown.Zone.ID, c.of)
	}
}

func TestTheRegistersOfTheSettingsAreRequested(t *testing.T) {
	var requested string
	endpoint := device(t, func(request []byte) []byte {
		requested = hex.EncodeToString(request[6:])
		return registersOf(t, "0000000000000001")(request)
	})
	s := source(t, endpoint, "uint64", "Wh", 1)
	s.UnitID, s.Address = 0xf7, 0x9c41
	for input, want := range map[bool]string{false: "f7039c410004", true: "f7049c410004"} {
		s.Input = input
		_, err := s.Answer(t.Context(), power.Sample{})
		require.NoError(t, err)
		assert.Equal(t, want, requested)
	}
}

func TestTheFirstRegisterMayHaveTheLowestBits(t *testing.T) {
	s := source(t, device(t, registersOf(t, "0004000300020001")), "uint64", "mJ", 1)
	s.Number.LowWordFirst = true
	answer, err := s.Answer(t.Context(), power.Sample{})
	require.NoError(t, err)
	assert.Equal(t, units.Energy(0x0001_0002_0003_0004)*1000, answer.Shown[0].Counter)
}

func TestFailuresHaveAConstantText(t *testing.T) {
	pdu := func(bytes ...byte) func([]byte) []byte {
		return func(request []byte) []byte { return frame(request, bytes...) }
	}
	for name, c := range map[string]struct {
		of     string
		answer func([]byte) []byte
		want   string
	}{
		"negative":           {"int32", registersOf(t, "ffffffff"), "register 0: the number is negative"},
		"huge":               {"float32", registersOf(t, "7f7fffff"), "register 0: the number is impossibly large"},
		"NaN":                {"float32", registersOf(t, "7fc00000"), "register 0: the number is not finite"},
		"infinite":           {"float64", registersOf(t, "7ff0000000000000"), "register 0: the number is not finite"},
		"too few registers":  {"uint32", registersOf(t, "0001"), "protocol error"},
		"too many registers": {"uint16", registersOf(t, "00010002"), "protocol error"},
		"wrong count":        {"uint16", pdu(3, 4, 0, 1), "protocol error"},
		"nothing":            {"uint16", pdu(3), "protocol error"},
		"another function":   {"uint16", pdu(4, 2, 0, 1), "protocol error"},
		"no such register":   {"uint16", pdu(0x83, 2), "illegal data address: the device has no such register"},
		"busy":               {"uint16", pdu(0x83, 6), "server device busy"},
		"unknown exception":  {"uint16", pdu(0x83, 0x77), "unknown exception code (119)"},
		"empty exception":    {"uint16", pdu(0x83), "protocol error"},
		"garbage":            {"uint16", func([]byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }, "protocol error"},
		"another unit": {"uint16", func(request []byte) []byte {
			request[6]++
			return frame(request, 3, 2, 0, 1)
		}, "bad unit id: the device answered for another unit"},
		"end": {"uint16", func([]byte) []byte { return nil }, errEnded.Error()},
	} {
		s := source(t, device(t, c.answer), c.of, "Wh", 1)
		for range 2 {
			_, err := s.Answer(t.Context(), power.Sample{})
			assert.EqualError(t, err, c.want, name)
		}
	}
}

func TestANameThatCannotBeResolvedHasAConstantText(t *testing.T) {
	loopback.WithoutDNS(t)
	s := source(t, "pdu.example.org:502", "uint16", "W", 1)
	for range 2 {
		_, err := s.Answer(t.Context(), power.Sample{})
		assert.ErrorIs(t, err, fetch.ErrResolve)
	}
}

func TestADeviceThatHangsIsLeft(t *testing.T) {
	asked := make(chan struct{}, 2)
	endpoint := device(t, func([]byte) []byte {
		asked <- struct{}{}
		return []byte{} // empty but not nil: the device sends no response and keeps the connection open
	})
	t.Run("after the timeout", func(t *testing.T) {
		s := source(t, endpoint, "uint16", "W", 1)
		s.Timeout = 50 * time.Millisecond
		_, err := s.Answer(t.Context(), power.Sample{})
		assert.ErrorIs(t, err, errTimeout)
	})
	t.Run("once the context is done", func(t *testing.T) {
		s := source(t, endpoint, "uint16", "W", 1)
		s.Timeout = 500 * time.Millisecond // the request ends after this timeout
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-asked
			cancel()
		}()
		_, err := s.Answer(ctx, power.Sample{})
		assert.ErrorIs(t, err, context.Canceled)
	})
}
