// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"golang.org/x/sys/unix"
)

// patience is how long a test waits for anything.
const patience = time.Minute

// freeEndpoint returns an address of loopback on which nothing listens.
func freeEndpoint(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}

// start starts a program, whose log goes to a file, and waits until an address answers, with
// whatever but an error of the server. The test's end stops the program.
func start(t *testing.T, cmd *exec.Cmd, log, ready string) error {
	t.Helper()
	f, err := os.Create(log)
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the exit status does not matter
		_ = f.Close()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM) // it may have ended already
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	return until(ready+" answers", func() (bool, error) {
		select {
		case <-ended:
			text, _ := os.ReadFile(log) // the error is in it, if anywhere
			return false, fmt.Errorf("%s ended: %s", cmd.Path, text)
		default:
		}
		answer, err := http.Get(ready)
		if err != nil {
			return false, nil //nolint:nilerr // it does not listen yet
		}
		defer func() { _ = answer.Body.Close() }()
		return answer.StatusCode < 500, nil
	})
}

// until waits until a condition holds.
func until(what string, holds func() (bool, error)) error {
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if done, err := holds(); done || err != nil {
			return err
		}
		if time.Since(began) > patience {
			return fmt.Errorf("not within %v: %s", patience, what)
		}
	}
}

// post sends OTLP over HTTP.
func post(url string, md pmetric.Metrics) error {
	var marshaler pmetric.ProtoMarshaler // a request has the same bytes
	body, err := marshaler.MarshalMetrics(md)
	if err != nil {
		return err
	}
	answer, err := http.Post(url, "application/x-protobuf", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	said, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(said)))
	}
	return err
}
