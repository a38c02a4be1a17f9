// SPDX-License-Identifier: Apache-2.0

// Package energyreceiver is an OpenTelemetry Collector receiver that measures the energy of a Linux
// node and attributes it to processes, containers, pods and virtual machines.
//
// The package holds the collector's side: the factory, the scraper, status and internal telemetry.
// The packages below internal hold the parts of the scraper.
//
// # Goroutines and locks
//
// The scraper has one lock, energyScraper.mu. The lock guards the meters, the CPU time source, the
// attributor, the state and the windows. A goroutine holds it for one window or one collection. The
// goroutines of the receiver are:
//
//   - The goroutine of Start opens the parts, before any other goroutine uses them.
//   - The goroutine of the baseline measures the first window, and then starts the sampler and the
//     feed. Collections wait for it.
//   - The goroutine of the controller calls scrape, and sends the metrics to the next consumer. It
//     takes the lock for the collection and for the outcome, and not while the next consumer works.
//     Between collections, it starts the sampler again if the length of the windows changes.
//   - The sampler calls sample at each beat of the metronome, with the lock.
//   - Readers of the feed call endWindow on their goroutines. It waits for the lock until the context
//     is done. Each reader receives its windows on the goroutine that ended the window.
//   - The collector reads the internal telemetry on its own goroutine. The callbacks wait for the lock
//     for 250 ms, and then report no values, so that a hanging collection does not block the
//     collector's metrics.
//   - The timer of the watchdog reports a collection that hangs. It uses no lock: the activity is an
//     atomic value, and the conditions have a lock of their own.
//
// Calls that may hang run on goroutines of their own, and only their results pass to the window. A
// slow meter is polled by its power.Poller. Files that users can block are read by workers of
// package kernfs. Each call of the store has a time limit. Three tasks run in the background and
// are not awaited: the fsync of a state file, the attachment of the BPF program to context
// switches, and the return of memory to the system after the start.
//
// The order at shutdown is:
//
//  1. The watchdog stops, and the baseline is canceled and awaited.
//  2. The sampler stops and the feed closes. No window ends from now on but the last one.
//  3. The last collection is made, and sent to the next consumer.
//  4. The callbacks of the telemetry are removed, without the lock: they may wait for it.
//  5. The state, the ledger, the meters and the CPU time source are closed, with the lock.
//
// Shutdown returns after four seconds at the latest, even if a goroutine hangs. From then on no
// metrics are sent.
package energyreceiver // import "github.com/energyreceiver/energyreceiver/receiver"

//go:generate mdatagen metadata.yaml
//go:generate sed -i "s/^package receiver/package energyreceiver/" generated_component_test.go generated_package_test.go
// mdatagen passes values of closed lists to options that take strings.
//
//go:generate sed -i -E "s/(With[A-Za-z0-9]+MetricAttribute\\(Attribute[A-Za-z0-9]+)\\)/\\1.String())/g" internal/metadata/generated_metrics_test.go
//go:generate go run ./internal/configdoc
