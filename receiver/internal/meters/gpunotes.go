// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/note"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu/library"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
)

// gpuNotes finds GPUs whose energy or usage is not read, and logs each case once.
type gpuNotes struct {
	cfg    *config.Config
	logger *zap.Logger

	nvidia []units.Domain // GPUs that only a library reads
	search kernfs.Search[[]units.Domain]
	looked time.Time // sample time of the search
	began  time.Time // sample time of the first call

	unread, unused bool // the message was logged
}

const (
	lookForGPUsAgain = 10 * time.Minute
	// gpuGrace is the time after the start in which missing readings are not reported, because
	// libraries and meters may not have answered yet.
	gpuGrace = time.Minute
)

// check logs GPUs that are missing in the readings or in the usage of an interval. It returns an
// error if the machine has a GPU that requires a library in meters::gpu::extensions, and the
// library is missing.
func (g *gpuNotes) check(now time.Time, readings []power.Reading, used []gpu.Usage, meters *power.Set) error {
	if g.began.IsZero() {
		g.began = now
	}
	early := now.Sub(g.began) < gpuGrace
	if !early {
		g.checkUsers(readings, used)
	}
	if early && (len(g.cfg.Meters.GPU.Extensions) > 0 || len(g.cfg.Meters.HTTP) > 0) {
		return nil
	}
	if g.looked.IsZero() || now.Sub(g.looked) >= lookForGPUsAgain || g.search.Running() {
		g.search.Root, g.search.Dir = g.cfg.RootPath, filepath.Join(g.cfg.RootPath, "sys/bus/pci/drivers")
		root := g.cfg.RootPath
		if found, ok := g.search.Run(func() []units.Domain { return library.FindNVIDIA(root) }); ok {
			g.looked, g.nvidia = now, found
		}
	}
	return cmp.Or(g.checkRead(readings, meters), g.search.Err())
}

// checkRead logs GPUs that no meter reads.
func (g *gpuNotes) checkRead(readings []power.Reading, meters *power.Set) error {
	var unread []string
	for _, domain := range g.nvidia {
		if !slices.ContainsFunc(readings, func(r power.Reading) bool { return r.Zone.Domain == domain }) {
			unread = append(unread, strings.TrimPrefix(string(domain), string(units.GPU(""))))
		}
	}
	if len(unread) == 0 {
		return nil
	}
	switch err := libraryError(meters); {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, power.ErrNoZones):
		return fmt.Errorf("cannot read the GPU %s: %w", strings.Join(unread, ", "), err)
	case err != nil || g.unread: // the condition of the sensor reports the error
		return nil
	}
	g.unread = true
	message := "NVIDIA GPUs not read: no extension that meters::gpu::extensions names finds them"
	if len(g.cfg.Meters.GPU.Extensions) == 0 {
		message = "NVIDIA GPUs not read: run a collector with the extension nvml (" + note.Pages + "gpus.md)"
	}
	logGPUs(g.logger, message, unread)
	return nil
}

// libraryError returns the error of the libraries in meters::gpu::extensions.
func libraryError(meters *power.Set) error {
	for _, meter := range meters.Status() {
		if meter.Name == "gpu" {
			return meter.Err
		}
	}
	return nil
}

// checkUsers logs GPUs whose energy is read and whose usage is not.
func (g *gpuNotes) checkUsers(readings []power.Reading, used []gpu.Usage) {
	if g.unused || !slices.Contains(g.cfg.Zones, power.GPU) {
		return
	}
	var ids []string
	for i := range readings {
		r := &readings[i]
		isUsed := slices.ContainsFunc(used, func(u gpu.Usage) bool { return u.Domain == r.Zone.Domain })
		if r.Zone.Kind == power.GPU && r.Err == nil && !isUsed {
			ids = append(ids, r.Zone.ID)
		}
	}
	if g.unused = len(ids) > 0; g.unused {
		logGPUs(g.logger, "Energy of GPUs is unattributed: no driver or library reports their users", ids)
	}
}

func logGPUs(logger *zap.Logger, message string, ids []string) {
	text := fmt.Sprintf("%s: %s", message, strings.Join(ids, ", "))
	logger.Info(message, zap.Strings("gpus", ids), note.Note{About: message, Text: text}.Field())
}
