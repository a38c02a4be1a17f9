// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/calibration"
)

type calibrateOptions struct {
	recorder
	wall    string // file of the reference
	zone    string // or the zones that are the reference
	over    string // zones in place of the utilization
	plateau time.Duration
	settle  time.Duration
	maxLag  time.Duration
	local   *time.Location
}

// subcommand returns the command calibrate.
func (o *calibrateOptions) subcommand() *cobra.Command {
	o.local = time.Local
	c := &cobra.Command{
		Use: "calibrate [flags]", Short: "fit a power curve to a wall meter's record",
		Long: "Fits a power curve to a wall meter, or to a zone of the collector.",
		Example: `  energy calibrate --record FILE --for 30m           records what the collector reports
  energy calibrate --from FILE --wall wall.csv       fits what was recorded to a wall meter's record
  energy calibrate --for 30m --wall wall.csv         does both: wall.csv is read at the end
  energy calibrate --from FILE --zone intel-rapl:0   fits to a zone of the collector, or to several:
                                                     --zone A,B`,
		Args: noArguments(o.check),
		RunE: untilDone(func(ctx context.Context) error { return o.run(ctx, os.Stdout) }),
	}
	o.flags(c)
	flagGroup(c, "What is fitted", func(f *pflag.FlagSet) {
		f.StringVar(&o.wall, "wall", "", "CSV `file` of a wall meter: time and watts")
		f.StringVar(&o.zone, "zone", "", "hw.id of the `zones` to fit to in place of a wall meter, separated by commas")
		f.StringVar(&o.over, "over", "", "hw.id of the `zones` over whose power to fit in place of CPU utilization, separated by commas")
		f.DurationVar(&o.plateau, "plateau", time.Minute, "shortest stretch of steady load that counts, without what settles")
		f.DurationVar(&o.settle, "settle", 30*time.Second,
			"time left out at both ends of such a stretch; at least what the slowest meter averages over")
		f.DurationVar(&o.maxLag, "max-lag", 2*time.Minute, "largest lag between two meters to look for")
	})
	return c
}

func (o *calibrateOptions) check() error {
	switch {
	case o.wall != "" && o.zone != "":
		return errors.New("--wall and --zone exclude each other")
	case o.wall == "" && o.zone == "" && o.record == "":
		return errors.New("--wall or --zone is needed to fit, or --record to record")
	case o.plateau <= 0 || o.maxLag <= 0:
		return errors.New("--plateau and --max-lag must be above 0")
	case o.settle < 0:
		return errors.New("--settle must not be below 0")
	}
	return o.recorder.check(o.wall)
}

func (o *calibrateOptions) run(ctx context.Context, out io.Writer) error {
	if o.wall != "" { // before the time is spent
		if _, err := os.Stat(o.wall); err != nil {
			return err
		}
	}
	r, err := o.obtain(ctx)
	if err != nil {
		return err
	}
	if o.wall == "" && o.zone == "" {
		fmt.Fprintf(out, "Recorded %d zones and %d utilizations in %s\n", len(r.zones), len(r.utilization), o.record)
		return nil
	}
	result, err := o.fit(r)
	if err != nil {
		return err
	}
	result.render(out)
	return nil
}

// fitted is the result of a calibration.
type fitted struct {
	reference string
	zoneKind  string // of the model
	over      string // empty for the utilization
	seconds   float64
	missing   int
	lag, corr float64
	plateaus  int
	left      int
	levels    []calibration.Level
	curve     calibration.Curve
	errs      []float64
	meters    []comparedMeter
}

// comparedMeter is a meter of the collector beside the reference.
type comparedMeter struct {
	name   string
	before float64 // mean error of its own figures, as a share
	line   calibration.Line
	errs   []float64
	lag    float64
	err    error // why it cannot be compared
}

// leastUtilization and leastPower are how far the load must vary: in utilization, and as a share of the highest power.
const leastUtilization, leastPower = 0.3, 0.1

