// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/phase"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

var update = flag.Bool("update", false, "write the golden files")

// build is a run of a build with two phases: a package and a DRAM meter, a psys meter that includes both, and a GPU that nobody uses.
func build(seconds int) *measure.Result {
	r := &measure.Result{Command: []string{"make", "test"}, Zones: []measure.Zone{
		{Name: "psys", Source: "measured", Besides: "package"},
		{Name: "package", Source: "measured"}, {Name: "dram", Source: "modeled"}, {Name: "gpu", Source: "measured"},
	}}
	for i := range seconds {
		s := measure.Sample{Wall: time.Second, End: time.Duration(i+1) * time.Second, Phase: phase.None}
		load := 0.6 + 0.35*math.Sin(float64(i)/3)
		switch {
		case i >= seconds/10 && i < seconds/2:
			s.Phase = "install"
			load /= 3
		case i >= seconds/2 && i < seconds*9/10:
			s.Phase = "test"
		}
		w := func(watts float64) units.Energy { return units.Energy(watts * 1e6) }
		s.CPU = time.Duration(2 * load * float64(time.Second))
		s.Used = []units.Energy{w(34 * load), w(25 * load), w(5 * load), 0}
		s.NodeUsed = []units.Energy{w(34*load + 21), w(25*load + 12), w(5*load + 3), w(6)}
		r.Samples = append(r.Samples, s)
		r.Wall += s.Wall
		r.CPU += s.CPU
		for z := range r.Zones {
			r.Zones[z].Used += s.Used[z]
		}
	}
	return r
}

func svg(t *testing.T, panels ...Panel) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, SVG(&b, panels...))
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return b.String()
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// texts returns all that is written in an image.
func texts(t *testing.T, image string) (all []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(image))
	inText := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			inText = token.Name.Local == "text"
		case xml.CharData:
			if inText {
				all = append(all, string(token))
			}
		case xml.EndElement:
			inText = false
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := "testdata/" + name
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.True(t, string(want) == got, "%s differs: -update writes it", file)
}

func TestGoldenPlots(t *testing.T) {
	golden(t, "phases.svg", svg(t, Panel{Title: "make test", Result: build(60)}))
	b := build(40)
	for i := range b.Samples {
		b.Samples[i].Phase = ""
	}
	golden(t, "two.svg", svg(t, Panel{Title: "A: make test", Note: "run 3 of 5", Result: build(60)},
		Panel{Title: "B: make check", Note: "run 2 of 5", Result: b}))
}
