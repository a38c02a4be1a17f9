// SPDX-License-Identifier: Apache-2.0

package hwmon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	acpi  = "sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:00/"
	cards = "sys/devices/pci0000:00/0000:00:01.1/0000:03:00.0/"
)

// bubble runs f with a meter of the tree in a bubble of synctest.
func (tr tree) bubble(t *testing.T, o Options, f func(t *testing.T, m *Meter)) {
	t.Helper()
	o.Root = tr.root
	synctest.Test(t, func(t *testing.T) {
		m := New(o)
		defer func() { tr.ok(m.Close()) }()
		f(t, m)
	})
}

// one polls the meter and returns the reading of a zone.
func (tr tree) one(m *Meter, id string) power.Reading {
	tr.Helper()
	for _, r := range tr.poll(m) {
		if r.Zone.ID == id {
			return r
		}
	}
	tr.Fatalf("no zone %s", id)
	return power.Reading{}
}

// later waits, and for the goroutines that have something to do at that moment.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// counting counts the reads of files whose path has the suffix.
func counting(t *testing.T, suffix string) (reads *int) {
	reads = new(int)
	t.Cleanup(kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if strings.HasSuffix(path, suffix) {
			*reads++
		}
		return got, err
	}))
	return reads
}

func TestAPowerIsReadAtTheIntervalThatItAveragesOver(t *testing.T) {
	for _, tc := range []struct {
		interval string
		reads    int // in a minute
	}{
		{"50", 1200}, {"1000", 60}, {"10000", 6}, {"1", 1200}, {"0", 60}, {"", 60}, {"x", 60},
		{"300000", 1}, {"18446744073709551615", 1},
	} {
		t.Run(tc.interval, func(t *testing.T) {
			tr := newTree(t, "acpi_one")
			tr.write(tc.interval+"\n", acpi+"power1_average_interval")
			reads := counting(t, "power1_average")
			tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
				tr.expectTotal(tr.one(m, "ACPI000D:00:power1"), 0)
				later(time.Minute + time.Millisecond)
				assert.Equal(t, tc.reads, *reads-1)
				tr.expectTotal(tr.one(m, "ACPI000D:00:power1"), 60*100*units.Joule)
			})
		})
	}
}

// A collection each 10 s would see one second of each ten.
func TestPowersBetweenCollectionsAreCounted(t *testing.T) {
	tr := newTree(t, "acpi_one")
	tr.bubble(t, Options{}, func(_ *testing.T, m *Meter) {
		tr.one(m, "ACPI000D:00:power1")
		time.Sleep(time.Millisecond) // writes lie between the reads
		for second := range 600 {
			watts := "100000000\n"
			if second%10 != 0 {
				watts = "200000000\n"
			}
			tr.write(watts, acpi+"power1_average")
			later(time.Second)
			if second%10 == 9 {
				tr.poll(m)
			}
		}
		tr.expectTotal(tr.one(m, "ACPI000D:00:power1"), 600*190*units.Joule)
	})
}

func TestGraceContainsItsCPUAndSysIO(t *testing.T) {
	tr := newTree(t, "acpi_grace")
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		for id, want := range map[string]power.Zone{
			"ACPI000D:01:Grace Power Socket 0": {Name: "Grace Power Socket 0", Kind: power.Package},
			"ACPI000D:02:CPU Power Socket 0":   {Name: "CPU Power Socket 0", Kind: power.Core, Parent: "ACPI000D:01:Grace Power Socket 0"},
		} {
			want.ID, want.Domain, want.Method, want.MaxWatts = id, "package-0", power.Measured, 1500
			assert.Equal(t, want, *tr.one(m, id).Zone)
		}
		later(10 * time.Second)
		tr.expectTotal(tr.one(m, "ACPI000D:01:Grace Power Socket 0"), 1230*units.Joule)
		tr.expectTotal(tr.one(m, "ACPI000D:03:SysIO Power Socket 0"), 270*units.Joule)
	})
}

func TestTheCPUIsNotThePackageOnceThereIsAGrace(t *testing.T) {
	tr := newTree(t, "acpi_grace")
	link := tr.path("sys/class/hwmon/hwmon2")
	tr.ok(os.Remove(link))
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		kinds := func() (kinds string) {
			for _, r := range tr.poll(m) {
				kinds += string(r.Zone.Kind) + " "
			}
			return kinds
		}
		assert.Equal(t, "package package ", kinds())
		tr.ok(os.Symlink("../../devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:01/hwmon/hwmon2", link))
		later(searchEvery)
		tr.poll(m)
		later(time.Second)
		assert.Equal(t, "package core uncore ", kinds())
	})
}