func (o *calibrateOptions) fit(r *record) (*fitted, error) {
	f := &fitted{reference: o.wall, zoneKind: "platform", over: o.over}
	load := calibration.Averages(r.utilization)
	reference, err := o.reference(r, f)
	if err != nil {
		return nil, err
	}
	if f.lag, f.corr, err = calibration.Align(&load, &reference, o.maxLag.Seconds()); err != nil {
		return nil, fmt.Errorf("%s: %w", f.reference, err)
	}
	from, to := load.Span()
	wallFrom, wallTo := reference.Span()
	from, to = max(from, wallFrom-f.lag), min(to, wallTo-f.lag)
	f.seconds = to - from
	plateaus := calibration.Plateaus(&load, from, to, calibration.PlateauOptions{
		Shortest: o.plateau.Seconds(), Settle: o.settle.Seconds(),
	})
	f.plateaus = len(plateaus)

	x, options := load, calibration.LevelOptions{YLag: f.lag, LeastRange: leastUtilization}
	if o.over != "" {
		if x, err = r.power(o.over); err != nil {
			return nil, err
		}
		if options.XLag, _, err = calibration.Align(&load, &x, o.maxLag.Seconds()); err != nil {
			return nil, fmt.Errorf("%s: %w", o.over, err)
		}
		options.LeastRange = leastPower * highest(plateaus, &x, options.XLag)
	}
	if f.levels, f.left, err = calibration.Levels(plateaus, &x, &reference, options); err != nil {
		return nil, err
	}
	f.curve, f.errs = calibration.Fit(f.levels)
	if f.zoneKind == "platform" {
		f.compare(r, &load, &reference, plateaus, o)
	}
	return f, nil
}

func highest(plateaus []calibration.Plateau, x *calibration.Series, lag float64) float64 {
	most := 0.0
	for _, p := range plateaus {
		if v := x.Mean(p.From+lag, p.To+lag); v > most {
			most = v
		}
	}
	return most
}

// reference returns what is fitted to.
func (o *calibrateOptions) reference(r *record, f *fitted) (calibration.Series, error) {
	if o.zone != "" {
		f.reference = o.zone
		if !slices.ContainsFunc(strings.Split(o.zone, ","), func(id string) bool { return r.zones[id] != nil && r.zones[id].kind == "host" }) {
			f.zoneKind = "package"
		}
		return r.power(o.zone)
	}
	file, err := os.Open(o.wall)
	if err != nil {
		return calibration.Series{}, err
	}
	defer func() { _ = file.Close() }()
	wall, err := calibration.ReadWall(file, o.local)
	if err != nil {
		return calibration.Series{}, fmt.Errorf("%s: %w", o.wall, err)
	}
	f.missing = wall.Missing
	return calibration.Samples(wall.Points), nil
}

// power returns the power of zones together.
func (r *record) power(ids string) (calibration.Series, error) {
	var all []calibration.Series
	for id := range strings.SplitSeq(ids, ",") {
		z := r.zones[id]
		if z == nil {
			return calibration.Series{}, fmt.Errorf("the collector has no zone %q; it has %s", id, strings.Join(r.ids(), ", "))
		}
		all = append(all, calibration.Counter(z.reads))
	}
	return calibration.Sum(all...), nil
}

// ids returns the IDs of all zones, those of the whole machine first.
func (r *record) ids() []string {
	var ids []string
	for id := range r.zones {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int {
		if wa, wb := r.zones[a].kind == "host", r.zones[b].kind == "host"; wa != wb {
			if wa {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return ids
}

// compare compares the collector's meters with the reference: each of the whole machine, and all
// CPUs and memories together.
func (f *fitted) compare(r *record, load, reference *calibration.Series, plateaus []calibration.Plateau, o *calibrateOptions) {
	var chips []string
	for _, id := range r.ids() {
		switch z := r.zones[id]; {
		case z.kind == "host" && id != o.zone:
			f.meters = append(f.meters, f.compareOne(r, id, id, load, reference, plateaus, o))
		case !z.part && (z.kind == "cpu" || z.kind == "memory"):
			chips = append(chips, id)
		}
	}
	if len(chips) > 0 {
		f.meters = append(f.meters, f.compareOne(r, "CPUs and memory", strings.Join(chips, ","), load, reference, plateaus, o))
	}
}

func (f *fitted) compareOne(r *record, name, ids string, load, reference *calibration.Series, plateaus []calibration.Plateau, o *calibrateOptions) comparedMeter {
	m := comparedMeter{name: name}
	var x calibration.Series
	if x, m.err = r.power(ids); m.err != nil {
		return m
	}
	if m.lag, _, m.err = calibration.Align(load, &x, o.maxLag.Seconds()); m.err != nil {
		return m
	}
	var levels []calibration.Level
	levels, _, m.err = calibration.Levels(plateaus, &x, reference, calibration.LevelOptions{
		XLag: m.lag, YLag: f.lag, LeastRange: leastPower * highest(plateaus, &x, m.lag),
	})
	if m.err != nil {
		return m
	}
	for _, l := range levels {
		m.before += (l.X/l.Y - 1) / float64(len(levels))
	}
	m.line, m.errs = calibration.FitLine(levels)
	return m
}
