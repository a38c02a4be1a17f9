// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"syscall"
)

// The reasons why a request has no response, with the setting that solves the problem.
var (
	ErrTimeout   = errors.New("no answer in time: the server is slow or cannot be reached; timeout is the limit")
	ErrResolve   = errors.New("the server's name cannot be resolved")
	ErrEnded     = errors.New("the server ended the connection")
	ErrAuthority = errors.New("the server's certificate is not signed by a known authority: " +
		"set tls::ca_file to the certificate that signed it, or tls::insecure_skip_verify if the network is trusted")
	ErrHostname = errors.New("the server's certificate is for another name: " +
		"set endpoint or tls::server_name_override to a name in it, or tls::insecure_skip_verify if the network is trusted")
	ErrExpired = errors.New("the server's certificate has expired or is not valid yet: " +
		"renew it, or set tls::insecure_skip_verify if the network is trusted")
	ErrPlain = errors.New("the server does not speak TLS: set endpoint to its http:// address, if the network is trusted")
)

// explain returns the reason why there is no response. The text of err cannot be used: it may
// contain the URL of the request, a port that changes with each request, or the time of day.
func explain(err error) error {
	if e := explainTLS(err); e != nil {
		return e
	}
	if e, ok := errors.AsType[redirectError](err); ok {
		return e
	}
	timeout, isNet := errors.AsType[net.Error](err)
	_, unresolved := errors.AsType[*net.DNSError](err)
	op, broke := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case unresolved:
		return ErrResolve
	case errors.Is(err, context.DeadlineExceeded), isNet && timeout.Timeout():
		return ErrTimeout
	case broke && op.Op == "proxyconnect":
		return withCause("cannot connect to the proxy", err)
	case broke && op.Op == "dial":
		return withCause("cannot connect to the server", err)
	case broke:
		return withCause("the connection broke", err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ErrEnded
	}
	return other(err)
}

// explainTLS returns the reason why TLS failed, or nil if err is not an error of TLS.
func explainTLS(err error) error {
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, hostname := errors.AsType[x509.HostnameError](err)
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	alert, refused := errors.AsType[tls.AlertError](err)
	switch {
	case authority:
		return ErrAuthority
	case hostname:
		return ErrHostname
	case isInvalid && invalid.Reason == x509.Expired:
		return ErrExpired
	case isInvalid:
		return fmt.Errorf("the server's certificate is invalid: %w", x509.CertificateInvalidError{Reason: invalid.Reason}) // without Detail, which may contain a text from the server
	case noTLS, errors.Is(err, http.ErrSchemeMismatch):
		return ErrPlain
	case refused:
		return fmt.Errorf("the server refuses TLS: %w", alert)
	}
	return nil
}

// withCause returns an error with the text what and, if a system call failed, the text of its
// error. The error of the system call is not wrapped, because a connection that is not permitted
// must not be treated as fs.ErrPermission.
func withCause(what string, err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errors.New(what + ": " + errno.Error())
	}
	return errors.New(what)
}

// texts are parts of errors of net/http and crypto/tls that have no exported type.
var texts = []string{
	"failed to parse Location header", "invalid proxy address", "malformed HTTP response", "malformed HTTP status code",
	"malformed HTTP version", "server closed idle connection", "server sent GOAWAY", "stream error",
	"server selected unsupported protocol version", "failed to parse certificate from server",
}

// other returns the system call's error, a text of texts or of a status, or the type of any other
// error of the transport or an extension. The text itself may come from a server or a setting:
// net/http returns the reason why a proxy refuses a connection, and authentication extensions
// return the answer to a request for a token.
func other(err error) error {
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok {
		return errors.New("no answer: the server does not speak HTTP")
	}
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return withCause("no answer", err)
	}
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	for _, known := range texts {
		if strings.Contains(err.Error(), known) {
			return errors.New("no answer: " + known)
		}
	}
	for code := http.StatusBadRequest; code < 600; code++ {
		if text := http.StatusText(code); text != "" && text == err.Error() {
			return fmt.Errorf("no answer: the proxy answered %d %s", code, text)
		}
	}
	return fmt.Errorf("no answer: the text of the error (%T) may be confidential and is not shown", err)
}
