// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// shared is a directory that a hypervisor shares.
type shared struct {
	testing.TB
	path string
}

func newShared(t testing.TB) shared { return shared{t, newDir(t)} }

// put writes the files of an archive. Each holds its last line without the end.
func (s shared) put(archive string) {
	s.Helper()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		s.write(f.Name, strings.TrimSuffix(string(f.Data), "\n"))
	}
}

func (s shared) write(name, text string) {
	s.Helper()
	name = filepath.Join(s.path, name)
	require.NoError(s, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(s, os.WriteFile(name, []byte(text), 0o600))
}

func (s shared) reader() *reader { return &reader{path: s.path} }

// Scaphandre makes the directory of the memory and never writes to it.
const scaphandre = `
-- intel-rapl:0/energy_uj --
8700000
-- intel-rapl:0:0/.keep --
`

const kernels = `
-- intel-rapl:0/name --
package-0

-- intel-rapl:0/energy_uj --
7000

-- intel-rapl:0/max_energy_range_uj --
262143328850

-- intel-rapl:0/enabled --
1

-- intel-rapl:0/intel-rapl:0:0/name --
core

-- intel-rapl:0/intel-rapl:0:0/energy_uj --
3000

-- intel-rapl:0/intel-rapl:0:0/max_energy_range_uj --
262143328850

-- intel-rapl:1/name --
package-1

-- intel-rapl:1/energy_uj --
8000

-- intel-rapl:1/max_energy_range_uj --
262143328850

-- intel-rapl:10/name --
psys

-- intel-rapl:10/max_energy_range_uj --
262143328850

`

func TestReadsTreesOfEachLayout(t *testing.T) {
	top := func(id string, kind power.Kind, name string, energy, limit units.Energy) Zone {
		return Zone{ID: id, Kind: kind, Name: name, Energy: energy, Range: limit}
	}
	const limit = 262143328850
	core := Zone{ID: "intel-rapl:0:0", Kind: power.Core, Name: "core", Parent: "intel-rapl:0", Energy: 3000, Range: limit}
	sockets := []Zone{
		top("intel-rapl:0", power.Package, "package-0", 7000, limit), core, top("intel-rapl:1", power.Package, "package-1", 8000, limit),
	}
	for name, test := range map[string]struct {
		tree string
		want Report
	}{
		"a report":     {"-- report.json --\n" + wholeDocument + "\n" + scaphandre, *wholeReport()},
		"Scaphandre's": {scaphandre, Report{Generation: 1, Zones: []Zone{top("intel-rapl:0", power.Package, "package-0", 8_700_000, 0)}}},
		"the kernel's": {kernels, Report{Generation: 1, Zones: sockets}},
		"the kernel's directory of the control type": {
			"-- intel-rapl-mmio/intel-rapl-mmio:0/energy_uj --\n1\n" + strings.ReplaceAll(kernels, "-- ", "-- intel-rapl/"),
			Report{Generation: 1, Zones: sockets},
		},
		"subzones next to their parents and in them": {
			kernels + "-- intel-rapl:0:0/name --\ncore\n-- intel-rapl:0:0/energy_uj --\n3000\n-- intel-rapl:0:0/max_energy_range_uj --\n262143328850\n",
			Report{Generation: 1, Zones: sockets},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShared(t)
			s.put(test.tree)
			got, err := s.reader().read()
			require.NoError(t, err)
			assert.Equal(t, &test.want, got)
			if test.tree == scaphandre {
				t.Attr("vm-tree", fmt.Sprintf("%g J", got.Zones[0].Energy.Joules()))
			}
		})
	}
}

func TestAReportThatIsMissingForAMomentIsAnError(t *testing.T) {
	s := newShared(t)
	s.put(scaphandre)
	s.write("report.json", wholeDocument)
	r := s.reader()
	_, err := r.read()
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(s.path, "report.json")))
	_, err = r.read()
	require.EqualError(t, err, "report.json: no such file or directory")
}

func TestOnlyWantedZonesOfOtherProgramsAreRead(t *testing.T) {
	s := newShared(t)
	s.put(kernels)
	s.write("intel-rapl:0/intel-rapl:0:0/energy_uj", "damaged")
	require.NoError(t, os.Symlink("intel-rapl:0/intel-rapl:0:0", filepath.Join(s.path, "intel-rapl:0:0")))
	r := &reader{path: s.path, want: func(k power.Kind) bool { return k == power.Package }}
	got, err := r.read()
	require.NoError(t, err)
	assert.Len(t, got.Zones, 2)
}

func TestATreeWithoutAReportHasNewsIfItIsWritten(t *testing.T) {
	s := newShared(t)
	s.put(scaphandre)
	r := s.reader()
	generation := func() uint64 {
		report, err := r.read()
		require.NoError(t, err)
		return report.Generation
	}
	file := filepath.Join(s.path, "intel-rapl:0/energy_uj")
	written := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(file, written, written))
	first := generation()
	assert.Equal(t, first, generation(), "no file is written")
	written = written.Add(5 * time.Second)
	require.NoError(t, os.Chtimes(file, written, written))
	assert.Equal(t, first+1, generation(), "the same energy is written again: none was used")
	s.write("intel-rapl:0/energy_uj", "8700001")
	require.NoError(t, os.Chtimes(file, written, written))
	assert.Equal(t, first+2, generation(), "the kernel's files keep their times")
	s.write("intel-rapl:0/energy_uj", "")
	_, err := r.read()
	require.ErrorIs(t, err, errHalfWritten, "a file that is rewritten in place is empty for a moment")
}

