// SPDX-License-Identifier: Apache-2.0

//go:build !(linux && (amd64 || arm64))

package nvml

import (
	"fmt"
	"io/fs"
	"runtime"
)

// Open returns an error: the extension calls NVML only on Linux, on amd64 and arm64.
func Open(name string) (Library, error) {
	return nil, fmt.Errorf("no library %s for %s/%s: %w", name, runtime.GOOS, runtime.GOARCH, fs.ErrNotExist)
}
