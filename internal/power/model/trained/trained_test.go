// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// xeon is a machine with meters, and guest a virtual machine on one like it.
var (
	xeon = machine.Machine{
		CPU: "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", Vendor: "GenuineIntel", Family: 6, Model: 85, Stepping: 7,
		Threads: 96, Cores: 48, Sockets: 2, Memory: 384 << 30,
	}
	guest = with(xeon, func(m *machine.Machine) { m.Threads, m.Memory, m.Virtual = 8, 64<<30, true })
	epyc  = machine.Machine{CPU: "AMD EPYC 7763 64-Core Processor", Vendor: "AuthenticAMD", Family: 25, Model: 1, Threads: 256, Sockets: 2}
	arm   = machine.Machine{CPU: "Arm Neoverse-N1", Vendor: "Arm", Model: 0xd0c, Chip: "AWS Graviton2", Threads: 64}
)

func with(m machine.Machine, change func(*machine.Machine)) machine.Machine {
	change(&m)
	return m
}

func curve(t testing.TB, points ...model.Point) model.Curve {
	t.Helper()
	c, err := model.NewCurve(points)
	require.NoError(t, err)
	return c
}

// trainedOn returns a model of a machine whose package has 60 W to 400 W.
func trainedOn(t testing.TB, m machine.Machine, relativeError float64) *Model {
	t.Helper()
	return &Model{
		Created: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Machine: m,
		Zones: map[power.Kind]Zone{
			power.Package: {Curve: curve(t, model.Point{Utilization: 0, Watts: 60}, model.Point{Utilization: 0.5, Watts: 300}, model.Point{Utilization: 1, Watts: 400}), Error: relativeError, Seconds: 3600, Utilization: []float64{0, 1}},
			power.DRAM:    {Curve: curve(t, model.Point{Utilization: 0, Watts: 40}, model.Point{Utilization: 1, Watts: 80}), Error: relativeError / 2, Seconds: 3600, Utilization: []float64{0.02, 0.9}},
		},
	}
}

