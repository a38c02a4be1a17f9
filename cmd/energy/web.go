// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/report"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/web"
)

// webOptions are the flags of the command web.
type webOptions struct {
	options
	file      string // the recording to show
	rates     report.Rates
	listen    string
	fixed     bool // listen is the only address
	open      bool
	hosts     []string
	cert, key string // paths
}

// subcommand returns the command web.
func (o *webOptions) subcommand() *cobra.Command {
	c := &cobra.Command{
		Use: "web [flags] [FILE]", Short: "show the energy of this machine as a page in the browser",
		Long: `Serves a page with the power of this machine over time and the programs that use it. The figures are
read from a collector on this machine. If no collector runs, energy web measures. FILE is a
recording: the output of energy top --json.`,
		Example: `  energy web                          prints the address of the page
  energy web --open                   opens the page
  energy web --grid FRA --price 0.25  with emissions and cost
  energy web power.jsonl              the recording of energy top --json > power.jsonl`,
		Args: func(c *cobra.Command, args []string) error {
			o.given, o.fixed = c.Flags().Changed("endpoint"), c.Flags().Changed("listen")
			o.mustStart = true
			if len(args) > 0 {
				o.file = args[0]
			}
			if len(args) > 1 {
				return errors.New("at most one FILE can be shown")
			}
			return o.check(c.Flags())
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"jsonl", "json"}, cobra.ShellCompDirectiveFilterFileExt),
		RunE:              untilDone(o.serve),
	}
	flagGroup(c, "What is shown", func(f *pflag.FlagSet) {
		o.sourceFlags(f)
		f.DurationVar(&o.interval, "interval", 2*time.Second, "time between two readings")
		f.DurationVar(&o.wait, "wait", 15*time.Second, "maximum wait for the first figures")
		rateFlags(f, &o.rates)
	})
	flagGroup(c, "Server", func(f *pflag.FlagSet) {
		f.StringVar(&o.listen, "listen", "127.0.0.1:8890",
			"`address` to listen on; without the flag, another port if this one is in use")
		f.BoolVar(&o.open, "open", false, "open the page in the browser")
		f.StringVar(&o.cert, "tls-cert", "", "`file` of the certificate (PEM), for addresses that other machines can reach")
		f.StringVar(&o.key, "tls-key", "", "`file` of its key (PEM)")
		f.StringSliceVar(&o.hosts, "host", nil, "`name` of this machine in the certificate; may be repeated")
	})
	return c
}

// check checks the flags.
func (o *webOptions) check(flags *pflag.FlagSet) error {
	for _, name := range []string{"endpoint", "local", "model", "config", "receiver", "interval"} {
		if o.file != "" && flags.Changed(name) {
			return fmt.Errorf("%s is a recording, which cannot be combined with --%s", o.file, name)
		}
	}
	host, port, err := net.SplitHostPort(o.listen)
	if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil {
		return errors.New("--listen must be host:port, such as 127.0.0.1:8890")
	}
	ip, _ := netip.ParseAddr(host)
	switch isLocal := host == "localhost" || ip.IsLoopback(); {
	case (o.cert == "") != (o.key == ""):
		return errors.New("--tls-cert and --tls-key must be set together")
	case !isLocal && (o.cert == "" || len(o.hosts) == 0):
		return fmt.Errorf("other machines can reach %s, which requires --tls-cert, --tls-key and --host. Without TLS, "+
			"run ssh -L %s:127.0.0.1:%s HOST on the other machine", o.listen, port, port)
	}
	if o.file != "" {
		if _, err := os.Stat(o.file); err != nil {
			return err
		}
	}
	return errors.Join(o.options.check(), checkRates(&o.rates))
}

