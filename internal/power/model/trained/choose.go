// SPDX-License-Identifier: Apache-2.0

package trained

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/regular"
)

const (
	// maxSize is the maximum size of a file in bytes. Files of energy model have a few kilobytes.
	// Files of Kepler Model Server with 100 trees of XGBoost in each zone have up to 900,000 bytes.
	maxSize = 1 << 20
	// maxFiles and maxTotal (in bytes) limit the files that are read in a directory, and thus the
	// startup time: parsing 1 MiB of malicious JSON takes about a second. Files are read in the
	// order of their names. The six files of energy model --kepler have up to 6 MiB.
	maxFiles = 256
	maxTotal = 1 << 23
	// maxListed is the maximum number of files that an error lists.
	maxListed = 10
)

// models are the models of a directory, or the model of a single file.
type models struct {
	path string
	of   []*trainedModel
	// alone reports whether path is a file.
	alone bool
}

// read reads the model at path, or the models in the directory at path. The error lists the files
// that could not be read. If no file could be read, there are no models.
func read(path string) (*models, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		m, _, err := readFile(path)
		if err != nil {
			return nil, err
		}
		return &models{path: path, of: []*trainedModel{m}, alone: true}, nil
	}
	names, err := filepath.Glob(filepath.Join(escape(path), "*.json"))
	if err != nil {
		return nil, err
	}
	found := &models{path: path}
	var errs list
	left := maxTotal
	for i, name := range names { // sorted
		if i == maxFiles || left <= 0 {
			errs = append(errs, fmt.Errorf("only the first %d of %d files *.json are read", i, len(names)))
			break
		}
		m, size, err := readFile(name)
		left -= size
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found.of = append(found.of, m)
	}
	if len(found.of) == 0 {
		return nil, errors.Join(fmt.Errorf("no trained model *.json in %s", path), errs.join())
	}
	return found, errs.join()
}

// escape returns a pattern that matches only the path itself.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// list is a list of errors. Only the first ones are reported.
type list []error

func (l list) join() error {
	if more := len(l) - maxListed; more > 0 {
		l = append(l[:maxListed:maxListed], fmt.Errorf("%d files more could not be read", more))
	}
	return errors.Join(l...)
}

var errNotRegular = errors.New("not a regular file")

// readFile reads the model in a file. size is the number of bytes that were read, even if the file
// is not a model.
func readFile(path string) (m *trainedModel, size int, err error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, len(data), err
	}
	if m, err = parse(data, path); err != nil {
		return nil, len(data), fmt.Errorf("%s: %w", path, err)
	}
	return m, len(data), nil
}

func readBounded(path string) ([]byte, error) {
	data, err := regular.Read(path, maxSize)
	switch {
	case errors.Is(err, regular.ErrNotRegular):
		return nil, fmt.Errorf("%s: %w", path, errNotRegular)
	case errors.Is(err, regular.ErrTooLarge):
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxSize)
	}
	return data, err
}

// fit is how well a model fits a machine, best first.
type fit int

const (
	exact fit = iota
	sameCPU
	sameModel
	unstated // the model does not state its machine
	different
)

// fit returns how well the model fits a machine.
func (t *trainedModel) fit(m *machine.Machine) fit {
	of := &t.machine
	key := cpuKey(of.CPU)
	switch {
	case *of == machine.Machine{}:
		return unstated
	case of.Chip != m.Chip:
		return different
	case key != "" && key == cpuKey(m.CPU):
		if of.Threads == m.Threads {
			return exact
		}
		return sameCPU
	case of.Vendor != "" && of.Model != 0 && of.Vendor == m.Vendor && of.Family == m.Family && of.Model == m.Model:
		return sameModel
	}
	return different
}

// choose returns the candidate that fits best, or nil if no candidate fits.
func (ms *models) choose(m *machine.Machine, o *Options, isCandidate func(*trainedModel) bool) *trainedModel {
	var best *trainedModel
	for _, t := range ms.of {
		f := t.fit(m)
		if !isCandidate(t) || f == different || f == unstated && !ms.alone || t.usable(o) != nil {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(f, best.fit(m)), cmp.Compare(t.largestError(o), best.largestError(o)),
			strings.Compare(t.name, best.name)) < 0 {
			best = t
		}
	}
	return best
}

// noneFits returns the error that names the requested machine and the available models.
func (ms *models) noneFits(m *machine.Machine, o *Options) error {
	var there []string
	for i, t := range ms.of {
		if i == maxListed {
			there = append(there, fmt.Sprintf("%d more", len(ms.of)-i))
			break
		}
		text := fmt.Sprintf("%s is of %s", t.name, describe(&t.machine))
		if err := t.usable(o); err != nil {
			text += ", and cannot be used: " + err.Error()
		}
		there = append(there, text)
	}
	return fmt.Errorf("no trained model in %s fits this machine, %s: %s", ms.path, describe(m), strings.Join(there, "; "))
}

// describe describes a machine for the log.
func describe(m *machine.Machine) string {
	if *m == (machine.Machine{}) {
		return "an unstated machine"
	}
	text := cmp.Or(m.CPU, "unknown CPU")
	if m.Chip != "" {
		text += " (" + m.Chip + ")"
	}
	if m.Vendor != "" && m.Model != 0 {
		text += fmt.Sprintf(" (%s family %d model %d)", m.Vendor, m.Family, m.Model)
	}
	return text + fmt.Sprintf(" with %d threads", m.Threads)
}

// cpuKey returns a key that is the same for different spellings of a CPU's name. Kepler Model
// Server writes "intel_xeon_e5_2686v4" for "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz"
// (format_processor of its node_type_index.py), so the key has no spaces.
func cpuKey(name string) string { return strings.ReplaceAll(machine.Key(name), " ", "") }
