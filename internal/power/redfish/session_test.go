// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
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

func TestAnExpiredSessionIsOpenedAgainOnce(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		first := b.one(time.Second)
		b.server.EndSessions()
		assert.Same(b, first.Zone, b.one(10*time.Second).Zone)
		b.logins(2, 0)
	})
	withService(t, dell(), func(b *bench) {
		b.server.SessionLife = 5 * time.Second // less than between two polls
		first := b.one(time.Second)
		assert.Same(b, first.Zone, b.one(time.Minute).Zone)
		b.logins(7, 0)
	})
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

func TestAPasswordThatChangesAtTheBMCCostsOneRefusedLogin(t *testing.T) {
	for name, withoutSessions := range map[string]bool{"sessions": false, "basic authentication": true} {
		t.Run(name, func(t *testing.T) {
			withService(t, dell(), func(b *bench) {
				b.server.WithoutSessions = withoutSessions
				b.one(time.Second)
				b.server.SetPassword("another")
				b.server.EndSessions()
				b.failure()
				_, _, refused := b.server.Sessions()
				assert.Equal(b, 1, refused)
			})
		})
	}
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

func TestALoginWithoutATokenIsToldAndNotRepeated(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		logins := 0
		b.server.Fail(func(w http.ResponseWriter, _ *http.Request) {
			logins++
			w.WriteHeader(http.StatusCreated)
		}, rt.Path("/redfish/v1/SessionService/Sessions"))
		assert.Contains(b, b.failure(), "has no X-Auth-Token")
		assert.Equal(b, 1, logins)
	})
}

func TestAServiceWithoutRoomForSessionsIsToldByItsMessage(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.server.MaxSessions = 1
		credentials := `{"UserName": "` + rt.Username + `", "Password": "` + rt.Password + `"}`
		req := httptest.NewRequest(http.MethodPost, "/redfish/v1/SessionService/Sessions", strings.NewReader(credentials))
		b.server.ServeHTTP(httptest.NewRecorder(), req)
		assert.Equal(b, "redfish bmc.example: login: the server answered 503 Service Unavailable (SessionLimitExceeded)", b.failure())
		b.server.EndSessions()
		b.one(5 * time.Minute)
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
		assert.Contains(b, b.failure(), "redirects to another one, which is not followed")
		b.server.Fail(nil, nil)
		b.one(5 * time.Minute)
	})
}

func TestCloseWaitsForTheBMCForTwoSecondsAtMost(t *testing.T) {
	withService(t, dell(), func(b *bench) {
		b.one(time.Second)
		b.server.Fail(rt.Hang, nil)
		began := time.Now()
		assert.ErrorContains(b, b.meter.Close(), "the session was not ended and expires by itself")
		assert.LessOrEqual(b, time.Since(began), 2*time.Second)
		b.server.EndSessions()
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
