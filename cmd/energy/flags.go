// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// duration is a duration flag whose errors say what is wrong with the value.
type duration struct{ flag.Value }

// Set implements flag.Value.
func (d duration) Set(text string) error {
	err := d.Value.Set(text)
	if err == nil {
		return nil
	}
	if _, number := strconv.ParseFloat(text, 64); number == nil {
		return fmt.Errorf("the unit is missing: write %s", text+"s")
	}
	return errors.New("a duration has a unit, such as 500ms, 5s or 2m")
}

// explainDurations makes the duration flags of fs report what is wrong with their values until
// restore is called. The usage of fs is that of the original flags.
func explainDurations(fs *flag.FlagSet) (restore func()) {
	original := map[*flag.Flag]flag.Value{}
	fs.VisitAll(func(f *flag.Flag) {
		if g, ok := f.Value.(flag.Getter); ok {
			if _, ok := g.Get().(time.Duration); ok {
				original[f] = f.Value
				f.Value = duration{f.Value}
			}
		}
	})
	return func() {
		for f, value := range original {
			f.Value = value
		}
	}
}

// defaultPort is the port of the Prometheus exporter in the shipped configurations.
const defaultPort = "8889"

// endpoint is the URL of a Prometheus exporter. As a flag it is a URL, host:port or host.
type endpoint string

// String implements flag.Value.
func (e *endpoint) String() string { return string(*e) }

// Set implements flag.Value.
func (e *endpoint) Set(text string) error {
	full := text
	if !strings.Contains(text, "://") {
		full = "http://" + text
	}
	u, err := url.Parse(full)
	switch {
	case err != nil:
		return errors.New("want a URL, host:port or host")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("want http or https, not %s", u.Scheme)
	case u.Host == "" || strings.HasSuffix(u.Host, ":"):
		return errors.New("want a URL, host:port or host")
	}
	if u.Port() == "" && full != text {
		u.Host = net.JoinHostPort(u.Hostname(), defaultPort)
	}
	if u.Hostname() == "" { // :8889
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/metrics"
	}
	*e = endpoint(u.String())
	return nil
}
