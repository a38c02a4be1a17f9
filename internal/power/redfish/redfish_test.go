// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/redfish"
	rt "github.com/energyreceiver/energyreceiver/internal/power/redfish/redfishtest"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// bench reads a service as the receiver does.
type bench struct {
	*testing.T
	server  *rt.Server
	options redfish.Options
	every   time.Duration
	meter   *power.Poller
}

// withService runs a test in a bubble with a service of these resources.
func withService(t *testing.T, tree rt.Tree, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, server: rt.New(tree), every: 10 * time.Second}
		b.options = redfish.Options{
			Client:   &http.Client{Transport: b.server, Timeout: time.Minute},
			Endpoint: "http://bmc.example", Username: rt.Username, Password: func() (string, error) { return rt.Password, nil },
		}
		test(b)
		if b.meter != nil {
			require.NoError(t, b.meter.Close())
			open, _, _ := b.server.Sessions()
			assert.Zero(t, open, "no session is left open")
		}
	})
}

// read reads the meter after the given time. The first call opens it.
func (b *bench) read(after time.Duration) ([]power.Reading, error) {
	b.Helper()
	if b.meter == nil {
		sensor, err := redfish.New(b.options)
		require.NoError(b, err)
		b.meter = power.Poll(sensor, power.PollOptions{
			Name: "redfish", Every: b.every, Timeout: 20 * time.Minute, LongestGap: 5 * time.Minute,
		})
		_, _ = b.meter.Read(b.Context(), power.Sample{}) // begins to poll
	}
	time.Sleep(after)
	synctest.Wait()
	readings, err := b.meter.Read(b.Context(), power.Sample{})
	for _, e := range append(errorsOf(readings), err) {
		if e != nil {
			assert.NotContains(b, e.Error(), rt.Password)
			assert.NotContains(b, e.Error(), rt.Username)
		}
	}
	return readings, err
}

func errorsOf(readings []power.Reading) (errs []error) {
	for _, r := range readings {
		errs = append(errs, r.Err)
	}
	return errs
}

// one reads the only zone, without an error.
func (b *bench) one(after time.Duration) power.Reading {
	b.Helper()
	readings, err := b.read(after)
	require.NoError(b, err)
	require.Len(b, readings, 1)
	require.NoError(b, readings[0].Err)
	return readings[0]
}

// warned reads the only zone, and returns the warning that it is read with.
func (b *bench) warned(after time.Duration) string {
	b.Helper()
	readings, err := b.read(after)
	require.Len(b, readings, 1)
	require.NoError(b, readings[0].Err)
	require.Error(b, err)
	return err.Error()
}

// failure reads the meter until now and two polls later, and returns the error, which must be the
// same.
func (b *bench) failure() string {
	b.Helper()
	var texts []string
	for _, after := range []time.Duration{5 * time.Minute, 10 * time.Minute} {
		readings, err := b.read(after)
		if len(readings) > 0 {
			err = readings[0].Err
		}
		require.Error(b, err)
		texts = append(texts, err.Error())
	}
	assert.Equal(b, texts[0], texts[1], "a state has one text")
	return texts[0]
}

// load is a machine whose power swings around 300 W in five minutes.
type load struct{ began time.Time }

func newLoad() *load { return &load{time.Now()} }

func (l *load) seconds() float64 { return time.Since(l.began).Seconds() }

const swing = 2 * math.Pi / 300

func (l *load) watts() any { return math.Round(300 + 100*math.Sin(swing*l.seconds())) }

func (l *load) joules() float64 {
	return 300*l.seconds() + 100/swing*(1-math.Cos(swing*l.seconds()))
}

// kWh returns what was used so far, with so many decimals.
func (l *load) kWh(decimals int) func() any {
	return func() any {
		one := math.Pow10(decimals)
		return math.Floor((1234.567891+l.joules()/3.6e6)*one) / one
	}
}

func TestPowerIsMultipliedByTheTimeBetweenPolls(t *testing.T) {
	var joules []string
	for _, tree := range []func(rt.Live) rt.Tree{rt.Dell, rt.HPE, rt.Lenovo} {
		withService(t, tree(rt.Live{Watts: 314}), func(b *bench) {
			b.every = time.Minute
			first := b.one(time.Minute)
			total := b.one(10*time.Minute).Total - first.Total
			assert.Equal(b, 314*600*units.Joule, total)
			joules = append(joules, fmt.Sprint(total.Joules()))
		})
	}
	t.Attr("redfish", strings.Join(joules, ", ")+" J")
}

