// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// A document is a Report in JSON, as it is sent over vsock:
//
//	{"version":1,"epoch":"QIRM2CJDXJ","generation":"4","time_unix_nano":"1767323045000000000",
//	 "zones":[{"zone":"package","energy_uj":"52310000"},{"zone":"dram","energy_uj":"4100000"}]}
//
// Numbers of 64 bits are strings, as in OTLP/JSON. Readers ignore members and zones that they do
// not know; whatever they must not ignore comes with another version.
type document struct {
	Version    int            `json:"version"`
	Epoch      string         `json:"epoch"`
	Generation uint64         `json:"generation,string"`
	Time       int64          `json:"time_unix_nano,string"`
	Zones      []documentZone `json:"zones"`
}

type documentZone struct {
	Kind   power.Kind   `json:"zone"`
	Energy units.Energy `json:"energy_uj,string"`
}

const (
	documentVersion = 1
	// maxDocument is the most bytes that a document has: several times those of all zones with the largest numbers.
	maxDocument = 4096
	// maxEpoch is the most bytes that an epoch has.
	maxEpoch = 64
)

var (
	errNoDocument = errors.New("the answer is not a report")
	errTwoZones   = errors.New("the report has two zones where one can be")
)

// marshal returns the document of a report. Of two zones with one Place it has the first.
func marshal(r *Report) ([]byte, error) {
	d := document{
		Version: documentVersion, Epoch: r.Epoch, Generation: r.Generation, Time: r.Time.UnixNano(), Zones: []documentZone{},
	}
	var places []string
	for _, z := range r.Zones {
		if id, _, _ := Place(z.Kind); IsExported(z.Kind) && !slices.Contains(places, id) {
			places = append(places, id)
			d.Zones = append(d.Zones, documentZone{z.Kind, z.Energy})
		}
	}
	return json.Marshal(&d)
}

// unmarshal returns the report of a document. The text of its errors does not depend on where in
// the document something is wrong.
func unmarshal(text []byte) (*Report, error) {
	if len(text) > maxDocument {
		return nil, errNoDocument
	}
	var probe struct {
		Version int `json:"version"`
	}
	if json.Unmarshal(text, &probe) != nil {
		return nil, errNoDocument
	}
	if probe.Version != documentVersion {
		return nil, fmt.Errorf("the report has version %d, not %d", probe.Version, documentVersion)
	}
	var d document
	if json.Unmarshal(text, &d) != nil || d.Epoch == "" || len(d.Epoch) > maxEpoch || d.Time < 0 {
		return nil, errNoDocument
	}
	r := &Report{Epoch: d.Epoch, Generation: d.Generation, Time: time.Unix(0, d.Time)}
	var places []string
	for _, z := range d.Zones {
		if !IsExported(z.Kind) {
			continue
		}
		id, _, _ := Place(z.Kind)
		if slices.Contains(places, id) {
			return nil, errTwoZones
		}
		places = append(places, id)
		r.Zones = append(r.Zones, Zone{Kind: z.Kind, Energy: z.Energy})
	}
	return r, nil
}
