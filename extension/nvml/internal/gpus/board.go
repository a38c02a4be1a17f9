// SPDX-License-Identifier: Apache-2.0

package gpus

import (
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/extension/gpulibrary"
	"github.com/energyreceiver/energyreceiver/extension/nvml/internal/nvml"
)

// board is a GPU. Its slices, if it is divided (MIG), share its energy counter.
type board struct {
	device            nvml.Device // nil while NVML does not list the GPU
	id, name, address string
	maxWatts          uint64
	module            bool  // the energy counter measures a module
	lost              error // reason why the GPU can no longer be read, or nil

	energy energy
	mig    bool
	usage  usage
	slices slicing
}

// limitMargin is the maximum ratio of power to the power limit. The limit applies to the mean power
// over tens of milliseconds. The refresh interval of the energy counter is 20 to 100 ms, so a
// difference of the counter may show power above the limit.
const limitMargin = 2

// attach sets the NVML device of the board, and reads its constant properties.
func (b *board) attach(device nvml.Device) {
	b.device, b.lost = device, nil
	b.slices.multiprocessors = 0
	b.usage.noInstants = false
	b.module = device.MeasuresModule()
	b.maxWatts = 0
	if milliwatts, err := device.PowerLimit(); err == nil {
		b.maxWatts = limitMargin * uint64(milliwatts) / 1000
	}
}

// poll reads the energy and the users of the GPU.
func (b *board) poll(d *gpulibrary.Device) {
	if b.lost == nil {
		b.describe(d)
		known := b.readUsage(d)
		err := b.energy.read(b.device)
		if !isLost(err) {
			b.energy.handOut(d, known, err)
			return
		}
		b.lost = err
	}
	b.describe(d)
	d.Err, d.UsageErr = b.lost, b.lost
}

// describe sets the constant properties of a device, and clears the rest.
func (b *board) describe(d *gpulibrary.Device) {
	*d = gpulibrary.Device{
		ID: b.id, Name: b.name, Vendor: "NVIDIA", PCIAddress: b.address, MaxWatts: b.maxWatts, Module: b.module,
		Users: d.Users[:0],
	}
}

// readUsage reads the users of the GPU, and returns the end of the time that they cover.
func (b *board) readUsage(d *gpulibrary.Device) time.Time {
	mig, err := b.device.MIG()
	if err != nil && !isMissing(err) {
		d.UsageErr = fmt.Errorf("MIG mode: %w", err)
		return time.Now()
	}
	if mig != b.mig {
		b.mig = mig
		b.usage.restart()
		b.slices.keep(nil)
	}
	if mig {
		return b.readSlices(d)
	}
	return b.usage.read(b.device, d)
}