func TestEnergyIsWithinHalfAPercentOfTheTruthAndACounterIsPreferred(t *testing.T) {
	for name, c := range map[string]struct {
		tree     func(rt.Live) rt.Tree
		zone, id string
	}{
		"Dell":                       {rt.Dell, "Chassis/System.Embedded.1/EnvironmentMetrics PowerWatts", rt.DellUUID},
		"HPE":                        {rt.HPE, "Chassis/1/PowerSubsystem/PowerSupplies InputPowerWatts", rt.HPEUUID},
		"Lenovo":                     {rt.Lenovo, "Chassis/1/Power PowerConsumedWatts", rt.LenovoUUID},
		"Dell's counter":             {rt.Dell, "Chassis/System.Embedded.1/EnvironmentMetrics EnergykWh", rt.DellUUID},
		"counters of HPE's supplies": {rt.HPE, "Chassis/1/PowerSubsystem/PowerSupplies EnergykWh", rt.HPEUUID},
	} {
		t.Run(name, func(t *testing.T) {
			var l *load
			live := rt.Live{Watts: func() any { return l.watts() }}
			if strings.HasSuffix(c.zone, "EnergykWh") {
				live = rt.Live{Watts: 7000, KWh: func() any { return l.kWh(4)() }}
			}
			withService(t, c.tree(live), func(b *bench) {
				l = newLoad()
				first := b.one(time.Minute)
				assert.Equal(b, power.Zone{
					ID: "redfish:" + c.id, Name: c.zone, Kind: power.Platform, Method: power.Measured, Domain: units.NodeCPUs,
					MaxWatts: first.Zone.MaxWatts,
				}, *first.Zone)
				before := l.joules()
				total := b.one(10*time.Minute).Total - first.Total
				assert.InEpsilon(b, l.joules()-before, float64(total)/float64(units.Joule), 0.005)
			})
		})
	}
}

func TestACounterOfCoarseStepsLosesToPowerAndIsTakenWithoutIt(t *testing.T) {
	for text, want := range map[string]string{
		`0.000`: "PowerWatts", `1234.56`: "PowerWatts", `"1234.5"`: "PowerWatts", `1.2e3`: "PowerWatts", `1234.5000000000002`: "PowerWatts",
		`1234.567`: "EnergykWh", `"1234567e-3"`: "EnergykWh", `1234.5670000000002`: "EnergykWh",
	} {
		withService(t, rt.Dell(rt.Live{Watts: 300, KWh: json.RawMessage(text)}), func(b *bench) {
			assert.Equal(b, "Chassis/System.Embedded.1/EnvironmentMetrics "+want, b.one(time.Second).Zone.Name, "%v", text)
		})
	}
	tree := rt.Dell(rt.Live{KWh: 1234})
	withService(t, tree, func(b *bench) {
		assert.Contains(b, b.one(time.Second).Zone.Name, " EnergykWh")
	})
	tree[rt.DellEnvironment]["EnergyJoules"] = rt.Object{"Reading": 4442400}
	withService(t, tree, func(b *bench) {
		assert.Contains(b, b.one(time.Second).Zone.Name, " EnergyJoules")
	})
}

func TestACounterThatHappensToEndInZerosIsTakenOnceItShowsItsSteps(t *testing.T) {
	withService(t, rt.Dell(rt.Live{Watts: 300, KWh: 1234.5}), func(b *bench) {
		first := b.one(time.Second)
		b.server.Set(rt.DellEnvironment, 1234.501, "EnergykWh", "Reading")
		second := b.one(10 * time.Second)
		assert.Equal(b, first.Zone.ID, second.Zone.ID)
		assert.Contains(b, second.Zone.Name, "EnergykWh")
		b.server.Set(rt.DellEnvironment, 1234.51, "EnergykWh", "Reading")
		third := b.one(2 * time.Minute)
		assert.Same(b, second.Zone, third.Zone, "it is not given up at the next zero")
		assert.Equal(b, 9*3600*units.Joule, third.Total-second.Total)
	})
}

func TestACounterThatStandsStillGivesWayToPower(t *testing.T) {
	withService(t, rt.Dell(rt.Live{Watts: 300, KWh: 1234.567}), func(b *bench) {
		assert.Contains(b, b.one(9*time.Minute).Zone.Name, "EnergykWh")
		r := b.one(2 * time.Minute)
		assert.Contains(b, r.Zone.Name, "PowerWatts")
		assert.Equal(b, 300*60*units.Joule, b.one(time.Minute).Total-r.Total)
	})
}

func TestTheOutputOfSuppliesIsReadOnlyWhereTheirInputIsNotTold(t *testing.T) {
	tree := rt.HPE(rt.Live{Watts: 400})
	for _, bay := range []string{"0", "1"} {
		delete(tree[rt.HPESupplies+"/"+bay+"/Metrics"], "InputPowerWatts")
	}
	withService(t, tree, func(b *bench) {
		first := b.one(time.Second)
		assert.Equal(b, "Chassis/1/PowerSubsystem/PowerSupplies OutputPowerWatts, without the supplies' losses", first.Zone.Name)
		assert.Equal(b, 368*60*units.Joule, b.one(time.Minute).Total-first.Total)
	})
}

