// SPDX-License-Identifier: Apache-2.0

// Package perfevent opens counters of the kernel (perf_event_open(2)).
package perfevent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// ErrOtherKernel is returned by CheckKernel.
var ErrOtherKernel = errors.New("the files below root_path belong to another kernel")

// CheckKernel returns an error unless /proc below root is this kernel's: a recorded tree is not.
func CheckKernel(root string) error {
	own, err := kernfs.BootID("/")
	if err != nil {
		return err
	}
	there, err := kernfs.BootID(root)
	switch {
	case err != nil: // not fs.ErrNotExist, which means that there is no PMU
		return fmt.Errorf("%w: %s", ErrOtherKernel, err.Error())
	case there != own:
		return ErrOtherKernel
	}
	return nil
}

// ReadNumber reads a decimal or 0x number of up to 32 bits that follows a prefix in a file. It reads
// the type of a PMU, and the description of an event that has one term
// (Documentation/ABI/testing/sysfs-bus-event_source-devices-events).
func ReadNumber(path, prefix string) (uint64, error) {
	text, err := os.ReadFile(path)
	if text, err = kernfs.Result(path, text, err); err != nil {
		return 0, err
	}
	n, ok := parseNumber(text, prefix)
	if !ok {
		return 0, fmt.Errorf("%s: cannot parse %q", path, text)
	}
	return n, nil
}

func parseNumber(text []byte, prefix string) (uint64, bool) {
	digits, ok := bytes.CutPrefix(bytes.TrimSpace(text), []byte(prefix))
	n, err := strconv.ParseUint(string(digits), 0, 32)
	return n, ok && err == nil
}
