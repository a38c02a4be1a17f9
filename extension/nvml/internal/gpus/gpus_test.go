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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
)

func TestDescription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newScript(0x65)
		d := poller(t, f).after(time.Second)
		assert.True(t, d.ID == "GPU-101" && d.Name == "NVIDIA H100 80GB HBM3" && d.Vendor == "NVIDIA" && d.PCIAddress == "0000:65:00.0" && d.MaxWatts == 600 && !d.Module, "%+v", d)
		f.module = true
		assert.True(t, poller(t, f).after(time.Second).Module, "the energy of a module is not marked")
	})
}

func TestLibraryThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	missing := fmt.Errorf("libnvidia-ml.so.1: %w", fs.ErrNotExist)
	opened := 0
	r := New(func() (nvml.Library, error) {
		if opened++; opened < 3 {
			return nil, missing
		}
		return &driver{devices: []nvml.Device{newScript(1)}}, nil
	})
	assert.Zero(t, opened, "New opens the library")
	for range 2 {
		if _, err := r.Poll(context.Background()); err != missing { //nolint:errorlint // passed through
			t.Errorf("%v", err)
		}
	}
	devices, err := r.Poll(context.Background())
	assert.True(t, err == nil && len(devices) == 1, "%v, %v", devices, err)
}

func TestNoGPU(t *testing.T) {
	d := &driver{}
	_, err := New(d.open).Poll(context.Background())
	assert.ErrorIs(t, err, fs.ErrNotExist)
	d = &driver{devices: []nvml.Device{newScript(1)}, errs: map[int]error{0: nvml.NoPermission}}
	_, err = New(d.open).Poll(context.Background())
	assert.ErrorIs(t, err, fs.ErrNotExist, "a GPU without permission")
	d.errs[0] = nvml.Unknown
	_, err = New(d.open).Poll(context.Background())
	assert.ErrorIs(t, err, nvml.Unknown, "a GPU that fails")
}

func TestNVMLIsOpenedAgainWhenItMustBe(t *testing.T) {
	for _, code := range []nvml.Return{nvml.Uninitialized, nvml.DriverNotLoaded, nvml.LibraryMismatch} {
		for _, where := range []string{"library", "GPU"} {
			synctest.Test(t, func(t *testing.T) {
				f := newScript(1)
				p := poller(t, f)
				p.after(time.Second)
				if f.err = code; where == "library" {
					f.err, p.driver.err = nil, code
				}
				_, err := p.reader.Poll(context.Background())
				assert.True(t, errors.Is(err, code) && p.driver.closed == 1, "%v of the %s: %v, closed %d times", code, where, err, p.driver.closed)
				p.driver.err, f.err = nil, nil
				d := p.after(time.Second)
				assert.True(t, p.driver.opened == 2 && d.Energy != 0, "opened %d times, %+v", p.driver.opened, d)
			})
		}
	}
}

func TestLostGPULeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newScript(1), newScript(2)
		p := poller(t, one, two)
		p.after(time.Second)
		one.err = nvml.GPUIsLost
		for range 59 {
			p.after(time.Second)
			devices := p.devices
			require.True(t, errors.Is(devices[0].Err, nvml.GPUIsLost) && devices[0].ID == "GPU-1" && devices[0].PCIAddress != "" && devices[1].Err == nil, "%+v", devices)
		}
		assert.Equal(t, 1, p.driver.opened, "within a minute")
		// NVML no longer lists it when it is opened again.
		p.driver.devices = []nvml.Device{two}
		p.after(time.Minute)
		devices := p.devices
		assert.True(t, p.driver.opened == 2 && len(devices) == 2 && devices[0].ID == "GPU-2" && errors.Is(devices[1].Err, nvml.GPUIsLost), "opened %d times, %+v", p.driver.opened, devices)
		one.err, p.driver.devices = nil, []nvml.Device{one, two}
		p.after(time.Minute)
		devices = p.devices
		assert.True(t, p.driver.opened == 3 && len(devices) == 2 && devices[0].ID == "GPU-1" && devices[0].Err == nil && devices[0].Energy != 0, "opened %d times, %+v", p.driver.opened, devices)
		p.after(time.Hour)
		assert.Equal(t, 3, p.driver.opened)
	})
}

func TestGPUThatFailsOtherwiseIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newScript(1)
		p := poller(t, f)
		p.after(time.Second)
		f.err = nvml.Timeout
		d := p.after(time.Second)
		assert.True(t, errors.Is(d.Err, nvml.Timeout) && d.UsageErr != nil, "%+v", d)
		f.err = nil
		d = p.after(time.Second)
		assert.True(t, d.Err == nil && d.Energy == 300_000_000 && p.driver.opened == 1, "%+v", d)
	})
}

func TestNumberOfGPUsThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newScript(1), newScript(2)
		same := newScript(2)
		same.uuid = "GPU-other"
		p := poller(t, one)
		for _, tc := range []struct {
			devices []nvml.Device
			want    int
		}{{[]nvml.Device{one, two}, 2}, {[]nvml.Device{two}, 1}, {[]nvml.Device{one, two, same}, 2}} {
			p.driver.devices = tc.devices
			p.after(time.Second)
			assert.Len(t, p.devices, tc.want)
		}
		p.driver.devices = nil
		_, err := p.reader.Poll(context.Background())
		assert.ErrorIs(t, err, fs.ErrNotExist)
	})
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := New((&driver{devices: []nvml.Device{newScript(1)}}).open).Poll(ctx)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestPowerWhereThereIsNoCounter(t *testing.T) {
	for _, averaged := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newScript(1)
			f.noEnergy = nvml.NotSupported
			f.power = func() (uint32, bool, error) { return 123_456, averaged, nil }
			p := poller(t, f)
			p.after(time.Second)
			d := p.after(time.Second)
			assert.True(t, d.HasPower && d.Power == 123_456_000 && (d.Average == time.Second) == averaged && d.Err == nil && !d.At.IsZero(), "%+v", d)
			f.power = nil
			d = p.after(time.Second)
			assert.True(t, d.Err != nil && !d.HasPower, "neither: %+v", d)
		})
	}
}

func TestCounterThatStandsStillWhilePowerIsDrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newScript(1)
		counter, milliwatts := uint64(5000), uint32(0)
		f.counted = &counter
		f.power = func() (uint32, bool, error) { return milliwatts, false, nil }
		p := poller(t, f)
		p.after(time.Second)
		d := p.after(time.Minute)
		assert.True(t, !d.HasPower && d.Energy == 5_000_000, "a GPU that is off: %+v", d)
		milliwatts = 60_000
		d = p.after(time.Second)
		assert.True(t, d.HasPower && d.Power == 60_000_000, "a GPU that draws power: %+v", d)
		counter++
		d = p.after(time.Second)
		assert.True(t, !d.HasPower && d.Energy == 5_001_000, "after the counter increases again: %+v", d)
		counter = 10
		d = p.after(time.Second)
		assert.True(t, !d.HasPower && d.Energy == 10_000, "reset: %+v", d)
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
			lag := time.Since(d.At)
			require.True(t, lag >= 0 && lag <= maxLag, "the reading is %v old", lag)
			require.LessOrEqual(t, d.Energy, uint64(g.energy)*1000)
		}
	})
}
