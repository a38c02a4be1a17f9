// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package weigh

import (
	"errors"
	"io"
	"os"

	"github.com/energyreceiver/energyreceiver/internal/cgroup"
)

var errNotLinux = errors.New("perf events are Linux's")

func openRatios(string) (rates, error) { return nil, errNotLinux }

func openPerf(*cgroup.Tree, Event) (counts, error) { return nil, errNotLinux }

func readAgain(f *os.File, buf []byte) (int, error) {
	n, err := f.ReadAt(buf, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