func TestAnAverageIsReadWhereThereIsNoOtherFigure(t *testing.T) {
	tree := rt.Dell(rt.Live{Watts: 300})
	delete(tree, rt.DellEnvironment)
	withService(t, tree, func(b *bench) {
		b.server.Set(rt.DellPower, []any{rt.Object{"PowerMetrics": rt.Object{"AverageConsumedWatts": 250, "IntervalInMin": 1}}}, "PowerControl")
		first := b.one(time.Second)
		assert.Equal(b, "Chassis/System.Embedded.1/Power AverageConsumedWatts", first.Zone.Name)
		second := b.one(time.Minute)
		assert.Equal(b, 250*60*units.Joule, second.Total-first.Total)
		b.server.Set(rt.DellPower, []any{rt.Object{"PowerMetrics": rt.Object{"AverageConsumedWatts": 350, "IntervalInMin": 1}}}, "PowerControl")
		assert.Equal(b, 350*10*units.Joule, b.one(10*time.Second).Total-second.Total, "it stands for the time before it")
	})
}

func TestAnAverageOfALongTimeIsNotRead(t *testing.T) {
	tree := rt.HPE(rt.Live{Watts: 300})
	delete(tree["/redfish/v1/Chassis/1"], "PowerSubsystem")
	delete(tree[rt.HPEPower]["PowerControl"].([]any)[0].(rt.Object), "PowerConsumedWatts")
	withService(t, tree, func(b *bench) {
		assert.Contains(b, b.failure(), "Chassis/1/Power: there is no value")
	})
}

func TestTheNextResourceIsReadWhereOneIsOfNoUse(t *testing.T) {
	for name, spoil := range map[string]func(*rt.Server){
		"not there":    func(s *rt.Server) { s.Set(rt.DellEnvironment, nil) },
		"no property":  func(s *rt.Server) { s.Set(rt.DellEnvironment, nil, "PowerWatts") },
		"zero":         func(s *rt.Server) { s.Set(rt.DellEnvironment, 0, "PowerWatts", "Reading") },
		"not a number": func(s *rt.Server) { s.Set(rt.DellEnvironment, "N/A", "PowerWatts", "Reading") },
		"not licensed": func(s *rt.Server) { s.Fail(rt.Status(403), rt.Path(rt.DellEnvironment)) },
		"a bug":        func(s *rt.Server) { s.Fail(rt.Status(500), rt.Path(rt.DellEnvironment)) },
		"not JSON":     func(s *rt.Server) { s.Fail(rt.Text("<html>"), rt.Path(rt.DellEnvironment)) },
	} {
		t.Run(name, func(t *testing.T) {
			withService(t, rt.Dell(rt.Live{Watts: 300}), func(b *bench) {
				spoil(b.server)
				assert.Equal(b, "Chassis/System.Embedded.1/Power PowerConsumedWatts", b.one(time.Minute).Zone.Name)
			})
		})
	}
}

func TestAFigureThatIsMissingForAMomentIsWaitedFor(t *testing.T) {
	withService(t, rt.Dell(rt.Live{Watts: 300}), func(b *bench) {
		first := b.one(5 * time.Second)
		b.server.Set(rt.DellEnvironment, nil, "PowerWatts")
		readings, err := b.read(20 * time.Second)
		require.NoError(b, err)
		assert.EqualError(b, readings[0].Err, "Chassis/System.Embedded.1/EnvironmentMetrics PowerWatts: there is no value")
		b.server.Set(rt.DellEnvironment, 300, "PowerWatts", "Reading")
		second := b.one(10 * time.Second)
		assert.Same(b, first.Zone, second.Zone)
		assert.Equal(b, 300*30*units.Joule, second.Total-first.Total)
		b.server.Set(rt.DellEnvironment, nil, "PowerWatts")
		readings, err = b.read(20 * time.Second)
		require.NoError(b, err)
		assert.Error(b, readings[0].Err, "only polls in a row count")
		assert.Same(b, first.Zone, readings[0].Zone)
		assert.Contains(b, b.one(time.Minute).Zone.Name, "Power PowerConsumedWatts", "another one is looked for in the end")
	})
}

func TestAnImpossibleFigureIsAnErrorAndNotCounted(t *testing.T) {
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"negative": {-5, "it reads 0 or less"},
		"absurd":   {int64(4294967295), "more than any machine uses"},
		"text":     {"NaN", "not a number"},
	} {
		t.Run(name, func(t *testing.T) {
			withService(t, rt.Dell(rt.Live{Watts: 300}), func(b *bench) {
				first := b.one(5 * time.Second)
				b.server.Set(rt.DellEnvironment, c.value, "PowerWatts", "Reading")
				readings, err := b.read(10 * time.Second)
				require.NoError(b, err)
				assert.ErrorContains(b, readings[0].Err, c.want)
				assert.Equal(b, first.Total, readings[0].Total)
			})
		})
	}
}