func TestAVoltageTimesACurrentIsAPower(t *testing.T) {
	tr := newTree(t, "jetson_orin_nx")
	tr.bubble(t, Options{}, func(_ *testing.T, m *Meter) {
		tr.one(m, "1-0040:VDD_IN")
		later(10 * time.Second)
		tr.expectTotal(tr.one(m, "1-0040:VDD_IN"), 76*units.Joule)
	})
}

func TestABadPowerFailsItsZoneOnlyUntilItIsGood(t *testing.T) {
	const id = "ACPI000D:01:Grace Power Socket 0"
	fault := func(err error) func([]byte) ([]byte, error) {
		return func([]byte) ([]byte, error) { return nil, err }
	}
	text := func(s string) func([]byte) ([]byte, error) {
		return func([]byte) ([]byte, error) { return []byte(s), nil }
	}
	for name, tc := range map[string]struct {
		bad  func([]byte) ([]byte, error)
		want string
	}{
		"negative":               {text("-5\n"), "impossible"},
		"negative and huge":      {text("-18446744073709551615\n"), "impossible"},
		"unknown to firmware":    {text("4294967295000\n"), "4294967295 mW is impossible"},
		"above 63 bits":          {text("18446744073709551615\n"), "impossible"},
		"above 64 bits":          {text("18446744073709551616\n"), "exceeds 64 bits"},
		"no number":              {text("nan\n"), "not a decimal number"},
		"a fraction":             {text("1.5\n"), "not a decimal number"},
		"empty":                  {text(""), "empty"},
		"an empty line":          {text("\n"), "empty"},
		"a sign only":            {text("-\n"), "empty"},
		"cut":                    {text("12"), "no end of line"},
		"a directory":            {fault(syscall.EISDIR), "is a directory"},
		"no data":                {fault(syscall.ENODATA), "no data available"},
		"an I/O error":           {fault(syscall.EIO), "input/output error"},
		"busy for long":          {fault(syscall.EAGAIN), "temporarily unavailable"},
		"gone from below a file": {fault(syscall.ENODEV), "no such device"},
		"no permission":          {fault(fs.ErrPermission), "permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t, "acpi_grace")
			var failing atomic.Bool
			defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
				if failing.Load() && strings.HasSuffix(path, "hwmon2/power1_average") {
					return tc.bad(got)
				}
				return got, err
			})()
			tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
				began := tr.one(m, id).At
				later(10 * time.Second)
				failing.Store(true)
				later(time.Second)
				r := tr.one(m, id)
				if r.Err == nil || !strings.Contains(r.Err.Error(), tc.want) {
					t.Errorf("error %v, want %q", r.Err, tc.want)
				}
				first := r.Err.Error()
				later(10 * time.Second)
				if r = tr.one(m, id); r.Err == nil || r.Err.Error() != first {
					t.Errorf("then %v, at first %s", r.Err, first)
				}
				tr.expectTotal(tr.one(m, "ACPI000D:02:CPU Power Socket 0"), 21*61*units.Joule)
				failing.Store(false)
				later(15 * time.Second) // it was asked less and less often
				r = tr.one(m, id)
				measured := r.At.Sub(began)
				if measured < 30*time.Second {
					t.Errorf("read up to %v", measured)
				}
				tr.expectTotal(r, units.Energy(measured.Milliseconds())*123_000) // 11 s without a value are no gap
			})
		})
	}
}

// Each time may be some lines in the kernel's log.
func TestASensorThatKeepsFailingIsReadLessAndLessOften(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		reads int // in ten minutes
	}{
		"a failure": {syscall.ENODATA, 12},
		"vanished":  {fs.ErrNotExist, 600},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t, "acpi_one")
			reads := 0
			defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
				if strings.HasSuffix(path, "power1_average") {
					reads++
					return nil, c.err
				}
				return got, err
			})()
			tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
				_, _ = m.Read(t.Context(), power.Sample{At: time.Now()})
				later(10 * time.Minute)
				if reads < c.reads-2 || reads > c.reads+2 {
					t.Errorf("%d reads, want about %d", reads, c.reads)
				}
				rs, err := m.Read(t.Context(), power.Sample{At: time.Now()})
				if len(rs) == 0 && !errors.Is(err, c.err) || len(rs) > 0 && (!errors.Is(rs[0].Err, c.err) || err != nil) {
					t.Errorf("%+v, %v", rs, err)
				}
			})
		})
	}
}

