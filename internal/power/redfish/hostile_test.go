// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"

	rt "github.com/energyreceiver/energyreceiver/internal/power/redfish/redfishtest"
)

// fault answers a request.
type fault func(r *http.Request) (*http.Response, error)

// hostile is a BMC that misbehaves, between the client and a server.
type hostile struct {
	random *rand.Rand
	*bench
	answer fault

	mu       sync.Mutex // of what follows: a login is a request beside others
	most     int        // sessions that were open at the same time
	logins   []time.Time
	requests int // with a token
}

func (h *hostile) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		h.mu.Lock()
		h.logins = append(h.logins, time.Now())
		h.mu.Unlock()
	}
	answer, err := h.answer(r)
	h.count()
	return answer, err
}

func (h *hostile) count() {
	open, _, _ := h.server.Sessions()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.most = max(h.most, open)
}

// serve returns the server's answer as a whole, so that the server waits for no reader.
func (h *hostile) serve(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	h.server.ServeHTTP(w, r)
	answer := w.Result()
	answer.Request = r
	return answer, nil
}

// by answers all requests with a method by a fault.
func (h *hostile) by(method string, f fault) {
	h.answer = func(r *http.Request) (*http.Response, error) {
		if r.Method == method {
			return f(r)
		}
		return h.serve(r)
	}
}

