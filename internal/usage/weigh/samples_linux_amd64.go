// SPDX-License-Identifier: Apache-2.0

package weigh

import "github.com/energyreceiver/energyreceiver/internal/usage/cpu/tasks"

// openSamples opens the kernel's samples. Tests replace it.
var openSamples = func() (samples, error) { return tasks.OpenSamples() }