func TestASensorThatIsBusyOnceHasNothingNew(t *testing.T) {
	tr := newTree(t, "acpi_one")
	n := 0
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if strings.HasSuffix(path, "power1_average") {
			if n++; n%2 == 0 {
				return nil, syscall.EAGAIN
			}
		}
		return got, err
	})()
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		at := tr.one(m, "ACPI000D:00:power1").At
		for second := range 10 {
			later(time.Second)
			r := tr.one(m, "ACPI000D:00:power1")
			assert.NoError(t, r.Err, second+1)
			if isNew := !r.At.Equal(at); isNew == (second%2 == 0) {
				t.Errorf("after %d s: a new value: %t", second+1, isNew)
			}
			at = r.At
		}
		tr.expectTotal(tr.one(m, "ACPI000D:00:power1"), 10*100*units.Joule)
	})
}

// A read of a chip that is gone fails for ever: the file has to be opened again.
func TestAPolledChipIsFoundAgain(t *testing.T) {
	for name, number := range map[string]string{"with its number": "hwmon2", "with another number": "hwmon7"} {
		t.Run(name, func(t *testing.T) {
			const id = "ACPI000D:01:Grace Power Socket 0"
			tr := newTree(t, "acpi_grace")
			var gone atomic.Bool
			defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
				if gone.Load() && err == nil && strings.HasSuffix(path, "hwmon2/power1_average") {
					return nil, syscall.ENODEV
				}
				return got, err
			})()
			tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
				zone := tr.one(m, id).Zone
				later(10 * time.Second)
				device := tr.path("sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:01/hwmon/")
				gone.Store(true)
				tr.ok(os.Remove(tr.path("sys/class/hwmon/hwmon2")))
				tr.ok(os.Rename(device+"/hwmon2", device+"/gone"))
				later(time.Second)
				if r := tr.one(m, id); !errors.Is(r.Err, fs.ErrNotExist) && !errors.Is(r.Err, syscall.ENODEV) || r.Total != 1230*units.Joule {
					t.Errorf("gone: %+v", r)
				}
				later(time.Second)

				tr.ok(os.Rename(device+"/gone", device+"/"+number))
				tr.ok(os.Symlink("../../devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:01/hwmon/"+number, tr.path("sys/class/hwmon/"+number)))
				gone.Store(false)
				tr.poll(m) // finds it
				later(3 * time.Second)
				r := tr.one(m, id)
				tr.expectTotal(r, 15*123*units.Joule)
				if r.Zone != zone {
					t.Error("it is another zone")
				}
			})
		})
	}
}

func TestAChipThatComesBackAsAnotherDeviceLeavesNoGoroutine(t *testing.T) {
	const dir = "sys/devices/LNXSYSTM:00/LNXSYBUS:00/"
	tr := newTree(t, "acpi_one")
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		before := "ACPI000D:00"
		for _, device := range []string{"ACPI000D:02", "ACPI000D:03"} {
			tr.poll(m)
			tr.ok(os.Rename(tr.path(dir+before), tr.path(dir+device)))
			tr.ok(os.Remove(tr.path("sys/class/hwmon/hwmon0")))
			tr.ok(os.Remove(tr.path(dir + device + "/hwmon/hwmon0/device")))
			tr.ok(os.Symlink("../../../"+device, tr.path(dir+device+"/hwmon/hwmon0/device")))
			tr.ok(os.Symlink("../../devices/LNXSYSTM:00/LNXSYBUS:00/"+device+"/hwmon/hwmon0", tr.path("sys/class/hwmon/hwmon0")))
			later(searchEvery)
			tr.poll(m)
			later(time.Second)
			assert.NoError(t, tr.one(m, device+":power1").Err)
			before = device
		}
		assert.Len(t, m.chips, 1)
	})
}

func TestASuspendedCardIsNotReadAndUsesNothing(t *testing.T) {
	const id = "0000:03:00.0:PPT"
	for _, status := range []string{"suspended", "suspending"} {
		tr := newTree(t, "amdgpu")
		tr.write(status+"\n", cards+"power/runtime_status")
		reads := 0
		restore := kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
			if strings.HasSuffix(path, "hwmon1/power1_average") {
				reads++
			}
			return got, err
		})
		tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
			tr.expectTotal(tr.one(m, id), 0)
			later(100 * time.Second)
			r := tr.one(m, id)
			tr.expectTotal(r, 0)
			if reads != 0 || time.Since(r.At) > 10*time.Second {
				t.Errorf("%d reads, last value %v ago", reads, time.Since(r.At))
			}
			tr.write("active\n", cards+"power/runtime_status")
			later(100 * time.Second)
			tr.expectTotal(tr.one(m, id), (90*200+10*200/2)*units.Joule)
			assert.Equal(t, 10, reads)
			tr.write(status+"\n", cards+"power/runtime_status")
			later(100 * time.Second)
			tr.expectTotal(tr.one(m, id), (90*200+2*10*200/2)*units.Joule)
		})
		restore()
	}
}