// status returns an answer without a body.
func status(r *http.Request, code int) (*http.Response, error) {
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// lost lets the server act on a request, and breaks the connection.
func (h *hostile) lost(r *http.Request) (*http.Response, error) {
	_, _ = h.serve(r)
	return nil, io.ErrUnexpectedEOF
}

// late lets the server act on a request at once, and answers after a delay.
func (h *hostile) late(delay time.Duration) fault {
	return func(r *http.Request) (*http.Response, error) {
		answer, err := h.serve(r)
		select {
		case <-time.After(delay):
			return answer, err
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// with answers as the server does, with another header.
func (h *hostile) with(name, value string) fault {
	return func(r *http.Request) (*http.Response, error) {
		answer, err := h.serve(r)
		if err == nil {
			answer.Header.Set(name, value)
		}
		return answer, err
	}
}

// then lets the server act on a request, and answers with another status.
func (h *hostile) then(code int) fault {
	return func(r *http.Request) (*http.Response, error) {
		_, _ = h.serve(r)
		return status(r, code)
	}
}

// withToken answers requests with a token by a status.
func (h *hostile) withToken(code int) {
	h.answer = func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("X-Auth-Token") != "" {
			return status(r, code)
		}
		return h.serve(r)
	}
}

func TestAtMostOneSessionIsOpenOnAnyBMC(t *testing.T) {
	for name, c := range map[string]struct {
		behave func(h *hostile)
		unread bool // the BMC cannot be read
		left   int  // sessions that cannot be ended
	}{
		"works":                         {behave: func(*hostile) {}},
		"refuses every second request":  {behave: func(h *hostile) { h.refuses(1, 2) }},
		"refuses two requests of three": {behave: func(h *hostile) { h.refuses(2, 3) }},
		"refuses every token":           {behave: func(h *hostile) { h.withToken(401) }},
		"forbids every token":           {behave: func(h *hostile) { h.withToken(403) }, unread: true},
		"refuses to end": {behave: func(h *hostile) {
			h.by(http.MethodDelete, func(r *http.Request) (*http.Response, error) { return status(r, 401) })
		}, left: 1},
		"fails to end": {behave: func(h *hostile) {
			h.by(http.MethodDelete, func(r *http.Request) (*http.Response, error) { return status(r, 500) })
		}, left: 1},
		"answers the login after the timeout": {behave: func(h *hostile) { h.by(http.MethodPost, h.late(3*time.Minute)) }},
		"answers the login after an hour":     {behave: func(h *hostile) { h.by(http.MethodPost, h.late(time.Hour)) }, left: 1},
		"loses the login's answer":            {behave: func(h *hostile) { h.by(http.MethodPost, h.lost) }, left: 1},
		"opens a session and answers 500":     {behave: func(h *hostile) { h.by(http.MethodPost, h.then(500)) }, left: 1},
		"opens a session and answers 504":     {behave: func(h *hostile) { h.by(http.MethodPost, h.then(504)) }, left: 1},
		"opens a session and answers 503":     {behave: func(h *hostile) { h.by(http.MethodPost, h.then(503)) }, left: 1},
		"refuses a token and redirects the end": {behave: func(h *hostile) {
			h.withToken(401)
			read := h.answer
			h.answer = func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodDelete {
					return read(r)
				}
				answer, err := status(r, 302)
				answer.Header.Set("Location", "/redfish/v1/")
				return answer, err
			}
		}, left: 1},
		"opens a session and redirects": {behave: func(h *hostile) { h.by(http.MethodPost, h.redirect) }, left: 1},
		"answers the login by 500": {behave: func(h *hostile) {
			h.by(http.MethodPost, func(r *http.Request) (*http.Response, error) { return status(r, 500) })
		}},
		"answers the login by 503": {behave: func(h *hostile) {
			h.by(http.MethodPost, func(r *http.Request) (*http.Response, error) { return status(r, 503) })
		}},
		"answers the login by 429": {behave: func(h *hostile) {
			h.by(http.MethodPost, func(r *http.Request) (*http.Response, error) { return status(r, 429) })
		}},
		"sends no token":    {behave: func(h *hostile) { h.by(http.MethodPost, h.with("X-Auth-Token", "")) }},
		"sends no Location": {behave: func(h *hostile) { h.by(http.MethodPost, h.with("Location", "")) }},
		"sends a Location elsewhere": {behave: func(h *hostile) {
			h.by(http.MethodPost, h.with("Location", "http://elsewhere.example/redfish/v1/Systems/1"))
		}},
		"ends sessions at once": {behave: func(h *hostile) { h.server.SessionLife = time.Second }},
		"ends sessions and has no room": {behave: func(h *hostile) {
			h.server.SessionLife, h.server.MaxSessions = time.Second, 1
		}},
	} {
		t.Run(name, func(t *testing.T) {
			withService(t, dell(), func(b *bench) {
				h := &hostile{bench: b}
				h.answer = h.serve
				c.behave(h)
				b.options.Client.Transport = h
				for range 60 {
					readings, _ := b.read(time.Minute)
					h.count()
					if !c.unread && assert.Len(b, readings, 1) {
						assert.NoError(b, readings[0].Err)
					}
				}
				for i := range h.logins[1:] {
					assert.GreaterOrEqual(b, h.logins[i+1].Sub(h.logins[i]), 10*time.Minute)
				}
				assert.LessOrEqual(b, h.most, 1)
				began := time.Now()
				_ = b.meter.Close()
				assert.LessOrEqual(b, time.Since(began), 2*time.Second)
				b.meter = nil
				open, _, _ := b.server.Sessions()
				assert.Equal(b, c.left, open)
			})
		})
	}
}

// refuses refuses so many requests of each of so many that have a token.
func (h *hostile) refuses(some, of int) {
	h.answer = func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("X-Auth-Token") == "" {
			return h.serve(r)
		}
		h.mu.Lock()
		refused := h.requests%of < some
		h.requests++
		h.mu.Unlock()
		if refused {
			return status(r, http.StatusUnauthorized)
		}
		return h.serve(r)
	}
}

func (h *hostile) redirect(r *http.Request) (*http.Response, error) {
	_, _ = h.serve(r)
	answer, err := status(r, 307)
	answer.Header.Set("Location", "/redfish/v1/Sessions")
	return answer, err
}

func TestOneSessionIsOpenAtMostWhateverRequestsFail(t *testing.T) {
	for seed := range uint64(20) {
		withService(t, dell(), func(b *bench) {
			h := &hostile{bench: b, random: rand.New(rand.NewPCG(seed, 0))}
			faults := []fault{
				func(r *http.Request) (*http.Response, error) {
					if _, _, basic := r.BasicAuth(); basic || r.Method == http.MethodPost { // else refused logins end the test
						return h.serve(r)
					}
					return status(r, 401)
				},
				func(r *http.Request) (*http.Response, error) { return status(r, 503) },
				func(r *http.Request) (*http.Response, error) { return status(r, 500) },
				func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
				h.then(502), h.lost, h.late(5 * time.Second), h.late(3 * time.Minute), h.late(time.Hour),
			}
			share := h.random.Float64()
			h.answer = func(r *http.Request) (*http.Response, error) {
				h.mu.Lock()
				fails, which := h.random.Float64() < share, h.random.IntN(len(faults))
				h.mu.Unlock()
				if fails {
					return faults[which](r)
				}
				return h.serve(r)
			}
			b.options.Client.Transport = h
			_, _ = b.read(4 * time.Hour)
			h.count()
			assert.LessOrEqual(b, h.most, 1, "seed %d", seed)
			for i := range h.logins[min(1, len(h.logins)):] {
				assert.GreaterOrEqual(b, h.logins[i+1].Sub(h.logins[i]), 10*time.Minute, "seed %d", seed)
			}
			_ = b.meter.Close()
			b.meter = nil
		})
	}
}

// letters returns the letters and digits of a text, which a server may write in another way.
func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}

