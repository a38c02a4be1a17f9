// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mdlayher/vsock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// sockets are the listeners of a host, and connections to them, in memory.
type sockets struct {
	failed  atomic.Value // of listen, a syscall.Errno, 0 for none
	accepts chan accepted
	closed  chan struct{}
	once    sync.Once
}

type accepted struct {
	conn net.Conn
	err  error
}

func newSockets() *sockets {
	return &sockets{accepts: make(chan accepted), closed: make(chan struct{})}
}

func (s *sockets) listen(uint32) (net.Listener, error) {
	if errno, _ := s.failed.Load().(syscall.Errno); errno != 0 {
		return nil, &net.OpError{Op: "listen", Net: "vsock", Err: os.NewSyscallError("bind", errno)}
	}
	return s, nil
}

func (s *sockets) Accept() (net.Conn, error) {
	select {
	case a := <-s.accepts:
		return a.conn, a.err
	case <-s.closed:
		return nil, &net.OpError{Op: "accept", Net: "vsock", Err: net.ErrClosed}
	}
}

func (s *sockets) Close() error   { s.once.Do(func() { close(s.closed) }); return nil }
func (s *sockets) Addr() net.Addr { return &vsock.Addr{ContextID: anyCID, Port: 9480} }

// conn is a connection from a context ID.
type conn struct {
	net.Conn
	from net.Addr
}

func (c conn) RemoteAddr() net.Addr { return c.from }

// connect returns the guest's end of a connection.
func (s *sockets) connect(from net.Addr) net.Conn {
	host, guest := net.Pipe()
	s.accepts <- accepted{conn: conn{host, from}}
	return guest
}

func (s *sockets) from(cid uint32) net.Conn {
	return s.connect(&vsock.Addr{ContextID: cid, Port: 50000})
}

// host is a server with virtual machines of the context IDs from 3 to 5,000.
type host struct {
	*testing.T
	*sockets
	*Server
	mu     sync.Mutex
	asked  []uint32
	report Report
}

func serve(t *testing.T, test func(*host)) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{T: t, sockets: newSockets(), report: *wholeReport()}
		h.Server = NewServer(9480, func(cid uint32) (Report, bool) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.asked = append(h.asked, cid)
			return h.report, cid <= 5000
		})
		h.Listen = h.listen
		defer func() { assert.NoError(t, h.Server.Close()) }()
		test(h)
	})
}

// told returns the text that is read from a connection.
func (h *host) told(c net.Conn) string {
	h.Helper()
	text, err := io.ReadAll(c)
	require.NoError(h, err)
	return string(text)
}

func TestAVirtualMachineIsToldByItsContextID(t *testing.T) {
	serve(t, func(h *host) {
		h.Start()
		assert.JSONEq(h, wholeDocument, h.told(h.from(3)))
		assert.JSONEq(h, wholeDocument, h.told(h.from(5000)))
		assert.Equal(h, []uint32{3, 5000}, h.asked)
		assert.NoError(h, h.Err())
	})
}

func TestWhoIsNoKnownVirtualMachineIsToldNothing(t *testing.T) {
	serve(t, func(h *host) {
		h.Start()
		for _, cid := range []uint32{vsock.Hypervisor, vsock.Local, vsock.Host} {
			assert.Empty(h, h.told(h.from(cid)), cid)
		}
		assert.Empty(h, h.told(h.connect(&net.UnixAddr{Name: "x"})))
		assert.Empty(h, h.asked, "nobody is asked for about the machine itself")
		assert.Empty(h, h.told(h.from(5001)))
		assert.Equal(h, []uint32{5001}, h.asked)
	})
}

func TestAVirtualMachineThatDoesNotReadKeepsNobodyElseFromBeingTold(t *testing.T) {
	serve(t, func(h *host) {
		h.Start()
		began := time.Now()
		var hostile []net.Conn
		for range 5000 {
			hostile = append(hostile, h.from(3))
		}
		synctest.Wait()
		assert.Len(h, h.conns, maxConnsEach)
		assert.LessOrEqual(h, runtime.NumGoroutine(), 20)
		assert.JSONEq(h, wholeDocument, h.told(h.from(4)))
		assert.Zero(h, time.Since(began), "at once")
		for _, c := range hostile[maxConnsEach:] {
			assert.Empty(h, h.told(c))
		}
		time.Sleep(writeTimeout)
		synctest.Wait()
		assert.Empty(h, h.conns)
		assert.JSONEq(h, wholeDocument, h.told(h.from(3)), "it may read again")
	})
}

