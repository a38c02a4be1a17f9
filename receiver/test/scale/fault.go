// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// layer is a kind of process between the nodes and the answers.
type layer string

const (
	balancerLayer layer = "balancer"
	gatewayLayer  layer = "gateway"
	storeLayer    layer = "store"
)

// fault is the end of one process by SIGKILL.
type fault struct {
	layer layer
	index int           // of the process within its layer
	after time.Duration // since the nodes began, in real time
	down  time.Duration // until the process is started again
}

var faultFormat = regexp.MustCompile(`^(balancer|gateway|store)([1-9][0-9]*)?@([0-9].*)$`)

// parseFaults parses faults such as "gateway@20s,store2@40s": the layer, the number of the process
// (1 if left out), and when it is killed.
func parseFaults(text string, down time.Duration) (faults []fault, err error) {
	for item := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' }) {
		parts := faultFormat.FindStringSubmatch(item)
		if parts == nil {
			return nil, fmt.Errorf("%q is no fault: gateway@20s and store2@40s are", item)
		}
		after, err := time.ParseDuration(parts[3])
		if err != nil {
			return nil, err
		}
		number, _ := strconv.Atoi(cmp.Or(parts[2], "1"))
		faults = append(faults, fault{layer(parts[1]), number - 1, after, down})
	}
	return faults, nil
}

// inflict kills a process at the time of the fault, and restarts it. It returns early if the
// context ends.
func (f fault) inflict(ctx context.Context, p *process, start time.Time, out io.Writer) error {
	if !waitUntil(ctx, start.Add(f.after)) {
		return nil
	}
	_, _ = fmt.Fprintf(out, "%v: kill -9 %d, %s %d\n", f.after, p.PID(), f.layer, f.index+1)
	p.kill()
	waitUntil(ctx, start.Add(f.after+f.down))
	if err := p.Start(p.url); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "%v: %s %d is started again\n", time.Since(start).Round(time.Second), f.layer, f.index+1)
	return nil
}

// waitUntil waits for a time, and reports whether it came before the context ended.
func waitUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
