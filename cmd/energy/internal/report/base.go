// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/web"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// baseRun has the fields of a run in JSON that are compared.
type baseRun struct {
	Schema     int
	Command    []string
	Seconds    float64
	CPUSeconds float64 `json:"cpu_seconds"`
	Zones      []struct {
		Zone, Source string
		OverlapsWith string `json:"overlaps_with"`
		Joules       float64
		Uncertainty  float64 // 0 for null
		Active       float64 `json:"node_active_joules"`
		Idle         float64 `json:"node_idle_joules"`
	}
	Phases []struct {
		Phase      string
		Seconds    float64
		CPUSeconds float64 `json:"cpu_seconds"`
		Joules     joules
	}
}

// maxResult is the maximum size of a result in bytes. A day of samples at 1 s has about 50 MB.
const maxResult = 1 << 30

// ReadBase reads the runs of a document that WriteJSON or WriteHTML wrote. If it has two commands,
// ReadBase returns the runs of the first one.
func ReadBase(from io.Reader) (*Command, error) {
	var document struct {
		baseRun
		Commands []struct{ Runs []baseRun }
	}
	text, err := readResult(from, maxResult)
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("not a result of energy measure --json or --html: %w", err)
	case document.Schema != SchemaVersion:
		return nil, fmt.Errorf("not a result of energy measure with schema %d", SchemaVersion)
	}
	runs := []baseRun{document.baseRun}
	if len(document.Commands) > 0 {
		runs = document.Commands[0].Runs
	}
	c := &Command{Label: Base}
	for i := range runs {
		result, err := runs[i].result()
		if err != nil {
			return nil, err
		}
		c.Runs = append(c.Runs, result)
	}
	if len(c.Runs) == 0 {
		return nil, errors.New("the result has no run")
	}
	return c, nil
}

// readResult returns the JSON document of a file with at most limit bytes, which is JSON or HTML.
func readResult(from io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > limit:
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	case bytes.HasPrefix(text, []byte("<")):
		return web.ReadReport(text)
	}
	return text, nil
}

func (d *baseRun) result() (*measure.Result, error) {
	run := &measure.Result{Command: d.Command, Wall: inTime(d.Seconds), CPU: inTime(d.CPUSeconds)}
	switch {
	case len(run.Command) == 0:
		return nil, errors.New("not a result of energy measure: it has no command")
	case !possible(maxSeconds, d.Seconds, d.CPUSeconds):
		return nil, errors.New("a time of the result is negative or too large")
	}
	for _, z := range d.Zones {
		if !possible(maxJoules, z.Joules, z.Active, z.Idle) {
			return nil, errors.New("an energy of the result is impossible")
		}
		run.Zones = append(run.Zones, measure.Zone{
			Name: z.Zone, Source: z.Source, Besides: z.OverlapsWith, Uncertainty: z.Uncertainty,
			Used: inEnergy(z.Joules), Active: inEnergy(z.Active), Idle: inEnergy(z.Idle),
		})
	}
	for _, p := range d.Phases {
		if p.Phase == "" || len(p.Joules) != len(d.Zones) || !possible(maxJoules, p.Joules...) || !possible(maxSeconds, p.Seconds, p.CPUSeconds) {
			return nil, errors.New("a phase of the result has no name, no energy by zone, or impossible figures")
		}
		used := make([]units.Energy, len(p.Joules))
		for i, joules := range p.Joules {
			used[i] = inEnergy(joules)
		}
		run.Phases = append(run.Phases, measure.Phase{Name: p.Phase, Wall: inTime(p.Seconds), CPU: inTime(p.CPUSeconds), Used: used})
	}
	return run, nil
}

// The maximum figures of a result: what fits in a time.Duration and in an energy in microjoules.
const (
	maxSeconds = 9e9
	maxJoules  = 9e12
)

// possible reports whether figures are not negative and at most a maximum.
func possible(most float64, figures ...float64) bool {
	return !slices.ContainsFunc(figures, func(v float64) bool { return v < 0 || v > most })
}

func inTime(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds * float64(time.Second)))
}
