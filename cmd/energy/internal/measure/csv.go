// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// csvHead names the columns of the CSV. Columns may be added at the end.
var csvHead = []string{
	"phase", "zone", "source", "added", "seconds", "cpu_seconds", "joules", "mean_watts", "node_joules", "static_power", "missing_seconds",
}

// WriteCSV writes the result as CSV (RFC 4180): a row for each zone of the run, whose phase is
// empty, and for each zone of each phase. Where nothing is known of energy there is one row without
// a zone.
func (r *Result) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	rows := [][]string{csvHead}
	if len(r.Zones) == 0 {
		rows = append(rows, []string{"", "", "", "", decimal(r.Wall.Seconds()), decimal(r.CPU.Seconds()), "", "", "", "", ""})
	}
	for i := range r.Zones {
		z := &r.Zones[i]
		rows = append(rows, append(z.row("", r.Wall, r.CPU, z.Used), decimal(z.Node().Joules()), string(z.Static), decimal(z.Missing.Seconds())))
	}
	for _, p := range r.Phases {
		for i := range p.Used {
			z := &r.Zones[i]
			rows = append(rows, append(z.row(p.Name, p.Wall, p.CPU, p.Used[i]), decimal(p.NodeUsed[i].Joules()), string(z.Static), ""))
		}
	}
	return out.WriteAll(rows)
}

// row returns the columns that the run and its phases have.
func (z *Zone) row(phase string, wall, cpu time.Duration, used units.Energy) []string {
	return []string{
		phase, z.Name, z.Source, strconv.FormatBool(z.Besides == ""), decimal(wall.Seconds()), decimal(cpu.Seconds()),
		decimal(used.Joules()), decimal(inWatts(used, wall)),
	}
}

// decimal returns a number with as many digits as it needs.
func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
