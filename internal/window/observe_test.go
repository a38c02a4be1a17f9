// SPDX-License-Identifier: Apache-2.0

package window

// Observe attributes the interval since the last measurement.
func (b *Collector) Observe(m *Measurement) {
	b.Ledger.Add(b.Ledger.Sharer().Share(b.Collect(m)))
	b.End(m)
}

// observeAnother observes the first measurement of another CPU time source.
func (b *Collector) observeAnother(m *Measurement, exact bool) {
	b.Observe(b.WithoutClaims(m))
	b.StartOver(m, exact)
}
