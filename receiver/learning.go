// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/filter"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// learning keeps what static power models have learned over restarts, if a store is configured. Whatever is wrong with the
// store costs what was learned, never the measuring.
type learning struct {
	cfg    *Config
	logger *zap.Logger
	// readOnly keeps what is stored as it is.
	readOnly bool
	in       *keeper // nil where nothing is stored
	trouble  error   // what is wrong with the store, nil if nothing
	kept     keptLearning
	saved    time.Time
	gpus     map[units.Domain][]string // the hardware of GPUs whose models are restored
}

// keptLearning is what is stored, as JSON.
type keptLearning struct {
	// Hardware is what it was learned on.
	Hardware []string
	// Zones is what is known of the zones of a kind in a domain, by storedName.
	Zones map[string]keptZone
	// GPUs is what is known of GPUs, which are not part of Hardware.
	GPUs map[string]keptZone `json:",omitempty"`
}

// keptZone is what is known of the zones of a kind in a domain.
type keptZone struct {
	// Rule is the static power model with its settings.
	Rule string
	// Hardware is what it was learned on, of a GPU.
	Hardware []string `json:",omitempty"`
	static.State
}

// storedName names the zones of a kind in a domain. Measured zones of the node's CPUs have the name of their zone kind.
func storedName(domain units.Domain, kind claims.Kind) string {
	name := string(kind.Zone)
	if domain != units.NodeCPUs {
		name = string(domain) + " " + name
	}
	if kind.Source != power.Measured {
		name += " " + string(kind.Source)
	}
	return name
}

const (
	learnedKey = "learned"
	// saveEvery is the time between two saves. What was learned is saved at shutdown, too.
	saveEvery = 5 * time.Minute
)

// open reads what was stored in the state file, or else in the storage extension.
func (l *learning) open(ctx context.Context, extension *keeper) {
	if !l.cfg.Attribution.learns(l.cfg.Zones) {
		return
	}
	l.in = extension
	if file := l.cfg.Attribution.StateFile; file != "" {
		l.in = &keeper{setting: "attribution::state_file", connect: func(context.Context) (store, error) { return stateFile(file), nil }}
	}
	if l.in == nil {
		return
	}
	stored, err := l.in.get(ctx, learnedKey)
	if err == nil && stored != nil {
		err = l.kept.decode(stored)
	}
	if err != nil {
		l.trouble = fmt.Errorf("%s: what was learned of the static power cannot be read and is learned again: %w", l.in.setting, err)
	}
}

var errChecksum = errors.New("its checksum is wrong")

// encode returns the JSON, preceded by a line with its checksum: a bit that flips in a number is no error of JSON.
func (k *keptLearning) encode() ([]byte, error) {
	b, err := json.Marshal(k)
	return seal(b), err
}

func seal(b []byte) []byte { return fmt.Appendf(nil, "%08x\n%s", crc32.ChecksumIEEE(b), b) }

// decode takes over what encode returned. After an error nothing is kept.
func (k *keptLearning) decode(stored []byte) error {
	_, b, _ := bytes.Cut(stored, []byte{'\n'})
	if !bytes.Equal(stored, seal(b)) {
		return errChecksum
	}
	var decoded keptLearning
	if err := json.Unmarshal(b, &decoded); err != nil {
		return err
	}
	*k = decoded
	return nil
}

// restore gives static power models what is stored, if it was learned on this machine, and lets those of prompt zones take
// short samples. It does nothing before any zone is known. GPUs are left to restoreGPUs. kinds and domains are those of the ledger, by their
// index.
func (l *learning) restore(rules *attribution.Rules, kinds []claims.Kind, domains []units.Domain, readings []power.Reading) {
	if !l.cfg.Attribution.learns(l.cfg.Zones) {
		return
	}
	hardware := hardwareOf(l.cfg.RootPath, readings)
	if hardware == nil {
		return
	}
	if !sameHardware(l.kept.Hardware, hardware) {
		if l.kept.Hardware != nil {
			l.logger.Info("Static power learned again: the hardware, its firmware or the kernel has changed",
				zap.Strings("before", l.kept.Hardware), zap.Strings("now", hardware))
		}
		l.kept.Zones = nil
	}
	l.kept.Hardware = hardware
	for i, kind := range kinds {
		model, ok := rules.Models[i].(*static.Model)
		if !ok || kind.Zone == power.GPU {
			continue
		}
		if l.cfg.Attribution.splitOf(kind.Zone) == SplitLearned && arePrompt(readings, kind) {
			model.TakeShortSamples()
		}
		for domain, name := range domains {
			if zone, ok := l.kept.Zones[storedName(name, kind)]; ok && zone.Rule == l.rule(kind.Zone) {
				model.Restore(domain, zone.State)
			}
		}
	}
}

