// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/snapshot"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/web"
)

// webMessage has the fields of a message that tests check.
type webMessage struct {
	Now *struct {
		Node     int64
		Notes    []string
		Source   string
		Recorded bool
		Views    map[string][]struct{ E int64 }
		Rates    struct{ Grams, Price float64 }
	}
	Points []struct{ Node int64 }
}

// openWeb runs energy web until a message of its stream has figures and a number of points. It returns
// the printed address and the message.
func openWeb(t *testing.T, points int, args ...string) (address string, m webMessage) {
	t.Helper()
	o, err := parsed[webOptions](args)
	require.NoError(t, err)
	was := os.Stdout
	from, to, err := os.Pipe()
	require.NoError(t, err)
	os.Stdout = to
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.serve(ctx) }()
	address, err = bufio.NewReader(from).ReadString('\n')
	os.Stdout = was
	require.NoError(t, err)
	base, token, _ := strings.Cut(strings.TrimSpace(address), "#")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"stream", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	require.NoError(t, err)
	lines := json.NewDecoder(response.Body)
	for m.Now == nil || len(m.Points) < points {
		require.NoError(t, lines.Decode(&m))
	}
	cancel()
	require.NoError(t, errors.Join(<-ended, response.Body.Close(), from.Close(), to.Close()))
	return address, m
}

func TestThePageShowsTheFiguresOfACollector(t *testing.T) {
	first := exposition(10, 1, map[string]float64{"a": 4, "b": 5})
	endpoint := serveTexts(t, first, exposition(16, 2, map[string]float64{"a": 8, "b": 6}))
	address, m := openWeb(t, 1, "--endpoint", strings.Replace(endpoint, "//", "//user:secret@", 1), "--interval", "10ms",
		"--listen", "127.0.0.1:0", "--grid", "56", "--price", "0.25", "--currency", "EUR")
	assert.Regexp(t, `^http://127\.0\.0\.1:\d+/#[A-Z2-7]{26}\n$`, address)
	sum := int64(0)
	for _, r := range m.Now.Views["programs"] {
		sum += r.E
	}
	assert.Equal(t, []int64{6_000_000, 6_000_000, 6_000_000}, []int64{m.Now.Node, m.Points[0].Node, sum})
	assert.Equal(t, []float64{56, 0.25}, []float64{m.Now.Rates.Grams, m.Now.Rates.Price})
	assert.NotContains(t, m.Now.Source, "secret")
}

func TestAPageOfARecordingHasItsFigures(t *testing.T) {
	var documents bytes.Buffer
	for i, name := range []string{"measured", "mixed", "kepler", "modeled"} {
		a := &snapshot.Account{FromZero: i > 0}
		s, err := snapshot.FromPrometheus(strings.NewReader(read(t, "testdata/"+name+".prom")))
		require.NoError(t, err)
		a.Add(s)
		require.NoError(t, top.JSON(&documents, frameOf(a, s, nil), []string{"a note"}, ""))
	}
	file := filepath.Join(t.TempDir(), "power.jsonl")
	require.NoError(t, os.WriteFile(file, documents.Bytes(), 0o600))
	_, m := openWeb(t, 0, "--listen", "127.0.0.1:0", file)
	assert.True(t, m.Now.Recorded)
	assert.Equal(t, file, m.Now.Source)
	assert.Equal(t, "The file has several recordings: the energies belong to the last one, and the chart shows all recordings.", m.Now.Notes[1])
	o, err := parsed[webOptions]([]string{"/dev/null"})
	require.NoError(t, err)
	begin := func() { assert.Fail(t, "the address is printed") }
	err = o.feed(t.Context(), web.NewServer(web.Options{}), begin)
	require.ErrorContains(t, err, "/dev/null: document 1 is not output of energy top --json: EOF")
}

func TestAPageWithoutFiguresEndsAfterTheWait(t *testing.T) {
	endpoint, listen := serveTexts(t, "up 1\n"), []string{"web", "--listen", "127.0.0.1:0", "--wait", "1ms", "--endpoint"}
	status, _, stderr := said(t, append(listen, endpoint)...)
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "energy web: no figures from "+endpoint+"\nThe endpoint responds, but has no energy figures.")
	first, programs := exposition(10, 1, map[string]float64{"a": 9}), map[string]float64{"a": 15}
	_, m := openWeb(t, 1, "--listen", "127.0.0.1:0", "--wait", "1ms", "--interval", "10ms",
		"--endpoint", serveTexts(t, first, "", "", exposition(17, 2, programs)))
	assert.EqualValues(t, 7_000_000, m.Now.Node, "it waits for the figures to return")
}

