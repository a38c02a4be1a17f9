// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/redfish"
	rt "github.com/energyreceiver/energyreceiver/internal/power/redfish/redfishtest"
)

func dell() rt.Tree { return rt.Dell(rt.Live{Watts: 300}) }

// logins asserts how many sessions were opened and how many logins were refused.
func (b *bench) logins(created, refused int) {
	b.Helper()
	_, c, r := b.server.Sessions()
	assert.Equal(b, [2]int{created, refused}, [2]int{c, r}, "sessions opened and logins refused")
}

func TestOneSessionIsOpenedAndThenOneRequestAPollIsSent(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.one(time.Second)
		assert.Equal(b, []string{
			"GET /redfish/v1", "POST /redfish/v1/SessionService/Sessions", "GET /redfish/v1/Systems", "GET /redfish/v1/Systems/System.Embedded.1",
			"GET /redfish/v1/Chassis/System.Embedded.1", "GET " + rt.DellEnvironment,
		}, b.server.Requests())
		b.one(5 * 10 * time.Second)
		assert.Equal(b, []string(nil), without(b.server.Requests(), "GET "+rt.DellEnvironment))
		b.logins(1, 0)
	})
}

// without returns the strings that are not s.
func without(all []string, s string) (rest []string) {
	for _, one := range all {
		if one != s {
			rest = append(rest, one)
		}
	}
	return rest
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
	withService(t, dell(), func(b *bench) {
		b.server.SessionLife = 5 * time.Second // less than between two polls
		first := b.one(time.Second)
		for range 60 {
			readings, _ := b.read(time.Minute)
			require.Len(b, readings, 1)
			assert.Same(b, first.Zone, readings[0].Zone)
			assert.NoError(b, readings[0].Err)
		}
		b.logins(7, 0)
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
				var isFailing atomic.Bool
				isFailing.Store(true)
				b.server.Fail(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						w.WriteHeader(http.StatusUnauthorized)
						return
					}
					fail(w, r)
				}, func(r *http.Request) bool {
					return isFailing.Load() && (r.Method == http.MethodDelete || r.Method == http.MethodGet && r.Header.Get("X-Auth-Token") != "")
				})
				assert.Contains(b, b.warned(time.Hour), "the BMC ended the session")
				open, created, _ := b.server.Sessions()
				assert.Equal(b, [2]int{1, 1}, [2]int{open, created})
				isFailing.Store(false)
				b.one(15 * time.Minute)
				open, created, _ = b.server.Sessions()
				assert.Equal(b, [2]int{1, 2}, [2]int{open, created}, "the old session is ended first")
			})
		})
	}
}

func TestALateLoginIsUsed(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.server.Fail(b.server.Slow(3*time.Minute), func(r *http.Request) bool { return r.Method == http.MethodPost })
		assert.Contains(b, b.warned(2*time.Minute), "login: no answer in time")
		b.one(2 * time.Minute)
		b.logins(1, 0)
		b.server.Requests()
		b.one(time.Hour)
		assert.Equal(b, []string(nil), without(b.server.Requests(), "GET "+rt.DellEnvironment))
	})
}

func TestALoginThatIsAnsweredAfterTheEndIsEnded(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.server.Fail(b.server.Slow(3*time.Minute), func(r *http.Request) bool { return r.Method == http.MethodPost })
		_, _ = b.read(time.Second)
		began := time.Now()
		assert.ErrorContains(b, b.meter.Close(), "a session was not ended")
		assert.LessOrEqual(b, time.Since(began), 2*time.Second)
		b.meter = nil
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		open, created, _ := b.server.Sessions()
		assert.Equal(b, [2]int{0, 1}, [2]int{open, created})
	})
}

func TestALoginWhoseAnswerIsLostIsNotRepeatedWhileThePasswordIsAccepted(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.options.Client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			answer, err := b.server.RoundTrip(r)
			if r.Method == http.MethodPost {
				return nil, io.ErrUnexpectedEOF
			}
			return answer, err
		})
		b.every = 5 * time.Minute
		assert.Contains(b, b.warned(23*time.Hour), "login: the server ended the connection")
		b.logins(1, 0)
		b.server.EndSessions()
		assert.Contains(b, b.warned(2*time.Hour), "login: the server ended the connection")
		b.logins(2, 0)
		assert.ErrorContains(b, b.meter.Close(), "a session was not ended")
		b.server.EndSessions()
		b.meter = nil
	})
}