// amdgpu refuses a read of a suspended card (since Linux 6.15, amdgpu_pm_get_access_if_active) and
// of one that is reset.
func TestACardThatMayNowSuspendIsNoErrorAndOneThatIsResetIs(t *testing.T) {
	const id = "0000:04:00.0:PPT"
	tr := newTree(t, "amdgpu") // its power/control is on
	refused := false
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if refused && strings.HasSuffix(path, "hwmon2/power1_input") {
			return nil, syscall.EPERM
		}
		return got, err
	})()
	const pm = "sys/devices/pci0000:00/0000:00:01.2/0000:04:00.0/power/"
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		tr.one(m, id)
		refused = true
		tr.write("active\n", pm+"runtime_status")
		later(time.Second)
		assert.ErrorIs(t, tr.one(m, id).Err, syscall.EPERM)
		tr.write("suspended\n", pm+"runtime_status")
		later(5 * time.Second)
		tr.expectTotal(tr.one(m, id), 1950*70*units.Joule/1000) // from 140 W down to 0 at the second poll, which precedes a Read
	})
}

func TestTheCounterOfACardCountsWhatItUsedBeforeItSlept(t *testing.T) {
	const pci, id = "sys/devices/pci0000:00/0000:03:00.0/", "0000:03:00.0:card"
	tr := newTree(t, "intel_cards")
	tr.write("auto\n", pci+"power/control")
	tr.write("active\n", pci+"power/runtime_status")
	tr.bubble(t, Options{}, func(_ *testing.T, m *Meter) {
		tr.one(m, id)
		later(2 * time.Second)
		tr.write("suspended\n", pci+"power/runtime_status")
		tr.write("60001000\n", pci+"hwmon/hwmon0/energy1_input")
		later(10 * time.Second)
		tr.expectTotal(tr.one(m, id), 0)
		tr.write("active\n", pci+"power/runtime_status")
		later(time.Second)
		r := tr.one(m, id)
		tr.expectTotal(r, 60*units.Joule)
		if r.Gaps != 0 || r.Unmeasured != 0 {
			tr.Errorf("%d gaps, %v unmeasured of what the counter counts", r.Gaps, r.Unmeasured)
		}
	})
}

// With the BMC gone the driver repeats its last value.
func TestACounterThatStandsStillIsAnError(t *testing.T) {
	const counter = "sys/devices/platform/aem.0/energy1_input"
	tr := newTree(t, "aem1")
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		tr.one(m, "aem.0:energy1")
		later(5 * time.Second)
		tr.write("2650000000\n", counter)
		later(5 * time.Second)
		tr.expectTotal(tr.one(m, "aem.0:energy1"), 1_636_000)
		later(2 * time.Minute)
		if r := tr.one(m, "aem.0:energy1"); r.Err == nil || !strings.Contains(r.Err.Error(), "stands still") {
			t.Errorf("%+v", r)
		}
	})
}

func TestACollectionOpensNothingAndAllocatesNothing(t *testing.T) {
	tr := newTree(t, "acpi_grace")
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		tr.poll(m)
		later(searchEvery / 2)
		opens := 0
		m.finder.open = func(path string) (*os.File, error) { opens++; return os.Open(path) }
		if n := testing.AllocsPerRun(100, func() {
			if rs, err := m.Read(context.Background(), power.Sample{At: time.Now()}); err != nil || len(rs) != 3 {
				t.Error(rs, err)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
		if opens > 0 {
			t.Errorf("%d files opened", opens)
		}
	})
}

func TestAPollAllocatesNothing(t *testing.T) {
	for name, machine := range map[string]string{"powers": "acpi_grace", "a card": "amdgpu", "counters": "intel_cards", "products": "jetson_orin_nx"} {
		tr := newTree(t, machine)
		m := tr.meter()
		tr.ok(m.discover()())
		for _, c := range m.chips {
			poll := func() {
				if _, err := c.Answer(context.Background(), power.Sample{}); err != nil {
					t.Error(err)
				}
			}
			poll()
			assert.Zero(t, testing.AllocsPerRun(100, poll), "%v, %v", name, c.device)
		}
	}
}
