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

// originOf returns the sender of a batch according to its context. Receivers with a server add the address of the
// client, except for HTTP over a Unix socket. The context of every HTTP request contains the server.
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

// split leaves the CPU profiles that the processor accepts, and returns the profiles that are not of
// CPU time. It drops energy profiles, because only this processor creates them, and CPU samples of
// other processes, unless ForeignSamples accepts them.
//
// The result has no dictionary yet: decoded, a dictionary of 4 MB can take 200 MB, so that there must
// not be two.
func (p *energyProfile) split(pd pprofile.Profiles, from origin, drop dropped) pprofile.Profiles {
	d, other := profiles.DictionaryOf(pd), pprofile.NewProfiles()
	for _, rp := range pd.ResourceProfiles().All() {
		toResource := other.ResourceProfiles().AppendEmpty()
		rp.Resource().CopyTo(toResource.Resource())
		toResource.SetSchemaUrl(rp.SchemaUrl())
		for _, sp := range rp.ScopeProfiles().All() {
			toScope := toResource.ScopeProfiles().AppendEmpty()
			sp.Scope().CopyTo(toScope.Scope())
			toScope.SetSchemaUrl(sp.SchemaUrl())
			sp.Profiles().RemoveIf(func(of pprofile.Profile) bool {
				switch {
				case isEnergy(d, of):
					p.warnForeign()
					drop.samples(dropForeignEnergy, of)
				case !isCPU(d, of):
					of.MoveTo(toScope.Profiles().AppendEmpty())
				case p.refuses(from):
					p.warnForeign()
					drop.samples(dropForeign, of)
				default:
					return false
				}
				return true
			})
		}
	}
	for _, of := range []pprofile.Profiles{pd, other} {
		keep(of, func(pprofile.Profile) bool { return true })
	}
	return other
}

// refuses reports whether CPU samples of a sender do not count.
func (p *energyProfile) refuses(from origin) bool { return from.isForeign && !p.cfg.ForeignSamples }
