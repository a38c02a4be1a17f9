// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/calibration"
)

// render writes what was found, with a configuration to paste.
func (f *fitted) render(out io.Writer) {
	fmt.Fprintf(out, "Reference      %s: %v beside the collector", f.reference, time.Duration(f.seconds*float64(time.Second)).Round(time.Second))
	if f.missing > 0 {
		fmt.Fprintf(out, ", %d readings missing", f.missing)
	}
	fmt.Fprintf(out, "\nAlignment      %s, correlation %.3f\n", lagText(f.lag), f.corr)
	fmt.Fprintf(out, "Steady load    %d plateaus", len(f.levels))
	if f.left > 0 {
		fmt.Fprintf(out, ", and %d left out: gaps, or a power that was not steady", f.left)
	}
	med, p90 := calibration.MedianAndP90(f.errs)
	fmt.Fprintf(out, "\nError left     median %s, p90 %s, each plateau predicted from the others\n\n", percent(med), percent(p90))
	if f.over == "" {
		f.renderModel(out)
	} else {
		f.renderTable(out)
	}
	f.renderMeters(out)
}

// renderModel writes the curve as the receiver's configuration.
func (f *fitted) renderModel(out io.Writer) {
	fmt.Fprint(out, "receivers:\n  energy:\n")
	if f.zoneKind == "platform" { // is not among the zones without being named
		fmt.Fprint(out, "    zones: [platform]\n")
	}
	fmt.Fprintf(out, "    model:\n      zone: %s\n      points:\n", f.zoneKind)
	points, low, high := wholeCurve(f.curve)
	for _, p := range points {
		fmt.Fprintf(out, "        - {utilization: %s, power: %s}\n", strconv.FormatFloat(p.X, 'f', -1, 64), strconv.FormatFloat(p.Y, 'f', 1, 64))
	}
	if low > far {
		fmt.Fprintf(out, "\nNo plateau was below %.0f %% utilization: the first point continues the line.\n", 100*low)
	}
	if high < 1-far {
		fmt.Fprintf(out, "\nNo plateau was above %.0f %% utilization: the last point continues the line.\n", 100*high)
	}
}

// far is the distance of the outer plateaus from 0 and from 1 beyond which the distance is
// reported.
const far = 0.1

// wholeCurve returns the curve from 0 to 1, rounded, and how far the plateaus reached.
func wholeCurve(c calibration.Curve) (points calibration.Curve, low, high float64) {
	low, high = c[0].X, c[len(c)-1].X
	points = append(points, calibration.Knot{X: 0, Y: max(c.At(0), 0)})
	for _, k := range c[1 : len(c)-1] {
		points = append(points, calibration.Knot{X: math.Round(k.X*1e4) / 1e4, Y: k.Y})
	}
	return append(points, calibration.Knot{X: 1, Y: c.At(1)}), low, high
}

// renderTable writes the curve over metered watts.
func (f *fitted) renderTable(out io.Writer) {
	fmt.Fprintf(out, "%12s  %12s\n", "METERED", "REFERENCE")
	for _, k := range f.curve {
		fmt.Fprintf(out, "%10.1f W  %10.1f W\n", k.X, k.Y)
	}
}

func (f *fitted) renderMeters(out io.Writer) {
	if len(f.meters) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%-24s %8s %8s %9s   %-26s %s\n", "METER", "ERROR", "FACTOR", "OFFSET", "ERROR LEFT (MEDIAN, P90)", "LAG")
	for _, m := range f.meters {
		if m.err != nil {
			fmt.Fprintf(out, "%-24s %v\n", m.name, m.err)
			continue
		}
		med, p90 := calibration.MedianAndP90(m.errs)
		fmt.Fprintf(out, "%-24s %+7.1f%% %8.4f %+7.1f W   %-26s %+.1f s\n",
			m.name, 100*m.before, m.line.Factor, m.line.Offset, percent(med)+", "+percent(p90), m.lag)
	}
	fmt.Fprintf(out, "The reference is FACTOR x the meter + OFFSET.\n")
	f.renderCorrections(out)
}

func lagText(lag float64) string {
	switch {
	case lag >= 0.05:
		return fmt.Sprintf("the reference is %.1f s behind the load", lag)
	case lag <= -0.05:
		return fmt.Sprintf("the reference is %.1f s ahead of the load", -lag)
	}
	return "the reference is at the load's time"
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }
