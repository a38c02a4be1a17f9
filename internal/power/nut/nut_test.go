// SPDX-License-Identifier: Apache-2.0

package nut

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/loopback"
)

var _ power.Source = (*Source)(nil)

// upsd serves the NUT protocol on loopback until the test ends. answers has the response for the
// last word of a request. In a response, {} is replaced by the request without GET. If answers has
// no response, upsd closes the connection.
func upsd(t *testing.T, answers map[string]string) *Source {
	t.Helper()
	endpoint := loopback.Serve(t, func(conn net.Conn) {
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			request := strings.TrimPrefix(lines.Text(), "GET ")
			answer, ok := answers[request[strings.LastIndexByte(request, ' ')+1:]]
			if !ok {
				return
			}
			_, _ = conn.Write([]byte(strings.ReplaceAll(answer, "{}", request)))
		}
	})
	return New(power.NewDevice("nut", "rack", power.Platform), endpoint, "ups1")
}

const unsupported = "ERR VAR-NOT-SUPPORTED\n"

func TestPowerIsRealPowerOrTheLoad(t *testing.T) {
	for name, c := range map[string]struct {
		answers    map[string]string
		microwatts int64
	}{
		// https://github.com/networkupstools/nut/pull/753
		"real power": {map[string]string{"ups.realpower": "{} \"859.9\"\n"}, 859_900_000},
		// https://github.com/PVE-Tools/PVE-Tools-9/issues/79
		"load": {map[string]string{
			"ups.realpower": unsupported, "ups.load": "{} \"16\"\n", "ups.realpower.nominal": "{} \"390\"\n",
		}, 62_400_000},
		"CRLF": {map[string]string{"ups.realpower": "{} \"100\"\r\n"}, 100_000_000},
	} {
		answer, err := upsd(t, c.answers).Answer(t.Context(), power.Sample{})
		require.NoError(t, err, name)
		require.Len(t, answer.Shown, 1, name)
		assert.Equal(t, c.microwatts, answer.Shown[0].Power, name)
		assert.Equal(t, "nut:rack", answer.Shown[0].Zone.ID, name)
	}
}

func TestFailuresHaveAConstantText(t *testing.T) {
	for name, c := range map[string]struct {
		answers map[string]string
		want    string
	}{
		"no sensor": {map[string]string{"ups.realpower": unsupported, "ups.load": unsupported}, "ups.load: the UPS does not report this variable"},
		"no nominal power": {
			map[string]string{"ups.realpower": unsupported, "ups.load": "{} \"21\"\n", "ups.realpower.nominal": unsupported},
			"ups.realpower.nominal: the UPS does not report this variable",
		},
		// https://github.com/networkupstools/nut/issues/2874
		"load is always 0": {
			map[string]string{"ups.realpower": unsupported, "ups.load": "{} \"0\"\n", "ups.realpower.nominal": "{} \"1200\"\n"},
			errNoPower.Error(),
		},
		"driver is gone":   {map[string]string{"ups.realpower": "ERR DATA-STALE\n"}, `ups.realpower: upsd answers "DATA-STALE"`},
		"long reason":      {map[string]string{"ups.realpower": "ERR " + strings.Repeat("x", 400) + "\n"}, `ups.realpower: upsd answers "` + strings.Repeat("x", 40) + `"`},
		"negative":         {map[string]string{"ups.realpower": "{} \"-1\"\n"}, `ups.realpower: "-1" is not a valid power or load`},
		"NaN":              {map[string]string{"ups.realpower": "{} \"NaN\"\n"}, `ups.realpower: "NaN" is not a valid power or load`},
		"infinite":         {map[string]string{"ups.realpower": "{} \"Inf\"\n"}, `ups.realpower: "Inf" is not a valid power or load`},
		"huge":             {map[string]string{"ups.realpower": "{} \"1e300\"\n"}, `ups.realpower: "1e300" is not a valid power or load`},
		"text":             {map[string]string{"ups.realpower": "{} \"OL CHRG\"\n"}, `ups.realpower: "OL CHRG" is not a valid power or load`},
		"no quotes":        {map[string]string{"ups.realpower": "{} 100\n"}, errLine.Error()},
		"another variable": {map[string]string{"ups.realpower": "VAR ups1 ups.power \"100\"\n"}, errLine.Error()},
		"endless line":     {map[string]string{"ups.realpower": strings.Repeat("x", 2*maxLine)}, errLine.Error()},
		"cut short":        {nil, errEnded.Error()},
	} {
		s := upsd(t, c.answers)
		for range 2 {
			_, err := s.Answer(t.Context(), power.Sample{})
			assert.EqualError(t, err, c.want, name)
		}
	}
}

func TestANameThatCannotBeResolvedHasAConstantText(t *testing.T) {
	loopback.WithoutDNS(t)
	s := New(power.NewDevice("nut", "rack", power.Platform), "ups.example.org:3493", "ups1")
	for range 2 {
		_, err := s.Answer(t.Context(), power.Sample{})
		assert.ErrorIs(t, err, fetch.ErrResolve)
	}
}

func TestAServerThatHangsIsLeftOnceTheContextIsDone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = bufio.NewReader(conn).ReadString('\n')
		}
		asked <- err
		cancel()
	}()
	_, err = New(power.NewDevice("nut", "rack", power.Platform), l.Addr().String(), "ups1").Answer(ctx, power.Sample{})
	assert.Error(t, err)
	assert.NoError(t, <-asked)
}

func TestNamesThatAreSeveralWordsAreRefused(t *testing.T) {
	for name, ok := range map[string]bool{
		"rack-1.ups_A": true, "": false, "a b": false, "ups\nFSD ups": false, strings.Repeat("x", maxName+1): false,
	} {
		assert.Equal(t, ok, CheckUPS(name) == nil, name)
	}
}
