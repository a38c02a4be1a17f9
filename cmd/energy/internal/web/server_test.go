// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request returns the status of the response to a request, and its headers. The headers of the request
// are name=value, and TOKEN is the authorization.
func request(s *Server, method, host, path, headers string) (status int, header http.Header) {
	r := httptest.NewRequest(method, "http://x/", nil)
	r.Host, r.URL.Path = host, path
	for _, pair := range strings.Fields(headers) {
		name, value, _ := strings.Cut(pair, "=")
		r.Header.Set(name, value)
	}
	if r.Header.Get("TOKEN") != "" {
		r.Header.Set("Authorization", "Bearer "+s.Token)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w.Code, w.Header()
}

func TestOnlyThePageItselfIsAnswered(t *testing.T) {
	s := NewServer(Options{Hosts: []string{"node.example"}})
	for _, tt := range []struct {
		host, path, headers string
		want                int
	}{
		{"127.0.0.1:8890", "/", "", 200},
		{"localhost:9999", "/", "", 200}, // through ssh -L
		{"[::1]:8890", "/style.css", "", 200},
		{"NODE.example", "/style.css", "", 200},
		{"evil.example:8890", "/", "", 421},
		{"127.0.0.1.evil.example", "/stream", "TOKEN=1", 421},
		{"", "/", "", 421},
		{"localhost", "/stream", "", 401},
		{"localhost", "/stream", "Authorization=Bearer", 401},
		{"localhost", "/stream", "Authorization=" + s.Token, 401},
		{"localhost", "/style.css", "Sec-Fetch-Site=cross-site", 403},
		{"localhost", "/stream", "Sec-Fetch-Site=same-site TOKEN=1", 403},
		{"localhost", "/", "Sec-Fetch-Site=cross-site Sec-Fetch-Mode=navigate", 200},
		{"localhost", "/stream", "Sec-Fetch-Site=cross-site Sec-Fetch-Mode=navigate TOKEN=1", 403},
		{"localhost", "/stream", "Origin=http://evil.example TOKEN=1", 403},
		{"localhost", "/stream", "Origin=https://localhost TOKEN=1", 403},
		{"localhost", "/server.go", "", 404},
		{"localhost", "/page/style.css", "", 404},
	} {
		status, header := request(s, http.MethodGet, tt.host, tt.path, tt.headers)
		assert.Equal(t, tt.want, status, "%s%s %v", tt.host, tt.path, tt.headers)
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			assert.Equal(t, value, header.Get(name), tt.path)
		}
	}
	_, header := request(s, http.MethodGet, "localhost", "/", "")
	assert.Equal(t, "no-store", header.Get("Cache-Control"))
	status, _ := request(s, http.MethodPost, "localhost", "/stream", "TOKEN=1")
	assert.Equal(t, http.StatusMethodNotAllowed, status)
	s.clients.Store(maxClients)
	status, _ = request(s, http.MethodGet, "localhost", "/stream", "TOKEN=1")
	assert.Equal(t, http.StatusServiceUnavailable, status, "the 17th page")
	assert.NotEqual(t, s.Token, NewServer(Options{}).Token)
	assert.GreaterOrEqual(t, len(s.Token), 26, "128 bits")
}

// state is the state of a page: what all messages until now add up to.
type state struct {
	Complete bool
	Now      *struct{ At int64 }
	Points   []struct {
		T, S float64
		Node units.Energy
		V    map[string][]struct{ I string }
	}
	Names   map[string]string
	version int64
}

// follow adds the next message, as the page does.
func (s *state) follow(t *testing.T, from *Server) {
	t.Helper()
	u, _ := from.next(s.version)
	s.version = u.to
	var m state
	require.NoError(t, json.Unmarshal(u.line, &m))
	if m.Complete {
		s.Points, s.Names = nil, map[string]string{}
	}
	for _, p := range m.Points {
		for n := len(s.Points); n > 0 && s.Points[n-1].T > p.T-1000*p.S+1; n-- {
			s.Points = s.Points[:n-1]
		}
		s.Points = append(s.Points, p)
	}
	maps.Copy(s.Names, m.Names)
	s.Now = cmp.Or(m.Now, s.Now)
}

func TestPagesShareAMessageAndAProblemIsSentOnce(t *testing.T) {
	s := NewServer(Options{})
	s.Show(newMachine(1).next(), nil)
	first, changed := s.next(-1)
	second, _ := s.next(-1)
	assert.Same(t, &first.line[0], &second.line[0])
	s.Explain("The collector does\nnot respond\u202e")
	<-changed
	explained, changed := s.next(first.to)
	assert.Contains(t, string(explained.line), `"problem":"The collector does not respond?"`)
	assert.NotContains(t, string(explained.line), `"now"`)
	s.Explain("The collector does\nnot respond\u202e")
	select {
	case <-changed:
		t.Error("there is no change")
	default:
	}
}

