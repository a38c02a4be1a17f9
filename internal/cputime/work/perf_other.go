//go:build !linux

package work

import "errors"

var errNotLinux = errors.New("perf events are Linux's")

func openRatios(string) (rates, error) { return nil, errNotLinux }

func openPerf(string, Event) (counts, error) { return nil, errNotLinux }
