// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

var errRefused = errors.New("the queue is full")

func TestAnAcknowledgedEmptyScrapeDeliversNothing(t *testing.T) {
	n := newTestNode(t)
	n.process(10, "job")
	n.start()
	n.run(100*joule, map[int]int64{10: 300})
	delete(n.host.Processes, 10)
	n.refuse = errRefused
	n.run(0, nil)
	n.refuse = nil
	stat := filepath.Join(n.host.Root(), "proc/stat")
	require.NoError(t, os.Remove(stat))
	n.scrapeAsIs()
	n.accept()
	n.run(0, nil)
	assert.InDelta(t, 30, n.one("process.energy", pid(10)).value, 1e-6, "its end was not in the acknowledged collection")
	n.run(0, nil)
	assert.Empty(t, n.points("process.energy", nil, pid(10)))
}

func TestFinalValuesAreDeliveredExactlyOnceToATemporarilyFailingConsumer(t *testing.T) {
	n := newTestNode(t, func(c *Config) { c.InitialDelay = 10 * time.Second })
	n.process(10, "job", docker(idA))
	require.NoError(t, n.host.Render())
	collections, taken := 0, []pmetric.Metrics{}
	next, err := consumer.NewMetrics(func(_ context.Context, md pmetric.Metrics) error {
		// Ten seconds pass until the next collection. The job runs in the first ten and then ends.
		used := map[int]int64{1: 100, 10: 400}
		if collections++; collections > 1 {
			delete(n.host.Processes, 10)
			delete(used, 10)
		}
		n.passWithout(10*time.Second, 100*joule, used)
		if err := n.host.Render(); err != nil {
			return err
		}
		if 2 <= collections && collections <= 4 {
			return errRefused
		}
		taken = append(taken, pmetric.NewMetrics())
		md.CopyTo(taken[len(taken)-1])
		return nil
	})
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		r, err := NewFactory().CreateMetrics(t.Context(), receivertest.NewNopSettings(metadata.Type), n.cfg, next)
		require.NoError(t, err)
		require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
		time.Sleep(65 * time.Second) // of the clock of the synctest bubble
		require.NoError(t, r.Shutdown(t.Context()))
	})
	require.Equal(t, 7, collections)
	require.Len(t, taken, 4, "the first, the fifth, the sixth and that of the shutdown")
	n.md = taken[0]
	n.expect(energies{"10": 0}, 0)
	n.md = taken[1]
	n.expect(energies{"10": 40, "A": 40}, 1e-6)
	assert.True(t, n.one("process.power", pid(10)).ended)
	n.md = taken[2]
	assert.Empty(t, n.points("process.energy", nil, pid(10)))
	assert.Empty(t, n.points("container.energy", nil))
	n.expect(energies{"1": 10 + 4*10}, 1e-6) // of 100 J in each interval: 50 % busy in the first, 10 % in the other four
}

// resourcesOf returns a collection of resources with one data point, whose value is its number, and
// one attribute of the given size.
func resourcesOf(sizes ...int) pmetric.Metrics {
	md := pmetric.NewMetrics()
	for i, size := range sizes {
		rm := md.ResourceMetrics().AppendEmpty()
		rm.Resource().Attributes().PutStr("process.command_line", strings.Repeat("x", size))
		rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty().SetEmptySum().DataPoints().AppendEmpty().SetIntValue(int64(i))
	}
	return md
}

func manyOf(n, size int) []int {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = size
	}
	return sizes
}

// values returns the values of the data points, in order of the resources.
func values(md pmetric.Metrics) []int64 {
	var all []int64
	for _, rm := range md.ResourceMetrics().All() {
		all = append(all, rm.ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().At(0).IntValue())
	}
	return all
}

