// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/energyreceiver/energyreceiver/internal/ledger"
)

// agent is a node's collector. As shipped, it sends each collection once and waits for the answer;
// what is refused is in the next one. With a queue it takes a collection as delivered at once, and
// sends it until it is acknowledged, as an exporter's default settings do.
type agent struct {
	node   *node
	truth  *truth
	client *http.Client
	url    string
	queued bool
	cost   agents

	meteredBefore, meteredLast float64 // joules of the meters, at the last collection delivered before the window and at the last of all

	mu      sync.Mutex
	refused int // requests that were not acknowledged
	forGood int // of these, not to be sent again
	dropped int // points of requests that were taken in part
	waiting sync.WaitGroup
}

// nodeTimeout is the timeout of the shipped exporters.
const nodeTimeout = 5 * time.Second

// maxFurther is how many collections a node makes beyond those of the plan, to have one acknowledged.
const maxFurther = 12

func (a *agent) metered() float64 { return a.meteredLast - a.meteredBefore }

// schedule is when nodes collect. speed is how much faster their clock is.
type schedule struct {
	start    time.Time // real
	begin    time.Time // of the nodes' clock
	interval time.Duration
	rounds   int
	speed    float64
	offset   time.Duration // of a node within the interval
}

// at returns the nodes' time of a round, of which the first is 0.
func (s *schedule) at(round int) time.Time {
	return s.begin.Add(time.Duration(round)*s.interval + s.offset)
}

// due returns the real time of a round.
func (s *schedule) due(round int) time.Time {
	return s.start.Add(time.Duration(float64(s.at(round).Sub(s.begin)) / s.speed))
}

// next returns the round after one that has ended by now. Rounds that have passed meanwhile are
// left out, but never the last.
func (s *schedule) next(round int, now time.Time) int {
	for round++; round < s.rounds-1 && now.After(s.due(round+1)); round++ {
	}
	return round
}

// run makes and sends all collections, and then further ones until one is acknowledged.
func (a *agent) run(ctx context.Context, s schedule, mark time.Time) error {
	defer a.waiting.Wait()
	acknowledged := false
	for round := 0; round < s.rounds || !acknowledged && round < s.rounds+maxFurther; round = s.next(round, time.Now()) {
		if !waitUntil(ctx, s.due(round)) {
			return ctx.Err()
		}
		var err error
		if acknowledged, err = a.collectAndSend(ctx, s.at(round), mark); err != nil {
			return err
		}
	}
	return nil
}

// collectAndSend makes a collection of all energy until a time, and reports whether it was acknowledged.
func (a *agent) collectAndSend(ctx context.Context, at, mark time.Time) (acknowledged bool, err error) {
	md := a.node.measure(at.Sub(a.node.now))
	if err := a.truth.add(md); err != nil {
		return false, err
	}
	a.meteredLast = a.node.metered()
	m, err := a.cost.pack(md)
	if err != nil {
		return false, err
	}
	if a.queued {
		a.acknowledged(at.Before(mark))
		a.waiting.Go(func() { a.sendUntilTaken(ctx, m.body) })
		return true, nil
	}
	switch err := a.send(ctx, m.body); {
	case err == nil:
		a.acknowledged(at.Before(mark))
		return true, nil
	case errors.Is(err, errForGood):
		a.node.engine.Outcome(ledger.RefusedForGood)
	default:
		a.node.engine.Outcome(ledger.Refused)
	}
	return false, nil
}

// acknowledged notes that the last collection was delivered.
func (a *agent) acknowledged(beforeWindow bool) {
	a.node.engine.Outcome(ledger.Acknowledged)
	if beforeWindow {
		a.meteredBefore = a.meteredLast
		a.truth.acknowledged()
	}
}

// sendUntilTaken does as an exporter that retries.
func (a *agent) sendUntilTaken(ctx context.Context, body []byte) {
	for retry, began := firstRetry, time.Now(); ; retry = min(retry*3/2, lastRetry) {
		err := a.send(ctx, body)
		if err == nil || errors.Is(err, errForGood) || time.Since(began) > patience || !waitUntil(ctx, time.Now().Add(retry)) {
			return
		}
	}
}

// errForGood marks what an exporter does not send again.
var errForGood = errors.New("refused for good")

// send sends a request once.
func (a *agent) send(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	dropped, err := exportOnce(ctx, a.client, a.url, body)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.refused++
	}
	if errors.Is(err, errForGood) {
		a.forGood++
	}
	a.dropped += dropped
	return err
}

// exportOnce sends a request of OTLP over HTTP, and returns how many of its points were rejected:
// https://opentelemetry.io/docs/specs/otlp/#otlphttp-response
func exportOnce(ctx context.Context, client *http.Client, url string, body []byte) (rejected int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "gzip")
	answer, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	switch answer.StatusCode {
	case http.StatusOK:
		response := pmetricotlp.NewExportResponse()
		if err := response.UnmarshalProto(text); err != nil {
			return 0, err
		}
		return int(response.PartialSuccess().RejectedDataPoints()), nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 0, fmt.Errorf("%s: %q", answer.Status, text)
	}
	return 0, fmt.Errorf("%w: %s: %q", errForGood, answer.Status, text)
}
