// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"syscall"
	"time"

	"github.com/mdlayher/vsock"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Client is the power.Source of the report that the hypervisor provides over vsock.
type Client struct {
	dial     func(context.Context) (net.Conn, error)
	follower *Follower
	silent   error // no receiver listens
}

var (
	// errNoVsock is the error of a machine that is not a virtual machine or has no vsock device.
	errNoVsock = errors.New("this machine has no vsock connection to a hypervisor: it needs a vsock device, the kernel module vmw_vsock_virtio_transport, and a sandbox that allows the family AF_VSOCK")
	errUnknown = errors.New("the hypervisor has no energy of this virtual machine")
	errSilent  = errors.New("no answer in time")
)

// maxPort is the largest port. The port above it means any port (VMADDR_PORT_ANY).
const maxPort = math.MaxUint32 - 1

// CheckPort returns an error if port is not a valid vsock port of a server, from 1 to 4294967294.
func CheckPort(port int64) error {
	switch {
	case port == 0:
		return fmt.Errorf("must be set to a port between 1 and %d", int64(maxPort))
	case port < 0 || port > maxPort:
		return fmt.Errorf("must be between 1 and %d, is %d", int64(maxPort), port)
	}
	return nil
}

// NewClient returns a Source that queries the Server on the host. port is the vsock port of the
// Server. want reports whether to read zones of a kind. If want is nil, all zones are read.
// NewClient opens no connection.
func NewClient(port uint32, want func(power.Kind) bool) *Client {
	return &Client{
		dial:     func(ctx context.Context) (net.Conn, error) { return vsock.DialContext(ctx, vsock.Host, port, nil) },
		follower: NewFollower("the hypervisor's report", want),
		silent:   fmt.Errorf("no receiver listens at vsock port %d of the hypervisor", port),
	}
}

// Answer queries the host once. If the host does not respond, Answer repeats the last readings,
// because the host may be restarting its receiver.
func (c *Client) Answer(ctx context.Context, _ power.Sample) (power.Answer, error) {
	r, err := c.ask(ctx)
	now := time.Now()
	var shown []power.Shown
	switch {
	case err == nil:
		shown, err = c.follower.Show(r, now)
	case !errors.Is(err, context.Canceled) && !errors.Is(err, errNoVsock):
		shown, err = c.follower.Waiting(err, now)
	}
	return power.Answer{Shown: shown}, err
}

// Close returns nil. No connection is open between two calls of Answer.
func (c *Client) Close() error { return nil }

func (c *Client) ask(ctx context.Context) (*Report, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, c.failure(ctx, err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	text, err := io.ReadAll(io.LimitReader(conn, maxDocument+1))
	switch {
	case err != nil:
		return nil, c.failure(ctx, err)
	case len(text) == 0:
		return nil, errUnknown
	}
	return unmarshal(text)
}

// failure returns an error with the same text for the same cause.
func (c *Client) failure(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil, errors.Is(err, syscall.ETIMEDOUT):
		return errSilent
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNREFUSED):
		return c.silent
	case errors.Is(err, syscall.EAFNOSUPPORT), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENETUNREACH):
		return errNoVsock
	case errors.Is(err, fs.ErrPermission): // not wrapped: it does not concern energy counters
		return errors.New("permission denied: containers need a seccomp profile that allows AF_VSOCK")
	}
	return cause(err)
}