// closing is a connection that calls before when it is closed.
type closing struct {
	conn
	before func(net.Conn)
}

func (c *closing) Close() error {
	c.before(c)
	return c.conn.Close()
}

func TestAConnectionWhoseEndTheVirtualMachineSeesIsNotCounted(t *testing.T) {
	serve(t, func(h *host) {
		h.Start()
		for range 3 * maxConnsEach {
			end, guest := net.Pipe()
			counted := true
			h.accepts <- accepted{conn: &closing{conn{end, &vsock.Addr{ContextID: 3}}, func(c net.Conn) { _, counted = h.conns[c] }}}
			assert.JSONEq(h, wholeDocument, h.told(guest), "the guest can reconnect at once")
			assert.False(h, counted)
		}
	})
}

func TestWhatAVirtualMachineSendsIsNotRead(t *testing.T) {
	serve(t, func(h *host) {
		h.Start()
		c := h.from(3)
		assert.NoError(h, c.SetWriteDeadline(time.Now().Add(time.Hour)))
		_, err := c.Write(make([]byte, 1<<20)) // ends when the server has given up
		assert.ErrorIs(h, err, io.ErrClosedPipe)
	})
}

func TestConnectionsAreBoundedOverAllVirtualMachines(t *testing.T) {
	serve(t, func(h *host) {
		h.Start()
		for cid := range uint32(maxConns) {
			h.from(3 + cid)
		}
		synctest.Wait()
		assert.Len(h, h.conns, maxConns)
		assert.Empty(h, h.told(h.from(4999)))
		time.Sleep(writeTimeout)
		assert.JSONEq(h, wholeDocument, h.told(h.from(4999)))
	})
}

func TestAPortThatCannotBeListenedAtIsToldAndTriedAgain(t *testing.T) {
	for cause, want := range map[syscall.Errno]string{
		syscall.EADDRINUSE:   "vsock port 9480: another program listens at it",
		syscall.EACCES:       "vsock port 9480: permission denied: ports below 1024 need CAP_NET_BIND_SERVICE, and containers a seccomp profile that allows AF_VSOCK",
		syscall.EAFNOSUPPORT: "vsock port 9480: sockets of the family AF_VSOCK are not available: load the kernel module vhost_vsock, and allow the family if a sandbox restricts it",
		syscall.ENOMEM:       "vsock port 9480: " + syscall.ENOMEM.Error(),
	} {
		serve(t, func(h *host) {
			h.failed.Store(cause)
			h.Start()
			for range 3 {
				synctest.Wait()
				assert.EqualError(h, h.Err(), want)
				assert.NotErrorIs(h, h.Err(), os.ErrPermission, "which is said of energy counters")
				time.Sleep(listenAgain)
			}
			synctest.Wait()
			h.failed.Store(syscall.Errno(0))
			time.Sleep(listenAgain)
			assert.JSONEq(h, wholeDocument, h.told(h.from(3)))
			assert.NoError(h, h.Err())
		})
	}
}

func TestAConnectionThatFailsIsToldUntilAnotherIsMade(t *testing.T) {
	serve(t, func(h *host) {
		h.Start()
		for range 2 {
			h.accepts <- accepted{err: &net.OpError{Op: "accept", Net: "vsock", Err: os.NewSyscallError("accept4", syscall.EMFILE)}}
			synctest.Wait()
			assert.EqualError(h, h.Err(), "vsock port 9480: too many open files")
			time.Sleep(acceptAgain)
		}
		assert.JSONEq(h, wholeDocument, h.told(h.from(3)))
		assert.NoError(h, h.Err())
	})
}

