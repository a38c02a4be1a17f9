package receiver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/filter"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// learning keeps what splits have learned over new ledgers, and over restarts where there is a storage extension.
type learning struct {
	cfg    *Config
	logger *zap.Logger
	client storage.Client // nil without an extension
	kept   keptLearning
	saved  time.Time
}

// keptLearning is what is stored, as JSON.
type keptLearning struct {
	// Hardware is what it was learned on.
	Hardware []string
	Zones    map[power.Kind]keptZone
}

// keptZone is what is known of a kind of zones.
type keptZone struct {
	// Rule is the split with its settings.
	Rule string
	attribution.LearnedKind
}

const (
	storageName = "attribution"
	storageKey  = "learned"
	// saveEvery is how often what was learned is stored, and at shutdown.
	saveEvery = 5 * time.Minute
)

// open reads what was stored.
func (l *learning) open(ctx context.Context, host component.Host, receiver component.ID) error {
	id := l.cfg.Attribution.Storage
	if id == nil {
		return nil
	}
	if !l.cfg.Attribution.learns(l.cfg.Zones) {
		l.logger.Warn("attribution::storage has nothing to keep: no split of these zones learns", zap.Stringer("storage", id))
		return nil
	}
	extension, ok := host.GetExtensions()[*id].(storage.Extension)
	if !ok {
		return fmt.Errorf("attribution::storage: %q is not a storage extension of this collector", id)
	}
	client, err := extension.GetClient(ctx, component.KindReceiver, receiver, storageName)
	if err != nil {
		return fmt.Errorf("attribution::storage: %w", err)
	}
	l.client = client
	stored, err := client.Get(ctx, storageKey)
	if err == nil && stored != nil {
		err = json.Unmarshal(stored, &l.kept)
	}
	if err != nil { // what cannot be read is learned anew
		l.kept = keptLearning{}
		l.logger.Warn("What was learned of the static power cannot be read", zap.Error(err))
	}
	return nil
}

// restore gives new splits what is known, if the machine is the one that it was learned on. Before any zone could be
// read that cannot be told.
func (l *learning) restore(rules *attribution.Rules, readings []power.Reading, source power.Source) {
	if len(readings) == 0 || !l.cfg.Attribution.learns(l.cfg.Zones) {
		return
	}
	hardware := hardwareOf(l.cfg.RootPath, source, readings)
	if !slices.Equal(hardware, l.kept.Hardware) {
		if l.kept.Hardware != nil {
			l.logger.Info("The static power is learned anew: this is other hardware, firmware or another kernel",
				zap.Strings("before", l.kept.Hardware), zap.Strings("now", hardware))
		}
		l.kept = keptLearning{Hardware: hardware}
	}
	for i, kind := range l.cfg.Zones {
		zone, ok := l.kept.Zones[kind]
		if split := rules.Learned[i]; ok && split != nil && zone.Rule == l.rule(kind) {
			split.Restore(i, zone.LearnedKind)
		}
	}
}

// keep takes over what splits have learned.
func (l *learning) keep(rules *attribution.Rules) {
	if l.kept.Hardware == nil {
		return
	}
	zones := map[power.Kind]keptZone{}
	for i, kind := range l.cfg.Zones {
		if split := rules.Learned[i]; split != nil {
			if state, ok := split.State(i); ok {
				zones[kind] = keptZone{l.rule(kind), state}
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

// due says whether it is time to store.
func (l *learning) due(now time.Time) bool {
	if l.client == nil {
		return false
	}
	if l.saved.IsZero() {
		l.saved = now
	}
	return now.Sub(l.saved) >= saveEvery
}

// save stores what is kept.
func (l *learning) save(ctx context.Context, now time.Time) error {
	if l.client == nil || l.kept.Hardware == nil {
		return nil
	}
	l.saved = now
	stored, err := json.Marshal(&l.kept)
	if err != nil {
		return err
	}
	if err := l.client.Set(ctx, storageKey, stored); err != nil {
		return fmt.Errorf("what was learned of the static power cannot be stored: %w", err)
	}
	return nil
}

func (l *learning) close(ctx context.Context) error {
	if l.client == nil {
		return nil
	}
	client := l.client
	l.client = nil
	return client.Close(ctx)
}

// identifying are the lines of /proc/cpuinfo that tell one processor and its firmware from another, of x86 and Arm.
var identifying = []string{
	"vendor_id", "cpu family", "model", "model name", "stepping", "microcode",
	"CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision",
}

// hardwareOf describes what static power depends on: where the figures come from, the zones, the processors, their
// microcode and the kernel. What cannot be read is left out.
func hardwareOf(root string, source power.Source, readings []power.Reading) []string {
	hardware := []string{"source " + string(source)}
	for _, r := range readings {
		hardware = append(hardware, "zone "+r.Zone.ID+" "+r.Zone.Name)
	}
	slices.Sort(hardware[1:])
	if info, err := os.ReadFile(filepath.Join(root, "proc/cpuinfo")); err == nil {
		hardware = append(hardware, processorsOf(info)...)
	}
	if version, err := os.ReadFile(filepath.Join(root, "proc/version")); err == nil {
		hardware = append(hardware, strings.TrimSpace(string(version)))
	}
	return hardware
}

// processorsOf says what /proc/cpuinfo tells of the first processor, and how many there are.
func processorsOf(info []byte) []string {
	var out []string
	processors := 0
	lines := bufio.NewScanner(bytes.NewReader(info))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if key == "processor" {
			processors++
		}
		if processors == 1 && slices.Contains(identifying, key) {
			out = append(out, key+" "+value)
		}
	}
	return append(out, fmt.Sprint("processors ", processors))
}