func TestRowsAndZonesAddUpToTheNode(t *testing.T) {
	f := &top.Frame{Node: 90e6, Zones: []top.Zone{
		{Name: "package", Energy: 50e6, ActiveEnergy: 30e6, Unattributed: 5e6, Uncertainty: 0.74},
		{Name: "core", Besides: "package", Energy: 7}, {Name: "gpu", Energy: 40e6},
	}}
	text := strings.Repeat("</script>\u202e\U0001F4A3", 400)
	for view := range top.GPUs {
		left := units.Energy(30e6)
		for i := range 2 * maxRows {
			r := aRow(fmt.Sprint(i, text), units.Energy(i))
			for t := range r.Text {
				r.Text[t] = fmt.Sprint(i, text)
			}
			r.Power, left = math.NaN(), left-r.Energy
			f.Tables[view] = append(f.Tables[view], r)
		}
		f.Tables[view] = append(f.Tables[view], top.Row{Key: "others", Pinned: true, Energy: left, Zones: []units.Energy{left}})
	}
	s := NewServer(Options{})
	s.Show(f, nil)
	u, _ := s.next(-1)
	assert.Less(t, len(u.line), 10<<20)
	c := s.current()
	assert.InDelta(t, 0.74, *c.Zones[0].Error, 0)
	assert.Equal(t, []units.Energy{90e6, 30e6, 5e6}, []units.Energy{c.Node, c.Active, c.Unattributed})
	for view := range top.GPUs {
		rows, sum, ofZone := c.Views[view.String()], units.Energy(0), units.Energy(0)
		for _, r := range rows {
			sum += r.Used
			ofZone += r.Zones[0]
			assert.NotContains(t, r.Name+r.Detail+strings.Join(r.Of[:], ""), "\u202e")
		}
		assert.Len(t, rows, maxRows+1)
		assert.Equal(t, []units.Energy{30e6, 30e6}, []units.Energy{sum, ofZone})
	}
}

// serve runs a server on a free port, and returns its address.
func serve(t *testing.T, s *Server) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return listener.Addr().String()
}

// connect connects to an address and sends a text, in which TOKEN is the token of the server.
func connect(t *testing.T, s *Server, address, text string) *bufio.Reader {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.(*net.TCPConn).SetReadBuffer(4096))
	_, err = io.WriteString(c, strings.ReplaceAll(text, "TOKEN", s.Token))
	require.NoError(t, err)
	return bufio.NewReader(c)
}

const streamRequest = "GET /stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer TOKEN\r\n\r\n"

// readUntil reads lines until one of them contains a text.
func readUntil(t *testing.T, r *bufio.Reader, text string) {
	t.Helper()
	for line, err := "", error(nil); !strings.Contains(line, text); {
		line, err = r.ReadString('\n')
		require.NoError(t, err)
	}
}

func TestASlowClientIsCutAndAPageIsNot(t *testing.T) {
	s := NewServer(Options{})
	s.deadline = 50 * time.Millisecond
	address := serve(t, s)
	s.Explain("begin")
	page := connect(t, s, address, streamRequest)
	readUntil(t, page, "begin")
	for _, text := range []string{"", "GET /", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"} {
		_, _ = io.Copy(io.Discard, connect(t, s, address, text)) // until the server closes the connection
	}
	s.Explain("end")
	readUntil(t, page, "end")
	for range maxClients - 1 {
		connect(t, s, address, streamRequest)
	}
	s.Explain(strings.Repeat("x", 6*sendBuffer)) // the kernel doubles the buffer
	require.Eventually(t, func() bool { return s.clients.Load() == 0 }, time.Minute, time.Millisecond)
}

// Other users of the machine can connect.
func TestConnectionsWithoutTheTokenDoNotKeepThePageFromItsFigures(t *testing.T) {
	s := NewServer(Options{})
	s.deadline = time.Hour
	address := serve(t, s)
	s.Explain("begin")
	page := connect(t, s, address, streamRequest)
	readUntil(t, page, "begin")
	oldest := connect(t, s, address, "GET /")
	for range maxConnections {
		connect(t, s, address, "GET /")
	}
	_, _ = io.Copy(io.Discard, oldest) // until the server closes the connection
	readUntil(t, connect(t, s, address, streamRequest), "begin")
	s.Explain("end")
	readUntil(t, page, "end")
}

func TestAServerWithTLSAnswersToItsName(t *testing.T) {
	pair := httptest.NewTLSServer(nil)
	pair.Close()
	s := NewServer(Options{Certificate: &pair.TLS.Certificates[0], Hosts: []string{"example.com"}})
	s.Explain("begin")
	client := pair.Client()
	defer client.CloseIdleConnections()
	r, err := http.NewRequest(http.MethodGet, "https://"+serve(t, s)+"/stream", nil)
	require.NoError(t, err)
	r.Host, r.Header = "example.com", http.Header{"Authorization": {"Bearer " + s.Token}, "Origin": {"https://example.com"}}
	response, err := client.Do(r)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	readUntil(t, bufio.NewReader(response.Body), "begin")
}
