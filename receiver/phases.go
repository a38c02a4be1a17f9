// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/claims"
	"github.com/energyreceiver/energyreceiver/internal/phase"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit"
)

// PhasesConfig says where marks are taken that begin and end phases.
type PhasesConfig struct {
	// Socket is the path of a Unix socket. Empty means none.
	Socket string `mapstructure:"socket"`
	// File is a file to which lines are appended. Empty means none.
	File string `mapstructure:"file"`
	// Max is how many phases with different names there may be, beside the time outside of all phases.
	Max int `mapstructure:"max"`

	_ struct{}
}

const (
	defaultMaxPhases = 100
	// mostPhases bounds the setting max: each phase has a series for each zone kind and state.
	mostPhases = 10_000
	// markShare bounds what marks cost: the time between two windows that end at marks is so many times what a window takes to
	// measure, and at least minWindow.
	markShare = 20
	// betweenMarks is how far apart marks are taken, so that who sends any number costs little.
	betweenMarks = time.Millisecond
)

// Validate checks the settings. Each error names its field.
func (c *PhasesConfig) Validate() error {
	var errs []error
	if c.Socket == "" && c.File == "" {
		errs = append(errs, errors.New("socket: must be set where file is not"))
	}
	for _, setting := range []struct{ field, path string }{{"socket", c.Socket}, {"file", c.File}} {
		if setting.path != "" && !filepath.IsAbs(setting.path) {
			errs = append(errs, fmt.Errorf("%s: must be an absolute path, is %q", setting.field, setting.path))
		}
	}
	if len(c.Socket) > phase.MaxPath {
		errs = append(errs, fmt.Errorf("socket: must have at most %d bytes, has %d", phase.MaxPath, len(c.Socket)))
	}
	if c.Socket != "" && filepath.Clean(c.Socket) == filepath.Clean(c.File) {
		errs = append(errs, errors.New("file: must not be the socket"))
	}
	if c.Max < 1 || c.Max > mostPhases {
		errs = append(errs, fmt.Errorf("max: must be between 1 and %d, is %d", mostPhases, c.Max))
	}
	return errors.Join(errs...)
}

// phases divides the node's energy among the phases of PhasesConfig. What all phases have of a zone kind and state is what the ledger
// has. The zero phases is not configured and does nothing.
type phases struct {
	config *PhasesConfig // nil where none are configured
	server *phase.Server // nil where no socket is configured
	file   *phase.File   // nil where no file is configured
	full   bool          // a name was refused, and the log says so

	list    []emit.Phase
	current string
	read    time.Time     // of the last reading or mark; zero before the baseline
	tried   time.Time     // when a window was measured last, or could not be
	took    time.Duration // to measure it
	node    cpu.Node      // the last that is known

	// cpus and gpus have the time of which it is not known yet how busy CPUs and GPUs were. Their busy time is divided by it.
	cpus, gpus phase.Share
	kinds      []phaseShares // by the ledger's kinds
}

// phaseShares divides the energy of one kind.
type phaseShares struct {
	gpu          bool
	active, idle phase.Share      // in proportion to busy time, to time
	divided      emit.PhaseEnergy // so far
}

// openPhases begins to take marks. What goes wrong is told by err.
func (s *energyScraper) openPhases() {
	p := &s.phases
	if p.config == nil {
		return
	}
	mark := func(_ context.Context, m phase.Mark) error { return s.mark(m) }
	if p.config.Socket != "" {
		p.server = phase.NewServer(phase.ServerOptions{Path: p.config.Socket, Mark: mark, Every: betweenMarks})
		_ = p.server.Start() // Err keeps it
	}
	if p.config.File != "" {
		p.file = phase.NewFile(phase.FileOptions{Path: p.config.File, Mark: mark, Every: betweenMarks})
		_ = p.file.Start()
	}
}

// err returns why marks cannot be taken, nil if they can.
func (p *phases) err() error {
	var server, file error
	if p.server != nil {
		server = p.server.Err()
	}
	if p.file != nil {
		file = p.file.Err()
	}
	if file == nil {
		return server
	}
	return joined(server, file)
}

// close ends the taking of marks. It must be called without the scraper's lock, which marks wait for.
func (p *phases) close() {
	if p.server != nil {
		_ = p.server.Close() // never fails
	}
	if p.file != nil {
		_ = p.file.Close()
	}
}

// mark ends a window and begins a phase. Right after another window it ends none: the energy until the next one is divided by how
// long each phase lasted.
func (s *energyScraper) mark(m phase.Mark) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.phases
	if m.Phase == p.current {
		return nil
	}
	if !p.admits(m.Phase) {
		if !p.full {
			p.full = true
			s.set.Logger.Warn("Phase refused: there are too many with different names",
				zap.String("phase", m.Phase), zap.Int("phases::max", p.config.Max))
		}
		return fmt.Errorf("there are %d phases with other names already", p.config.Max)
	}
	measured := false
	if s.now().Sub(p.tried) >= max(minWindow, markShare*p.took) {
		measured = s.scan(context.Background(), false) != nil
	}
	now := s.now()
	if !measured {
		p.advance(now)
	}
	p.begin(m.Phase, s.timeline.at(now))
	return nil
}

// find returns the phase with a name, nil if there is none.
func (p *phases) find(name string) *emit.Phase {
	i := slices.IndexFunc(p.list, func(known emit.Phase) bool { return known.Name == name })
	if i < 0 {
		return nil
	}
	return &p.list[i]
}