func TestConnectionsThatAreAbortedBeforeTheyAreAcceptedDelayNobody(t *testing.T) {
	serve(t, func(h *host) {
		h.Start()
		began := time.Now()
		for range 100 {
			h.accepts <- accepted{err: os.NewSyscallError("accept4", syscall.ECONNABORTED)}
			assert.JSONEq(h, wholeDocument, h.told(h.from(4)))
		}
		assert.Zero(h, time.Since(began))
		assert.NoError(h, h.Err())
	})
}

func TestAServerThatIsClosedLeavesNothingBehind(t *testing.T) {
	for name, before := range map[string]func(*host){
		"never started":        func(*host) {},
		"just started":         func(h *host) { h.Start() },
		"listening":            func(h *host) { h.Start(); synctest.Wait() },
		"waiting for the port": func(h *host) { h.failed.Store(syscall.EADDRINUSE); h.Start(); synctest.Wait() },
		"telling":              func(h *host) { h.Start(); h.from(3); h.from(4); synctest.Wait() },
		"after a failure": func(h *host) {
			h.Start()
			h.accepts <- accepted{err: errors.New("no")}
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, func(h *host) {
				before(h)
				began := time.Now()
				assert.NoError(h, h.Server.Close())
				assert.NoError(h, h.Server.Close())
				assert.Zero(h, time.Since(began))
			})
		})
	}
}

// inGuest is a client whose host is a function.
type inGuest struct {
	*testing.T
	*Client
	answer func(net.Conn)
	failed error
}

func ask(t *testing.T, test func(*inGuest)) {
	synctest.Test(t, func(t *testing.T) {
		g := &inGuest{T: t, Client: NewClient(9480, nil)}
		g.dial = func(context.Context) (net.Conn, error) {
			if g.failed != nil {
				return nil, g.failed
			}
			host, guest := net.Pipe()
			answer := g.answer
			go func() {
				defer func() { _ = host.Close() }()
				answer(host)
			}()
			return guest, nil
		}
		test(g)
		assert.NoError(t, g.Close())
	})
}

func write(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) }
}

// poll polls with a timeout of five seconds.
func (g *inGuest) poll() ([]power.Shown, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	answer, err := g.Answer(ctx, power.Sample{})
	return answer.Shown, err
}

func TestAGuestThatIsNotToldSaysWhy(t *testing.T) {
	dialed := func(err error) error {
		return &net.OpError{Op: "dial", Net: "vsock", Addr: &vsock.Addr{ContextID: 2, Port: 9480}, Err: os.NewSyscallError("connect", err)}
	}
	for name, c := range map[string]struct {
		answer func(net.Conn)
		failed error
		want   string
	}{
		"nobody listens":  {failed: dialed(syscall.ECONNRESET), want: "no receiver listens at vsock port 9480 of the hypervisor"},
		"no hypervisor":   {failed: dialed(syscall.ETIMEDOUT), want: "no answer in time"},
		"not permitted":   {failed: dialed(syscall.EACCES), want: "permission denied: containers need a seccomp profile that allows AF_VSOCK"},
		"another error":   {failed: dialed(syscall.ENOMEM), want: "cannot allocate memory"},
		"not known":       {answer: write(""), want: "the hypervisor has no energy of this virtual machine"},
		"cut":             {answer: write(wholeDocument[:50]), want: "not an energy report"},
		"another program": {answer: write("SSH-2.0-OpenSSH_9.2\r\n"), want: "not an energy report"},
		"a later version": {answer: write(`{"version":2}`), want: "the report has version 2, not 1"},
		"too much":        {answer: write(strings.Repeat(wholeDocument, 1000)), want: "not an energy report"},
		"says nothing":    {answer: func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }, want: "no answer in time"},
		"never ends":      {answer: func(c net.Conn) { write(wholeDocument)(c); _, _ = c.Read(make([]byte, 1)) }, want: "no answer in time"},
		"a byte every while": {answer: func(c net.Conn) {
			for _, b := range []byte(wholeDocument) {
				time.Sleep(time.Second)
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
			}
		}, want: "no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			ask(t, func(g *inGuest) {
				g.answer, g.failed = c.answer, c.failed
				values, err := g.poll()
				assert.NoError(g, err, "it may pass")
				assert.Empty(g, values)
				time.Sleep(minPatience + time.Second)
				for range 2 {
					_, err = g.poll()
					assert.EqualError(g, err, "the hypervisor's report: "+c.want)
					assert.NotErrorIs(g, err, os.ErrPermission, "which is said of energy counters")
					time.Sleep(time.Minute)
				}
				g.answer, g.failed = write(wholeDocument), nil
				values, err = g.poll()
				assert.NoError(g, err)
				assert.Len(g, values, 2)
			})
		})
	}
}

