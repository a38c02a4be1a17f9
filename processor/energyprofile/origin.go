// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"net"
	"net/http"

	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/feed"
)

// origin is the sender of a batch.
type origin struct {
	// isForeign reports whether the batch came from a client, which is another process.
	isForeign bool
	host      string // of the client, if it has an IP address
	// hasEnergy reports whether the energy in the batch is that of a receiver of this process.
	hasEnergy bool
}

// originOf returns the sender of a batch according to its context. Receivers with a server add the client's
// address, but not for HTTP over a Unix socket. HTTP requests always have their server.
func originOf(ctx context.Context) (o origin) {
	_, o.hasEnergy = feed.EnergyOf(ctx)
	addr := client.FromContext(ctx).Addr
	o.isForeign = addr != nil || ctx.Value(http.ServerContextKey) != nil
	switch addr := addr.(type) {
	case *net.IPAddr:
		o.host = addr.IP.String()
	case *net.TCPAddr:
		o.host = addr.IP.String()
	}
	return o
}

// refuse removes profiles of energy that no component of this process has made, and CPU samples of other
// processes unless they are accepted.
func (p *energyProfile) refuse(pd pprofile.Profiles, from origin, drop dropped) {
	d := pd.Dictionary()
	reason := func(of pprofile.Profile) string {
		switch {
		case isEnergy(d, of) && !from.hasEnergy:
			return dropForeignEnergy
		case isCPU(d, of) && from.isForeign && !p.cfg.ForeignSamples:
			return dropForeign
		}
		return ""
	}
	refused := false
	eachProfile(pd, func(of pprofile.Profile) {
		if why := reason(of); why != "" {
			refused = true
			drop.samples(why, of)
		}
	})
	if refused {
		p.warnForeign()
		keep(pd, func(of pprofile.Profile) bool { return reason(of) == "" })
	}
}
