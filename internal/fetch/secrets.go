// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

const (
	// hidden replaces a text that has a secret.
	hidden = "…"
	// minSecret is the shortest secret that is looked for. Shorter ones are part of many texts by chance.
	minSecret = 4
	// maxSent is the number of values of one header that are remembered, and of secrets that are in no header.
	maxSent = 8
	// maxShown bounds a text of the server, in bytes, and maxSearched what of it is searched for secrets.
	maxShown, maxSearched = 120, 64 << 10
)

// secrets are the values that a client sent. A server that echoes them must not bring them into a log or an attribute.
type secrets struct {
	mu   sync.Mutex
	sent map[string][]string // the newest values by header; the name of others is empty
}

// Hide adds a secret that requests have elsewhere than in their headers, or that a setting has. The newest 8 are
// remembered.
func (c *Client) Hide(secret string) { c.secrets.add("", secret) }

// HideAccount hides a password, also as it is in the header Authorization.
func (c *Client) HideAccount(username, password string) {
	c.Hide(password)
	c.Hide(base64.StdEncoding.EncodeToString([]byte(username + ":" + password)))
}

// HideQuery hides the values in the query of a URL.
func (c *Client) HideQuery(u *url.URL) {
	for name, values := range u.Query() {
		for _, value := range values {
			c.secrets.add("?"+name, value)
		}
	}
}

// Show returns a text of the server for a log, a status or an attribute: at most 120 printable ASCII characters. A text
// that contains a secret which the client sent is hidden as a whole, also if the secret's letter case or punctuation
// differs or if it is percent-encoded. Secrets of less than 4 bytes are not looked for.
func (c *Client) Show(text string) string {
	if c.secrets.isIn(text) {
		return hidden
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text[:min(len(text), maxShown)])
}

// note adds the headers of a request. A transport may have added some of them, such as that of an authentication
// extension.
func (s *secrets) note(r *http.Request) {
	if r == nil {
		return
	}
	for name, values := range r.Header {
		for _, value := range values {
			s.add(name, value)
			if _, credentials, ok := strings.Cut(value, " "); ok {
				s.add(name+" ", credentials)
			}
		}
	}
	if _, password, ok := r.BasicAuth(); ok {
		s.add("password", password)
	}
}

// add remembers a value of a header.
func (s *secrets) add(name, value string) {
	if len(value) < minSecret {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent == nil {
		s.sent = map[string][]string{}
	}
	values := s.sent[name]
	if i := slices.Index(values, value); i >= 0 {
		values = slices.Delete(values, i, i+1)
	}
	values = append(values, value)
	s.sent[name] = values[max(0, len(values)-maxSent):]
}

// isIn reports whether a text has a secret.
func (s *secrets) isIn(text string) bool {
	text = text[:min(len(text), maxSearched)]
	letters := lettersOf(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, values := range s.sent {
		for _, secret := range values {
			if strings.Contains(text, secret) {
				return true
			}
			if of := lettersOf(secret); len(of) >= minSecret && strings.Contains(letters, of) {
				return true
			}
		}
	}
	return false
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// lettersOf returns the letters and digits of a text in lower case, with percent-encoded ones decoded.
func lettersOf(text string) string {
	text = escape.ReplaceAllStringFunc(text, func(e string) string {
		b, _ := hex.DecodeString(e[1:]) // the expression matches hexadecimal digits only
		return string(b)
	})
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}
