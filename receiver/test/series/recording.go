// SPDX-License-Identifier: Apache-2.0

//go:build linux

package series

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// Recording is the data that receivers passed to the next consumer, with the ground truth.
type Recording struct {
	Truth       *Truth
	Collections []Collection

	by time.Duration // is added to all times
}

// Collection is the data of one collection as gzipped OTLP.
type Collection struct {
	At   time.Time
	body []byte
}

// Add records a collection.
func (r *Recording) Add(at time.Time, md pmetric.Metrics) error {
	body, _, err := Pack(md)
	r.Collections = append(r.Collections, Collection{at, body})
	return err
}

// Pack encodes a collection as a request of OTLP with gzip, and returns the size before
// compression.
func Pack(md pmetric.Metrics) (packed []byte, size int, err error) {
	var marshaler pmetric.ProtoMarshaler // a request has the same encoding
	raw, err := marshaler.MarshalMetrics(md)
	if err != nil {
		return nil, 0, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err = z.Write(raw)
	err = errors.Join(err, z.Close())
	return b.Bytes(), len(raw), err
}

// Unpack decodes the result of Pack.
func Unpack(packed io.Reader) (md pmetric.Metrics, err error) {
	z, err := gzip.NewReader(packed)
	if err != nil {
		return md, err
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return md, err
	}
	var unmarshaler pmetric.ProtoUnmarshaler
	return unmarshaler.UnmarshalMetrics(raw)
}

// EndAt moves the recording so that its period ends at a time.
func (r *Recording) EndAt(end time.Time) {
	by := end.Sub(r.Truth.End)
	r.by += by
	r.Truth.shift(by)
	for i := range r.Collections {
		r.Collections[i].At = r.Collections[i].At.Add(by)
	}
}

// Metrics returns a collection with the times of the moved recording.
func (r *Recording) Metrics(c Collection) (pmetric.Metrics, error) {
	md, err := Unpack(bytes.NewReader(c.body))
	if err != nil {
		return md, err
	}
	moved := func(t pcommon.Timestamp) pcommon.Timestamp { return pcommon.NewTimestampFromTime(t.AsTime().Add(r.by)) }
	each(md, func(_ pcommon.Map, _ pmetric.Metric, p pmetric.NumberDataPoint) {
		p.SetTimestamp(moved(p.Timestamp()))
		if p.StartTimestamp() != 0 {
			p.SetStartTimestamp(moved(p.StartTimestamp()))
		}
	})
	return md, nil
}
