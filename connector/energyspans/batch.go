// SPDX-License-Identifier: Apache-2.0

package energyspans

import (
	"context"
	"slices"
	"strings"
	"unique"

	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/feed"
	otelprofiles "github.com/energyreceiver/energyreceiver/internal/profiles"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// labelPrefix precedes the name of a label in the sample attribute.
const labelPrefix = "process.context.label."

// separator separates the values of labels.
const separator = "\x00"

// batch reads the energy of a batch of profiles. It ignores indices that are out of range.
type batch struct {
	pd      pprofile.Profiles
	d       otelprofiles.Dictionary
	names   []string        // names of the configured labels
	labels  map[int32]label // by index of their attribute
	isOwn   bool            // energyprofile of this collector sent the batch to the connector
	left    uint64          // µJ that energyprofile sent, minus the energy of the samples that were read
	dropped map[string]int64
}

// label is the value of a configured label. All samples with the value share its text.
type label struct {
	i    int // index of the name
	text string
}

func newBatch(ctx context.Context, pd pprofile.Profiles, names []string) *batch {
	b := &batch{pd: pd, d: otelprofiles.DictionaryOf(pd), names: names, labels: map[int32]label{}, dropped: map[string]int64{}}
	if b.left, b.isOwn = feed.EnergyOf(ctx); !b.isOwn {
		return b
	}
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = labelPrefix + name
	}
	for i, a := range b.d.AttributeTable().All() {
		// A comparison of keys is cheap even if a million attributes share a key of a megabyte. A
		// map would hash each key.
		if j := slices.Index(keys, b.d.Text(a.KeyStrindex())); j >= 0 {
			if text := strings.ReplaceAll(textOf(a.Value()), separator, ""); text != "" {
				b.labels[int32(i)] = label{j, text}
			}
		}
	}
	return b
}

// each calls f with the energy in µJ of each sample of an energy profile. It drops energy that
// energyprofile did not send.
func (b *batch) each(f func(c claim, energy uint64)) {
	for _, rp := range b.pd.ResourceProfiles().All() {
		var service string
		if b.isOwn {
			service = attributeOf(rp.Resource().Attributes(), "service.name")
		}
		for of := range otelprofiles.All(rp) {
			switch {
			case !b.isEnergy(of):
			case !b.isOwn:
				b.dropped[dropForeign] += int64(of.Samples().Len())
			default:
				b.eachSample(service, of, f)
			}
		}
	}
}

func (b *batch) eachSample(service string, of pprofile.Profile, f func(c claim, energy uint64)) {
	shared := unique.Make(names{service: service})
	for _, s := range of.Samples().All() {
		energy := b.take(s)
		if energy == 0 {
			continue
		}
		labels, route := b.labelsOf(s)
		c := claim{profile: shared, span: b.spanOf(s), labels: labels}
		if route != "" {
			c.profile = unique.Make(names{service: service, route: route})
		}
		c.names = c.profile
		f(c, energy)
	}
}

// take returns the energy of a sample in µJ, or 0 if it drops the sample.
func (b *batch) take(s pprofile.Sample) uint64 {
	energy, ok := energyOf(s)
	switch {
	case !ok:
		b.dropped[dropValue]++
		return 0
	case energy > b.left:
		b.dropped[dropExcess]++
		return 0
	}
	b.left -= energy
	return energy
}

// isEnergy reports whether a profile is an energy profile in microjoules.
func (b *batch) isEnergy(p pprofile.Profile) bool {
	of := p.SampleType()
	return b.d.Text(of.TypeStrindex()) == otelprofiles.Energy && b.d.Text(of.UnitStrindex()) == otelprofiles.Microjoules
}

// spanOf returns the span of a sample, or the zero value if the sample has no span.
func (b *batch) spanOf(s pprofile.Sample) spanID {
	link := b.d.Link(s)
	if link.TraceID().IsEmpty() || link.SpanID().IsEmpty() {
		return spanID{}
	}
	return spanID{link.TraceID(), link.SpanID()}
}

// labelsOf returns the values of a sample's labels, each followed by a separator, or "" if the sample has no labels.
// route is the value of the label http.route.
func (b *batch) labelsOf(s pprofile.Sample) (labels, route string) {
	var values []string
	for _, i := range s.AttributeIndices().All() {
		switch l, ok := b.labels[i]; {
		case !ok:
		case b.names[l.i] == routeAttribute:
			route = l.text
		default:
			if values == nil {
				values = make([]string, len(b.names)+1)
			}
			values[l.i] = l.text
		}
	}
	return strings.Join(values, separator), route
}

// energyOf returns the energy of a sample in µJ. ok is false if a value is negative.
func energyOf(s pprofile.Sample) (sum uint64, ok bool) {
	for _, v := range s.Values().All() {
		if v < 0 {
			return 0, false
		}
		sum = units.AddSaturating(sum, uint64(v))
	}
	return sum, true
}