func TestALoginThatMayHaveOpenedASessionIsRepeatedAfterAnHourWithoutAnotherWay(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.options.Client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if _, _, basic := r.BasicAuth(); basic {
				r = r.Clone(r.Context())
				r.Header.Del("Authorization") // the BMC does not accept it
			}
			answer, err := b.server.RoundTrip(r)
			if r.Method == http.MethodPost {
				return nil, io.ErrUnexpectedEOF
			}
			return answer, err
		})
		assert.Contains(b, b.failure(), "login: the server ended the connection, and the BMC refuses the password")
		_, _ = b.read(30 * time.Minute)
		b.logins(1, 0)
		_, _ = b.read(20 * time.Minute)
		b.logins(2, 0)
		assert.ErrorContains(b, b.meter.Close(), "a session was not ended")
		b.server.EndSessions()
		b.meter = nil
	})
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
			}, func(r *http.Request) bool { return r.Method == http.MethodPost })
			_, _ = b.read(time.Second)
			_ = b.meter.Close()
			b.meter = nil
			deleted := slices.DeleteFunc(b.server.Requests(), func(r string) bool { return !strings.HasPrefix(r, "DELETE ") })
			for _, r := range deleted {
				assert.Equal(b, "DELETE "+want, r, location)
			}
			assert.Equal(b, want != "", len(deleted) > 0, location)
		})
	}
}

func TestASessionIsOpenedWhereTheServiceHasThem(t *testing.T) {
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

func TestAPasswordThatCannotBeReadIsTheState(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.options.Password = func() (string, error) { return "", errors.New("password_file: no such file") }
		assert.Equal(b, "redfish bmc.example: password_file: no such file", b.failure())
		assert.Empty(b, b.server.Requests())
	})
}

func TestBasicAuthenticationIsUsedWithoutASessionService(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.server.WithoutSessions = true
		b.one(time.Minute)
		b.logins(0, 0)
	})
}

func TestAnAccountWithoutThePrivilegeIsToldAndNoSessionsPileUp(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.server.Fail(rt.Status(401), rt.Path("/redfish/v1/Systems"))
		assert.Contains(b, b.failure(), "the account needs the privilege Login")
		open, created, _ := b.server.Sessions()
		assert.Equal(b, [2]int{0, 1}, [2]int{open, created})
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

func TestWithoutAUsernameRequestsAreSentAsTheClientDoes(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.options.Username = ""
		assert.Equal(b, "redfish bmc.example: Systems: the BMC wants a login: set username and password, or auth", b.failure())
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
		server := b.options.Client.Transport
		b.options.Client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			assert.Equal(b, "http://bmc.example", r.URL.Scheme+"://"+r.URL.Host)
			return server.RoundTrip(r)
		})
		b.one(time.Second)
		b.server.Fail(rt.Redirect("http://elsewhere.example/"), nil)
		assert.Contains(b, b.failure(), "redirects to another one, which is not followed")
		b.server.Fail(rt.Redirect("http://elsewhere.example/"), func(r *http.Request) bool { return r.Method == http.MethodPost })
		b.server.EndSessions()
		assert.Contains(b, b.warned(5*time.Minute), "redirects to another one, which is not followed")
		assert.ErrorContains(b, b.meter.Close(), "a session was not ended", "the redirect may have come after it")
		b.meter = nil
	})
}

func TestTLS(t *testing.T) {
	server := rt.New(dell())
	web := httptest.NewTLSServer(server)
	defer web.Close()
	web.Config.ErrorLog = nil
	poll := func(client *http.Client, endpoint string) error {
		sensor, err := redfish.New(redfish.Options{
			Client: client, Endpoint: endpoint, Username: rt.Username, Password: func() (string, error) { return rt.Password, nil },
		})
		require.NoError(t, err)
		values, err := sensor.Poll(t.Context())
		assert.Equal(t, err == nil, len(values) == 1)
		require.NoError(t, sensor.Close())
		return err
	}
	assert.NoError(t, poll(web.Client(), web.URL))
	open, created, _ := server.Sessions()
	assert.Equal(t, [2]int{0, 1}, [2]int{open, created})
	assert.ErrorContains(t, poll(&http.Client{Transport: &http.Transport{}}, web.URL), "set tls::ca_file")
	assert.ErrorContains(t, poll(web.Client(), "http"+strings.TrimPrefix(web.URL, "https")), "400 Bad Request")
}

func TestTheConnectionEndsWithTheSession(t *testing.T) {
	closed := make(chan struct{}, 1)
	web := httptest.NewUnstartedServer(rt.New(dell()))
	web.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	web.Start()
	defer web.Close()
	sensor, err := redfish.New(redfish.Options{
		Client:   &http.Client{Transport: &http.Transport{}},
		Endpoint: web.URL, Username: rt.Username, Password: func() (string, error) { return rt.Password, nil },
	})
	require.NoError(t, err)
	_, err = sensor.Poll(t.Context())
	require.NoError(t, err)
	require.NoError(t, sensor.Close())
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("the connection is still open")
	}
}