// serve serves the page until ctx ends or the source fails.
func (o *webOptions) serve(ctx context.Context) error {
	options := web.Options{Hosts: o.hosts, Rates: o.rates, Recorded: o.file != ""}
	scheme := "http"
	if o.cert != "" {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return err
		}
		for _, host := range o.hosts {
			if err := pair.Leaf.VerifyHostname(host); err != nil {
				return fmt.Errorf("--host %s is not a name of the certificate: %w", host, err)
			}
		}
		options.Certificate, scheme = &pair, "https"
	}
	listener, err := o.bind()
	if err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(listener.Addr().String())
	if o.cert != "" && len(o.hosts) > 0 {
		host = o.hosts[0]
	}
	s := web.NewServer(options)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() {
		defer stop()
		served <- s.Serve(ctx, listener)
	}()
	address := fmt.Sprintf("%s://%s/#%s", scheme, net.JoinHostPort(host, port), s.Token)
	begun, ended := make(chan struct{}), make(chan error, 1)
	begin := sync.OnceFunc(func() { close(begun) })
	go func() { ended <- await(ctx, func() error { return o.feed(ctx, s, begin) }) }()
	select {
	case err = <-ended: // without a page
	case <-begun:
		remove, lost := o.announce(address)
		defer remove()
		if lost != nil {
			stop()
		}
		err = errors.Join(lost, <-ended)
	}
	stop()
	return errors.Join(err, <-served)
}

// announce prints the address, and opens it with --open. remove removes the file that the browser reads.
func (o *webOptions) announce(address string) (remove func(), err error) {
	if _, err := fmt.Println(address); err != nil || !o.open {
		return func() {}, err
	}
	failed := func(err error) { fmt.Fprintf(figure.Writer(os.Stderr), "energy web: --open: %v\n", err) }
	remove, err = openBrowser(address, failed)
	if err != nil {
		failed(err)
	}
	return remove, nil
}

// bind listens. If no address was given and the port is in use, it listens on another port.
func (o *webOptions) bind() (net.Listener, error) {
	listener, err := net.Listen("tcp", o.listen)
	switch inUse := errors.Is(err, syscall.EADDRINUSE); {
	case inUse && !o.fixed:
		host, _, _ := net.SplitHostPort(o.listen)
		return net.Listen("tcp", net.JoinHostPort(host, "0"))
	case inUse:
		return nil, fmt.Errorf("%s is in use: choose another port with --listen", o.listen)
	}
	return listener, err
}

// feed shows the recording, or figures of the source, until ctx ends. It calls begin when there is
// something to show: errors of flags and files come before the address.
func (o *webOptions) feed(ctx context.Context, s *web.Server, begin func()) error {
	if o.file != "" {
		return o.replay(ctx, s, begin)
	}
	return follow(ctx, o.options, openSource, &pages{Server: s, begin: begin, stale: max(30*time.Second, 3*o.interval)})
}

// replay shows a recording until ctx ends.
func (o *webOptions) replay(ctx context.Context, s *web.Server, begin func()) error {
	f, err := os.Open(o.file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var last *top.Frame
	several := false
	err = top.ReadRecording(f, func(f *top.Frame, notes []string) error {
		if several = several || last != nil && !f.Since.Equal(last.Since); several {
			notes = append(notes, "The file has several recordings: the energies belong to the last one, "+
				"and the chart shows all recordings.")
		}
		last, f.Source = f, o.file
		s.Show(f, notes)
		return ctx.Err()
	})
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", o.file, err)
	}
	begin()
	<-ctx.Done()
	return nil
}

// pages is the display of the server.
type pages struct {
	*web.Server
	begin func()
	at    time.Time     // of the newest figures
	since time.Time     // time of the first reading of these figures
	stale time.Duration // time without newer figures after which the page says so
}

// show implements display.
func (p *pages) show(_ context.Context, f *top.Frame, notes []string) error {
	now := time.Now()
	defer p.begin()
	switch {
	case !f.At.Equal(p.at):
		p.at, p.since = f.At, now
	case now.Sub(p.since) > p.stale:
		p.Explain(f.Source + " has had no new figures since " + p.since.Format(time.TimeOnly))
		return nil
	}
	p.Show(f, notes)
	return nil
}

// explain implements display.
func (p *pages) explain(_ context.Context, text string, _ bool, _ []string) error {
	p.Explain(text)
	p.begin()
	return nil
}
