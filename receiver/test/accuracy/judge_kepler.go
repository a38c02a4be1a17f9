// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

// keplerProgram is Kepler from 0.10, scraped at its default interval. Kepler reads the files at
// each scrape.
var keplerProgram = judged{
	name: "Kepler", title: "Kepler", binary: flag.String("kepler", "", "Kepler's binary"), start: startKepler, every: 5 * time.Second,
	simulated: func(t *testing.T, sc simScenario) float64 { return othersOnce(t, sc)["Kepler from 0.10"].misattributed },
}

const keplerSettings = `
log: {level: error}
host: {procfs: "%[1]s/proc", sysfs: "%[1]s/sys"}
monitor: {interval: 0s, staleness: 1ms}
web: {listenAddresses: ["%[2]s"]}
`

func startKepler(tr *trial) (arguments []string, read func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tr.tb, err)
	address, file := listener.Addr().String(), filepath.Join(tr.dir, "kepler.yaml")
	require.NoError(tr.tb, listener.Close())
	require.NoError(tr.tb, os.WriteFile(file, fmt.Appendf(nil, keplerSettings, tr.root, address), 0o600))
	return []string{"--config.file", file}, func() {
		var page []byte
		require.Eventually(tr.tb, func() bool {
			response, err := http.Get("http://" + address + "/metrics")
			if err != nil {
				return false
			}
			defer func() { _ = response.Body.Close() }()
			page, err = io.ReadAll(response.Body)
			return err == nil && keplerSeries.Match(page)
		}, time.Minute, judgeStep, "Kepler reports energy")
		tr.readKepler(string(page))
	}
}

var (
	keplerSeries = regexp.MustCompile(`(?m)^kepler_(process_cpu|container_cpu|node_cpu_active)_joules_total\{(.*)\} (\S+)$`)
	keplerState  = regexp.MustCompile(`,state="\w+"`)
	keplerLabel  = regexp.MustCompile(`(\w+)="([^"]+)"`)
	// keplerNames maps Kepler's metrics and labels to the receiver's.
	keplerNames = map[string]string{
		"process_cpu": "process.energy", "container_cpu": "container.energy", "node_cpu_active": "system.energy",
		"container_id": "container.id", "comm": "process.executable.name", "zone": "energy.zone",
	}
)

// readKepler reads the series of a scrape. The last values of an exited workload have another
// state.
func (tr *trial) readKepler(page string) {
	for _, line := range keplerSeries.FindAllStringSubmatch(page, -1) {
		labels, attributes := keplerState.ReplaceAllString(line[2], ""), pcommon.NewMap()
		for _, label := range keplerLabel.FindAllStringSubmatch(labels, -1) {
			attributes.PutStr(keplerNames[label[1]], label[2])
		}
		zone, _ := attributes.Get("energy.zone")
		joules, err := strconv.ParseFloat(line[3], 64)
		require.NoError(tr.tb, err)
		tr.series[simSeries{metric: keplerNames[line[1]], resource: labels, of: tr.workloadOf(attributes), zone: zone.Str()}] = joules
	}
}
