// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
)

// faulty is a GPU whose calls fail with err, and whose energy is the value of counter if counter is
// set.
type faulty struct {
	*script
	err     error
	counter *uint64
	power   func() (uint32, bool, error)
}

func newFaulty(id int) *faulty {
	f := &faulty{script: newScript()}
	f.uuid, f.address = fmt.Sprintf("GPU-%d", id), fmt.Sprintf("0000:%02x:00.0", id)
	return f
}

func (f *faulty) UUID() (string, error) { return f.uuid, f.err }
func (f *faulty) MIG() (bool, error)    { return false, f.err }

func (f *faulty) TotalEnergy() (uint64, error) {
	if f.err != nil || f.counter == nil {
		if f.err != nil {
			return 0, f.err
		}
		return f.gpu.TotalEnergy()
	}
	return *f.counter, f.noEnergy
}

func (f *faulty) Power() (uint32, bool, error) {
	if f.power == nil {
		return 0, false, nvml.NotSupported
	}
	return f.power()
}

func TestDescription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(0x65)
		d := poller(t, f).after(time.Second)
		if d.ID != "GPU-101" || d.Name != "NVIDIA H100 80GB HBM3" || d.Vendor != "NVIDIA" || d.PCIAddress != "0000:65:00.0" || d.MaxWatts != 600 || d.Module {
			t.Errorf("%+v", d)
		}
		f.module = true
		if !poller(t, f).after(time.Second).Module {
			t.Error("the energy of a module is not marked")
		}
	})
}

func TestLibraryThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	missing := fmt.Errorf("libnvidia-ml.so.1: %w", fs.ErrNotExist)
	opened := 0
	r := New(func() (nvml.Library, error) {
		if opened++; opened < 3 {
			return nil, missing
		}
		return &driver{devices: []nvml.Device{newFaulty(1)}}, nil
	})
	if opened != 0 {
		t.Error("New opens the library")
	}
	for range 2 {
		if _, err := r.Poll(context.Background()); err != missing { //nolint:errorlint // passed through
			t.Errorf("%v", err)
		}
	}
	if devices, err := r.Poll(context.Background()); err != nil || len(devices) != 1 {
		t.Errorf("%v, %v", devices, err)
	}
}

func TestNoGPU(t *testing.T) {
	d := &driver{}
	if _, err := New(d.open).Poll(context.Background()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	d = &driver{devices: []nvml.Device{newFaulty(1)}, errs: map[int]error{0: nvml.NoPermission}}
	if _, err := New(d.open).Poll(context.Background()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one of others: %v", err)
	}
	d.errs[0] = nvml.Unknown
	if _, err := New(d.open).Poll(context.Background()); !errors.Is(err, nvml.Unknown) {
		t.Errorf("one that fails: %v", err)
	}
}

func TestNVMLIsOpenedAgainWhenItMustBe(t *testing.T) {
	for _, code := range []nvml.Return{nvml.Uninitialized, nvml.DriverNotLoaded, nvml.LibraryMismatch} {
		for _, where := range []string{"library", "GPU"} {
			synctest.Test(t, func(t *testing.T) {
				f := newFaulty(1)
				p := poller(t, f)
				p.after(time.Second)
				if where == "library" {
					p.driver.err = code
				} else {
					f.err = code
				}
				if _, err := p.reader.Poll(context.Background()); !errors.Is(err, code) || p.driver.closed != 1 {
					t.Errorf("%v of the %s: %v, closed %d times", code, where, err, p.driver.closed)
				}
				p.driver.err, f.err = nil, nil
				if d := p.after(time.Second); p.driver.opened != 2 || d.Energy == 0 {
					t.Errorf("opened %d times, %+v", p.driver.opened, d)
				}
			})
		}
	}
}

func TestLostGPULeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newFaulty(1), newFaulty(2)
		p := poller(t, one, two)
		p.after(time.Second)
		one.err = nvml.GPUIsLost
		for range 59 {
			p.after(time.Second)
			devices := p.reader.(*reader).devices
			if !errors.Is(devices[0].Err, nvml.GPUIsLost) || devices[0].ID != "GPU-1" || devices[0].PCIAddress == "" || devices[1].Err != nil {
				t.Fatalf("%+v", devices)
			}
		}
		if p.driver.opened != 1 {
			t.Errorf("opened %d times within a minute", p.driver.opened)
		}
		// NVML no longer lists it when it is opened again.
		p.driver.devices = []nvml.Device{two}
		p.after(time.Minute)
		devices := p.reader.(*reader).devices
		if p.driver.opened != 2 || len(devices) != 2 || devices[0].ID != "GPU-2" || !errors.Is(devices[1].Err, nvml.GPUIsLost) {
			t.Errorf("opened %d times, %+v", p.driver.opened, devices)
		}
		one.err, p.driver.devices = nil, []nvml.Device{one, two}
		p.after(time.Minute)
		devices = p.reader.(*reader).devices
		if p.driver.opened != 3 || len(devices) != 2 || devices[0].ID != "GPU-1" || devices[0].Err != nil || devices[0].Energy == 0 {
			t.Errorf("opened %d times, %+v", p.driver.opened, devices)
		}
		p.after(time.Hour)
		if p.driver.opened != 3 {
			t.Errorf("opened %d times", p.driver.opened)
		}
	})
}

func TestGPUThatFailsOtherwiseIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(1)
		p := poller(t, f)
		p.after(time.Second)
		f.err = nvml.Timeout
		if d := p.after(time.Second); !errors.Is(d.Err, nvml.Timeout) || d.UsageErr == nil {
			t.Errorf("%+v", d)
		}
		f.err = nil
		if d := p.after(time.Second); d.Err != nil || d.Energy != 300_000_000 || p.driver.opened != 1 {
			t.Errorf("%+v", d)
		}
	})
}

func TestNumberOfGPUsThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newFaulty(1), newFaulty(2)
		same := newFaulty(2)
		same.uuid = "GPU-other"
		p := poller(t, one)
		for _, tc := range []struct {
			devices []nvml.Device
			want    int
		}{{[]nvml.Device{one, two}, 2}, {[]nvml.Device{two}, 1}, {[]nvml.Device{one, two, same}, 2}} {
			p.driver.devices = tc.devices
			p.after(time.Second)
			if devices := p.reader.(*reader).devices; len(devices) != tc.want {
				t.Errorf("%d GPUs, want %d", len(devices), tc.want)
			}
		}
		p.driver.devices = nil
		if _, err := p.reader.Poll(context.Background()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
	})
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := New((&driver{devices: []nvml.Device{newFaulty(1)}}).open).Poll(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestPowerWhereThereIsNoCounter(t *testing.T) {
	for _, averaged := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFaulty(1)
			f.counter, f.noEnergy = new(uint64), nvml.NotSupported
			f.power = func() (uint32, bool, error) { return 123_456, averaged, nil }
			p := poller(t, f)
			p.after(time.Second)
			d := p.after(time.Second)
			average := time.Duration(0)
			if averaged {
				average = time.Second
			}
			if !d.HasPower || d.Power != 123_456_000 || d.Average != average || d.Err != nil || d.At.IsZero() {
				t.Errorf("%+v", d)
			}
			f.power = nil
			if d = p.after(time.Second); d.Err == nil || d.HasPower {
				t.Errorf("neither: %+v", d)
			}
		})
	}
}

func TestCounterThatStandsStillWhilePowerIsDrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty(1)
		counter, milliwatts := uint64(5000), uint32(0)
		f.counter = &counter
		f.power = func() (uint32, bool, error) { return milliwatts, false, nil }
		p := poller(t, f)
		p.after(time.Second)
		if d := p.after(time.Minute); d.HasPower || d.Energy != 5_000_000 {
			t.Errorf("a GPU that is off: %+v", d)
		}
		milliwatts = 60_000
		if d := p.after(time.Second); !d.HasPower || d.Power != 60_000_000 {
			t.Errorf("one that draws power: %+v", d)
		}
		counter++
		if d := p.after(time.Second); d.HasPower || d.Energy != 5_001_000 {
			t.Errorf("once it moves again: %+v", d)
		}
		counter = 10
		if d := p.after(time.Second); d.HasPower || d.Energy != 10_000 {
			t.Errorf("reset: %+v", d)
		}
	})
}

// What is handed out adds up to the counter, whatever the lag of the samples.
func TestEnergyIsThatOfTheTimeOfTheSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGPU(bursts(3, 3, 10*time.Millisecond, time.Second))
		g.lag, g.refresh = jitter(time.Second), time.Millisecond
		p := poller(t, g)
		p.after(0)
		for i := range 600 {
			d := p.after(time.Duration(137*i%1900) * time.Millisecond)
			if lag := time.Since(d.At); lag < 0 || lag > maxLag {
				t.Fatalf("is of %v ago", lag)
			}
			if uint64(g.energy)*1000 < d.Energy {
				t.Fatalf("%d µJ of %.0f", d.Energy, g.energy*1000)
			}
		}
	})
}
