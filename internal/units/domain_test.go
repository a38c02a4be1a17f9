// SPDX-License-Identifier: Apache-2.0

package units

import "testing"

func TestOnlyThePCIAddressOfAGPUIsOne(t *testing.T) {
	for _, address := range []string{"0000:03:00.0", "0000:e6:1f.7", "10000:01:00.0"} {
		if got, ok := GPU(address).PCIAddress(); !ok || got != address {
			t.Errorf("%q: %q, %t", address, got, ok)
		}
	}
	for _, d := range []Domain{
		"", NodeCPUs, "package-0", "gpu-", "gpu-accel0", "gpu-2-005c", "gpu-fde60000.gpu", "gpu-0000:03:00.8", "gpu-0000:03:00",
		"gpu-03:00.0", "gpu-0000:0G:00.0", "gpu-0000:0E:00.0", "gpu-0000-03:00.0", "gpu-0000:03:00.0:1", "0000:03:00.0", "gpu-x0000:03:00.0",
	} {
		if got, ok := d.PCIAddress(); ok {
			t.Errorf("%q: %q", d, got)
		}
	}
}
