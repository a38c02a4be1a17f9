// SPDX-License-Identifier: Apache-2.0

package fetch_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
)

// get gets a URL whose query has a secret.
func get(t *testing.T, h *http.Client, url string) (*fetch.Answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/power?password=hunter2", nil)
	require.NoError(t, err)
	answer, err := fetch.New(h).Do(req)
	if err != nil {
		assert.NotContains(t, err.Error(), "hunter2")
	}
	return answer, err
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func TestAnAnswerIsDecoded(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Auth-Token", "t")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"Reading": 12.5}`)
	})
	answer, err := get(t, s.Client(), s.URL)
	require.NoError(t, err)
	var v struct{ Reading float64 }
	require.NoError(t, answer.JSON(&v))
	assert.InDelta(t, 12.5, v.Reading, 0)
	assert.Equal(t, "t", answer.Header.Get("X-Auth-Token"))
	assert.False(t, answer.At.IsZero())
}

func TestWhatIsNoJSONIsToldWithoutQuotingIt(t *testing.T) {
	for name, body := range map[string]string{"empty": "", "a page": "<html>hunter2", "cut off": `{"Reading": 1`, "another type": `{"Reading": "x"}`, "a list": "[]"} {
		var v struct{ Reading float64 }
		assert.Equal(t, fetch.ErrNotJSON, (&fetch.Answer{Body: []byte(body)}).JSON(&v), name)
	}
}

func TestAnotherStatusIsAnErrorWithItsBody(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "busy")
	})
	_, err := get(t, s.Client(), s.URL)
	assert.EqualError(t, err, "the server answered 503 Service Unavailable")
	assert.Equal(t, 503, fetch.Status(err))
	status, ok := errors.AsType[*fetch.StatusError](err)
	require.True(t, ok)
	assert.Equal(t, "busy", string(status.Body))
	assert.Zero(t, fetch.Status(io.EOF))
}

// endless counts what is read of an endless body.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

func (*endless) Close() error { return nil }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnEndlessAnswerIsAnErrorAndNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		length int64
		most   int
	}{"of stated length": {1 << 30, 0}, "of unknown length": {-1, 3 * fetch.MaxAnswer}} {
		body := &endless{}
		_, err := get(t, &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, ContentLength: c.length, Body: body}, nil
		})}, "http://plug.example")
		assert.Equal(t, fetch.ErrTooLarge, err, name)
		assert.LessOrEqual(t, body.read, c.most, name)
	}
}

func TestRedirectsStayOnTheServer(t *testing.T) {
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request went elsewhere") })
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch to := r.URL.Query().Get("password"); {
		case r.URL.Path == "/here":
			_, _ = io.WriteString(w, "{}")
		case r.Header.Get("To") == "loop":
			http.Redirect(w, r, "/power?password="+to, http.StatusFound)
		case r.Header.Get("To") != "":
			http.Redirect(w, r, r.Header.Get("To"), http.StatusTemporaryRedirect)
		default:
			http.Redirect(w, r, "/here", http.StatusMovedPermanently)
		}
	})
	_, err := get(t, s.Client(), s.URL)
	require.NoError(t, err)
	for to, want := range map[string]string{
		elsewhere.URL + "/?password=hunter2":                     `if "` + elsewhere.URL + `" is right, set endpoint to it`,
		"https" + strings.TrimPrefix(s.URL, "http") + "/hunter2": `redirects to another one, which is not followed`,
		"http://hunter2!/":                                       `if "…" is right`,
		"loop":                                                   "redirects more than 5 times",
	} {
		_, err := get(t, &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("To", to)
			return http.DefaultTransport.RoundTrip(r)
		})}, s.URL)
		assert.ErrorContains(t, err, want)
	}
}

func TestAPOSTIsSentOnce(t *testing.T) {
	requests := 0
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		http.Redirect(w, r, "/again", http.StatusPermanentRedirect)
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader("{}"))
	require.NoError(t, err)
	_, err = fetch.New(s.Client()).Do(req)
	assert.Equal(t, http.StatusPermanentRedirect, fetch.Status(err))
	assert.Equal(t, 1, requests)
}

