// SPDX-License-Identifier: Apache-2.0

//go:build linux

package stores

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/receiver/test/series"
)

// file is the output of the collector's file exporter. It is queried with deploy/file/joules.py.
type file struct {
	relay
	path string
}

func openFile(t *testing.T, dir string) (backend, error) {
	if _, err := exec.LookPath("python3"); err != nil {
		return nil, fmt.Errorf("%w python3", errLacks)
	}
	f := &file{path: filepath.Join(dir, "energy.json")}
	binary, err := program(t, "..", "otelcol-energy")
	if err != nil {
		return nil, err
	}
	f.relay, err = openRelay(t, dir, binary, "file", "{path: "+f.path+", flush_interval: 100ms}")
	return f, err
}

func (f *file) send(_ time.Time, md pmetric.Metrics) error { return post(f.otlp, md) }

// settle waits until the exporter has written all data, which it does after acknowledging it.
func (f *file) settle() error {
	size := int64(-1)
	return series.Until(f.path+" is complete", func() (bool, error) {
		time.Sleep(time.Second)
		info, err := os.Stat(f.path)
		if err != nil || info.Size() == size {
			return err == nil, err
		}
		size = info.Size()
		return false, nil
	})
}

// Query runs a command of the page, in the root of the checkout. The hour ends at a time instead of
// now.
func (f *file) Query(text string, at time.Time) (rows []series.Row, err error) {
	command, _, _ := strings.Cut(text, "<")
	words := append(strings.Fields(command), "--until", strconv.FormatInt(at.Unix(), 10))
	input, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = input.Close() }()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stderr = "../../..", input, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(out) {
		joules, key, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\t")
		value, err := strconv.ParseFloat(joules, 64)
		if err != nil {
			return nil, err
		}
		labels := map[string]string{}
		if key != "" {
			labels[words[2]] = key
		}
		rows = append(rows, series.Row{Labels: labels, Value: value})
	}
	return rows, nil
}