func consume(t *testing.T, md pmetric.Metrics, next consumer.ConsumeMetricsFunc) (acknowledged bool, err error) {
	t.Helper()
	c, err := consumer.NewMetrics(next)
	require.NoError(t, err)
	err = nextConsumer{c, func(d delivery) { acknowledged = d.all }}.ConsumeMetrics(t.Context(), md)
	return acknowledged, err
}

func TestLargeCollectionIsHandedOnInBoundedPartsInOrder(t *testing.T) {
	for name, test := range map[string]struct {
		sizes []int
		parts int
	}{
		"one resource":             {manyOf(1, 100), 1},
		"500 common resources":     {manyOf(500, 300), 1},
		"1500 of 4 KiB":            {manyOf(1500, 4<<10), 4},
		"10000 small resources":    {manyOf(10_000, 10), 6},
		"33 of 130 kB":             {manyOf(33, 130_000), 3},
		"one larger than a part":   {[]int{10, 3 << 20, 10}, 3},
		"the first larger than it": {[]int{3 << 20, 10}, 2},
		"all but larger than one":  {manyOf(3, maxPart-resourceRoom-200), 3},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int64
			parts := 0
			acknowledged, err := consume(t, resourcesOf(test.sizes...), func(_ context.Context, md pmetric.Metrics) error {
				parts++
				got = append(got, values(md)...)
				for _, rm := range md.ResourceMetrics().All() { // added by processors
					rm.Resource().Attributes().PutStr("k8s.pod.name", strings.Repeat("p", resourceRoom-50))
				}
				if md.ResourceMetrics().Len() > 1 {
					assert.LessOrEqual(t, new(pmetric.ProtoMarshaler).MetricsSize(md), 2<<20)
				}
				return nil
			})
			require.NoError(t, err)
			assert.True(t, acknowledged)
			assert.Equal(t, test.parts, parts)
			assert.Equal(t, values(resourcesOf(test.sizes...)), got)
		})
	}
}

func TestDeliveryReportsWhatTheConsumerTook(t *testing.T) {
	permanent := consumererror.NewPermanent(errRefused)
	for name, test := range map[string]struct {
		answers []error // to each part
		want    delivery
	}{
		"all":                             {[]error{nil, nil, nil, nil}, delivery{all: true, some: true}},
		"none":                            {[]error{errRefused}, delivery{}},
		"some":                            {[]error{nil, errRefused}, delivery{some: true}},
		"none, for good":                  {[]error{permanent, permanent, permanent, permanent}, delivery{forGood: true}},
		"some, the rest refused for good": {[]error{nil, permanent, nil, permanent}, delivery{some: true, forGood: true}},
		"some, one not for good":          {[]error{nil, permanent, errRefused}, delivery{some: true, forGood: true}},
	} {
		t.Run(name, func(t *testing.T) {
			parts := 0
			next, err := consumer.NewMetrics(func(context.Context, pmetric.Metrics) error { parts++; return test.answers[parts-1] })
			require.NoError(t, err)
			var got delivery
			_ = nextConsumer{next, func(d delivery) { got = d }}.ConsumeMetrics(t.Context(), resourcesOf(manyOf(1500, 4<<10)...))
			assert.Equal(t, test.want, got)
			assert.Equal(t, len(test.answers), parts)
		})
	}
}

func TestCollectionOfOnePartIsHandedOnAsItIs(t *testing.T) {
	md := resourcesOf(manyOf(500, 300)...)
	var got pmetric.Metrics
	_, err := consume(t, md, func(_ context.Context, part pmetric.Metrics) error { got = part; return nil })
	require.NoError(t, err)
	assert.Equal(t, md, got)
	assert.Equal(t, 500, got.ResourceMetrics().Len())
	next, err := consumer.NewMetrics(func(context.Context, pmetric.Metrics) error { return nil })
	require.NoError(t, err)
	a := nextConsumer{next, func(delivery) {}}
	assert.Zero(t, testing.AllocsPerRun(10, func() { _ = a.ConsumeMetrics(context.Background(), md) }))
}
