// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"context"
	"sync"
	"time"
)

// pace has its callers wait so that they go on no more often than once in every. The zero pace lets all go on at once.
type pace struct {
	every time.Duration

	mu   sync.Mutex
	next time.Time // when the next caller may go on
}

// wait waits until the caller's turn, or until ctx is done.
func (p *pace) wait(ctx context.Context) {
	if p.every <= 0 {
		return
	}
	p.mu.Lock()
	now := time.Now()
	turn := p.next
	if turn.Before(now) {
		turn = now
	}
	p.next = turn.Add(p.every)
	p.mu.Unlock()
	if d := turn.Sub(now); d > 0 {
		sleep(ctx, d)
	}
}
