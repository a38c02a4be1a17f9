// SPDX-License-Identifier: Apache-2.0

package hwmon

import (
	"cmp"
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

// fault makes reads of files whose path has the suffix fail with the error of f, unless that is nil.
func fault(t *testing.T, suffix string, f func() error) {
	t.Cleanup(kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if strings.HasSuffix(path, suffix) {
			err = cmp.Or(f(), err)
		}
		return got, err
	}))
}

func TestAPowerIsReadAtTheIntervalThatItAveragesOver(t *testing.T) {
	for _, tc := range []struct {
		interval string
		reads    int // in a minute
	}{
		{"10000", 6}, {"1", 1200}, {"0", 60}, {"x", 60}, {"18446744073709551615", 1},
	} {
		t.Run(tc.interval, func(t *testing.T) {
			tr := newTree(t, "acpi_one")
			tr.write(tc.interval+"\n", acpi+"power1_average_interval")
			reads := 0
			fault(t, "power1_average", func() error { reads++; return nil })
			tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
				tr.expectTotal(tr.one(m, "ACPI000D:00:power1"), 0)
				later(time.Minute + time.Millisecond)
				assert.Equal(t, tc.reads, reads-1)
				tr.expectTotal(tr.one(m, "ACPI000D:00:power1"), 60*100*units.Joule)
			})
		})
	}
}

func TestTheCPUIsNotThePackageOnceThereIsAGrace(t *testing.T) {
	tr := newTree(t, "acpi_grace")
	link := tr.path("sys/class/hwmon/hwmon2")
	tr.ok(os.Remove(link))
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		const cpu, io = "ACPI000D:02:CPU Power Socket 0", "ACPI000D:03:SysIO Power Socket 0"
		assert.Equal(t, []string{"package " + cpu, "package " + io}, tr.kinds(m))
		tr.ok(os.Symlink("../../devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:01/hwmon/hwmon2", link))
		later(searchEvery)
		tr.poll(m)
		later(time.Second)
		assert.Equal(t, []string{"core " + cpu, "package ACPI000D:01:Grace Power Socket 0", "uncore " + io}, tr.kinds(m))
	})
}

func TestAMeterIsNotTheMachinesOnceThereIsAnother(t *testing.T) {
	tr := newTree(t, "acpi_two")
	link := tr.path("sys/class/hwmon/hwmon1")
	tr.ok(os.Remove(link))
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		assert.Equal(t, []string{"platform ACPI000D:00:power1"}, tr.kinds(m))
		tr.ok(os.Symlink("../../devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:01/hwmon/hwmon1", link))
		later(searchEvery)
		assert.Empty(t, tr.kinds(m))
	})
}

func TestAProductThatOverflowsIsImpossible(t *testing.T) {
	const dir = "sys/devices/platform/bus@0/c240000.i2c/i2c-1/1-0040/hwmon/hwmon0/"
	tr := newTree(t, "jetson_orin_nx")
	tr.write("4611686018427387904\n", dir+"in1_input") // 2^62
	tr.write("4\n", dir+"curr1_input")
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		assert.ErrorContains(t, tr.one(m, "1-0040:VDD_IN").Err, "impossible")
	})
}

func TestABadPowerFailsItsZoneOnlyUntilItIsGood(t *testing.T) {
	const id, file = "ACPI000D:01:Grace Power Socket 0", "sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:01/hwmon/hwmon2/power1_average"
	var failure atomic.Pointer[error]
	fault(t, "hwmon2/power1_average", func() error { return *failure.Load() })
	for _, tc := range []struct {
		text string
		err  error
		want string
	}{
		{"-5\n", nil, "0 mW is impossible"},
		{"-18446744073709551615\n", nil, "impossible"},
		{"4294967295000\n", nil, "4294967295 mW is impossible"}, // of firmware that does not know it
		{"18446744073709551615\n", nil, "impossible"},
		{"-\n", nil, "empty"},
		{"123000000\n", syscall.EIO, "input/output error"},
		{"123000000\n", syscall.EAGAIN, "temporarily unavailable"},
	} {
		tr := newTree(t, "acpi_grace")
		failure.Store(new(error))
		tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
			tr.one(m, id)
			later(time.Millisecond) // writes lie between the reads
			tr.write(tc.text, file)
			failure.Store(&tc.err)
			later(time.Second)
			assert.ErrorContains(t, tr.one(m, id).Err, tc.want)
			tr.expectTotal(tr.one(m, "ACPI000D:02:CPU Power Socket 0"), 61*units.Joule)
			tr.write("123000000\n", file)
			failure.Store(new(error))
			later(time.Minute) // it was polled less and less often
			assert.NoError(t, tr.one(m, id).Err)
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
			fault(t, "power1_average", func() error { reads++; return c.err })
			tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
				_, _ = m.Read(t.Context(), power.Sample{At: time.Now()})
				later(10 * time.Minute)
				assert.InDelta(t, c.reads, reads, 2)
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
	fault(t, "power1_average", func() error {
		if n++; n%2 == 0 {
			return syscall.EAGAIN
		}
		return nil
	})
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		at := tr.one(m, "ACPI000D:00:power1").At
		const seconds = 70 // with a search
		for second := range seconds {
			later(time.Second)
			r := tr.one(m, "ACPI000D:00:power1")
			assert.NoError(t, r.Err, second+1)
			assert.Equal(t, second%2 == 0, r.At.Equal(at), second+1)
			at = r.At
		}
		tr.expectTotal(tr.one(m, "ACPI000D:00:power1"), seconds*100*units.Joule)
	})
}

