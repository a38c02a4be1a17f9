// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/internal/power/model/machine"
)

// recorder obtains a record: from a collector, or from a file.
type recorder struct {
	endpoint string
	interval time.Duration
	length   time.Duration
	record   string // file to write
	force    bool
	from     string // file to read in place of the endpoint
}

func (o *recorder) flags(c *cobra.Command) {
	o.endpoint = defaultEndpoint
	flagGroup(c, "What is recorded", func(f *pflag.FlagSet) {
		f.Var((*endpoint)(&o.endpoint), "endpoint", "`URL` or host:port of the collector's Prometheus exporter")
		f.DurationVar(&o.interval, "interval", time.Second, "time between two scrapes")
		f.DurationVar(&o.length, "for", 0, "how long to record (0: until Ctrl-C)")
		f.StringVar(&o.record, "record", "", "`file` to write what the collector reports to")
		f.StringVar(&o.from, "from", "", "`file` that --record wrote, in place of scraping")
		forceFlag(f, &o.force)
	})
}

// check returns an error if the flags exclude each other. other is another file of the command, or
// empty. It must not be the file of the record.
func (o *recorder) check(other string) error {
	switch {
	case other != "" && (filepath.Clean(other) == filepath.Clean(o.record) || filepath.Clean(other) == filepath.Clean(o.from)):
		return fmt.Errorf("%s is the file of the record", other)
	case o.record != "" && o.from != "":
		return errors.New("--record and --from exclude each other")
	case o.interval <= 0:
		return errors.New("--interval must be above 0")
	case o.length < 0:
		return errors.New("--for must not be below 0")
	}
	return nil
}

// obtain records what the collector reports, or reads what was recorded.
func (o *recorder) obtain(ctx context.Context) (*record, error) {
	if o.from != "" {
		f, err := os.Open(o.from)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		r, err := readRecord(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.from, err)
		}
		return r, r.check()
	}
	if err := refuseExisting(o.force, o.record); err != nil {
		return nil, err
	}
	file, err := create(context.WithoutCancel(ctx), o.record)
	if err != nil {
		return nil, err
	}
	defer file.discard()
	if o.length > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, o.length)
		defer stop()
	}
	m := machineOf(ctx, o.endpoint)
	r, err := collect(ctx, http.DefaultClient, o.endpoint, o.interval)
	r.machine = m
	if file != nil && !r.isEmpty() { // also a record that ended early
		err = errors.Join(err, file.save(r.write))
	}
	if err != nil {
		return nil, err
	}
	return r, r.check()
}

// machineOf returns what is known of the machine that an endpoint is on, nil where that is another
// than this one, or not enough is known.
func machineOf(ctx context.Context, endpoint string) *machine.Machine {
	if !isHere(ctx, endpoint) {
		return nil
	}
	m, err := machine.Read("/", os.Getenv)
	if err != nil {
		return nil
	}
	return &m
}

// isHere reports whether an endpoint is on this machine.
func isHere(ctx context.Context, endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	addresses, err := net.DefaultResolver.LookupIPAddr(ctx, u.Hostname())
	if err != nil || len(addresses) == 0 {
		return false
	}
	own, _ := net.InterfaceAddrs() // those of loopback are known without
	for _, a := range addresses {
		isOwn := slices.ContainsFunc(own, func(o net.Addr) bool {
			n, ok := o.(*net.IPNet)
			return ok && n.IP.Equal(a.IP)
		})
		if !isOwn && !a.IP.IsLoopback() {
			return false
		}
	}
	return true
}
