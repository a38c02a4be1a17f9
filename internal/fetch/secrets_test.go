// SPDX-License-Identifier: Apache-2.0

package fetch_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/fetch"
)

// sends returns a client that sent a request with secrets, to which a transport added one.
func sends(t *testing.T) *fetch.Client {
	t.Helper()
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	c := fetch.New(&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set("X-Added", "by-a-transport")
		return http.DefaultTransport.RoundTrip(r)
	})})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/?key=in%20a%20query&short=abc", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer ey.Token")
	req.Header.Set("X-Key", "in-a-header")
	c.HideQuery(req.URL)
	_, err = c.Do(req)
	require.NoError(t, err)
	req.SetBasicAuth("user", "in basic authentication")
	_, err = c.Do(req)
	require.NoError(t, err)
	c.Hide("in a body")
	c.Hide("&?%§")
	return c
}

func TestShowHidesWhatTheClientSent(t *testing.T) {
	c := sends(t)
	for _, text := range []string{
		"ey.Token", "x EY-TOKEN y", "eytoken", "in-a-header", "In_A_Header/1", "%69n-a-heade%72", "by a transport", "a/in a query", "INAQUERY",
		"in basic authentication", "in+basic+authentication", "dXNlcjppbiBiYXNpYyBhdXRoZW50aWNhdGlvbg==", "in a body", "inabody", "Chassis&?%§",
		strings.Repeat("x", 200) + "ey.Token",
	} {
		assert.Equal(t, "…", c.Show(text), text)
	}
	for text, want := range map[string]string{
		"Chassis/System.Embedded.1": "Chassis/System.Embedded.1", "abc": "abc", "ey.Tok": "ey.Tok", "": "", "100%": "100%",
		"a\x1b[31m\u202e\nb": "a?[31m??b", strings.Repeat("y", 300): strings.Repeat("y", 120),
	} {
		assert.Equal(t, want, c.Show(text))
	}
}

func TestAnOldTokenIsHiddenAndTheirNumberIsBounded(t *testing.T) {
	c := fetch.New(&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	})})
	for i := range 100 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://bmc.example", nil)
		require.NoError(t, err)
		req.Header.Set("X-Auth-Token", fmt.Sprintf("token-%03d", i))
		_, err = c.Do(req)
		require.NoError(t, err)
	}
	assert.Equal(t, "…", c.Show("token-099"))
	assert.Equal(t, "…", c.Show("token-092"))
	assert.Equal(t, "token-091", c.Show("token-091"))
}

func TestAnErrorNeverHasASecretThatTheServerEchoes(t *testing.T) {
	for name, cause := range map[string]error{
		"a certificate": x509.CertificateInvalidError{Reason: x509.CANotAuthorizedForThisName, Detail: "hunter2.example"},
		"a transport":   errors.New("the proxy does not accept Hunter-2\x1b[31m"),
		"a URL":         &url.Error{Op: "Get", URL: "http://hunter2", Err: errors.New("hunter2")},
	} {
		_, err := get(t, &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, cause })}, "http://bmc.example")
		require.Error(t, err)
		assert.NotContains(t, strings.ToLower(err.Error()), "hunter", name)
		assert.NotContains(t, err.Error(), "\x1b", name)
	}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+strings.ToUpper(r.URL.Query().Get("password"))+".example/", http.StatusFound)
	})
	_, err := get(t, s.Client(), s.URL)
	assert.ErrorContains(t, err, `if "…" is right`)
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