func TestAnotherPortReplacesOneInUseUnlessItWasGiven(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	o := webOptions{listen: l.Addr().String()}
	other, err := o.bind()
	require.NoError(t, err)
	require.NoError(t, other.Close())
	assert.NotEqual(t, l.Addr().String(), other.Addr().String())
	o.fixed = true
	_, err = o.bind()
	require.EqualError(t, err, o.listen+" is in use: choose another port with --listen")
}

func TestOtherMachinesReachThePageOnlyWithTLS(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--listen 0.0.0.0:8890", "run ssh -L 8890:127.0.0.1:8890 HOST on the other machine"},
		{"--listen :8890 --tls-cert c --tls-key k", "requires --tls-cert, --tls-key and --host"},
		{"--listen node.example:8890 --host node.example", "other machines can reach node.example:8890"},
		{"--tls-cert c", "--tls-cert and --tls-key must be set together"},
		{"--listen 8890", "--listen must be host:port"},
		{"--local record.jsonl", "record.jsonl is a recording, which cannot be combined with --local"},
		{"web_linux_test.go b", "at most one FILE can be shown"},
		{"nofile", "stat nofile: no such file or directory"},
		{"--interval 1ms", "--interval must be at least 10ms without --endpoint"},
		{"--currency EUR", "--currency requires --price"},
		{"--interval 0s", "--interval must be above 0"},
	} {
		_, err := parsed[webOptions](strings.Fields(tt.args))
		require.ErrorContains(t, err, tt.want, tt.args)
	}
	for _, args := range []string{"", "--listen localhost:0", "--listen [::1]:1", "--endpoint node --interval 1ms", "--listen 0.0.0.0:1 --tls-cert c --tls-key k --host n"} {
		_, err := parsed[webOptions](strings.Fields(args))
		require.NoError(t, err, args)
	}
}

func TestTheCertificateHasTheNameOfThePage(t *testing.T) {
	server := httptest.NewTLSServer(nil) // for example.com
	server.Close()
	pair, dir := server.TLS.Certificates[0], t.TempDir()
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	for kind, bytes := range map[string][]byte{"CERTIFICATE": pair.Certificate[0], "PRIVATE KEY": private} {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
		require.NoError(t, os.WriteFile(filepath.Join(dir, kind), text, 0o600))
	}
	status, stdout, stderr := said(t, "web", "--listen", "127.0.0.1:0", "--host", "example.com", "--host", "other.example",
		"--tls-cert", filepath.Join(dir, "CERTIFICATE"), "--tls-key", filepath.Join(dir, "PRIVATE KEY"))
	assert.Equal(t, 1, status)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "energy web: --host other.example is not a name of the certificate: x509: certificate is valid for ")
}

// Other users can read the arguments of a process.
func TestTheArgumentsOfTheBrowserDoNotContainTheToken(t *testing.T) {
	dir, err := os.MkdirTemp("", "") // other users cannot access t.TempDir
	require.NoError(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	require.NoError(t, os.Chmod(dir, 0o777))
	seen := filepath.Join(dir, "seen")
	require.NoError(t, unix.Mkfifo(seen, 0o666))
	require.NoError(t, os.Chmod(seen, 0o666))
	script := "#!/bin/sh\n{ echo \"$1\"; id -u; stat -c '%a %u' \"$1\"; cat \"$1\"; } >" + seen + "; exit 3"
	require.NoError(t, os.WriteFile(filepath.Join(dir, browserOpener), []byte(script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("TMPDIR", dir)
	uid := strconv.Itoa(os.Geteuid())
	if uid == "0" {
		uid = "65534"
		t.Setenv("SUDO_UID", uid)
	}
	failed := make(chan error, 1)
	remove, err := openBrowser("http://127.0.0.1:8890/#TOKEN", func(err error) { failed <- err })
	require.NoError(t, err)
	file, rest, _ := strings.Cut(read(t, seen), "\n")
	assert.NotContains(t, file, "TOKEN")
	assert.Contains(t, rest, uid+"\n600 "+uid+"\n")
	assert.Contains(t, rest, "url=http://127.0.0.1:8890/#TOKEN")
	require.EqualError(t, <-failed, "xdg-open: exit status 3")
	remove()
	assert.NoFileExists(t, file)
}
