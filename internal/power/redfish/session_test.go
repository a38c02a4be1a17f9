// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	rt "github.com/energyreceiver/energyreceiver/internal/power/redfish/redfishtest"
)

func dell() rt.Tree { return rt.Dell(rt.Live{Watts: 300}) }

// logins asserts how many sessions were opened and how many logins were refused.
func (b *bench) logins(created, refused int) {
	b.Helper()
	_, c, r := b.server.Sessions()
	assert.Equal(b, [2]int{created, refused}, [2]int{c, r}, "sessions opened and logins refused")
}

// abandon closes the meter and asserts that a session remains open.
func (b *bench) abandon() {
	b.Helper()
	assert.ErrorContains(b, b.meter.Close(), "a session was not ended")
	b.meter = nil
}

// by returns a function for Server.Fail that reports whether a request has the given method.
func by(method string) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.Method == method }
}

func hasToken(r *http.Request) bool { return r.Header.Get("X-Auth-Token") != "" }

// without returns the given strings except those equal to s.
func without(all []string, s string) []string {
	return slices.DeleteFunc(all, func(one string) bool { return one == s })
}

// deletes returns the requests that end a session.
func deletes(requests []string) []string {
	return slices.DeleteFunc(requests, func(r string) bool { return !strings.HasPrefix(r, "DELETE ") })
}

func TestOneSessionIsOpenedAndThenOneRequestAPollIsSent(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.one(time.Second)
		assert.Equal(b, []string{
			"GET /redfish/v1", "POST /redfish/v1/SessionService/Sessions", "GET /redfish/v1/Systems", "GET /redfish/v1/Systems/System.Embedded.1",
			"GET /redfish/v1/Chassis/System.Embedded.1", "GET " + rt.DellEnvironment,
		}, b.server.Requests())
		b.one(5 * 10 * time.Second)
		assert.Empty(b, without(b.server.Requests(), "GET "+rt.DellEnvironment))
		b.logins(1, 0)
	})
}

func TestAnExpiredSessionIsOpenedAgainTenMinutesAfterTheLastLogin(t *testing.T) {
	const warning = "redfish bmc.example: the BMC ended the session: requests carry the password (basic authentication) until the next login, " +
		"at least 10 minutes after the previous one"
	withService(t, dell(), func(b *bench) {
		first := b.one(15 * time.Minute)
		b.server.EndSessions()
		assert.Same(b, first.Zone, b.one(10*time.Second).Zone)
		b.logins(2, 0)
		b.server.EndSessions()
		assert.Equal(b, warning, b.warned(10*time.Second))
		assert.Equal(b, warning, b.warned(9*time.Minute))
		b.logins(2, 0)
		b.one(time.Minute)
		b.logins(3, 0)
	})
}

func TestASessionThatIsRefusedNowAndThenIsKept(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		requests := 0
		b.server.Fail(rt.Status(401), func(*http.Request) bool {
			requests++
			return requests%2 == 1
		})
		b.one(time.Hour)
		b.logins(1, 0)
	})
}

func TestASessionIsNotReplacedBeforeItHasEnded(t *testing.T) {
	for name, fail := range map[string]http.HandlerFunc{"refuses": rt.Status(403), "fails": rt.Status(500), "hangs": rt.Hang} {
		t.Run(name, func(t *testing.T) {
			withService(t, dell(), func(b *bench) {
				b.one(time.Second)
				b.server.Fail(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						w.WriteHeader(http.StatusUnauthorized)
						return
					}
					fail(w, r)
				}, func(r *http.Request) bool { return r.Method == http.MethodDelete || hasToken(r) })
				assert.Contains(b, b.warned(time.Hour), "the BMC ended the session")
				b.logins(1, 0)
				assert.LessOrEqual(b, len(deletes(b.server.Requests())), 8, "after the first two, at most one every ten minutes")
				b.server.Fail(nil, nil)
				b.one(15 * time.Minute)
				b.logins(2, 0)
				_, most := b.server.Logins()
				assert.Equal(b, 1, most, "the old session is ended first")
			})
		})
	}
}