func TestOnlyIdentifiersOfAServerAreShown(t *testing.T) {
	for text, want := range map[string]string{
		"System.Embedded.1": "System.Embedded.1", "0-1:RAID_2": "0-1:RAID_2", strings.Repeat("y", 64): strings.Repeat("y", 64),
		"": "…", "two words": "…", "a/b": "…", "a\x1b[31m": "…", "a\n": "…", "é": "…", strings.Repeat("y", 65): "…",
	} {
		assert.Equal(t, want, fetch.ID(text))
	}
}

func TestAServerThatDoesNotAnswerIsToldInStableWords(t *testing.T) {
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, refusing.Close())
	ending := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	secure.Config.ErrorLog = nil
	trusting := secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	proxied := &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: refusing.Addr().String(), User: url.UserPassword("user", "hunter2")}),
	}}
	client := func(c *tls.Config) *http.Client {
		tr := &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}
		return &http.Client{Transport: tr}
	}
	for name, c := range map[string]struct {
		client *http.Client
		url    string
		want   string
	}{
		"refuses":          {client(nil), "http://" + refusing.Addr().String(), "cannot connect to the server: connection refused"},
		"has no proxy":     {proxied, secure.URL, "cannot connect to the proxy: connection refused"},
		"ends":             {client(nil), ending.URL, fetch.ErrEnded.Error()},
		"is not known":     {client(nil), secure.URL, fetch.ErrAuthority.Error()},
		"has another name": {client(&tls.Config{RootCAs: trusting, ServerName: "bmc.invalid"}), secure.URL, fetch.ErrHostname.Error()},
		"is out of date":   {client(&tls.Config{RootCAs: trusting, Time: func() time.Time { return time.Now().AddDate(200, 0, 0) }}), secure.URL, fetch.ErrExpired.Error()},
		"has no TLS":       {client(nil), "https" + strings.TrimPrefix(ending.URL, "http"), fetch.ErrPlain.Error()},
		"wants TLS":        {client(nil), "http" + strings.TrimPrefix(secure.URL, "https"), "the server answered 400 Bad Request"},
		"cannot be found":  {client(nil), "http://bmc.invalid", fetch.ErrResolve.Error()},
		"has old TLS": {&http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			return nil, errors.New("tls: server selected unsupported protocol version 301")
		})}, ending.URL, "no answer: server selected unsupported protocol version"},
		"breaks an adapter": {&http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("no token\nresponse: x") })}, ending.URL, "no answer: the text of the error (*errors.errorString) may be confidential and is not shown"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				_, err := get(t, c.client, c.url)
				assert.EqualError(t, err, c.want)
			}
		})
	}
}

func TestASlowAnswerIsBoundedByTheTimeout(t *testing.T) {
	for name, wait := range map[string]func(*http.Request) (*http.Response, error){
		"hangs": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"drips": func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Body: drip{r.Context()}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, err := get(t, &http.Client{Timeout: time.Minute, Transport: roundTripper(wait)}, "http://bmc.example")
				assert.Equal(t, fetch.ErrTimeout, err)
				assert.Equal(t, time.Minute, time.Since(began).Round(2*time.Second))
			})
		})
	}
}

// drip is a body of a byte a second.
type drip struct{ ctx context.Context }

func (d drip) Read(p []byte) (int, error) {
	select {
	case <-time.After(time.Second):
		p[0] = ' '
		return 1, nil
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

func (drip) Close() error { return nil }

func TestOneWhoStopsWaitingGetsTheContextsError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	_, err = fetch.New(s.Client()).Do(req)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestNumberIsANumberOrAStringOfOne(t *testing.T) {
	for text, want := range map[string]float64{`12`: 12, ` -0.5e1 `: -5, `"230.25"`: 230.25, `" 7 "`: 7, `0`: 0} {
		got, err := fetch.Number(json.RawMessage(text))
		require.NoError(t, err, text)
		assert.InDelta(t, want, got, 0, text)
	}
	for text, want := range map[string]error{
		``: fetch.ErrNoValue, `null`: fetch.ErrNoValue, `""`: fetch.ErrNoValue, `"null"`: fetch.ErrNoValue,
		`"NaN"`: fetch.ErrNotNumber, `"Inf"`: fetch.ErrNotNumber, `"-Inf"`: fetch.ErrNotNumber, `1e999`: fetch.ErrNotNumber,
		`"12 W"`: fetch.ErrNotNumber, `"12,5"`: fetch.ErrNotNumber, `"0x10"`: fetch.ErrNotNumber, `true`: fetch.ErrNotNumber,
		`{}`: fetch.ErrNotNumber, `[1]`: fetch.ErrNotNumber, `"`: fetch.ErrNotNumber, `-`: fetch.ErrNotNumber,
	} {
		_, err := fetch.Number(json.RawMessage(text))
		assert.Equal(t, want, err, text)
	}
}

func TestAConnectionThatMayNotBeMadeIsNoPermissionOfFiles(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)}
	_, err := get(t, &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, refused })}, "http://bmc.example")
	assert.EqualError(t, err, "cannot connect to the server: permission denied")
	assert.NotErrorIs(t, err, fs.ErrPermission)
}

