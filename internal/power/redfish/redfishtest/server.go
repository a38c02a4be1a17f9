// SPDX-License-Identifier: Apache-2.0

// Package redfishtest is a Redfish service for tests: the resources of a BMC, sessions that expire,
// accounts that are locked, and faults. Its trees have the shapes of three vendors' services with
// invented values.
package redfishtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The account that a server accepts.
const (
	Username = "energy"
	Password = "correct horse"
)

// Tree has resources by path.
type Tree map[string]Object

// Object is a JSON object. A value may be a func() any that is called for each answer.
type Object map[string]any

// Server is a Redfish service. It is an http.Handler; serve it by net/http/httptest, with TLS or
// without. Its fields may be set before it serves. Its methods may be called at any time.
type Server struct {
	// SessionLife is how long a session lasts without a request. 0 means forever.
	SessionLife time.Duration
	// MaxSessions is how many sessions there may be. 0 means no limit.
	MaxSessions int
	// WithoutSessions makes the service accept basic authentication only.
	WithoutSessions bool
	// SessionsAt is the path of the collection of sessions. Empty means the usual one.
	SessionsAt string

	mu       sync.Mutex // guards the fields below
	tree     Tree
	password string
	sessions map[string]*session // by token
	created  int
	most     int // the maximum number of sessions that were open at the same time
	refused  int
	logins   []time.Time // the times of all login requests, including requests that a fault handled
	requests []string
	fault    http.HandlerFunc
	faulty   func(*http.Request) bool
}

type session struct {
	path string
	used time.Time
}

// New returns a service with the resources of a tree.
func New(tree Tree) *Server {
	return &Server{tree: maps.Clone(tree), password: Password, sessions: map[string]*session{}}
}

// Set sets a value in a resource, which is made if it is not there: Set(path, 12, "PowerWatts",
// "Reading"). A nil value removes the key; without keys the resource is removed.
func (s *Server) Set(path string, value any, keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(keys) == 0 {
		delete(s.tree, path)
		return
	}
	s.tree[path] = set(s.tree[path], value, keys)
}

// set returns a copy of an object with another value.
func set(o Object, value any, keys []string) Object {
	o = maps.Clone(o)
	if o == nil {
		o = Object{}
	}
	inner, _ := o[keys[0]].(Object)
	switch {
	case len(keys) > 1:
		o[keys[0]] = set(inner, value, keys[1:])
	case value == nil:
		delete(o, keys[0])
	default:
		o[keys[0]] = value
	}
	return o
}

// SetPassword changes the account's password. Sessions stay open.
func (s *Server) SetPassword(password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.password = password
}

// Fail answers the requests that which reports by a fault instead: all where which is nil. A nil
// fault ends it.
func (s *Server) Fail(fault http.HandlerFunc, which func(*http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.faulty = fault, which
}

// Path returns a function for Fail that reports requests of a path.
func Path(path string) func(*http.Request) bool {
	return func(r *http.Request) bool { return clean(r.URL.Path) == path }
}

// EndSessions ends all sessions, as a BMC does that starts anew.
func (s *Server) EndSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

// Sessions returns how many sessions are open, how many there were, and how many logins were
// refused.
func (s *Server) Sessions() (open, created, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions), s.created, s.refused
}

// Logins returns the times of all login requests, and the maximum number of sessions that were open
// at the same time.
func (s *Server) Logins() (at []time.Time, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.logins), s.most
}

// Requests returns the method and path of each request since the last call.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = nil
	return requests
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if fault := s.count(r); fault != nil {
		fault(w, r)
		return
	}
	s.serve(w, r)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	path := clean(r.URL.Path)
	sessions := s.sessionsPath()
	switch {
	case path == sessions && r.Method == http.MethodPost:
		s.login(w, r)
	case !s.authorized(r) && path != "/redfish/v1":
		refuse(w, http.StatusUnauthorized, "Base.1.8.NoValidSession")
	case strings.HasPrefix(path, sessions+"/") && r.Method == http.MethodDelete:
		s.logout(w, path)
	case r.Method != http.MethodGet:
		refuse(w, http.StatusMethodNotAllowed, "Base.1.8.OperationNotAllowed")
	default:
		s.get(w, path)
	}
}

func clean(path string) string { return strings.TrimRight(path, "/") }

func (s *Server) sessionsPath() string {
	return cmp.Or(s.SessionsAt, "/redfish/v1/SessionService/Sessions")
}

// count notes a request and returns the fault to answer it by, or nil.
func (s *Server) count(r *http.Request) http.HandlerFunc {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+clean(r.URL.Path))
	if r.Method == http.MethodPost {
		s.logins = append(s.logins, time.Now())
	}
	if s.fault != nil && (s.faulty == nil || s.faulty(r)) {
		return s.fault
	}
	return nil
}

// login opens a session (DSP0266, 13.3.4.2).
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	var credentials struct{ UserName, Password string }
	err := json.NewDecoder(r.Body).Decode(&credentials)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.WithoutSessions:
		refuse(w, http.StatusMethodNotAllowed, "Base.1.8.OperationNotAllowed")
		return
	case err != nil:
		refuse(w, http.StatusBadRequest, "Base.1.8.MalformedJSON")
		return
	case credentials.UserName != Username || credentials.Password != s.password:
		s.refused++
		refuse(w, http.StatusUnauthorized, "Base.1.8.ResourceAtUriUnauthorized")
		return
	case s.MaxSessions > 0 && len(s.sessions) >= s.MaxSessions:
		refuse(w, http.StatusServiceUnavailable, "Base.1.8.SessionLimitExceeded")
		return
	}
	s.created++
	token := fmt.Sprintf("token-%d", s.created)
	path := fmt.Sprintf("%s/%d", s.sessionsPath(), s.created)
	s.sessions[token] = &session{path: path, used: time.Now()}
	s.most = max(s.most, len(s.sessions))
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("Location", path)
	write(w, http.StatusCreated, Object{
		"@odata.id": path, "@odata.type": "#Session.v1_3_0.Session", "Id": fmt.Sprint(s.created), "Name": "Session", "UserName": Username,
	})
}

func (s *Server) logout(w http.ResponseWriter, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token, session := range s.sessions {
		if session.path == path {
			delete(s.sessions, token)
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	refuse(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI")
}

// authorized reports whether a request has a session's token or the account's password.
func (s *Server) authorized(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if username, password, ok := r.BasicAuth(); ok {
		good := username == Username && password == s.password
		if !good {
			s.refused++
		}
		return good
	}
	token := r.Header.Get("X-Auth-Token")
	session, ok := s.sessions[token]
	now := time.Now()
	if ok && s.SessionLife > 0 && now.Sub(session.used) > s.SessionLife {
		delete(s.sessions, token)
		return false
	}
	if ok {
		session.used = now
	}
	return ok
}

// get responds with a resource.
func (s *Server) get(w http.ResponseWriter, path string) {
	s.mu.Lock()
	resource, ok := s.tree[path]
	s.mu.Unlock()
	if !ok {
		refuse(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI")
		return
	}
	resource = maps.Clone(resource)
	resource["@odata.id"] = path
	write(w, http.StatusOK, resource)
}

func refuse(w http.ResponseWriter, status int, messageID string) {
	write(w, status, Object{"error": Object{
		"code": "Base.1.8.GeneralError", "message": "See ExtendedInfo.",
		"@Message.ExtendedInfo": []any{Object{"MessageId": messageID, "Severity": "Critical"}},
	}})
}

func write(w http.ResponseWriter, status int, body Object) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json;odata.metadata=minimal;charset=utf-8")
	w.Header().Set("OData-Version", "4.0")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may be gone
}