// lostLogins lists how the response to a login can be lost. Each has the warning if the BMC accepts the
// password, and the error if the BMC rejects the password.
var lostLogins = map[string]struct {
	by             func(*rt.Server) http.HandlerFunc
	warning, error string
}{
	"a broken connection": {
		func(s *rt.Server) http.HandlerFunc { return s.Then(rt.Break) }, "login: the server ended the connection",
		"login: the server ended the connection, and the BMC refuses the password: check username and password",
	},
	"a timeout": {
		func(s *rt.Server) http.HandlerFunc { return s.Late(3 * time.Minute) }, "login: no answer in time",
		"timeout is the limit, and the BMC refuses the password: set redfish::timeout to more than a login takes",
	},
}

func TestALoginWhoseAnswerIsLostIsRepeatedAfterADay(t *testing.T) {
	for name, lost := range lostLogins {
		t.Run(name, func(t *testing.T) {
			withService(t, dell(), func(b *bench) {
				b.server.Fail(lost.by(b.server), by(http.MethodPost))
				b.every = 5 * time.Minute
				assert.Contains(b, b.warned(23*time.Hour), lost.warning)
				b.logins(1, 0)
				b.server.EndSessions()
				assert.Contains(b, b.warned(2*time.Hour), lost.warning)
				b.logins(2, 0)
				b.abandon()
			})
		})
	}
}

func TestALoginWhoseAnswerIsLostIsRepeatedSoonOnceIfTheBMCRefusesThePassword(t *testing.T) {
	for name, lost := range lostLogins {
		t.Run(name, func(t *testing.T) {
			withService(t, dell(), func(b *bench) {
				b.server.Fail(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost {
						lost.by(b.server)(w, r)
						return
					}
					w.WriteHeader(http.StatusUnauthorized)
				}, func(r *http.Request) bool { return r.URL.Path != "/redfish/v1/" })
				for _, c := range []struct{ minutes, logins int }{{5, 1}, {15, 2}, {45, 2}, {25, 3}} {
					_, err := b.read(time.Duration(c.minutes) * time.Minute)
					assert.ErrorContains(b, err, lost.error)
					b.logins(c.logins, 0)
				}
				b.server.EndSessions()
				b.server.Fail(nil, nil)
				b.one(2 * time.Hour)
				b.logins(4, 0)
			})
		})
	}
}

func TestOnlyASessionIsDeleted(t *testing.T) {
	for location, want := range map[string]string{
		"/redfish/v1/SessionService/Sessions/7/":              "/redfish/v1/SessionService/Sessions/7",
		"https://bmc.example/redfish/v1/Sessions/7":           "/redfish/v1/Sessions/7",
		"http://elsewhere.example/redfish/v1/Sessions/a%2Fb?": "",
		"/redfish/v1/Systems/1":                               "",
		"/redfish/v1/Sessions/../Systems/1":                   "",
		"/redfish/v1/Sessions":                                "",
		"/other/Sessions/7":                                   "",
		"Sessions/7":                                          "",
		"%zz":                                                 "",
		"":                                                    "",
	} {
		withService(t, dell(), func(b *bench) {
			b.server.Fail(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Auth-Token", "token-x")
				w.Header().Set("Location", location)
				w.WriteHeader(http.StatusCreated)
			}, by(http.MethodPost))
			_, _ = b.read(time.Second)
			_ = b.meter.Close()
			b.meter = nil
			deleted := deletes(b.server.Requests())
			assert.Equal(b, want != "", len(deleted) > 0, location)
			assert.Empty(b, without(deleted, "DELETE "+want), location)
		})
	}
}

func TestASessionIsOpenedAtThePathThatTheServiceNames(t *testing.T) {
	tree := dell()
	tree["/redfish/v1"]["Links"] = rt.Object{"Sessions": rt.Link("/redfish/v1/Sessions")}
	withService(t, tree, func(b *bench) {
		b.server.SessionsAt = "/redfish/v1/Sessions"
		b.one(time.Second)
		b.logins(1, 0)
	})
}

func TestARefusedLoginIsNotTriedAgainForAnHour(t *testing.T) {
	for name, withoutSessions := range map[string]bool{"sessions": false, "basic authentication": true} {
		t.Run(name, func(t *testing.T) {
			withService(t, dell(), func(b *bench) {
				b.server.WithoutSessions = withoutSessions
				b.server.SetPassword("another")
				assert.Contains(b, b.failure(), "the BMC refuses the login: check username and password")
				b.logins(0, 1)
				_, err := b.read(42 * time.Minute)
				assert.Error(b, err)
				b.logins(0, 1)
				_, err = b.read(10 * time.Minute)
				assert.Error(b, err)
				b.logins(0, 2)
			})
		})
	}
}

