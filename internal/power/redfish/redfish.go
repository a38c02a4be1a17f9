// SPDX-License-Identifier: Apache-2.0

// Package redfish reads the power or energy of the whole machine from its BMC by Redfish (DMTF
// DSP0266, schemas DSP8010).
//
// The figure is taken from the first of these resources of the machine's own chassis that has one:
//
//	EnvironmentMetrics                             EnergyJoules, EnergykWh, PowerWatts
//	PowerSubsystem/PowerSupplies/{id}/Metrics      EnergykWh, InputPowerWatts, OutputPowerWatts: the sum of all supplies
//	Power                                          PowerControl[].PowerConsumedWatts
//
// Several chassis are never added up: what contains several machines is not this one, and what is
// part of this one is in its figure.
package redfish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// maxLogout bounds how long Close waits for the BMC.
const maxLogout = 2 * time.Second

// Options describe a Redfish service and which of its systems is this machine.
type Options struct {
	// Client sends the requests. Its Timeout bounds each of them.
	Client *http.Client
	// Endpoint is the scheme, host and port of the service: https://bmc.example.
	Endpoint string
	// Username is the account's. Without one nothing is logged in: requests are as Client sends them.
	Username string
	// Password returns the account's password, and is called at each login. Its error must not contain it.
	Password func() (string, error)
	// System and Chassis are the IDs of this machine's, where they cannot be found or are to be others.
	System, Chassis string
	// Root is the path of the host's root directory: the machine's UUID and serial number identify
	// its system.
	Root string
}

// Sensor reads one zone, of kind platform, with the system's UUID in its ID. It implements power.Source.
type Sensor struct {
	service service
	options Options
	source  *source // nil until chosen
	shown   [1]power.Shown
}

// New returns a sensor that asks the service. It sends nothing.
func New(options Options) (*Sensor, error) {
	base, err := ParseEndpoint(options.Endpoint)
	if err != nil {
		return nil, err
	}
	return &Sensor{
		options: options,
		service: service{
			client: fetch.New(options.Client), base: base,
			username: options.Username, readPassword: options.Password,
		},
	}, nil
}

// ErrEndpoint is returned for an address that is not one of a service.
var ErrEndpoint = errors.New("must be the address of a BMC, such as https://bmc.example, without a path, user or password")

// ParseEndpoint returns the address of a service as a URL. Its error does not quote the text, which
// may have a password.
func ParseEndpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Scheme != "https" && u.Scheme != "http", u.Hostname() == "", u.User != nil, u.RawQuery != "", u.Fragment != "",
		u.Path != "" && u.Path != "/":
		return nil, ErrEndpoint
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// Answer returns the machine's energy or power. At first, and when its resource is gone, it looks
// for the machine's system, chassis and resource. The warning says why the BMC is read without a
// session although it has sessions.
func (s *Sensor) Answer(ctx context.Context, _ power.Sample) (power.Answer, error) {
	shown, err := s.read(ctx)
	if err != nil {
		return power.Answer{}, s.about(err)
	}
	s.shown[0] = shown
	return power.Answer{Shown: s.shown[:], Warning: s.about(s.service.warning())}, nil
}

func (s *Sensor) read(ctx context.Context) (power.Shown, error) {
	if s.source != nil && !s.source.due() {
		shown, err := s.source.read(ctx, &s.service)
		if !errors.Is(err, errGone) {
			return shown, err
		}
	}
	chosen, shown, err := s.choose(ctx)
	if err != nil {
		return power.Shown{}, err
	}
	s.source = chosen
	return shown, nil
}

// Close ends the session. It waits for the BMC for two seconds at most. The error reports a session
// that was not ended.
func (s *Sensor) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), maxLogout)
	defer cancel()
	defer s.options.Client.CloseIdleConnections()
	return s.about(s.service.close(ctx))
}

// about adds the BMC's address to an error.
func (s *Sensor) about(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redfish %s: %w", s.service.base.Host, err)
}