func TestAGuestReadsNoMoreThanADocumentHas(t *testing.T) {
	ask(t, func(g *inGuest) {
		written := 0
		g.answer = func(c net.Conn) {
			for written < 1<<20 {
				n, err := c.Write(make([]byte, 512))
				if written += n; err != nil {
					return
				}
			}
		}
		_, err := g.ask(g.Context())
		assert.Error(g, err)
		synctest.Wait()
		assert.LessOrEqual(g, written, maxDocument+512)
	})
}

func TestAMachineWithoutVsockIsToldAtOnce(t *testing.T) {
	for _, errno := range []error{syscall.ENODEV, syscall.EAFNOSUPPORT, syscall.ENETUNREACH} {
		ask(t, func(g *inGuest) {
			g.failed = os.NewSyscallError("connect", errno)
			for range 2 {
				_, err := g.poll()
				assert.EqualError(g, err, errNoVsock.Error(), fmt.Sprint(errno))
			}
		})
	}
}

// The kernel's own sockets, where a machine can connect only to itself.
func TestOverTheKernelsLoopback(t *testing.T) {
	if _, err := os.Stat("/sys/module/vsock_loopback"); err != nil {
		t.Skip("vsock_loopback is not loaded")
	}
	const port = 9480
	publisher := NewPublisher("")
	defer func() { _ = publisher.Close() }()
	server := NewServer(port, publisher.Report)
	listening := make(chan struct{}, 1)
	var renamed atomic.Bool
	server.Listen = func(port uint32) (net.Listener, error) {
		l, err := vsock.ListenContextID(vsock.Local, port, nil)
		listening <- struct{}{}
		return localAs{l, 7, &renamed}, err
	}
	server.Start()
	defer func() { _ = server.Close() }()
	<-listening
	client := NewClient(port, nil)
	client.dial = func(ctx context.Context) (net.Conn, error) { return vsock.DialContext(ctx, vsock.Local, port, nil) }
	meter := power.Direct("hypervisor", client)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	const before = 52310000
	for _, given := range []units.Energy{before, before + 1, before + 1, before + 5e11} {
		zones := []Zone{{Kind: power.Package, Energy: given}, {Kind: power.DRAM, Energy: 2 * given}}
		publisher.Publish([]VM{{ID: "web", CID: 7, Zones: zones}, {ID: "db", CID: 8}}, time.Now())
		renamed.Store(false)
		_, err := client.ask(ctx)
		assert.ErrorIs(t, err, errUnknown, "the machine itself is told nothing")
		renamed.Store(true)
		readings, err := meter.Read(ctx, power.Sample{At: time.Now()})
		require.NoError(t, err)
		require.Len(t, readings, 2)
		assert.Equal(t, given-before, readings[0].Total)
		assert.Equal(t, 2*(given-before), readings[1].Total)
	}

	_, err := vsock.ListenContextID(vsock.Local, port, nil)
	assert.EqualError(t, listenError(err), "another program listens at it")
	assert.NoError(t, server.Close())
	_, err = client.ask(ctx)
	assert.EqualError(t, err, "no receiver listens at vsock port 9480 of the hypervisor")
}

// localAs is a listener that takes the machine itself for a virtual machine, while renamed is set.
type localAs struct {
	net.Listener
	cid     uint32
	renamed *atomic.Bool
}

func (l localAs) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if peer, ok := c.RemoteAddr().(*vsock.Addr); ok && peer.ContextID == vsock.Local && l.renamed.Load() {
		return conn{c, &vsock.Addr{ContextID: l.cid, Port: peer.Port}}, nil
	}
	return c, nil
}