func TestAPowerWhoseTimeStandsStillIsNoNews(t *testing.T) {
	tree := rt.Dell(rt.Live{Watts: 300})
	tree[rt.DellEnvironment]["PowerWatts"] = rt.Object{"Reading": 300, "ReadingTime": "2026-03-01T10:00:00Z"}
	withService(t, tree, func(b *bench) {
		first := b.one(5 * time.Second)
		assert.Equal(b, first.At, b.one(4*time.Minute).At)
		b.server.Set(rt.DellEnvironment, "2026-03-01T10:04:00Z", "PowerWatts", "ReadingTime")
		assert.Equal(b, 250*300*units.Joule, b.one(10*time.Second).Total)
		readings, err := b.read(15 * time.Minute)
		require.NoError(b, err)
		assert.ErrorContains(b, readings[0].Err, "the timestamp of the reading is no longer updated")
	})
}

func TestASupplyThatIsPluggedInIsCountedWithinTheHour(t *testing.T) {
	withService(t, rt.HPE(rt.Live{Watts: 400}), func(b *bench) {
		b.one(time.Minute)
		b.server.Set(rt.HPESupplies+"/2", "Enabled", "Status", "State")
		b.server.Set(rt.HPESupplies+"/2", rt.Link(rt.HPESupplies+"/2/Metrics"), "Metrics")
		b.server.Set(rt.HPESupplies+"/2/Metrics", 100, "InputPowerWatts", "Reading")
		first := b.one(time.Hour)
		assert.Equal(b, 500*60*units.Joule, b.one(time.Minute).Total-first.Total)
	})
}

func TestBadAnswersAreOneClearState(t *testing.T) {
	for name, c := range map[string]struct {
		fault http.HandlerFunc
		want  string
	}{
		"is an error":   {rt.Status(503), "the server answered 503 Service Unavailable"},
		"is elsewhere":  {rt.Redirect("http://elsewhere.example/redfish/v1/"), `redirects to another one, which is not followed: if "http://elsewhere.example:80" is right`},
		"is another's":  {rt.Text(`{"hello": "world"}`), "there is no Redfish service at the endpoint, or it is switched off"},
		"is no service": {rt.Status(404), "there is no Redfish service at the endpoint, or it is switched off"},
	} {
		t.Run(name, func(t *testing.T) {
			withService(t, rt.Dell(rt.Live{Watts: 300}), func(b *bench) {
				b.server.Fail(c.fault, nil)
				text := b.failure()
				assert.Contains(b, text, c.want)
				assert.True(b, strings.HasPrefix(text, "redfish bmc.example: "), text)
				b.server.Fail(nil, nil)
				b.one(5 * time.Minute)
			})
		})
	}
}

func TestAFailureWhileReadingKeepsTheTotalAndLosesNothingOfACounter(t *testing.T) {
	var l *load
	withService(t, rt.Dell(rt.Live{Watts: 300, KWh: func() any { return l.kWh(6)() }}), func(b *bench) {
		l = newLoad()
		first := b.one(5 * time.Second)
		began := l.joules()
		b.server.Fail(rt.Status(502), nil)
		readings, err := b.read(10 * time.Minute)
		require.Error(b, err)
		assert.Equal(b, first.Total, readings[0].Total)
		b.server.Fail(nil, nil)
		last := b.one(5*time.Minute + 10*time.Second)
		assert.Same(b, first.Zone, last.Zone)
		assert.InEpsilon(b, l.joules()-began, float64(last.Total-first.Total)/float64(units.Joule), 0.02)
	})
}

func TestEndpointIsAnAddressAlone(t *testing.T) {
	for _, good := range []string{"https://bmc.example", "https://bmc.example/", "http://192.0.2.7:8000", "https://[2001:db8::1]"} {
		_, err := redfish.New(redfish.Options{Client: &http.Client{}, Endpoint: good})
		assert.NoError(t, err, good)
	}
	for _, bad := range []string{
		"", "bmc.example", "ftp://bmc.example", "https://", "https://root:hunter2@bmc.example", "https://bmc.example/redfish",
		"https://bmc.example?x=hunter2", "https://bmc.example#x", "https://bmc example", "https://%zz",
	} {
		_, err := redfish.New(redfish.Options{Client: &http.Client{}, Endpoint: bad})
		assert.Equal(t, redfish.ErrEndpoint, err, bad)
	}
}
