// SPDX-License-Identifier: Apache-2.0

package hwmon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// A file of testdata describes a machine. Beside its files (see newTree) it lists the zones that are read,
// "zone: ID | kind | domain | parent", and the sensors that are offered, "unused: ...".
func TestEachMachineHasExactlyItsZones(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			tr := newTree(t, name)
			tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
				readings := tr.poll(m)
				var zones []string
				for _, r := range readings {
					if r.Err != nil || r.At.IsZero() {
						t.Errorf("%s: read at %v, error %v", r.Zone.ID, r.At, r.Err)
					}
					zones = append(zones, strings.TrimSpace(fmt.Sprintf("%s | %s | %s | %s", r.Zone.ID, r.Zone.Kind, r.Zone.Domain, r.Zone.Parent)))
				}
				assert.ElementsMatch(t, tr.zones, zones)
				assert.ElementsMatch(t, tr.unused, m.Unused())
			})
		})
	}
}

// poll reads a meter after its goroutines have read. It must be called in a bubble of synctest.
func (tr tree) poll(m *Meter) []power.Reading {
	tr.Helper()
	readings, err := tr.tryPoll(m)
	if err != nil && !errors.Is(err, power.ErrNoZones) {
		tr.Error(err)
	}
	return readings
}

func (tr tree) tryPoll(m *Meter) ([]power.Reading, error) {
	_, _ = m.Read(tr.Context(), power.Sample{At: time.Now()}) // starts the goroutines
	synctest.Wait()
	return m.Read(tr.Context(), power.Sample{At: time.Now()})
}

// kinds polls a meter and returns the kinds and the IDs of its zones.
func (tr tree) kinds(m *Meter) (zones []string) {
	tr.Helper()
	for _, r := range tr.poll(m) {
		zones = append(zones, string(r.Zone.Kind)+" "+r.Zone.ID)
	}
	slices.Sort(zones)
	return zones
}

func TestACardHasItsVendorAndItsNameWhereSysfsHasThem(t *testing.T) {
	for machine, want := range map[string]map[string]power.Zone{
		"amdgpu": {
			"0000:03:00.0:PPT": {Name: "amdgpu", Vendor: "AMD"},
			"0000:04:00.0:PPT": {Name: "AMD Instinct MI300X OAM", Vendor: "AMD"},
		},
		"intel_cards": {"0000:03:00.0:card": {Name: "xe", Vendor: "Intel"}, "0000:07:00.0:energy2": {Name: "xe"}},
	} {
		tr := newTree(t, machine)
		tr.bubble(t, Options{}, func(t *testing.T, m *Meter) {
			for id, zone := range want {
				if z := tr.one(m, id).Zone; z.Name != zone.Name || z.Vendor != zone.Vendor || z.MaxWatts != power.MaxCardWatts {
					t.Errorf("%+v, want the name %q and the vendor %q", *z, zone.Name, zone.Vendor)
				}
			}
		})
	}
}

// A sensor on a board may be of any of its cards.
func TestANamedCardThatMayBeAnyTakesThePlaceOfAllKnownOnes(t *testing.T) {
	tr := newTree(t, "amdgpu")
	const chip = "sys/devices/platform/i2c/i2c-2/2-005c/hwmon/hwmon9/"
	tr.write("ltc2947\n", chip+"name")
	tr.write("26000000\n", chip+"power1_input")
	tr.ok(os.Symlink("../../../2-005c", tr.path(chip+"device")))
	tr.ok(os.Symlink("../../devices/platform/i2c/i2c-2/2-005c/hwmon/hwmon9", tr.path("sys/class/hwmon/hwmon9")))
	for _, c := range []struct {
		named Sensor
		want  []string
	}{
		{Sensor{Chip: "ltc2947", Sensor: "power1", Kind: power.GPU}, []string{"gpu 2-005c:power1"}},
		{Sensor{Chip: "amdgpu", Device: "0000:e6:00.0", Sensor: "PPT", Kind: power.GPU}, []string{"gpu 0000:03:00.0:PPT", "gpu 0000:04:00.0:PPT", "gpu 0000:e6:00.0:PPT"}},
		{Sensor{Chip: "ltc2947", Sensor: "power1", Kind: power.Platform}, []string{"gpu 0000:03:00.0:PPT", "gpu 0000:04:00.0:PPT", "platform 2-005c:power1"}},
	} {
		tr.bubble(t, Options{Sensors: []Sensor{c.named}}, func(t *testing.T, m *Meter) {
			assert.Equal(t, c.want, tr.kinds(m))
		})
	}
}
