// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reportFlags parses flags of energy report.
func reportFlags(t *testing.T, args ...string) (*reportOptions, error) {
	t.Helper()
	o := &reportOptions{}
	return o, o.subcommand().ParseFlags(args)
}

func TestThePeriodOfAReportHasFullHours(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		berlin = time.FixedZone("", 3600)
	}
	at := func(month time.Month, day, hour int) time.Time {
		return time.Date(2026, month, day, hour, 0, 0, 0, berlin)
	}
	now := at(11, 28, 10).Add(time.Minute)
	for _, c := range []struct {
		args     []string
		from, to time.Time
	}{
		{nil, at(10, 29, 9), at(11, 28, 9)},
		{[]string{"--last", "2w"}, at(11, 14, 9), at(11, 28, 9)},
		{[]string{"--month", "2026-10"}, at(10, 1, 0), at(11, 1, 0)},
		{[]string{"--month", "2026-11"}, at(11, 1, 0), at(11, 28, 9)},
	} {
		o, err := reportFlags(t, c.args...)
		require.NoError(t, err)
		require.NoError(t, o.check(now))
		assert.Equal(t, []string{c.from.String(), c.to.String()}, []string{o.From.String(), o.To.String()}, c.args)
	}
}

func TestInvalidFlagsOfAReportAreRejected(t *testing.T) {
	for _, args := range [][]string{
		{"--month", "2026-12"}, {"--month", "October"}, {"--by", "x"}, {"--rows", "0"}, {"--currency", "EUR"},
		{"--prometheus", "127.0.0.1:9090"}, {"--header", "X"}, {"--last", "0"}, {"--last", "90m"}, {"--last", "401d"}, {"--last", "30"}, {"--last=-1d"},
	} {
		o, err := reportFlags(t, args...)
		if err == nil {
			err = o.check(time.Date(2026, 11, 28, 10, 1, 0, 0, time.UTC))
		}
		assert.Error(t, err, args)
	}
	t.Setenv("TZ", "Nowhere")
	o, err := reportFlags(t, "--month", "2026-10")
	require.NoError(t, err)
	assert.ErrorContains(t, o.check(time.Now()), "unknown time zone Nowhere")
}

func TestHeadersOfAReportMayBeInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "headers")
	require.NoError(t, os.WriteFile(path, []byte("Authorization: Bearer a:b\r\n\nX-Scope-OrgID: team\n"), 0o600))
	o := &reportOptions{headers: []string{"X-A: 1", "@" + path}}
	require.NoError(t, o.addHeaders())
	assert.Equal(t, http.Header{"X-A": {"1"}, "Authorization": {"Bearer a:b"}, "X-Scope-Orgid": {"team"}}, o.Header)
	for _, wrong := range []string{"secret", "a secret: x", ": secret", "@" + path + "-secret-is-absent"} {
		err := (&reportOptions{headers: []string{wrong}}).addHeaders()
		require.Error(t, err)
		assert.True(t, os.IsNotExist(err) || !strings.Contains(err.Error(), "secret"), err)
	}
}

func TestAReportIsInTheFormatOfEachOutput(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/query_range" {
			fmt.Fprintf(w, `{"data": {"result": [{"metric": {"host_name": "a"}, "values": [[%s, "12"]]}]}}`, r.FormValue("end"))
		} else {
			fmt.Fprint(w, `{"data": ["system_energy_joules_total"]}`)
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	o, err := reportFlags(t, "--prometheus", server.URL, "--last", "1d", "--html", filepath.Join(dir, "a"),
		"--json", "-o", filepath.Join(dir, "b"), "-o", filepath.Join(dir, "c.csv"), "-o", filepath.Join(dir, "d.md"),
		"-o", filepath.Join(dir, "e.html"))
	require.NoError(t, err)
	require.NoError(t, o.check(time.Now()))
	require.NoError(t, o.run(t.Context()))
	for name, start := range map[string]string{
		"a": "<!doctype html>", "b": "{\n \"schema\": 1,", "c.csv": "from,to,kind,", "d.md": "Energy from ",
		"e.html": "<!doctype html>",
	} {
		assert.Equal(t, start, read(t, filepath.Join(dir, name))[:len(start)])
	}
	o.Server = server.URL + "/nothing"
	o.outputs, o.html = []string{filepath.Join(dir, "new.md")}, ""
	require.Error(t, o.run(t.Context()))
	assert.NoFileExists(t, filepath.Join(dir, "new.md"))
}
