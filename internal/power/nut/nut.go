// SPDX-License-Identifier: Apache-2.0

// Package nut reads the output power of an uninterruptible power supply (UPS) from upsd, the server
// of Network UPS Tools (NUT). The protocol is RFC 9271.
package nut

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Source is the power.Source of one UPS. Its only zone is the whole machine, so the machine must be
// the only load of the UPS.
//
// The power is the variable ups.realpower, in watts. Most small UPSes do not report this variable.
// For these, the power is ups.realpower.nominal, in watts, times ups.load, in percent. upsd
// requires no login for reading variables, so the source sends no password.
type Source struct {
	zone          *power.Zone
	endpoint, ups string
	shown         [1]power.Shown
}

// New returns a source for a UPS. endpoint is the address of upsd, as host:port. ups is the name of
// the UPS in ups.conf, which CheckUPS must accept. New opens no connection.
func New(zone *power.Zone, endpoint, ups string) *Source {
	return &Source{zone: zone, endpoint: endpoint, ups: ups}
}

// CheckUPS returns an error if ups is not valid as the name of a UPS: 1 to 64 letters, digits,
// dots, underscores and dashes. A request to upsd can contain such a name without quotes.
func CheckUPS(ups string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	if ups == "" || len(ups) > maxName || strings.Trim(ups, letters) != "" {
		return fmt.Errorf("must consist of 1 to %d letters, digits, dots, underscores and dashes, is %q", maxName, ups)
	}
	return nil
}

const (
	maxName = 64
	maxLine = 512 // the maximum length of a line from upsd, in bytes
	most    = 1e9 // the maximum of a variable, in watts or percent
)

// Answer reads the power of the UPS. A power of 0 W is an error, because UPSes without a sensor
// report 0 W.
func (s *Source) Answer(ctx context.Context, _ power.Sample) (power.Answer, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.endpoint)
	if _, unresolved := errors.AsType[*net.DNSError](err); unresolved { // its text has a port that changes
		err = fetch.ErrResolve
	}
	if err != nil {
		return power.Answer{}, err
	}
	defer func() { _ = conn.Close() }() // no data can be lost
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	watts, err := s.power(&session{conn, bufio.NewReaderSize(conn, maxLine)})
	if err != nil {
		return power.Answer{}, err
	}
	s.shown[0] = power.Shown{Zone: s.zone, IsPower: true, Power: int64(watts * 1e6)}
	return power.Answer{Shown: s.shown[:]}, nil
}

var errNoPower = errors.New("the UPS reports a load of 0: it may have no sensor")

// power returns the power in watts.
func (s *Source) power(c *session) (float64, error) {
	watts, err := c.get(s.ups, "ups.realpower")
	if errors.Is(err, errNoVariable) {
		var percent float64
		if percent, err = c.get(s.ups, "ups.load"); err == nil {
			watts, err = c.get(s.ups, "ups.realpower.nominal")
		}
		watts *= percent / 100
	}
	if err == nil && watts == 0 {
		err = errNoPower
	}
	return watts, err
}

// session is a connection to upsd.
type session struct {
	io.Writer
	lines *bufio.Reader
}

var (
	errNoVariable = errors.New("the UPS does not report this variable")
	errLine       = errors.New("the server does not use the NUT protocol")
	errEnded      = errors.New("the server closed the connection")
)

// get returns the value of a variable of a UPS. The value is from 0 to most.
func (c *session) get(ups, variable string) (float64, error) {
	request := "VAR " + ups + " " + variable
	_, err := io.WriteString(c, "GET "+request+"\n")
	var line []byte
	if err == nil {
		line, err = c.lines.ReadSlice('\n')
	}
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return 0, errLine
	case err != nil: // the text of err contains the port of the connection, which changes
		return 0, errEnded
	}
	text := string(bytes.TrimRight(line, "\r\n"))
	if reason, ok := strings.CutPrefix(text, "ERR "); ok {
		return 0, failure(variable, reason)
	}
	quoted, ok := strings.CutPrefix(text, request+" ")
	value, err := strconv.Unquote(quoted)
	if !ok || err != nil {
		return 0, errLine
	}
	number, err := strconv.ParseFloat(value, 64)
	if err != nil || !(number >= 0 && number <= most) {
		return 0, fmt.Errorf("%s: %.20q is not a valid power or load", variable, value)
	}
	return number, nil
}

// failure returns the error for the response "ERR reason" of upsd.
func failure(variable, reason string) error {
	if reason == "VAR-NOT-SUPPORTED" {
		return fmt.Errorf("%s: %w", variable, errNoVariable)
	}
	return fmt.Errorf("%s: upsd answers %.40q", variable, reason)
}

// Close returns nil. No connection is open between two calls of Answer.
func (s *Source) Close() error { return nil }
