// SPDX-License-Identifier: Apache-2.0

//go:build linux && !amd64

package weigh

import "errors"

// openSamples fails: only x86 has MPERF and APERF.
var openSamples = func() (samples, error) { return nil, errors.ErrUnsupported }
