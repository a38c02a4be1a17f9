// SPDX-License-Identifier: Apache-2.0

package ipmi

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/handlers"
	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/bougou/go-ipmi/pkg/vmproto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var _ power.Source = (*Sensor)(nil)

// board is a simulated BMC.
type board struct {
	mu           sync.Mutex // held by the test, but while time passes
	code         types.CompletionCode
	now          powerReading
	windows      map[window]powerReading
	noWindows    types.CompletionCode // of Get DCMI Capabilities
	requests     []byte               // the modes of Get Power Reading
	capabilities int                  // requests of Get DCMI Capabilities
}

// listener hands one connection to a server.
type listener chan net.Conn

func (l listener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l listener) Close() error   { return nil }
func (l listener) Addr() net.Addr { return &net.UnixAddr{} }

// client is a device whose BMC is go-ipmi's, reached by QEMU's protocol.
type client struct {
	*vmproto.Client
	conn net.Conn
}

func (c client) request(_ context.Context, command byte, data []byte) ([]byte, error) {
	code, response, err := c.Command(0x2c, command, data...)
	return append([]byte{code}, response...), err
}

func (c client) Close() error { return c.conn.Close() }

// serve starts go-ipmi's BMC for the board and returns what connects to it.
func (b *board) serve(t *testing.T) func() device {
	commands := handlers.NewRegistry()
	handlers.RegisterAllHandlers(commands)
	commands.RegisterFunc(types.CommandGetDCMICapParam,
		func(_ context.Context, _ *handlers.HandlerContext, req []byte) ([]byte, types.CompletionCode, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.capabilities++
			assert.Equal(t, []byte{0xdc, 5}, req)
			if b.noWindows != 0 {
				return nil, b.noWindows, nil
			}
			response := []byte{0xdc, 1, 5, 2, byte(len(b.windows))}
			for w := range b.windows {
				response = append(response, byte(w))
			}
			return response, types.CodeOK, nil
		})
	commands.RegisterFunc(types.CommandGetDCMIPowerReading,
		func(_ context.Context, _ *handlers.HandlerContext, req []byte) ([]byte, types.CompletionCode, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			require.Len(t, req, 4)
			assert.Equal(t, byte(0xdc), req[0])
			b.requests = append(b.requests, req[1])
			if b.code != 0 {
				return nil, b.code, nil
			}
			if req[1] == 1 {
				return encode(b.now)[1:], types.CodeOK, nil
			}
			if r, ok := b.windows[window(req[2])]; ok {
				return encode(r)[1:], types.CodeOK, nil
			}
			return nil, types.CompletionCode(0xc9), nil
		})
	connections := make(listener)
	served := make(chan struct{})
	go func() {
		defer close(served)
		machine := bmc.New(bmc.DeviceInfo{IPMIVersion: 0x20}, [16]byte{1}, mock.New())
		_ = vmproto.NewVMServer(machine, vmproto.WithVMHandlerRegistry(commands)).Serve(context.Background(), connections)
	}()
	t.Cleanup(func() { close(connections); <-served })
	return func() device {
		near, far := net.Pipe()
		connections <- far
		return client{vmproto.NewClient(near, 0), near}
	}
}

// machine is a meter of a sensor in a bubble of synctest, which is read every second.
type machine struct {
	*testing.T
	*board
	*Sensor
	*power.Poller
}

const every = 5 * time.Second

// run runs the test with a meter for a machine whose device ipmi0 leads to the board.
func run(t *testing.T, b *board, test func(m machine)) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := New(root, every)
		connect := b.serve(t)
		s.open = func(path string) (device, error) {
			if _, err := os.Stat(path); err != nil {
				return nil, err
			}
			return connect(), nil
		}
		m := machine{t, b, s, power.Poll(s, power.PollOptions{Name: "ipmi", Find: s.Find, Every: every})}
		defer func() { assert.NoError(t, m.Poller.Close()) }()
		m.add("ipmi0")
		b.mu.Lock()
		defer b.mu.Unlock()
		test(m)
	})
}