// arePrompt reports whether there are zones of the kind and all of them are prompt.
func arePrompt(readings []power.Reading, kind claims.Kind) (prompt bool) {
	for _, r := range readings {
		if r.Zone.Kind == kind.Zone && r.Zone.Source == kind.Source {
			if !r.Zone.Prompt {
				return false
			}
			prompt = true
		}
	}
	return prompt
}

// keep takes over what static power models have learned.
func (l *learning) keep(rules *attribution.Rules, kinds []claims.Kind, domains []units.Domain) {
	l.keepGPUs(rules, kinds, domains)
	if l.kept.Hardware == nil {
		return
	}
	zones := map[string]keptZone{}
	for i, kind := range kinds {
		model, ok := rules.Models[i].(*static.Model)
		if !ok || kind.Zone == power.GPU {
			continue
		}
		for domain, name := range domains {
			if state, ok := model.State(domain); ok {
				zones[storedName(name, kind)] = keptZone{Rule: l.rule(kind.Zone), State: state}
			}
		}
	}
	if len(zones) > 0 { // else no zone could be read
		l.kept.Zones = zones
	}
}

// rule names a split with the settings that its learning depends on. What is excluded is among them: it is a part of the
// static power.
func (l *learning) rule(kind power.Kind) string {
	c := &l.cfg.Attribution
	split := c.splitOf(kind)
	rule := string(split)
	switch split {
	case SplitMinimum, SplitResting:
		rule = fmt.Sprint(split, " ", c.RestUtilization)
	case SplitBase:
		rule = fmt.Sprint(split, " ", c.RestUtilization, " ", c.BaseTime)
	case SplitRegression:
		rule = fmt.Sprint(split, " ", c.RegressionDegree, " ", c.RegressionSamples)
	}
	for _, list := range []struct {
		name    string
		filters []filter.Config
	}{
		{"cgroup", c.Exclude.Cgroup},
		{"container_id", c.Exclude.ContainerID},
		{"pod_uid", c.Exclude.PodUID},
		{"namespace", c.Exclude.Namespace},
		{"executable_name", c.Exclude.ExecutableName},
	} {
		for _, f := range list.filters {
			rule += fmt.Sprintf(" exclude %s %q %q", list.name, f.Strict, f.Regex)
		}
	}
	return rule
}

// due reports whether it is time to store.
func (l *learning) due(now time.Time) bool {
	if !l.in.usable() {
		return false
	}
	if l.saved.IsZero() {
		l.saved = now
	}
	return now.Sub(l.saved) >= saveEvery
}

// save stores what is kept, and opens the store again if it could not be opened before.
func (l *learning) save(ctx context.Context, now time.Time) {
	if l.readOnly || !l.in.usable() || l.kept.Hardware == nil && l.kept.GPUs == nil {
		return
	}
	l.saved = now
	stored, err := l.kept.encode()
	if err == nil {
		err = l.in.set(ctx, learnedKey, stored)
	}
	if l.trouble = nil; err != nil {
		l.trouble = fmt.Errorf("%s: what was learned of the static power cannot be stored: %w", l.in.setting, err)
	}
}

// close stores what is kept for the last time. What is wrong then is only logged. It leaves the storage extension open.
func (l *learning) close(ctx context.Context, now time.Time) {
	before := l.trouble
	l.save(ctx, now)
	if l.trouble != nil && (before == nil || before.Error() != l.trouble.Error()) {
		l.logger.Warn("Learned static power not stored", zap.Error(l.trouble))
	}
}

// hardwareOf describes what static power depends on, of all but GPUs: where the figures come from, the zones, the processors,
// their microcode and the kernel. What cannot be read is left out. It returns nil while no zone is known.
func hardwareOf(root string, readings []power.Reading) (hardware []string) {
	for _, r := range readings {
		if r.Zone.Kind == power.GPU {
			continue
		}
		if hardware == nil {
			hardware = []string{"source " + string(r.Zone.Source)}
		}
		hardware = append(hardware, zonePrefix+r.Zone.ID+" "+r.Zone.Name)
	}
	if hardware == nil {
		return nil
	}
	slices.Sort(hardware[1:])
	return append(hardware, cpu.Hardware(root)...)
}

// zonePrefix is the start of the lines of zones.
const zonePrefix = "zone "

// sameHardware reports whether what was learned on the hardware before is of the hardware now. Zones may have been added,
// as by a driver that is loaded late: a model whose kind and domain have more zones than it was learned of starts over.
func sameHardware(before, now []string) bool {
	added := func(line string) bool { return strings.HasPrefix(line, zonePrefix) && !slices.Contains(before, line) }
	return slices.Equal(before, slices.DeleteFunc(slices.Clone(now), added))
}