func TestNoErrorHasTheURLOrTheTextOfACertificate(t *testing.T) {
	for name, cause := range map[string]error{
		"a certificate": x509.CertificateInvalidError{Reason: x509.CANotAuthorizedForThisName, Detail: "hunter2.example"},
		"a URL":         &url.Error{Op: "Get", URL: "http://hunter2", Err: errors.New("\x1b[31m")},
	} {
		_, err := get(t, &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, cause })}, "http://bmc.example")
		require.Error(t, err, name)
		assert.NotContains(t, err.Error(), "\x1b", name)
	}
}

func TestNothingThatAServerOrASettingSaysIsQuoted(t *testing.T) {
	var answers atomic.Int64
	for name, c := range map[string]struct{ answer, want string }{
		"another protocol":         {"SSH-2.0-hunter2-%d\r\n", "no answer: malformed HTTP response"},
		"a broken header":          {"HTTP/1.1 200 OK\r\nhunter2 %d\r\n\r\n", "no answer: the server does not speak HTTP"},
		"a header without a name":  {"HTTP/1.1 200 OK\r\n hunter2 %d: x\r\n\r\n", "no answer: the server does not speak HTTP"},
		"a header with a bad name": {"HTTP/1.1 200 OK\r\nhunter2\x01 %d: x\r\n\r\n", "no answer: the server does not speak HTTP"},
		"a broken redirection":     {"HTTP/1.1 302 Found\r\nLocation: http://hunter2:%d:1/\r\nContent-Length: 0\r\n\r\n", "no answer: failed to parse Location header"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, l.Close()) })
			go func() {
				for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
					_, _ = conn.Read(make([]byte, 4096))
					_, _ = fmt.Fprintf(conn, c.answer, answers.Add(1))
					_ = conn.Close()
				}
			}()
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			for range 2 {
				_, err := get(t, client, "http://"+l.Addr().String())
				assert.EqualError(t, err, c.want)
			}
		})
	}
	for text, want := range map[string]string{
		`invalid proxy address "http://user:hunter2@[": missing port`:                        "no answer: invalid proxy address",
		"stream error: stream ID 5; INTERNAL_ERROR; received from peer":                      "no answer: stream error",
		`http2: server sent GOAWAY; LastStreamID=7, ErrCode=NO_ERROR, debug="hunter2 \"a\""`: "no answer: server sent GOAWAY",
	} {
		_, err := get(t, &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New(text) })}, "http://bmc.invalid")
		assert.EqualError(t, err, want)
	}
}

func TestTheReasonOfAProxyIsShownOnlyIfItIsStandard(t *testing.T) {
	for reason, want := range map[string]string{
		"403 user energy password correct-horse is wrong": "no answer: the text of the error (*errors.errorString) may be confidential and is not shown",
		"407 Proxy Authentication Required":               "no answer: the proxy answered 407 Proxy Authentication Required",
	} {
		proxy := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if assert.NoError(t, err) {
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\n\r\n", reason)
				assert.NoError(t, conn.Close())
			}
		})
		to, err := url.Parse(proxy.URL)
		require.NoError(t, err)
		_, err = get(t, &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(to)}}, "https://bmc.example")
		assert.EqualError(t, err, want)
	}
	failed := fmt.Errorf("token hunter2: %w", &fs.PathError{Op: "open", Path: "hunter2", Err: syscall.EMFILE})
	_, err := get(t, &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, failed })}, "http://bmc.example")
	assert.EqualError(t, err, "no answer: too many open files")
}
