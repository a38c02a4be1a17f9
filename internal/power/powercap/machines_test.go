// SPDX-License-Identifier: Apache-2.0

package powercap

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Zones of machines as they were published, and what each is: "ID name max_energy_range_uj" and "ID
// kind domain parent".
func TestEachMachineHasExactlyItsZones(t *testing.T) {
	for _, m := range []struct {
		name, source string
		zones, want  []string
	}{
		{
			"Kaby Lake laptop", "https://github.com/powercap/powercap/issues/3",
			[]string{
				"intel-rapl:0 package-0 262143328850", "intel-rapl:0:0 core 262143328850", "intel-rapl:0:1 uncore 262143328850",
				"intel-rapl:0:2 dram 262143328850", "intel-rapl:1 psys 262143328850", "intel-rapl-mmio:0 package-0 262143328850",
			},
			[]string{
				"intel-rapl:0 package package-0 ", "intel-rapl:0:0 core package-0 intel-rapl:0", "intel-rapl:0:1 uncore package-0 intel-rapl:0",
				"intel-rapl:0:2 dram package-0 intel-rapl:0", "intel-rapl:1 psys node ",
			},
		},
		{
			"server whose psys counts whole joules", "https://github.com/intel/powertelemetry/issues/3",
			[]string{"intel-rapl:0 package-0 262143328850", "intel-rapl:0:0 dram 65712999613", "intel-rapl:1 psys 4294967295000000"},
			[]string{"intel-rapl:0 package package-0 ", "intel-rapl:0:0 dram package-0 intel-rapl:0", "intel-rapl:1 psys node "},
		},
		{
			"two sockets with memory", "https://github.com/sustainable-computing-io/kepler/issues/120",
			[]string{
				"intel-rapl:0 package-0 262143328850", "intel-rapl:0:0 dram 65712999613",
				"intel-rapl:1 package-1 262143328850", "intel-rapl:1:0 dram 65712999613",
			},
			[]string{
				"intel-rapl:0 package package-0 ", "intel-rapl:0:0 dram package-0 intel-rapl:0",
				"intel-rapl:1 package package-1 ", "intel-rapl:1:0 dram package-1 intel-rapl:1",
			},
		},
		{
			"a socket of two dies", "drivers/powercap/intel_rapl_common.c, rapl_add_package",
			[]string{"intel-rapl:0 package-0-die-0 262143328850", "intel-rapl:0:0 dram 65712999613", "intel-rapl:1 package-0-die-1 262143328850"},
			[]string{
				"intel-rapl:0 package package-0-die-0 ", "intel-rapl:0:0 dram package-0-die-0 intel-rapl:0",
				"intel-rapl:1 package package-0-die-1 ",
			},
		},
		{
			"repeated zones, and zones of the control type mmio alone: uncore, and a socket with its memory", "made up",
			[]string{
				"intel-rapl:0 package-0 262143328850", "intel-rapl:0:0 dram 65712999613", "intel-rapl-mmio:0 package-0 262143328850",
				"intel-rapl-mmio:0:0 dram 65712999613", "intel-rapl-mmio:0:1 uncore 262143328850",
				"intel-rapl-mmio:1 package-1 262143328850", "intel-rapl-mmio:1:0 dram 65712999613",
			},
			[]string{
				"intel-rapl-mmio:0:1 uncore package-0 intel-rapl-mmio:0", "intel-rapl-mmio:1 package package-1 ",
				"intel-rapl-mmio:1:0 dram package-1 intel-rapl-mmio:1",
				"intel-rapl:0 package package-0 ", "intel-rapl:0:0 dram package-0 intel-rapl:0",
			},
		},
		{
			"a numbered psys, and zones whose package is not listed", "made up",
			[]string{"intel-rapl:1 psys-1 262143328850", "intel-rapl:2:0 core 262143328850", "intel-rapl:3 dram 65712999613"},
			[]string{"intel-rapl:1 psys node ", "intel-rapl:2:0 core node intel-rapl:2", "intel-rapl:3 dram node "},
		},
	} {
		t.Run(m.name, func(t *testing.T) {
			tr := newTree(t)
			for _, line := range m.zones {
				f := strings.Fields(line)
				tr.zone(f[0], f[1])
				tr.write(f[2]+"\n", f[0], "max_energy_range_uj")
				tr.energy(f[0], 60_293*units.Joule)
			}
			readings, err := tr.meter().Read(t.Context(), power.Sample{At: epoch})
			tr.ok(err)
			var got []string
			for _, r := range readings {
				got = append(got, fmt.Sprintf("%s %s %s %s", r.Zone.ID, r.Zone.Kind, r.Zone.Domain, r.Zone.Parent))
			}
			assert.Equal(t, m.want, got, m.source)
		})
	}
}
