// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mdlayher/vsock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
)

// vsockListener is a listener that a test connects to.
type vsockListener struct {
	conns chan net.Conn
	stop  chan struct{}
	once  sync.Once
}

func (l *vsockListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.stop:
		return nil, net.ErrClosed
	}
}

func (l *vsockListener) Close() error   { l.once.Do(func() { close(l.stop) }); return nil }
func (l *vsockListener) Addr() net.Addr { return &vsock.Addr{} }

type vsockConn struct {
	net.Conn
	cid uint32
}

func (c vsockConn) RemoteAddr() net.Addr { return &vsock.Addr{ContextID: c.cid} }

// ask returns what the virtual machine with the context ID is told.
func (l *vsockListener) ask(t *testing.T, cid uint32) string {
	t.Helper()
	host, guest := net.Pipe()
	l.conns <- vsockConn{host, cid}
	text, err := io.ReadAll(guest)
	require.NoError(t, err)
	return string(text)
}

func TestOverVsockAMachineIsToldWhatItsSeriesHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &vsockListener{conns: make(chan net.Conn), stop: make(chan struct{})}
		n := newTestNode(t, func(c *Config) {
			c.Guests = configoptional.Some(GuestsConfig{Vsock: configoptional.Some(VsockConfig{Port: 9480})})
		})
		n.s.guests.listen = func(port uint32) (net.Listener, error) {
			assert.Equal(t, uint32(9480), port)
			return l, nil
		}
		n.host.Processes[10], n.host.Processes[11] = qemu("a", uuidA), qemu("b", uuidB)
		n.host.Processes[10].Args = append(n.host.Processes[10].Args, "-device", `{"driver":"vhost-vsock-pci","id":"vsock0","guest-cid":3}`)
		n.host.Processes[11].Args = append(n.host.Processes[11].Args, "-device", "vhost-vsock-pci,guest-cid=4")
		n.start()
		assert.Empty(t, l.ask(t, 3), "nothing was attributed yet")
		for range 3 {
			n.run(123_456_789, map[int]int64{10: 300, 11: 100})
			for cid, uuid := range map[uint32]string{3: uuidA, 4: uuidB} {
				var told struct {
					Zones []struct {
						Zone   string `json:"zone"`
						Energy string `json:"energy_uj"`
					} `json:"zones"`
				}
				require.NoError(t, json.Unmarshal([]byte(l.ask(t, cid)), &told))
				require.Len(t, told.Zones, 1)
				energy, err := strconv.ParseUint(told.Zones[0].Energy, 10, 64)
				require.NoError(t, err)
				assert.Equal(t, "package", told.Zones[0].Zone)
				assert.InDelta(t, n.sum("vm.energy", attrs{"vm.id": uuid}, "energy.zone=package"), float64(energy)/joule, 1e-9)
			}
		}
		assert.Empty(t, l.ask(t, 5))
		delete(n.host.Processes, 10)
		n.run(600*joule, nil)
		assert.Empty(t, l.ask(t, 3), "it ended, and another machine may get its context ID")
	})
}

func TestAUsersProgramWithAnothersContextIDChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &vsockListener{conns: make(chan net.Conn), stop: make(chan struct{})}
		n := newTestNode(t, func(c *Config) {
			c.Guests = configoptional.Some(GuestsConfig{Vsock: configoptional.Some(VsockConfig{Port: 9480})})
		})
		n.s.guests.listen = func(uint32) (net.Listener, error) { return l, nil }
		const device = "vhost-vsock-pci,guest-cid=3"
		forged, genuine := qemu("a", uuidA), qemu("b", uuidB)
		forged.Args = append(forged.Args, "-device", device)
		forged.Cgroup = "0::/user.slice/user-1000.slice/user@1000.service/machine-qemu-1-a.scope"
		genuine.Args = append(genuine.Args, "-device", device)
		n.host.Processes[10] = forged
		n.start()
		n.run(600*joule, map[int]int64{10: 500})
		n.host.Processes[11] = genuine
		genuine.Start = ticksSince(n.host)
		n.run(600*joule, nil)
		n.run(600*joule, map[int]int64{10: 500})
		n.run(600*joule, map[int]int64{10: 500})
		assert.Contains(t, l.ask(t, 3), `{"zone":"package","energy_uj":"0"}`, "the genuine machine used nothing")
		n.run(600*joule, map[int]int64{11: 500})
		assert.NotContains(t, l.ask(t, 3), `"energy_uj":"0"`)
		assert.Empty(t, n.reasons("guests"))
	})
}

func TestAVsockPortThatCannotBeListenedAtIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNode(t, guestsIn(t.TempDir()), func(c *Config) { c.Guests.Get().Vsock = configoptional.Some(VsockConfig{Port: 9480}) })
		n.s.guests.listen = func(uint32) (net.Listener, error) { return nil, errors.New("no vsock") }
		n.start()
		for range 3 {
			time.Sleep(time.Minute)
			n.run(600*joule, nil)
		}
		assert.Equal(t, []string{"vsock port 9480: no vsock"}, n.reasons("guests"), "once")
	})
}
