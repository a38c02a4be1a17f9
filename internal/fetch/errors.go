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
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"unicode"
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
	if e, ok := errors.AsType[*redirectError](err); ok {
		return e
	}
	timeout, isNet := errors.AsType[net.Error](err)
	_, unresolved := errors.AsType[*net.DNSError](err)
	op, broke := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, errRedirects):
		return errRedirects
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

// unstable matches the parts of an error text that must not be logged. Quoted texts may come from
// the server or from a setting, such as the password of a proxy. The stream IDs of HTTP/2 change
// with each request.
var unstable = regexp.MustCompile(`"(\\.|[^"\\])*"?|ID[ =]\d+`)

// other returns an error with the first line of the text of err, without the URL and without quoted
// texts. err is any other error of the transport or of an extension.
func other(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok { // its text may contain a line of the response
		return errNotHTTP
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	text = unstable.ReplaceAllString(text, hidden)
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	return fmt.Errorf("no answer: %.200s", text)
}

var errNotHTTP = errors.New("no answer: the server does not speak HTTP")