// directory writes files and returns where they are.
func directory(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func encoded(t testing.TB, m *Model) string {
	t.Helper()
	data, err := m.Encode()
	require.NoError(t, err)
	return string(data)
}

// curvesOf returns the curves of the machine here from a model of another one.
func curvesOf(t testing.TB, m *Model, here machine.Machine, o Options) []model.ZoneCurve {
	t.Helper()
	curves, err := Curves(directory(t, map[string]string{"a.json": encoded(t, m)}), here, o)
	require.NoError(t, err)
	return curves
}

func TestAModelIsReadAsItWasWritten(t *testing.T) {
	m := trainedOn(t, xeon, 0.021)
	m.Zones[power.Platform] = Zone{Curve: curve(t, model.Point{Utilization: 0.123456789, Watts: 0.1 + 0.2}), Utilization: []float64{0.1, 0.1}}
	data, err := m.Encode()
	require.NoError(t, err)
	again, err := Parse(data)
	require.NoError(t, err)
	assert.Equal(t, m, again)
}

// fileOf010 returns a file that energy model of 0.1.0 wrote.
func fileOf010(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("testdata/model.json")
	require.NoError(t, err)
	return string(data)
}

func TestAFileOf010IsRead(t *testing.T) {
	m, err := Parse([]byte(fileOf010(t)))
	require.NoError(t, err)
	assert.Equal(t, trainedOn(t, xeon, 0.021), m)
}

func TestTheMachineOfAModelIsReadAsItWasWritten(t *testing.T) {
	data, err := EncodeMachine(&arm)
	require.NoError(t, err)
	again, err := ParseMachine(data)
	require.NoError(t, err)
	assert.Equal(t, arm, again)
	_, err = ParseMachine([]byte(`{"cpu": "x", "threads": 0}`))
	require.ErrorContains(t, err, "threads: 0")
}

func TestAMalformedModelIsRefused(t *testing.T) {
	good := fileOf010(t)
	_, zones, _ := strings.Cut(good, `"zones"`)
	for name, c := range map[string]struct{ before, after, want string }{
		"two objects":          {good, good + good, "after top-level value"},
		"another version":      {`"version": 1`, `"version": 2`, "version 2 of the format is not supported"},
		"no version":           {`"version": 1,`, ``, "neither a model of energy model"},
		"unknown field":        {`"version": 1`, `"version": 1, "more": 1`, `unknown field "more"`},
		"negative power":       {`[0,60]`, `[0,-60]`, "-60 W is not"},
		"a star's power":       {`[0,60]`, `[0,1e9]`, "more than 1e+06 W"},
		"unsorted points":      {`[0.5,300]`, `[0,300]`, "is not above"},
		"three coordinates":    {`[0,60]`, `[0,60,1]`, "not a pair of utilization and watts"},
		"no points":            {`[[0,60],[0.5,300],[1,400]]`, `[]`, "no points"},
		"many points":          {`[0,60]`, `[0,1]` + strings.Repeat(`,[0,1]`, maxPoints), "at most 1000"},
		"unknown zone":         {`"dram"`, `"gpu\u001b"`, `zone "gpu\x1b" is not one of`},
		"no zones":             {`"zones"` + zones, `"zones": {}}`, "no zones"},
		"negative error":       {`"error":0.021`, `"error":-1`, "error: must be from 0 to 1000, is -1"},
		"negative time":        {`"seconds":3600`, `"seconds":-1`, "seconds: must be from 0 to 2147483647, is -1"},
		"falling utilizations": {`"utilization":[0,1]`, `"utilization":[1,0]`, "two ascending values"},
		"no utilization":       {`,"utilization":[0,1]`, ``, "two ascending values"},
		"three utilizations":   {`"utilization":[0,1]`, `"utilization":[0,0.5,1]`, "two ascending values"},
		"a zone named twice":   {`"dram"`, `"package"`, `zone "package" occurs twice`},
		"a list of zones":      {`"zones"` + zones, `"zones": ["package", {}]}`, "must be an object"},
		"unknown field, zone":  {`"seconds":3600`, `"seconds":3600,"more":1`, `unknown field "more"`},
		"no threads":           {`"threads":96`, `"threads":0`, "threads: 0"},
		"negative cores":       {`"cores":48`, `"cores":-48`, "-48 is not between"},
		"an escape sequence":   {`"GenuineIntel"`, `"\u001b[2J"`, "cannot be printed"},
		"a long text":          {`"GenuineIntel"`, `"` + strings.Repeat("a", 300) + `"`, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, good, c.before)
			_, err := parse([]byte(strings.Replace(good, c.before, c.after, 1)), "x.json")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestWhatWouldBeRefusedIsNotWritten(t *testing.T) {
	m := trainedOn(t, xeon, 0.02)
	m.Zones[power.Package] = Zone{Curve: model.Curve{{Utilization: 0, Watts: math.NaN()}}}
	_, err := m.Encode()
	require.Error(t, err)
	_, err = trainedOn(t, machine.Machine{}, 0.02).Encode()
	require.ErrorContains(t, err, "machine")
}

func TestTheModelThatFitsBestIsChosen(t *testing.T) {
	other := with(xeon, func(m *machine.Machine) { m.CPU = "Intel(R) Xeon(R) Gold 6242 CPU @ 2.80GHz" })
	half := with(xeon, func(m *machine.Machine) { m.Threads = 48 })
	for name, c := range map[string]struct {
		there  map[string]*Model
		want   string
		expect float64
	}{
		"the same machine before the smaller error": {map[string]*Model{"a.json": trainedOn(t, half, 0.01), "b.json": trainedOn(t, xeon, 0.05)}, "b.json", model.SameCPUError},
		"the same CPU before its family":            {map[string]*Model{"a.json": trainedOn(t, other, 0.01), "b.json": trainedOn(t, half, 0.05)}, "b.json", model.SameCPUError},
		"the family before nothing":                 {map[string]*Model{"a.json": trainedOn(t, other, 0.01), "b.json": trainedOn(t, epyc, 0.05)}, "a.json", errorOfSameModel},
		"the smallest error":                        {map[string]*Model{"a.json": trainedOn(t, xeon, 0.05), "b.json": trainedOn(t, xeon, 0.01)}, "b.json", model.SameCPUError},
		"an error that is known":                    {map[string]*Model{"a.json": trainedOn(t, xeon, 0), "b.json": trainedOn(t, xeon, 0.3)}, "b.json", 0.3},
		"the first name":                            {map[string]*Model{"b.json": trainedOn(t, xeon, 0.05), "a.json": trainedOn(t, xeon, 0.05)}, "a.json", model.SameCPUError},
		"an error that is not known":                {map[string]*Model{"a.json": trainedOn(t, half, 0)}, "a.json", 0},
		"a larger error than others have":           {map[string]*Model{"a.json": trainedOn(t, half, 0.2)}, "a.json", 0.2},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			for file, m := range c.there {
				files[file] = encoded(t, m)
			}
			curves, err := Curves(directory(t, files), xeon, Options{})
			require.NoError(t, err)
			require.Len(t, curves, 2)
			assert.Contains(t, curves[0].Basis, c.want)
			assert.InDelta(t, c.expect, curves[0].ExpectedError, 1e-9)
		})
	}
}

func TestAFileIsChosenLikeADirectoryOfOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `a[b]*?\`) // the characters of a pattern
	require.NoError(t, os.Rename(directory(t, map[string]string{"a.json": encoded(t, trainedOn(t, xeon, 0.01))}), dir))
	for _, path := range []string{dir, filepath.Join(dir, "a.json")} {
		curves, err := Curves(path, xeon, Options{})
		require.NoError(t, err)
		assert.Len(t, curves, 2)
		_, err = Curves(path, epyc, Options{})
		require.ErrorContains(t, err, "fits this machine, AMD EPYC 7763 64-Core Processor (AuthenticAMD family 25 model 1) with 256 threads: "+
			"a.json is of Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz (GenuineIntel family 6 model 85) with 96 threads")
	}
}

func TestAMachineIsNotGivenTheModelOfAnotherChipWithTheSameCores(t *testing.T) {
	dir := directory(t, map[string]string{"a.json": encoded(t, trainedOn(t, arm, 0.01))})
	_, err := Curves(dir, with(arm, func(m *machine.Machine) { m.Chip = "" }), Options{})
	require.ErrorContains(t, err, "a.json is of Arm Neoverse-N1 (AWS Graviton2)")
	_, err = Curves(dir, machine.Machine{Threads: 64}, Options{})
	require.ErrorContains(t, err, "this machine, unknown CPU with 64 threads")
}

func TestAVirtualMachineHasItsShareOfThreadsAndMemory(t *testing.T) {
	m := trainedOn(t, xeon, 0.01)
	curves := curvesOf(t, m, guest, Options{})
	require.Len(t, curves, 2)
	assert.Equal(t, power.Package, curves[0].Kind)
	assert.InDelta(t, 60*8./96, curves[0].Curve.Watts(0), 1e-9)
	assert.InDelta(t, 300*8./96, curves[0].Curve.Watts(0.5), 1e-9)
	assert.Equal(t, power.DRAM, curves[1].Kind)
	assert.InDelta(t, 80*64./384, curves[1].Curve.Watts(1), 1e-9)
	assert.Equal(t, "model a.json of energy model, trained on the same CPU, for 8 threads instead of 96", curves[0].Basis)
	curves = curvesOf(t, m, with(guest, func(m *machine.Machine) { m.Memory = 0 }), Options{})
	assert.InDelta(t, 80*8./96, curves[1].Curve.Watts(1), 1e-9, "memory of unknown size")
}

func TestAVirtualMachineIsWithoutIdlePowerOnRequest(t *testing.T) {
	m := trainedOn(t, xeon, 0.01)
	curves := curvesOf(t, m, guest, Options{NoIdle: true})
	assert.Zero(t, curves[0].Curve.Watts(0))
	assert.InDelta(t, 340*8./96, curves[0].Curve.Watts(1), 1e-9)
	assert.Contains(t, curves[0].Basis, ", without idle power")
	curves = curvesOf(t, m, xeon, Options{NoIdle: true})
	assert.InDelta(t, 60, curves[0].Curve.Watts(0), 1e-9, "it has nobody to share it with")
}

func TestAPartOfAHostHasALargerErrorThanTheHost(t *testing.T) {
	m := trainedOn(t, xeon, 0.01)
	virtual := with(xeon, func(m *machine.Machine) { m.Virtual = true })
	for _, c := range curvesOf(t, m, virtual, Options{}) {
		want := math.Hypot(model.SameCPUError, model.PartError)
		if c.Kind == power.DRAM {
			want = model.SameCPUError
		}
		assert.InDelta(t, want, c.ExpectedError, 1e-9, c.Kind)
	}
}

func TestOnlyWantedZonesAreReturned(t *testing.T) {
	dir := directory(t, map[string]string{"a.json": encoded(t, trainedOn(t, xeon, 0.01))})
	curves, err := Curves(dir, xeon, Options{Want: func(k power.Kind) bool { return k == power.DRAM }})
	require.NoError(t, err)
	require.Len(t, curves, 1)
	assert.Equal(t, power.DRAM, curves[0].Kind)
	assert.InDelta(t, model.SameCPUError, curves[0].ExpectedError, 1e-9)
	_, err = Curves(dir, xeon, Options{Want: func(k power.Kind) bool { return k == power.Platform }})
	require.ErrorContains(t, err, "it has no curve for any of the zones")
}

func TestABrokenFileIsToldAndSpoilsNoOther(t *testing.T) {
	dir := directory(t, map[string]string{
		"a.json": "{", "b.json": encoded(t, trainedOn(t, xeon, 0.01)), "c.json": "", "notes.txt": "no model", ".hidden.json": "x",
		"large.json": strings.Repeat(" ", maxSize+1),
	})
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d.json"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join(dir, "nothing"), filepath.Join(dir, "gone.json")))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, "endless.json")))
	curves, err := Curves(dir, xeon, Options{})
	assert.Len(t, curves, 2)
	for _, name := range []string{"a.json", "c.json", "d.json: not a regular file", "large.json: larger than", "gone.json", "endless.json: not a regular file"} {
		require.ErrorContains(t, err, name)
	}
	assert.NotContains(t, err.Error(), "notes.txt")
	_, err = Curves(dir, epyc, Options{})
	require.ErrorContains(t, err, "no trained model in")
	require.ErrorContains(t, err, "a.json")
}

func TestAPathWithoutModelsIsAnError(t *testing.T) {
	dir := t.TempDir()
	_, err := Curves(dir, xeon, Options{})
	require.ErrorContains(t, err, "no trained model *.json in "+dir)
	_, err = Curves(filepath.Join(dir, "nothing.json"), xeon, Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Curves("/dev/null", xeon, Options{})
	require.ErrorIs(t, err, errNotRegular)
}

func TestWhatAnErrorListsIsBounded(t *testing.T) {
	files := map[string]string{}
	for i := range 100 {
		files[fmt.Sprintf("bad%02d.json", i)] = "{"
		files[fmt.Sprintf("good%02d.json", i)] = encoded(t, trainedOn(t, xeon, 0.01))
	}
	_, err := Curves(directory(t, files), epyc, Options{})
	require.ErrorContains(t, err, "90 more")
	require.ErrorContains(t, err, "90 files more could not be read")
	assert.Less(t, len(err.Error()), 8000)
}

func TestHowMuchOfADirectoryIsReadIsBounded(t *testing.T) {
	many, large := map[string]string{}, map[string]string{"m000.json": encoded(t, trainedOn(t, xeon, 0.05))}
	for i := range maxFiles + 1 {
		many[fmt.Sprintf("m%03d.json", i)] = large["m000.json"]
	}
	for i := range 20 {
		large[fmt.Sprintf("n%03d.json", i)] = "{" + strings.Repeat(" ", maxSize-2) + "}"
	}
	for want, files := range map[string]map[string]string{"first 256 of 257 files": many, "first 9 of 21 files": large} {
		curves, err := Curves(directory(t, files), xeon, Options{})
		require.ErrorContains(t, err, "only the "+want+" *.json are read")
		assert.Contains(t, curves[0].Basis, "m000.json")
	}
}

func TestNamesOfTheSameCPUAreTheSame(t *testing.T) {
	for name, kepler := range map[string]string{
		"Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz": "intel_xeon_platinum_8259cl",
		"Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz":      "intel_xeon_e5_2686v4",
		"AMD EPYC 7763 64-Core Processor":                "amd_epyc_7763_64_core",
		"Arm Neoverse-N1":                                "arm_neoverse_n1",
	} {
		assert.Equal(t, cpuKey(name), cpuKey(kepler))
	}
	assert.NotEqual(t, cpuKey("Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz"), cpuKey("Intel(R) Xeon(R) CPU E5-2686 v3 @ 2.30GHz"))
	assert.Empty(t, cpuKey(""))
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(encoded(f, trainedOn(f, xeon, 0.021))))
	f.Add([]byte(keplerText("LogarithmicRegressionTrainer_0", `"CurveFit_Weights": [70, 4e6, -680]`)))
	f.Add([]byte(keplerText("SGDRegressorTrainer_0", `"Bias_Weight": 140.5`)))
	f.Add([]byte(keplerText("LogisticRegressionTrainer_1", `"CurveFit_Weights": [200, 0.5, 1e9, 60]`)))
	f.Add([]byte(xgboostText(smallXGBoost)))
	f.Add([]byte(components(`"output_type": "DynPower"`, overCounters)))
	f.Add([]byte(keplerText("ExponentialRegressionTrainer_1", `"CurveFit_Weights": [-1e300, 1e300, 3]`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parse(data, "model.json")
		if err != nil {
			return
		}
		ms := &models{of: []*trainedModel{m}, alone: true}
		for _, here := range []machine.Machine{xeon, guest, {}} {
			for _, o := range []Options{{}, {NoIdle: true}} {
				curves, err := m.curves(&here, &o)
				if err == nil && len(curves) == 0 {
					t.Fatal("neither curves nor an error")
				}
				for _, c := range curves {
					if c.Function != nil {
						c.Function(&model.Rates{1e3, 1e9, -1e9, math.MaxFloat64, 1, 1, 1})
						require.True(t, isPower(c.IdleWatts()))
						continue
					}
					if _, err := model.NewCurve(c.Curve); err != nil || !(c.ExpectedError >= 0) {
						t.Fatalf("%+v: %v", c, err)
					}
				}
				ms.choose(&here, &o, func(*trainedModel) bool { return true })
				_ = ms.noneFits(&here, &o).Error()
			}
		}
		if own, err := Parse(data); err == nil {
			again, err := own.Encode()
			require.NoError(t, err)
			if _, err := Parse(again); err != nil {
				t.Fatalf("%v: %s", err, again)
			}
		}
	})
}