func TestAnotherPasswordIsTriedAtOnce(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		var password atomic.Value
		password.Store("wrong")
		b.options.Password = func() (string, error) { return password.Load().(string), nil }
		b.failure()
		b.logins(0, 1)
		password.Store(rt.Password)
		b.one(5 * time.Minute)
		b.logins(1, 1)
	})
}

func TestAPasswordThatIsRefusedAtTheEndOfASessionIsNotSentAgain(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.one(time.Second)
		b.server.SetPassword("another")
		b.server.EndSessions()
		assert.Contains(b, b.failure(), "the BMC ended the session, and the BMC refuses the password")
		b.logins(1, 1)
		b.abandon()
	})
}

func TestTheErrorOfAPasswordThatCannotBeReadIsReported(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.options.Password = func() (string, error) { return "", errors.New("password_file: no such file") }
		assert.Equal(b, "redfish bmc.example: password_file: no such file", b.failure())
		assert.Empty(b, b.server.Requests())
	})
}

func TestAServiceWithoutSessionsIsReadWithoutAWarning(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.server.WithoutSessions = true
		b.one(time.Minute)
		b.logins(0, 0)
	})
}

func TestAnAccountWithoutThePrivilegeLoginIsReportedAndItsSessionEnded(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.server.Fail(rt.Status(401), rt.Path("/redfish/v1/Systems"))
		assert.Contains(b, b.failure(), "the account needs the privilege Login")
		open, created, _ := b.server.Sessions()
		assert.Equal(b, [2]int{0, 1}, [2]int{open, created})
	})
}

func TestARequestWithoutAnAnswerDoesNotShowThePrivilegeLogin(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		var requests atomic.Int32
		b.server.Fail(func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1) == 1 {
				rt.Hang(w, r)
				return
			}
			w.WriteHeader(http.StatusUnauthorized)
		}, rt.Path("/redfish/v1/Systems"))
		assert.Contains(b, b.failure(), "the account needs the privilege Login")
		_, _ = b.read(30 * time.Minute)
		b.logins(1, 0)
	})
}

func TestAServiceWithoutRoomForSessionsIsReadWithAWarning(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.server.MaxSessions = 1
		credentials := `{"UserName": "` + rt.Username + `", "Password": "` + rt.Password + `"}`
		req := httptest.NewRequest(http.MethodPost, "/redfish/v1/SessionService/Sessions", strings.NewReader(credentials))
		b.server.ServeHTTP(httptest.NewRecorder(), req)
		assert.Contains(b, b.warned(time.Second), "redfish bmc.example: login: the server answered 503 Service Unavailable (SessionLimitExceeded): requests carry the password")
		b.server.EndSessions()
		b.one(10 * time.Minute)
		b.logins(2, 0)
	})
}

func TestWithoutAUsernameRequestsAreSentAsTheClientSendsThem(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.options.Username = ""
		assert.Equal(b, "redfish bmc.example: Systems: the BMC requires a login: set username and password, or auth", b.failure())
		b.logins(0, 0)
	})
	withService(t, dell(), func(b *bench) {
		b.options.Username = ""
		b.options.Client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.SetBasicAuth(rt.Username, rt.Password) // as an authentication extension does
			return b.server.RoundTrip(r)
		})
		b.one(time.Second)
		b.logins(0, 0)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestCredentialsGoToTheEndpointOnly(t *testing.T) {
	tree := dell()
	tree["/redfish/v1"]["Links"] = rt.Object{"Sessions": rt.Link("https://elsewhere.example/redfish/v1/SessionService/Sessions")}
	tree["/redfish/v1"]["Systems"] = rt.Link("//elsewhere.example/redfish/v1/Systems")
	tree["/redfish/v1/Systems/System.Embedded.1"]["Links"] = rt.Object{"Chassis": rt.Links("http://user@elsewhere.example/redfish/v1/Chassis/System.Embedded.1")}
	withService(t, tree, func(b *bench) {
		b.options.Client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			assert.Equal(b, "http://bmc.example", r.URL.Scheme+"://"+r.URL.Host)
			return b.server.RoundTrip(r)
		})
		b.one(time.Second)
		b.server.Fail(rt.Redirect("http://elsewhere.example/"), nil)
		assert.Contains(b, b.failure(), "redirects to another one, which is not followed")
		b.server.Fail(nil, nil)
	})
}

