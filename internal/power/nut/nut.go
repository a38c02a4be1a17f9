// SPDX-License-Identifier: Apache-2.0

// Package nut reads the power that an uninterruptible power supply (UPS) provides, from upsd, the
// server of Network UPS Tools (NUT).
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

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Source is the power.Source of one UPS. Its only zone is the whole machine, so the machine must be
// the only load of the UPS.
//
// The power is the variable ups.realpower, in watts. Most small UPSes do not have it: for them, the
// power is ups.load, in percent, of ups.realpower.nominal. upsd serves variables without a login,
// so the source sends no password.
type Source struct {
	zone          *power.Zone
	endpoint, ups string
	shown         [1]power.Shown
}

// New returns a source for a UPS of the server at an endpoint, host:port. ups is the server's name
// of the UPS, which CheckUPS accepts. New opens no connection.
func New(zone *power.Zone, endpoint, ups string) *Source {
	return &Source{zone: zone, endpoint: endpoint, ups: ups}
}

// CheckUPS returns an error unless upsd accepts the name of a UPS as one word.
func CheckUPS(ups string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	if ups == "" || len(ups) > maxName || strings.Trim(ups, letters) != "" {
		return fmt.Errorf("must consist of 1 to %d letters, digits, dots, underscores and dashes, is %q", maxName, ups)
	}
	return nil
}

const (
	maxName = 64
	maxLine = 512 // bytes of a line of the server; longer lines are errors
	most    = 1e9 // W, and percent: any larger number is no measurement
)

// Answer asks the server once. A UPS that reports 0 W, as models without a sensor do, is an error.
func (s *Source) Answer(ctx context.Context, _ power.Sample) (power.Answer, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.endpoint)
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
	errNoVariable = errors.New("the UPS does not report it")
	errLine       = errors.New("the server does not speak NUT's protocol")
	errEnded      = errors.New("the server ended the connection")
)

// get returns the number that a variable of a UPS has, at least 0.
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
	case err != nil: // its text has the port of the connection
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
		return 0, fmt.Errorf("%s: %.20q is no power or load", variable, value)
	}
	return number, nil
}

// failure returns an error for upsd's answer to a request that failed.
func failure(variable, reason string) error {
	if reason == "VAR-NOT-SUPPORTED" {
		return fmt.Errorf("%s: %w", variable, errNoVariable)
	}
	return fmt.Errorf("%s: upsd answers %.40q", variable, reason)
}

// Close returns nil. No connection is open between two calls of Answer.
func (s *Source) Close() error { return nil }