func TestHostileTreesAreRefused(t *testing.T) {
	link := func(target, name string) func(shared) {
		return func(s shared) {
			name := filepath.Join(s.path, name)
			require.NoError(s, os.RemoveAll(name))
			require.NoError(s, os.Symlink(target, name))
		}
	}
	write := func(name, text string) func(shared) { return func(s shared) { s.write(name, text) } }
	pipe := func(name string) func(shared) {
		return func(s shared) {
			name := filepath.Join(s.path, name)
			require.NoError(s, os.RemoveAll(name))
			require.NoError(s, syscall.Mkfifo(name, 0o644))
		}
	}
	directories := func(format string, n int) func(shared) {
		return func(s shared) {
			for i := range n {
				require.NoError(s, os.MkdirAll(filepath.Join(s.path, fmt.Sprintf(format, i, i%32)), 0o755))
			}
		}
	}
	huge := func(name string) func(shared) {
		return func(s shared) {
			s.write(name, "")
			require.NoError(s, os.Truncate(filepath.Join(s.path, name), 1<<40))
		}
	}
	const energy = "intel-rapl:0/energy_uj"
	for name, test := range map[string]struct {
		change func(shared)
		want   string
	}{
		"a link for the report":           {link("/etc/passwd", reportFile), "report.json: not a regular file"},
		"a FIFO for the report":           {pipe(reportFile), "report.json: not a regular file"},
		"a directory for the report":      {directories(reportFile+"/%d", 1), "report.json: not a regular file"},
		"a huge report":                   {huge(reportFile), "report.json: the file is too large: the limit is 4096 bytes"},
		"an empty report":                 {write(reportFile, ""), "report.json: not an energy report"},
		"a link to a device":              {link("/dev/zero", energy), "intel-rapl:0: energy_uj: not a regular file"},
		"a link out of the tree":          {link("../..", "intel-rapl:0"), "intel-rapl:0: not a directory"},
		"a FIFO":                          {pipe(energy), "intel-rapl:0: energy_uj: not a regular file"},
		"a FIFO for a zone":               {pipe("intel-rapl:7"), "intel-rapl:7: not a directory"},
		"a directory for a counter":       {directories("intel-rapl:7/energy_uj/%d", 1), "intel-rapl:7: energy_uj: not a regular file"},
		"a huge file":                     {huge(energy), "intel-rapl:0: energy_uj: the file is too large: the limit is 4096 bytes"},
		"a negative counter":              {write(energy, "-1\n"), "intel-rapl:0: energy_uj: not a decimal number"},
		"more than 64 bits":               {write(energy, "18446744073709551616\n"), "intel-rapl:0: energy_uj: number exceeds 64 bits"},
		"too many directories":            {directories("intel-rapl:%d", maxEntries+1), "more than 1024 entries"},
		"too many directories below":      {directories("intel-rapl:%[2]d/intel-rapl:%[2]d:%[1]d", maxEntries), "more than 1024 entries"},
		"another name":                    {write("intel-rapl:0/name", "package-0\nintel\n"), "no zone with energy_uj: is the share mounted, and does the hypervisor write to it?"},
		"a zone whose name has a newline": {directories("intel-rapl:9\n%d", 3), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShared(t)
			s.put(scaphandre)
			test.change(s)
			got, err := s.reader().read()
			if test.want != "" {
				require.Error(t, err)
				require.True(t, strings.HasSuffix(err.Error(), test.want), err.Error())
				return
			}
			require.NoError(t, err)
			assert.Len(t, got.Zones, 1)
		})
	}
}

func TestADirectoryThatDoesNotExistOrIsNoneIsRefused(t *testing.T) {
	s := newShared(t)
	_, err := s.reader().read()
	require.ErrorIs(t, err, errNoZone)
	_, err = (&reader{path: filepath.Join(s.path, "none")}).read()
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, syscall.Mkfifo(filepath.Join(s.path, "pipe"), 0o644))
	_, err = (&reader{path: filepath.Join(s.path, "pipe")}).read()
	require.ErrorIs(t, err, errNoDirectory)
}

func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(names)
}

func TestFilesOfSysfsAreRead(t *testing.T) {
	root, err := os.OpenRoot("/sys/devices/system/cpu")
	require.NoError(t, err)
	defer func() { assert.NoError(t, root.Close()) }()
	text, exists, err := readLine(root, "possible")
	require.NoError(t, err)
	assert.True(t, exists)
	assert.NotEmpty(t, text)
}

func TestReadingLeavesNoFileOpen(t *testing.T) {
	s := newShared(t)
	s.put(scaphandre)
	_, _ = s.reader().read()
	before := openFiles(t)
	for _, archive := range []string{kernels, "-- intel-rapl:0/energy_uj --\nx\n", "-- report.json --\nx\n", "-- report.json --\n" + wholeDocument + "\n"} {
		s.put(archive)
		_, _ = s.reader().read()
	}
	assert.Equal(t, before, openFiles(t))
}