func TestTheConnectionEndsWithTheSession(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		closes := map[string]bool{}
		b.options.Client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			closes[r.Method] = closes[r.Method] || r.Close
			return b.server.RoundTrip(r)
		})
		b.one(time.Second)
		require.NoError(b, b.meter.Close())
		b.meter = nil
		assert.Equal(b, map[string]bool{http.MethodPost: false, http.MethodGet: false, http.MethodDelete: true}, closes)
	})
}

func TestAtMostOneSessionIsOpenOnAnyBMC(t *testing.T) {
	type server = *rt.Server
	refuses := func(some, of int) func(server) {
		return func(s server) {
			requests := 0
			s.Fail(rt.Status(401), func(r *http.Request) bool {
				if !hasToken(r) {
					return false
				}
				requests++
				return requests%of < some
			})
		}
	}
	login := func(fault func(server) http.HandlerFunc) func(server) {
		return func(s server) { s.Fail(fault(s), by(http.MethodPost)) }
	}
	answers := func(code int) func(server) {
		return login(func(server) http.HandlerFunc { return rt.Status(code) })
	}
	opensAnd := func(answer http.HandlerFunc) func(server) {
		return login(func(s server) http.HandlerFunc { return s.Then(answer) })
	}
	header := func(name, value string) func(server) {
		return login(func(s server) http.HandlerFunc { return s.With(name, value) })
	}
	for name, c := range map[string]struct {
		behave func(server)
		unread bool // the BMC cannot be read
		left   int  // sessions that cannot be ended
	}{
		"refuses two requests of three": {behave: refuses(2, 3)},
		"refuses every token":           {behave: refuses(1, 1)},
		"forbids every token":           {behave: func(s server) { s.Fail(rt.Status(403), hasToken) }, unread: true},
		"fails to end":                  {behave: func(s server) { s.Fail(rt.Status(500), by(http.MethodDelete)) }, left: 1},
		"answers the login late":        {behave: login(func(s server) http.HandlerFunc { return s.Late(3 * time.Minute) }), left: 1},
		"loses the login's answer":      {behave: opensAnd(rt.Break), left: 1},
		"opens and answers 500":         {behave: opensAnd(rt.Status(500)), left: 1},
		"opens and redirects":           {behave: opensAnd(rt.Redirect("/redfish/v1/Sessions")), left: 1},
		"refuses a token and redirects the end": {behave: func(s server) {
			s.Fail(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete {
					http.Redirect(w, r, "/redfish/v1/", http.StatusFound)
					return
				}
				w.WriteHeader(http.StatusUnauthorized)
			}, func(r *http.Request) bool { return hasToken(r) || r.Method == http.MethodDelete })
		}, left: 1},
		"opens and answers 503":         {behave: opensAnd(rt.Status(503)), left: 1},
		"answers the login by 429":      {behave: answers(429)},
		"answers the login by 503":      {behave: answers(503)},
		"sends no token":                {behave: header("X-Auth-Token", "")},
		"sends no Location":             {behave: header("Location", "")},
		"sends a Location elsewhere":    {behave: header("Location", "http://elsewhere.example/redfish/v1/Systems/1")},
		"ends sessions and has no room": {behave: func(s server) { s.SessionLife, s.MaxSessions = time.Second, 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			withService(t, dell(), func(b *bench) {
				c.behave(b.server)
				for range 60 {
					readings, _ := b.read(time.Minute)
					if !c.unread && assert.Len(b, readings, 1) {
						assert.NoError(b, readings[0].Err)
					}
				}
				b.oneLoginInTenMinutes()
				_ = b.meter.Close()
				b.meter = nil
				open, _, _ := b.server.Sessions()
				assert.Equal(b, c.left, open)
			})
		})
	}
}

// oneLoginInTenMinutes asserts the bounds on logins and sessions.
func (b *bench) oneLoginInTenMinutes() {
	b.Helper()
	logins, most := b.server.Logins()
	assert.LessOrEqual(b, most, 1, "sessions open at the same time")
	for i := range logins[min(1, len(logins)):] {
		assert.GreaterOrEqual(b, logins[i+1].Sub(logins[i]), 10*time.Minute)
	}
}
