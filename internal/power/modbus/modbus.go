// SPDX-License-Identifier: Apache-2.0

// Package modbus reads power and energy from the registers of Modbus TCP devices, such as power
// distribution units (PDUs) and energy meters. Each source reads one number of one device.
package modbus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"github.com/simonvetter/modbus"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/httpmeter"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Options specify a number of a device.
type Options struct {
	Zone     *power.Zone    // the zone that the number measures, of kind Platform, Package, DRAM or GPU
	Endpoint string         // the address of the device or gateway, as host:port
	UnitID   uint8          // the Modbus unit ID of the device behind the endpoint
	Timeout  time.Duration  // the time limit of one request; connecting may take 5 s more
	Address  uint16         // the protocol address of the first register; addresses start at 0
	Input    bool           // reads input registers (function 4) instead of holding registers (function 3)
	Number   Number         // the format of the number
	Unit     httpmeter.Unit // the unit of the number after it is multiplied by Number.Scale
}

// Source is the power.Source of one number.
//
// A Source opens a connection for each request. Many devices accept only a few connections, and the
// collectors of several machines may read the same device.
type Source struct {
	Options
	shown [1]power.Shown
}

// New returns a source. It opens no connection.
func New(o Options) *Source { return &Source{Options: o} }

// registers is the result of a request: the bytes of the registers, or an error.
type registers struct {
	bytes []byte
	err   error
}

// Answer sends one request. If ctx is done, Answer returns, but the request may continue until its
// timeout. The Modbus library does not support contexts.
func (s *Source) Answer(ctx context.Context, _ power.Sample) (power.Answer, error) {
	done := make(chan registers, 1)
	go func() { done <- s.request() }()
	var r registers
	select {
	case <-ctx.Done():
		return power.Answer{}, ctx.Err()
	case r = <-done:
	}
	if r.err != nil {
		return power.Answer{}, explain(r.err)
	}
	micro, err := s.Number.micro(r.bytes, s.Unit)
	if err != nil {
		return power.Answer{}, fmt.Errorf("register %d: %w", s.Address, err)
	}
	s.shown[0] = power.Shown{Zone: s.Zone, IsPower: s.Unit.IsPower}
	if s.Unit.IsPower {
		s.shown[0].Power = int64(micro)
	} else {
		s.shown[0].Counter = units.Energy(micro)
	}
	return power.Answer{Shown: s.shown[:]}, nil
}

// request reads the registers.
func (s *Source) request() (r registers) {
	client, err := modbus.NewClient(&modbus.ClientConfiguration{
		URL: "tcp://" + s.Endpoint, Timeout: s.Timeout, Logger: log.New(io.Discard, "", 0),
	})
	if err == nil {
		err = client.Open()
	}
	if err != nil {
		return registers{err: err}
	}
	defer func() { _ = client.Close() }() // no data can be lost
	_ = client.SetUnitId(s.UnitID)        // never fails
	table := modbus.HOLDING_REGISTER
	if s.Input {
		table = modbus.INPUT_REGISTER
	}
	r.bytes, r.err = client.ReadRawBytes(s.Address, uint16(s.Number.Type.size), table)
	return r
}

var (
	errTimeout = errors.New("no answer in time: the device is slow or cannot be reached")
	errEnded   = errors.New("the device closed the connection: it may have reached its limit of connections")
)

// explain returns an error with the same text for the same cause, so that it is logged once. The
// errors of package net contain the port of the connection, which changes.
func explain(err error) error {
	_, unresolved := errors.AsType[*net.DNSError](err)
	op, broke := errors.AsType[*net.OpError](err)
	switch {
	case unresolved:
		return fetch.ErrResolve
	case errors.Is(err, modbus.ErrRequestTimedOut), broke && op.Timeout():
		return errTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), broke && op.Op != "dial":
		return errEnded
	case errors.Is(err, modbus.ErrIllegalDataAddress):
		return fmt.Errorf("%w: the device has no such register", err)
	case errors.Is(err, modbus.ErrBadUnitId):
		return fmt.Errorf("%w: the device answered for another unit", err)
	}
	return err
}

// Close returns nil. No connection is open between two calls of Answer.
func (s *Source) Close() error { return nil }
