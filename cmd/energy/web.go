// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/top"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/web"
)

// webOptions are the flags of the command web.
type webOptions struct {
	options
	listen string
}

// subcommand returns the command web.
func (o *webOptions) subcommand() *cobra.Command {
	o.endpoint = defaultEndpoint
	c := &cobra.Command{
		Use: "web [flags]", Short: "show the largest energy consumers as a page in the browser",
		Args: noArguments(nil),
		RunE: untilDone(func(ctx context.Context) error { return o.serve(ctx) }),
	}
	flagGroup(c, "What is shown", func(f *pflag.FlagSet) {
		f.Var((*endpoint)(&o.endpoint), "endpoint", "`URL` or host:port of the collector's Prometheus exporter")
		f.BoolVar(&o.local, "local", false, "measure even if a collector runs")
		f.DurationVar(&o.interval, "interval", 2*time.Second, "time between two readings")
		f.DurationVar(&o.wait, "wait", 15*time.Second, "maximum wait for the first figures")
	})
	flagGroup(c, "Server", func(f *pflag.FlagSet) {
		f.StringVar(&o.listen, "listen", "127.0.0.1:8890", "`address` to listen on")
	})
	return c
}

func (o *webOptions) serve(ctx context.Context) error {
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	s := web.NewServer(o.listen)
	go func() { _ = s.Serve(ctx, listener) }()
	fmt.Printf("http://%s/#%s\n", listener.Addr(), s.Token)
	return await(ctx, func() error { return follow(ctx, o.options, openSource, pages{s, o.endpoint}) })
}

// pages is the display of a server of pages.
type pages struct {
	*web.Server
	source string
}

// show implements display.
func (p pages) show(_ context.Context, f *top.Frame, notes []string) error {
	p.Show(f, p.source, notes)
	return nil
}

// explain implements display.
func (p pages) explain(_ context.Context, text string, _ bool, _ []string) error {
	p.Explain(text)
	return nil
}
