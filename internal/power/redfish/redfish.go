// SPDX-License-Identifier: Apache-2.0

// Package redfish reads the power or energy of the whole machine from its BMC through Redfish (DMTF
// DSP0266, schemas DSP8010).
//
// The reading is taken from the first of these resources of the machine's chassis that has a
// reading:
//
//	EnvironmentMetrics                             EnergyJoules, EnergykWh, PowerWatts
//	PowerSubsystem/PowerSupplies/{id}/Metrics      EnergykWh, InputPowerWatts, OutputPowerWatts: the sum of all supplies
//	Power                                          PowerControl[].PowerConsumedWatts
//
// The readings of several chassis are never added up. A chassis that contains several machines
// measures more than this machine, and a chassis inside the machine's chassis is already included.
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

// maxLogout is the maximum time that Close waits for the BMC.
const maxLogout = 2 * time.Second

// Options specify a Redfish service and the system in it that is this machine.
type Options struct {
	// Client sends the requests. Its Timeout is the time limit of each request.
	Client *http.Client
	// Endpoint is the scheme, host and port of the service, such as https://bmc.example.
	Endpoint string
	// Username is the name of the account. If it is empty, the sensor does not log in, and adds no
	// credentials to the requests.
	Username string
	// Password returns the password of the account. It is called before each login. Its error must
	// not contain the password.
	Password func() (string, error)
	// System and Chassis are the Redfish IDs of this machine's system and chassis. An ID that is
	// empty is detected.
	System, Chassis string
	// Root is the host's root directory. The UUID and serial number of the machine are read from
	// there, to find its system.
	Root string
}

// Sensor is the power.Source of one machine. Its only zone has the kind Platform, and its ID
// contains the UUID of the system.
type Sensor struct {
	service service
	options Options
	source  *source // nil until chosen
	shown   [1]power.Shown
}

// New returns a sensor. It sends no request. The error is ErrEndpoint if the endpoint is invalid.
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

// ErrEndpoint is the error for an endpoint that is not the address of a service.
var ErrEndpoint = errors.New("must be the address of a BMC, such as https://bmc.example, without a path, user or password")

// ParseEndpoint returns the scheme, host and port of an endpoint. Its error is ErrEndpoint, which
// does not quote the endpoint because the endpoint may contain a password.
func ParseEndpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Scheme != "https" && u.Scheme != "http", u.Hostname() == "", u.User != nil, u.RawQuery != "", u.Fragment != "",
		u.Path != "" && u.Path != "/":
		return nil, ErrEndpoint
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// Answer returns the machine's energy or power. The first call, and each call after the resource
// has disappeared, searches for the machine's system, chassis and resource. The warning is the
// reason why the BMC is read without a session, if the BMC supports sessions.
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

// Close ends the session. It waits at most 2 s for the BMC. It returns an error if a session may
// still be open.
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
