// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

// Report is the result of a run. It contains no names and no serial numbers.
type Report struct {
	Schema   int       `json:"schema"`
	Version  string    `json:"version"`
	Machine  Machine   `json:"machine"`
	Seconds  float64   `json:"seconds"`
	CPUTimes string    `json:"cpu_times"`
	Meters   []Meter   `json:"meters"`
	Zones    []*Zone   `json:"zones"`
	Verdicts []Verdict `json:"verdicts"`
}

const schema = 1

// NewReport checks an observation and returns the report of this version of the program.
func NewReport(o *Observation, version string) *Report {
	r := &Report{
		Schema: schema, Version: version, Machine: o.Machine, CPUTimes: "bpf", Meters: o.Meters, Zones: o.Zones,
		Verdicts: Check(o),
	}
	if o.NoBPF != "" {
		r.CPUTimes = "procfs"
	}
	if n := len(o.Steps); n > 0 {
		r.Seconds = math.Round(o.Steps[n-1].To)
	}
	return r
}

// MarshalJSON implements json.Marshaler. Figures have four digits. They are null if they could not be
// measured.
func (z *Zone) MarshalJSON() ([]byte, error) {
	row := map[string]any{
		"meter": z.Meter, "id": z.ID, "kind": z.Kind, "method": z.Method, "chosen": z.Chosen,
		"reads": z.Reads, "failed_reads": z.Failed, "socket": nil, "range_joules": nil,
		"idle_watts": rounded(z.Idle), "full_watts": rounded(z.Full), "update_seconds": rounded(z.Update),
		"unit_joules": rounded(z.Unit), "lag_seconds": rounded(z.Lag), "average_seconds": rounded(z.Average),
		"noise": rounded(z.Noise),
	}
	if z.Socket >= 0 {
		row["socket"] = z.Socket
	}
	if z.Range > 0 {
		row["range_joules"] = z.Range
	}
	return json.Marshal(row)
}

// rounded returns a figure with four digits, or nil for NaN.
func rounded(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return v
}

// Faults returns how many faults there are.
func (r *Report) Faults() int { return len(r.with(Fault)) }

// with returns the verdicts with a status.
func (r *Report) with(status Status) []Verdict {
	return slices.DeleteFunc(slices.Clone(r.Verdicts), func(v Verdict) bool { return v.Status != status })
}

// Write writes the report to verify.json, and for an issue to verify.md.
func (r *Report) Write(dir string) error {
	document, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	page := fmt.Sprintf("## energy verify %s\n\n```text\n%s```\n", r.Version, r.Text())
	for name, text := range map[string]string{"verify.json": string(document) + "\n", "verify.md": page} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)) //nolint:gosec // a report is no secret
	}
	return err
}

// Text returns the report for people: faults first, and their number at the end, too.
func (r *Report) Text() string {
	var b strings.Builder
	m, what := &r.Machine, "machine"
	if m.Virtual {
		what = "virtual machine"
	}
	figure.Wrap(&b, fmt.Sprintf("%s (%s; sockets %d, cores %d, threads %d; %.0f GiB; Linux %s), checked in %.0f s",
		m.CPU, what, m.Sockets, m.Cores, m.Threads, m.MemoryGiB, m.Kernel, r.Seconds))
	for _, status := range []Status{Fault, Note, OK, Unchecked} {
		r.writeVerdicts(&b, status)
	}
	r.writeMeters(&b)
	r.writeZones(&b)
	fmt.Fprintf(&b, "\nFaults: %d, notes: %d, ok: %d, not checked: %d\n",
		r.Faults(), len(r.with(Note)), len(r.with(OK)), len(r.with(Unchecked)))
	var clean strings.Builder
	_, _ = io.WriteString(figure.Writer(&clean), b.String()) // a strings.Builder has no errors
	return clean.String()
}

// writeVerdicts writes the verdicts with a status. Checks that share a text share a line.
func (r *Report) writeVerdicts(b *strings.Builder, status Status) {
	verdicts := r.with(status)
	if len(verdicts) > 0 {
		b.WriteString("\n")
	}
	for len(verdicts) > 0 {
		text := verdicts[0].Text
		var checks []string
		verdicts = slices.DeleteFunc(verdicts, func(v Verdict) bool {
			if v.Text == text {
				checks = append(checks, v.Check)
			}
			return v.Text == text
		})
		subject := strings.Join(checks, ", ")
		if text == noMeter {
			subject = fmt.Sprintf("meters (%d checks)", len(checks))
		}
		figure.Wrap(b, fmt.Sprintf("%s %s: %s", strings.ToUpper(string(status)), subject, text))
	}
}

// writeMeters writes which meters are used, and the reasons.
func (r *Report) writeMeters(b *strings.Builder) {
	b.WriteString("\nMeters\n")
	var absent []string
	for _, m := range r.Meters {
		use := "not used"
		if len(m.Chosen) > 0 {
			use = "used for " + names(m.Chosen)
		}
		if m.Absent {
			absent = append(absent, m.Name)
		} else {
			figure.Wrap(b, fmt.Sprintf("%s (%s): %s", m.Name, use, m.Why))
		}
	}
	if len(absent) > 0 {
		figure.Wrap(b, "Not found on this machine: "+strings.Join(absent, ", "))
	}
}

// writeZones writes the table of zones.
func (r *Report) writeZones(b *strings.Builder) {
	if len(r.Zones) == 0 {
		return
	}
	b.WriteString("\n")
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "METER\tZONE\tKIND\tREST\tFULL LOAD\tUPDATE\tUNIT\tLAG\tNOISE")
	for _, z := range r.Zones {
		cells := []string{
			z.Meter, z.ID, string(z.Kind), cell(z.Idle, 1, "W"), cell(z.Full, 1, "W"), cell(z.Update, 1, "s"),
			cell(z.Unit, 1e6, "µJ"), cell(z.Lag, 1, "s"), cell(z.Noise, 100, "%"),
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	_ = table.Flush() // a strings.Builder has no errors
}

func cell(v, scale float64, unit string) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return fmt.Sprintf("%.3g %s", v*scale, unit)
}