func (m machine) add(name string) {
	path := filepath.Join(m.root, "dev", name)
	require.NoError(m, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(m, os.WriteFile(path, nil, 0o600))
}

func (m machine) remove(name string) {
	require.NoError(m, os.Remove(filepath.Join(m.root, "dev", name)))
}

// read returns what the meter has once all polls that are due have ended.
func (m machine) read() ([]power.Reading, error) {
	m.Helper()
	_, _ = m.Read(m.Context(), power.Sample{})
	m.pass(0)
	return m.Read(m.Context(), power.Sample{})
}

// pass lets time pass, until the polls that are due have ended or hang.
func (m machine) pass(d time.Duration) {
	m.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	m.mu.Lock()
}

// one returns the reading of the only zone.
func (m machine) one() power.Reading {
	m.Helper()
	readings, err := m.read()
	require.NoError(m, err)
	require.Len(m, readings, 1)
	return readings[0]
}

func healthy(watts uint16) powerReading {
	return powerReading{current: watts, least: 2, most: 900, average: 184, period: 86_400_000, active: true}
}

// averaged returns the statistics of a window.
func averaged(w window, watts uint16) powerReading {
	return powerReading{current: 3, least: watts - 1, most: watts + 1, average: watts, period: uint32(w), active: true}
}

func TestPowerIsThatOfTheMomentWhereTheBMCHasNoRollingAverage(t *testing.T) {
	for name, b := range map[string]*board{
		"none":                    {},
		"it cannot tell":          {noWindows: 0xc1},
		"longer than the pause":   {windows: map[window]powerReading{0x06: averaged(0x06, 500), 0x41: averaged(0x41, 500)}},
		"always the same answers": {windows: map[window]powerReading{0x05: healthy(100)}},
		"told and not had":        {windows: map[window]powerReading{0x05: {}}},
	} {
		t.Run(name, func(t *testing.T) {
			b.now = healthy(100)
			run(t, b, func(m machine) {
				r := m.one()
				assert.Equal(m, &power.Zone{
					ID: "ipmi0", Name: "BMC", Kind: power.Platform, Method: power.Measured, Domain: units.NodeCPUs,
					MaxWatts: power.MaxPlatformWatts,
				}, r.Zone)
				assert.Equal(m, time.Now(), r.At)
				b.now = healthy(200)
				m.pass(every)
				assert.Equal(m, 750*units.Joule, m.one().Total, "as it changed from one reading to the next")
				assert.Equal(m, 1, b.capabilities, "asked once")
			})
		})
	}
}

func TestTheLongestRollingAverageThatFitsIsRead(t *testing.T) {
	b := &board{now: healthy(3), windows: map[window]powerReading{
		0x01: averaged(0x01, 7), 0x05: averaged(0x05, 100), 0x06: averaged(0x06, 9), 0x41: averaged(0x41, 11),
	}}
	run(t, b, func(m machine) {
		m.one()
		b.windows[0x05] = averaged(0x05, 200)
		m.pass(every)
		assert.Equal(m, 1000*units.Joule, m.one().Total, "the average stands for all of the time")
		assert.Equal(m, []byte{1, 2, 2, 2}, b.requests, "both are compared once")

		delete(b.windows, 0x05) // as after an update of its firmware
		m.pass(every)
		assert.NoError(m, m.one().Err)
		m.pass(every)
		m.one()
		assert.Equal(m, []byte{1, 2, 2, 2, 2, 1, 1}, b.requests)
	})
}

func TestABMCThatIsBusyAtFirstIsAskedAgainForItsRollingAverages(t *testing.T) {
	b := &board{now: healthy(3), noWindows: 0xc0, windows: map[window]powerReading{0x05: averaged(0x05, 100)}}
	run(t, b, func(m machine) {
		m.one()
		b.noWindows = 0
		m.pass(every)
		m.one()
		assert.Equal(m, 2, b.capabilities)
		assert.Equal(m, []byte{1, 1, 2, 2}, b.requests)
	})
}

func TestWhereNothingCanBeReadIsNotAFailure(t *testing.T) {
	none := errors.New("none")
	for name, c := range map[string]struct {
		change func(m machine)
		want   error
		text   string
	}{
		"no device": {func(m machine) { m.remove("ipmi0") }, fs.ErrNotExist, "no BMC device, as ipmi0, in DEV: file does not exist"},
		"no directory": {
			func(m machine) { require.NoError(m, os.RemoveAll(filepath.Join(m.root, "dev"))) },
			fs.ErrNotExist, "no BMC device, as ipmi0, in DEV: file does not exist",
		},
		"no permission": {
			func(m machine) {
				m.open = func(path string) (device, error) {
					return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
				}
			},
			power.ErrNoZones, "no usable zone: BMC ipmi0: open DEV/ipmi0: permission denied",
		},
		"no DCMI":         {func(m machine) { m.code = 0xc1 }, power.ErrNoZones, "no usable zone: BMC ipmi0: completion code 0xc1 (invalid command)"},
		"no privilege":    {func(m machine) { m.code = 0xd4 }, power.ErrNoZones, "no usable zone: BMC ipmi0: completion code 0xd4 (insufficient privilege)"},
		"not active":      {func(m machine) { m.now.active = false }, power.ErrNoZones, "no usable zone: BMC ipmi0: it reports no power: its power measurement is not active"},
		"0 W":             {func(m machine) { m.now.current = 0 }, power.ErrNoZones, "no usable zone: BMC ipmi0: it reports no power: its reading is 0 W"},
		"all ones":        {func(m machine) { m.now.current = 0xffff }, power.ErrNoZones, "no usable zone: BMC ipmi0: it reports no power: its reading is 65535 W"},
		"initializing":    {func(m machine) { m.code = 0xd2 }, none, "BMC ipmi0: completion code 0xd2 (BMC initialization in progress)"},
		"an unknown code": {func(m machine) { m.code = 0x80 }, none, "BMC ipmi0: completion code 0x80"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, &board{now: healthy(100)}, func(m machine) {
				c.change(m)
				readings, err := m.read()
				assert.Empty(m, readings)
				require.EqualError(m, err, strings.ReplaceAll(c.text, "DEV", filepath.Join(m.root, "dev")))
				for _, missing := range []error{fs.ErrNotExist, power.ErrNoZones} {
					assert.Equal(m, missing == c.want, errors.Is(err, missing), missing) //nolint:errorlint // which one it is
				}
				assert.Equal(m, name == "no permission", errors.Is(err, fs.ErrPermission))
			})
		})
	}
}

