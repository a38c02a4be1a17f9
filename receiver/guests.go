// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"net"
	"path/filepath"
	"slices"

	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/guest"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// GuestsConfig configures the export of energy to the virtual machines of this node.
type GuestsConfig struct {
	// Path is the absolute path of a directory in which each virtual machine has a subdirectory with a powercap tree. Share this
	// subdirectory with the machine, read-only.
	Path string `mapstructure:"path"`
	// Vsock serves the virtual machines over vsock.
	Vsock configoptional.Optional[VsockConfig] `mapstructure:"vsock"`

	_ struct{}
}

func (c *GuestsConfig) validate(wrong reporter) {
	if c.Path == "" && !c.Vsock.HasValue() {
		wrong("path", "must be set if vsock is not")
	}
	if c.Path != "" && !filepath.IsAbs(c.Path) {
		wrong("path", "must be an absolute path, is %q", c.Path)
	}
	if c.Vsock.HasValue() {
		c.Vsock.Get().validate(wrong.under("vsock"))
	}
}

// guests tells the virtual machines of this node what they were attributed.
type guests struct {
	publisher *guest.Publisher // nil where none is told
	server    *guest.Server    // nil where none is told over vsock
	vms       []guest.VM       // of the last collection
	// listen is for tests; see guest.Server.
	listen func(port uint32) (net.Listener, error)
}

func (g *guests) open(cfg *Config) {
	if !cfg.Guests.HasValue() {
		return
	}
	c := cfg.Guests.Get()
	g.publisher = guest.NewPublisher(guest.PublisherOptions{Path: c.Path})
	if c.Vsock.HasValue() {
		g.server = guest.NewServer(uint32(c.Vsock.Get().Port), g.publisher.Report)
		g.server.Listen = g.listen
		g.server.Start()
	}
}

// tell publishes what a collection ends with, if there was one, and returns what keeps machines from being told.
func (g *guests) tell(l *ledger, m *claims.Measurement) error {
	if g.publisher == nil {
		return nil
	}
	if m != nil {
		g.collect(l)
		g.publisher.Publish(g.vms, m.Stamp)
	}
	err := g.publisher.Err()
	if g.server == nil || g.server.Err() == nil {
		return err
	}
	return joined(err, g.server.Err())
}

// collect lists the virtual machines that have a series, with those that have ended.
func (g *guests) collect(l *ledger) {
	n := 0
	for a := range l.Engine.Ledger().Accounts {
		if a.Entity != units.VMEntity || a.Other {
			continue
		}
		if n == len(g.vms) {
			g.vms = append(g.vms, guest.VM{})
		}
		vm := &g.vms[n]
		n++
		*vm = guest.VM{
			ID: a.Owner.VM.ID, Name: a.Owner.VM.Name, CID: a.Owner.VM.CID, Start: a.Start, Ended: a.Ended,
			Zones: l.zonesOf(a, vm.Zones[:0]),
		}
	}
	clear(g.vms[n:])
	g.vms = g.vms[:n]
}

// zonesOf appends what an account has of each zone kind that is read, active and idle, from all sources.
func (l *ledger) zonesOf(a *attribution.Account, zones []guest.Zone) []guest.Zone {
	kinds := &l.Engine.Ledger().Kinds
	read := func(kind power.Kind) bool {
		for i := range l.kinds {
			if l.kinds[i].Zone == kind && kinds[i].Present && !kinds[i].Ended {
				return true
			}
		}
		return false
	}
	for i, kind := range l.kinds {
		of := a.Amounts(i)
		j := slices.IndexFunc(zones, func(z guest.Zone) bool { return z.Kind == kind.Zone })
		switch {
		case j >= 0:
			zones[j].Energy += of.Energy + of.Idle
		case read(kind.Zone):
			zones = append(zones, guest.Zone{Kind: kind.Zone, Energy: of.Energy + of.Idle})
		}
	}
	return zones
}

func (g *guests) close() error {
	if g.publisher == nil {
		return nil
	}
	if g.server != nil {
		_ = g.server.Close() // never fails
	}
	return g.publisher.Close()
}
