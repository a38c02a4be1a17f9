// SPDX-License-Identifier: Apache-2.0

// Package nodeevents counts the events of a node that power models depend on.
package nodeevents

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// hardwareEvents are the features that hardware counters count.
var hardwareEvents = map[model.Feature]proc.Event{
	model.Cycles: proc.Cycles, model.Instructions: proc.Instructions, model.CacheMisses: proc.CacheMisses,
}

// softirqs are the columns of the line "softirq" of /proc/stat, where column 0 is the sum
// (include/linux/interrupt.h).
var softirqs = map[model.Feature]int{model.NetworkTransmit: 3, model.NetworkReceive: 4, model.Block: 5}

// Events implements model.Events for a node. The events of a feature are counted from the first
// call of Readable for the feature.
type Events struct {
	root     string
	open     func(root string, e proc.Event) (*weigh.NodeCounter, error) // weigh.OpenNodeCounter
	counters map[model.Feature]*weigh.NodeCounter
	refused  map[model.Feature]error
	last     map[model.Feature]uint64 // softirqs
	missed   bool                     // they could not be read
	since    time.Time
}

// New returns Events without features, for the node whose file system is at root.
func New(root string) *Events {
	return &Events{
		root: root, open: weigh.OpenNodeCounter, counters: map[model.Feature]*weigh.NodeCounter{},
		refused: map[model.Feature]error{}, last: map[model.Feature]uint64{}, since: time.Now(),
	}
}

// Readable adds a feature. It returns the reason why the feature cannot be read, or nil.
func (e *Events) Readable(f model.Feature) error {
	event, isHardware := hardwareEvents[f]
	switch err, known := e.refused[f]; {
	case f == model.CPUTime:
		return nil
	case known:
		return err
	case isHardware:
		counter, err := e.open(e.root, event)
		if err == nil {
			e.counters[f] = counter
		}
		e.refused[f] = err
	default:
		e.last[f] = 0
		e.refused[f] = e.readSoftirqs(func(model.Feature, uint64) {})
	}
	return e.refused[f]
}

// Keep stops reading the events that are not among the features.
func (e *Events) Keep(used []model.Feature) {
	maps.DeleteFunc(e.last, func(f model.Feature, _ uint64) bool { return !slices.Contains(used, f) })
	for f, counter := range e.counters {
		if !slices.Contains(used, f) {
			_ = counter.Close() // it was not even read from
			delete(e.counters, f)
		}
	}
}

// Rates implements model.Events.
func (e *Events) Rates(now time.Time) (rates model.Rates, err error) {
	if len(e.counters)+len(e.last) == 0 {
		return rates, nil
	}
	seconds := now.Sub(e.since).Seconds()
	if seconds <= 0 {
		return rates, model.ErrRestarted
	}
	var errs []error
	for f, counter := range e.counters {
		counted, err := counter.Read(now)
		if err != nil {
			errs = append(errs, err)
		}
		rates[f] = float64(counted) / seconds
	}
	if len(e.last) > 0 {
		err := e.readSoftirqs(func(f model.Feature, counted uint64) { rates[f] = float64(counted) / seconds })
		if err == nil && e.missed {
			errs = append(errs, model.ErrRestarted)
		}
		e.missed = err != nil
		errs = append(errs, err)
	}
	e.since = now
	if err = errors.Join(errs...); errors.Is(err, weigh.ErrRestarted) || errors.Is(err, model.ErrRestarted) {
		err = model.ErrRestarted
	}
	return rates, err
}

// readSoftirqs calls yield with the softirqs of the used kinds since the previous call.
func (e *Events) readSoftirqs(yield func(f model.Feature, counted uint64)) error {
	text, err := os.ReadFile(filepath.Join(e.root, "proc/stat"))
	if err != nil {
		return err
	}
	_, line, _ := bytes.Cut(text, []byte("\nsoftirq "))
	line, _, _ = bytes.Cut(line, []byte("\n"))
	columns := bytes.Fields(line)
	for f, last := range e.last {
		i := softirqs[f]
		if i >= len(columns) {
			return fmt.Errorf("/proc/stat does not count softirqs: %.40q", line)
		}
		total, err := strconv.ParseUint(string(columns[i]), 10, 64)
		if err != nil {
			return err
		}
		yield(f, total-min(last, total))
		e.last[f] = total
	}
	return nil
}

// Close implements model.Events.
func (e *Events) Close() error {
	e.Keep(nil)
	return nil
}
