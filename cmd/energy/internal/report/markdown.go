// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
)

// WriteMarkdown writes the report as a table and sentences for a comment in a pull request (GitHub
// Flavored Markdown).
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	line := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	columns := append([]string{"", "energy", "power", "time", "CPU time"}, r.Rates.Columns()...)
	line(columns...)
	line(append([]string{"---"}, slices.Repeat([]string{"---:"}, len(columns)-1)...)...)
	for i := range r.Commands {
		for _, row := range append([]*Row{r.whole(i)}, r.rows(i, isPhase)...) {
			cells := []string{r.label(i) + Code(figure.Command(r.Commands[i].Runs[0].Command))}
			if row.Phase != "" {
				cells[0] = r.label(i) + "phase " + Code(phaseName(row.Phase))
			}
			for _, q := range compared {
				cells = append(cells, row.withMargin(q))
			}
			if modeled := r.modeled(i); modeled != "" && row.Phase == "" {
				cells[1] += " (" + modeled + ")"
			}
			if row.isKnown(Joules) {
				cells = append(cells, r.Rates.Of(row.energy(Joules).Joules())...)
			}
			line(cells...)
		}
	}
	if len(r.Commands) > 1 {
		cells := []string{fmt.Sprintf("**%s/%s**", r.Commands[0].Label, r.Commands[1].Label)}
		for _, q := range compared {
			mean, interval := ratioTexts(r.whole(0).Ratios[q])
			cells = append(cells, strings.TrimSpace("**"+mean+"** "+interval))
		}
		line(cells...)
	}
	for _, text := range append(r.verdicts(), r.Warnings...) {
		fmt.Fprintf(&b, "\n%s.\n", Escape(text))
	}
	if rates := r.Rates.Explain(); len(rates) > 0 {
		fmt.Fprintf(&b, "\nRates: %s.\n", Escape(strings.Join(rates, ", ")))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// escaper makes a text plain in Markdown: it has no markup, HTML, links or mentions.
var escaper = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "<", "&lt;", "|", `\|`, "@", "@<!-- -->", "#", `\#`)

// Escape returns a text for Markdown, on one line and without markup.
func Escape(text string) string { return escaper.Replace(figure.Line(text)) }

// Code returns a text as code in a cell of a table.
func Code(text string) string {
	text = strings.ReplaceAll(figure.Line(text), "|", `\|`)
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		text = " " + text + " "
	}
	return fence + text + fence
}
