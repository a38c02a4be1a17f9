// SPDX-License-Identifier: Apache-2.0

package energyguests

import (
	"context"
	"net"
	"slices"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/energyreceiver/energyreceiver/feed"
	"github.com/energyreceiver/energyreceiver/internal/conditions"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/guest"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// guests is the extension. At the end of each collection it publishes the energy of the virtual
// machines.
type guests struct {
	cfg        *Config
	conditions *conditions.Conditions
	reader     *feed.Reader
	publisher  *guest.Publisher
	server     *guest.Server // nil without vsock
	vms        []guest.VM    // of the last collection
	// listen is for tests; see guest.Server.
	listen func(port uint32) (net.Listener, error)
}

func newGuests(cfg *Config, set extension.Settings) *guests {
	g := &guests{cfg: cfg, conditions: conditions.New("Export to virtual machines", set.Logger)}
	g.reader = &feed.Reader{VMs: true, Take: g.take}
	return g
}

// Start implements component.Component. Trees and the listener are opened in the background, and
// their errors are conditions.
func (g *guests) Start(_ context.Context, host component.Host) error {
	g.conditions.Host = host
	g.publisher = guest.NewPublisher(g.cfg.Path)
	if v := g.cfg.Vsock.Get(); v != nil {
		g.server = guest.NewServer(uint32(v.Port), g.publisher.Report) // Validate bounds it
		g.server.Listen = g.listen
		g.server.Start()
	}
	feed.Of(g.cfg.Receiver).Open(g.reader)
	return nil
}

// Ready implements extensioncapabilities.PipelineWatcher. It fails if the configured receiver does
// not run.
func (g *guests) Ready() error { return feed.Check(g.cfg.Receiver) }

// NotReady implements extensioncapabilities.PipelineWatcher.
func (*guests) NotReady() error { return nil }

// Shutdown implements component.Component. The receiver has shut down before, so that its last collection is written.
func (g *guests) Shutdown(context.Context) error {
	if g.publisher == nil { // it was never started
		return nil
	}
	feed.Of(g.cfg.Receiver).Close(g.reader)
	if g.server != nil {
		_ = g.server.Close() // never fails
	}
	return g.publisher.Close()
}

// take publishes the energy of the virtual machines if the window ends a collection.
func (g *guests) take(w *feed.Window) {
	if !w.EndsCollection {
		return
	}
	n := len(w.VMs)
	g.vms = slices.Grow(g.vms[:0], n)[:n]
	for i := range w.VMs {
		of, vm := &w.VMs[i], &g.vms[i]
		*vm = guest.VM{ID: of.ID, Name: of.Name, CID: of.CID, Start: of.Start, Ended: of.Ended, Zones: zonesOf(w, of, vm.Zones[:0])}
	}
	g.publisher.Publish(g.vms, w.End)
	g.conditions.Set("trees", g.publisher.Err())
	if g.server != nil {
		g.conditions.Set("vsock", g.server.Err())
	}
}

// zonesOf appends the energy of a virtual machine for each zone kind that has a meter now. The
// energies of all methods of a zone kind are added up.
func zonesOf(w *feed.Window, vm *feed.VM, zones []guest.Zone) []guest.Zone {
	for i, kind := range w.Kinds {
		zone, energy := power.Kind(kind.Zone), units.Energy(vm.Energy[i])
		isRead := false
		for j := range w.Kinds {
			isRead = isRead || w.Kinds[j].Zone == kind.Zone && vm.Present[j]
		}
		j := slices.IndexFunc(zones, func(z guest.Zone) bool { return z.Kind == zone })
		switch {
		case j >= 0:
			zones[j].Energy += energy
		case isRead:
			zones = append(zones, guest.Zone{Kind: zone, Energy: energy})
		}
	}
	return zones
}
