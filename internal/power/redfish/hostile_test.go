// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"

	rt "github.com/energyreceiver/energyreceiver/internal/power/redfish/redfishtest"
)

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