// admits reports whether there is room for a phase.
func (p *phases) admits(name string) bool {
	named := len(p.list)
	if p.find(phase.None) != nil {
		named--
	}
	return name == phase.None || p.find(name) != nil || named < p.config.Max
}

// begin makes a phase the current one.
func (p *phases) begin(name string, at time.Time) {
	if p.find(name) == nil {
		p.list = append(p.list, emit.Phase{Name: name, Start: at})
	}
	p.current = name
}

// start begins with the baseline.
func (p *phases) start(l *ledger, m *claims.Measurement) {
	if p.config == nil {
		return
	}
	p.kinds = make([]phaseShares, len(l.kinds))
	for i := range p.kinds {
		p.kinds[i].gpu = l.kinds[i].Zone == power.GPU
	}
	p.read, p.node = m.ReadAt, m.Node
	if p.current == "" {
		p.begin(phase.None, m.Stamp)
	}
}

// resume begins at the last collection of an earlier process, in which phases had what list says. The time since is outside of all
// phases.
func (p *phases) resume(l *ledger, list []emit.Phase, last *claims.Measurement) {
	if p.config == nil {
		return
	}
	p.list = list
	p.start(l, last)
	kinds := &l.Engine.Ledger().Kinds
	for i := range p.kinds {
		p.kinds[i].divided = emit.PhaseEnergy{Active: kinds[i].Active, Idle: kinds[i].Idle}
	}
}

// readNode advances the current phase to a reading of the meters, and notes how busy the node's CPUs were if that is known.
func (p *phases) readNode(at time.Time, node cpu.Node, known bool) {
	p.tried = at
	p.advance(at)
	if !known || p.read.IsZero() {
		return
	}
	p.use(false, units.Advance(p.node.Busy, node.Busy), units.Advance(p.node.Total, node.Total))
	p.node = node
}

// advance adds the time until now to the current phase. It does nothing before the baseline, and where no phases are configured.
func (p *phases) advance(now time.Time) {
	elapsed := now.Sub(p.read)
	if p.read.IsZero() || elapsed <= 0 {
		return
	}
	p.read = now
	if current := p.find(p.current); current != nil {
		current.Time += elapsed
	}
	p.cpus.Use(p.current, uint64(elapsed))
	p.gpus.Use(p.current, uint64(elapsed))
	for i := range p.kinds {
		p.kinds[i].idle.Use(p.current, uint64(elapsed))
	}
}

// use divides the busy time of the CPUs, or of the GPUs, among the phases since it was last known. It is not known where total is 0.
func (p *phases) use(gpu bool, busy, total units.CPUTime) {
	times := &p.cpus
	if gpu {
		times = &p.gpus
	}
	if total == 0 {
		return
	}
	times.Divide(uint64(busy), func(name string, busy uint64) {
		for i := range p.kinds {
			if p.kinds[i].gpu == gpu {
				p.kinds[i].active.Use(name, busy)
			}
		}
	})
	times.Forget()
}

// observe divides what the ledger grew by since the last window.
func (p *phases) observe(l *ledger) {
	if p.config == nil {
		return
	}
	busy, total := l.timeOfGPUs()
	p.use(true, busy, total)
	kinds := &l.Engine.Ledger().Kinds
	for i := range p.kinds {
		p.kinds[i].divide(&kinds[i], l.hasTold(i), p.current, func(name string) *emit.PhaseEnergy { return p.energy(name, i) })
	}
}

// divide divides what a kind grew by. told reports whether nothing of it is still to come. of returns what a phase has of the kind.
func (k *phaseShares) divide(kind *attribution.Kind, told bool, current string, of func(name string) *emit.PhaseEnergy) {
	active, idle := kind.Active-k.divided.Active, kind.Idle-k.divided.Idle
	k.divided = emit.PhaseEnergy{Active: kind.Active, Idle: kind.Idle}
	k.active.Use(current, 0)
	k.active.Divide(uint64(active), func(name string, part uint64) { of(name).Active += units.Energy(part) })
	k.idle.Divide(uint64(idle), func(name string, part uint64) { of(name).Idle += units.Energy(part) })
	if told || active+idle > 0 {
		k.active.Forget()
		k.idle.Forget()
	}
}

// energy returns what a phase has of a kind.
func (p *phases) energy(name string, kind int) *emit.PhaseEnergy {
	of := p.find(name)
	if len(of.Energy) == 0 {
		of.Energy = make([]emit.PhaseEnergy, len(p.kinds))
	}
	return &of.Energy[kind]
}

// timeOfGPUs returns how long the GPUs were busy in the last window, together, and busy or idle. total is 0 where neither is known.
func (l *ledger) timeOfGPUs() (busy, total units.CPUTime) {
	domains := l.Interval().Domains
	for i, domain := range l.Domains() {
		if domain.IsGPU() && i < len(domains) {
			busy = units.AddSaturating(busy, domains[i].Busy)
			total = units.AddSaturating(total, domains[i].Total)
		}
	}
	return busy, total
}

// hasTold reports whether the ledger has all energy of a kind: each zone that goes on was read in the last window, and nothing is
// pending.
func (l *ledger) hasTold(kind int) bool {
	ledger, known := l.Engine.Ledger(), l.Zones()
	for i := range ledger.Zones {
		if z := &ledger.Zones[i]; z.Present && !z.Ended && z.Unread > 0 && (claims.Kind{Zone: known[i].Kind, Source: known[i].Source}) == l.kinds[kind] {
			return false
		}
	}
	return ledger.Pending(kind) == 0
}
