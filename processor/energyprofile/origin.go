// SPDX-License-Identifier: Apache-2.0

package energyprofile

import (
	"context"
	"net"
	"net/http"

	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/internal/profiles"
)

// origin is the sender of a batch.
type origin struct {
	// isForeign reports whether the batch came from a client, which is another process.
	isForeign bool
	host      string // host of the client
}

// originOf returns the sender of a batch according to its context. Receivers with a server add the
// address of the client, except for HTTP over a Unix socket. The context of every HTTP request
// contains the server.
func originOf(ctx context.Context) (o origin) {
	if addr := client.FromContext(ctx).Addr; addr != nil {
		o.isForeign, o.host = true, addr.String()
		if host, _, err := net.SplitHostPort(o.host); err == nil {
			o.host = host
		}
	}
	o.isForeign = o.isForeign || ctx.Value(http.ServerContextKey) != nil
	return o
}

// refuse removes energy profiles, because only this processor creates them. It also removes CPU
// samples of other processes, unless ForeignSamples accepts them.
func (p *energyProfile) refuse(pd pprofile.Profiles, from origin, drop dropped) {
	d := profiles.DictionaryOf(pd)
	keep(pd, func(of pprofile.Profile) bool {
		reason := dropForeign
		switch {
		case isEnergy(d, of):
			reason = dropForeignEnergy
		case !isCPU(d, of) || !from.isForeign || p.cfg.ForeignSamples:
			return true
		}
		p.warnForeign()
		drop.samples(reason, of)
		return false
	})
}
