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

// A document is a Report in JSON, as it is sent over vsock and written to a tree:
//
//	{"version":1,"epoch":"QIRM2CJDXJ","generation":"4","time_unix_nano":"1767323045000000000",
//	 "zones":[{"zone":"package","energy_uj":"52310000"},{"zone":"dram","energy_uj":"4100000"}]}
//
// Numbers of 64 bits are strings, as in OTLP/JSON. Readers ignore other members and zones. A change
// that readers must not ignore has another version. In a tree, "vm_id" is the ID of the virtual
// machine.
type document struct {
	Version    int            `json:"version"`
	ID         string         `json:"vm_id,omitempty"`
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
	// maxDocument is the maximum size of a document in bytes, several times the size of a document
	// with all zones and the largest numbers.
	maxDocument = 4096
	// maxEpoch is the maximum size of an epoch in bytes.
	maxEpoch = 64
)

var (
	errNoDocument = errors.New("not an energy report")
	errTwoZones   = errors.New("the report has two zones of one kind")
)

// marshal returns the document of a report, whose zones are exported and have different places.
func marshal(r *Report) ([]byte, error) {
	d := document{
		Version: documentVersion, ID: r.ID, Epoch: r.Epoch, Generation: r.Generation, Time: r.Time.UnixNano(), Zones: []documentZone{},
	}
	for _, z := range r.Zones {
		d.Zones = append(d.Zones, documentZone{z.Kind, z.Energy})
	}
	return json.Marshal(&d)
}

// unmarshal returns the report in a document. The texts of its errors do not contain the position
// of the error in the document.
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
	r := &Report{ID: d.ID, Epoch: d.Epoch, Generation: d.Generation, Time: time.Unix(0, d.Time)}
	for _, z := range d.Zones {
		if !IsExported(z.Kind) {
			continue
		}
		if slices.ContainsFunc(r.Zones, func(other Zone) bool { return samePlace(other.Kind, z.Kind) }) {
			return nil, errTwoZones
		}
		r.Zones = append(r.Zones, Zone{Kind: z.Kind, Energy: z.Energy})
	}
	return r, nil
}