func TestAFailureOfAKnownZoneIsItsErrorUntilItRecovers(t *testing.T) {
	for name, fail := range map[string]func(m machine){
		"initializing": func(m machine) { m.code = 0xd2 },
		"refused":      func(m machine) { m.code = 0xc1 },
		"gone":         func(m machine) { m.remove("ipmi0") },
		"not active":   func(m machine) { m.now.active = false },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, &board{now: healthy(100)}, func(m machine) {
				before := m.one()
				fail(m)
				m.pass(every)
				readings, err := m.read()
				require.NotErrorIs(m, err, power.ErrNoZones, "a known zone that fails is a failure")
				require.Len(m, readings, 1)
				require.Error(m, readings[0].Err)
				assert.Equal(m, before.At, readings[0].At)
				assert.Zero(m, readings[0].Total)

				m.code, m.now = 0, healthy(300)
				m.add("ipmi0")
				m.pass(every)
				after := m.one()
				require.NoError(m, after.Err)
				assert.Same(m, before.Zone, after.Zone)
				assert.Equal(m, 2000*units.Joule, after.Total)
			})
		})
	}
}

func TestTheFirstDeviceWhoseBMCKnowsItsPowerIsRead(t *testing.T) {
	root := t.TempDir()
	boards := map[string]powerReading{"ipmi2": healthy(100), "10": healthy(300), "ipmi0": {}}
	for _, name := range []string{"ipmi/10", "ipmi2", "ipmi0", "ipmi_si", "ipmifoo", "ipmi-1"} {
		path := filepath.Join(root, "dev", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	s := New(root, every)
	var opened []string
	s.open = func(path string) (device, error) {
		base := filepath.Base(path)
		opened = append(opened, base)
		require.Contains(t, boards, base)
		return answer(func(context.Context) ([]byte, error) { return encode(boards[base]), nil }), nil
	}
	for range 2 {
		_, err := s.Answer(t.Context(), power.Sample{})
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"ipmi0", "ipmi2", "ipmi2"}, opened)
	assert.Equal(t, "ipmi2", s.zone.ID)
}

// answer is a device whose BMC has one answer to all requests.
type answer func(ctx context.Context) ([]byte, error)

func (a answer) request(ctx context.Context, _ byte, _ []byte) ([]byte, error) { return a(ctx) }
func (answer) Close() error                                                    { return nil }

func TestPollsOpenAndCloseTheDevice(t *testing.T) {
	s := New(t.TempDir(), every)
	require.NoError(t, os.MkdirAll(filepath.Join(s.root, "dev"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(s.root, "dev/ipmi0"), nil, 0o600))
	open := 0
	for _, response := range [][]byte{encode(healthy(100)), {0xc1}, {}, nil} {
		s.open = func(string) (device, error) {
			open++
			return counted{answer(func(context.Context) ([]byte, error) { return response, nil }), &open}, nil
		}
		_, _ = s.Answer(t.Context(), power.Sample{})
		assert.Zero(t, open, "the driver can be unloaded")
	}
}

// counted counts the devices that are open.
type counted struct {
	answer
	open *int
}

func (c counted) Close() error { *c.open--; return nil }