// A read of a chip that is gone fails for ever: the file has to be opened again.
func TestAPolledChipIsFoundAgain(t *testing.T) {
	for name, number := range map[string]string{"with its number": "hwmon2", "with another number": "hwmon7"} {
		t.Run(name, func(t *testing.T) {
			const id = "ACPI000D:01:Grace Power Socket 0"
			tr := newTree(t, "acpi_grace")
			var gone atomic.Bool
			fault(t, "hwmon2/power1_average", func() error {
				if gone.Load() {
					return syscall.ENODEV
				}
				return nil
			})
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
				assert.Same(t, zone, r.Zone)
			})
		})
	}
}

func TestAChipWithTheNumberOfARemovedOneIsNotReadForIt(t *testing.T) {
	tr := newTree(t, "amdgpu")
	const other = "devices/pci0000:00/0000:00:01.2/0000:04:00.0/hwmon/hwmon"
	class := tr.path("sys/class/hwmon/hwmon")
	tr.ok(os.Remove(class + "2"))
	tr.write("300000000\n", "sys/"+other+"2/power1_average")
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		assert.NoError(t, tr.one(m, "0000:03:00.0:PPT").Err)
		tr.ok(os.RemoveAll(tr.path(cards)))
		tr.ok(os.Remove(class + "1"))
		tr.ok(os.Rename(tr.path("sys/"+other+"2"), tr.path("sys/"+other+"1")))
		tr.ok(os.Symlink("../../"+other+"1", class+"1"))
		later(searchEvery)
		tr.poll(m)
		later(10 * time.Second)
		before := tr.one(m, "0000:03:00.0:PPT")
		assert.ErrorIs(t, before.Err, fs.ErrNotExist)
		later(time.Minute)
		after := tr.one(m, "0000:03:00.0:PPT")
		assert.ErrorIs(t, after.Err, fs.ErrNotExist)
		assert.Equal(t, before.Total, after.Total)
		assert.NoError(t, tr.one(m, "0000:04:00.0:PPT").Err)
	})
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
		assert.Len(t, m.sources, 1)
	})
}

func TestASuspendedCardIsNotReadAndUsesNothing(t *testing.T) {
	const id = "0000:03:00.0:PPT"
	reads := 0
	fault(t, "hwmon1/power1_average", func() error { reads++; return nil })
	for _, status := range []string{"suspended", "suspending"} {
		tr := newTree(t, "amdgpu")
		tr.write(status+"\n", cards+"power/runtime_status")
		reads = 0
		tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
			tr.expectTotal(tr.one(m, id), 0)
			later(100 * time.Second)
			r := tr.one(m, id)
			tr.expectTotal(r, 0)
			assert.Zero(t, reads)
			assert.LessOrEqual(t, time.Since(r.At), 10*time.Second)
			tr.write("active\n", cards+"power/runtime_status")
			later(100 * time.Second)
			tr.expectTotal(tr.one(m, id), (90*200+10*200/2)*units.Joule)
			assert.Equal(t, 10, reads)
			tr.write(status+"\n", cards+"power/runtime_status")
			later(100 * time.Second)
			tr.expectTotal(tr.one(m, id), (90*200+2*10*200/2)*units.Joule)
		})
	}
}

// amdgpu refuses a read of a suspended card (since Linux 6.15, amdgpu_pm_get_access_if_active) and
// of one that is reset.
func TestACardThatMayNowSuspendIsNoErrorAndOneThatIsResetIs(t *testing.T) {
	const id = "0000:04:00.0:PPT"
	tr := newTree(t, "amdgpu") // its power/control is on
	var refused error
	fault(t, "hwmon2/power1_input", func() error { return refused })
	const pm = "sys/devices/pci0000:00/0000:00:01.2/0000:04:00.0/power/"
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		tr.one(m, id)
		refused = syscall.EPERM
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
		assert.Zero(t, r.Unmeasured)
	})
}

// With the BMC gone the driver repeats its last value.
func TestACounterThatStandsStillIsAnError(t *testing.T) {
	const id = "aem.0:energy1"
	tr := newTree(t, "aem1")
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		tr.one(m, id)
		later(time.Minute)
		assert.NoError(t, tr.one(m, id).Err)
		later(10 * time.Second)
		assert.ErrorContains(t, tr.one(m, id).Err, "is no longer updated")
	})
}

func TestACollectionOfPolledChipsReadsNoFileAndAllocatesNothing(t *testing.T) {
	tr := newTree(t, "acpi_grace")
	tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
		tr.poll(m)
		later(searchEvery / 2)
		fault(t, "", func() error { t.Error("a file is read"); return nil })
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			if rs, err := m.Read(context.Background(), power.Sample{At: time.Now()}); err != nil || len(rs) != 3 {
				t.Error(rs, err)
			}
		}))
	})
}

func TestAPollAllocatesNothing(t *testing.T) {
	for name, machine := range map[string]string{"powers": "acpi_grace", "a card": "amdgpu", "counters": "intel_cards", "products": "jetson_orin_nx"} {
		tr := newTree(t, machine)
		m := tr.meter()
		m.discovery.Run(power.Sample{At: epoch}, 0)
		for _, c := range m.sources {
			poll := func() {
				if _, err := c.Answer(context.Background(), power.Sample{}); err != nil {
					t.Error(err)
				}
			}
			poll()
			assert.Zero(t, testing.AllocsPerRun(100, poll), "%v, %v", name, c.chip.device)
		}
	}
}