func TestASecretThatTheBMCEchoesIsNotShown(t *testing.T) {
	header := func(name, value string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(name, value)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	}
	message := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(rt.Object{"error": rt.Object{"@Message.ExtendedInfo": []any{rt.Object{"MessageId": text}}}})
		}
	}
	isChassis := rt.Path("/redfish/v1/Chassis/System.Embedded.1")
	for _, secret := range []string{
		rt.Password, "correct%20horse", "correct%20%68orse", "CORRECT-Horse", "correcthorse", "xx" + rt.Password + "\x1b[31m\u202e\n",
		"token-1", "Basic ZW5lcmd5OmNvcnJlY3QgaG9yc2U=", "ZW5lcmd5OmNvcnJlY3QgaG9yc2U=", "X-Key-Secret",
	} {
		for name, echo := range map[string]func(b *bench){
			"a message": func(b *bench) { b.server.Fail(message(500, "Base.1.0."+secret), isChassis) },
			"a login's answer": func(b *bench) {
				b.server.Fail(message(503, letters(secret)), func(r *http.Request) bool { return r.Method == http.MethodPost })
			},
			"a redirect":  func(b *bench) { b.server.Fail(header("Location", "http://"+letters(secret)+".example/"), isChassis) },
			"the system":  func(b *bench) { b.link(secret, "/redfish/v1/Systems", "Members") },
			"the chassis": func(b *bench) { b.link(secret, "/redfish/v1/Systems/System.Embedded.1", "Links", "Chassis") },
			"a zone's name": func(b *bench) {
				b.server.Set("/redfish/v1/Chassis/"+secret, rt.Object{"Reading": 300}, "PowerWatts")
				b.server.Set("/redfish/v1/Chassis/System.Embedded.1", "/redfish/v1/Chassis/"+secret, "EnvironmentMetrics", "@odata.id")
			},
			"the UUID": func(b *bench) {
				b.server.Set("/redfish/v1/Systems/System.Embedded.1", secret, "UUID")
			},
			"the transport": func(b *bench) {
				server := b.options.Client.Transport
				b.options.Client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
					if isChassis(r) {
						return nil, errors.New("the proxy says " + secret)
					}
					return server.RoundTrip(r)
				})
			},
		} {
			if name == "a login's answer" && secret == "token-1" {
				continue // no session was opened
			}
			withService(t, dell(), func(b *bench) {
				echo(b)
				transport := b.options.Client.Transport
				b.options.Client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
					r.Header.Set("X-Key", "X-Key-Secret") // of the settings of HTTP clients
					return transport.RoundTrip(r)
				})
				var texts []string
				for range 10 {
					readings, err := b.read(2 * time.Minute)
					texts = append(texts, fmt.Sprint(err))
					for _, r := range readings {
						texts = append(texts, fmt.Sprint(r.Err), r.Zone.ID, r.Zone.Name)
					}
				}
				texts = append(texts, fmt.Sprint(b.meter.Close()))
				b.meter = nil
				for _, text := range texts {
					assert.NotContains(b, letters(text), letters(strings.NewReplacer("%20", "", "%68", "h").Replace(secret)), "%s: %s", name, text)
					assert.False(b, strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), "%s: %q", name, text)
				}
			})
		}
	}
}

// link replaces a list of links by one to a resource whose ID is a text, which is there.
func (b *bench) link(id, in string, keys ...string) {
	path := in[:strings.LastIndex(in, "/")] + "/" + id
	if strings.Contains(in, "System.Embedded") {
		path = "/redfish/v1/Chassis/" + id
	}
	b.server.Set(in, rt.Links(path), keys...)
	b.server.Set(path, rt.Links("/redfish/v1/Chassis/"+id), "Links", "Chassis")
}
