// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
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

// ReadBase reads the runs of a JSON document that WriteJSON wrote. If it has two commands, ReadBase
// returns the runs of the first one.
func ReadBase(from io.Reader) (*Command, error) {
	var document struct {
		baseRun
		Commands []struct{ Runs []baseRun }
	}
	text, err := io.ReadAll(from)
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("not a result of energy measure --json: %w", err)
	case document.Schema != SchemaVersion:
		return nil, fmt.Errorf("not a result of energy measure --json with schema %d", SchemaVersion)
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

func (d *baseRun) result() (*measure.Result, error) {
	run := &measure.Result{Command: d.Command, Wall: inTime(d.Seconds), CPU: inTime(d.CPUSeconds)}
	for _, z := range d.Zones {
		if z.Joules < 0 || z.Active < 0 || z.Idle < 0 {
			return nil, errors.New("an energy of the result is negative")
		}
		run.Zones = append(run.Zones, measure.Zone{
			Name: z.Zone, Source: z.Source, Besides: z.OverlapsWith, Uncertainty: z.Uncertainty,
			Used: inEnergy(z.Joules), Active: inEnergy(z.Active), Idle: inEnergy(z.Idle),
		})
	}
	for _, p := range d.Phases {
		if len(p.Joules) != len(d.Zones) {
			return nil, errors.New("a phase of the result has no energy by zone")
		}
		used := make([]units.Energy, len(p.Joules))
		for i, joules := range p.Joules {
			used[i] = inEnergy(max(joules, 0))
		}
		run.Phases = append(run.Phases, measure.Phase{Name: p.Phase, Wall: inTime(p.Seconds), CPU: inTime(p.CPUSeconds), Used: used})
	}
	if len(run.Command) == 0 || d.Seconds < 0 || d.CPUSeconds < 0 {
		return nil, errors.New("the result has no command, or a negative time")
	}
	return run, nil
}

func inTime(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds * float64(time.Second)))
}
