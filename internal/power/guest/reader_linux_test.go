// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
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

const ours = `
-- generation --
4

-- epoch --
ABCDEFGH

-- update_time --
1700000000000000000

-- intel-rapl:0/name --
package-0

-- intel-rapl:0/energy_uj --
1000000

-- intel-rapl:0/max_energy_range_uj --
9223372036854775807

-- intel-rapl:0/intel-rapl:0:0/name --
dram

-- intel-rapl:0/intel-rapl:0:0/energy_uj --
200000

-- intel-rapl:0/intel-rapl:0:0/max_energy_range_uj --
9223372036854775807

-- intel-rapl:1/name --
psys

-- intel-rapl:1/energy_uj --
3000000

-- intel-rapl:1/max_energy_range_uj --
9223372036854775807

`

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
		tree, in string
		want     Report
	}{
		"ours": {ours, "", Report{Epoch: "ABCDEFGH", Generation: 4, Time: time.Unix(1_700_000_000, 0), Zones: []Zone{
			top("intel-rapl:0", power.Package, "package-0", 1_000_000, math.MaxInt64),
			{ID: "intel-rapl:0:0", Kind: power.DRAM, Name: "dram", Parent: "intel-rapl:0", Energy: 200_000, Range: math.MaxInt64},
			top("intel-rapl:1", power.PSys, "psys", 3_000_000, math.MaxInt64),
		}}},
		"Scaphandre's":                            {scaphandre, "", Report{Generation: 1, Zones: []Zone{top("intel-rapl:0", power.Package, "package-0", 8_700_000, 0)}}},
		"the kernel's control type":               {kernels, "", Report{Generation: 1, Zones: sockets}},
		"the kernel's devices":                    {kernels, "intel-rapl", Report{Generation: 1, Zones: sockets}},
		"subzones beside their parents and in it": {kernels + "-- intel-rapl:0:0/name --\ncore\n-- intel-rapl:0:0/energy_uj --\n3000\n-- intel-rapl:0:0/max_energy_range_uj --\n262143328850\n", "", Report{Generation: 1, Zones: sockets}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShared(t)
			shared{t, filepath.Join(s.path, test.in)}.put(test.tree)
			got, err := s.reader().read()
			require.NoError(t, err)
			assert.Equal(t, &test.want, got)
		})
	}
}

func TestReadsWhatTheHostWrites(t *testing.T) {
	s := newShared(t)
	trees, err := os.OpenRoot(s.path)
	require.NoError(t, err)
	defer func() { assert.NoError(t, trees.Close()) }()
	host, _, err := openTree(trees, "vm", "id")
	require.NoError(t, err)
	r := &reader{path: filepath.Join(s.path, "vm")}
	at := time.Unix(1_700_000_000, 5)
	for _, energy := range []units.Energy{3, 3, 70} {
		told := []Zone{{Kind: power.Package, Energy: energy}, {Kind: power.Platform, Energy: 2 * energy}, {Kind: power.DRAM, Energy: energy}}
		require.NoError(t, host.write(trees, at, told))
		got, err := r.read()
		require.NoError(t, err)
		assert.Equal(t, host.epoch, got.Epoch)
		assert.Equal(t, host.generation, got.Generation)
		assert.True(t, at.Equal(got.Time))
		energies := map[power.Kind]units.Energy{}
		for _, z := range got.Zones {
			energies[z.Kind] = z.Energy
			id, name, parent := Place(z.Kind)
			assert.Equal(t, [...]string{id, name, parent}, [...]string{z.ID, z.Name, z.Parent})
		}
		assert.Equal(t, map[power.Kind]units.Energy{power.Package: energy, power.DRAM: energy, power.PSys: 2 * energy}, energies)
	}
}

func TestOnlyWantedZonesAreRead(t *testing.T) {
	s := newShared(t)
	s.put(ours)
	s.write("intel-rapl:0/intel-rapl:0:0/energy_uj", "damaged")
	r := &reader{path: s.path, want: func(k power.Kind) bool { return k == power.Package }}
	got, err := r.read()
	require.NoError(t, err)
	assert.Len(t, got.Zones, 1)
}

func TestATreeWithoutGenerationsHasNewsWhereItIsWritten(t *testing.T) {
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
	assert.Equal(t, first, generation(), "nothing is written")
	written = written.Add(5 * time.Second)
	require.NoError(t, os.Chtimes(file, written, written))
	assert.Equal(t, first+1, generation(), "the same energy is written again: none was used")
	s.write("intel-rapl:0/energy_uj", "8700001")
	require.NoError(t, os.Chtimes(file, written, written))
	assert.Equal(t, first+2, generation(), "the kernel's files keep their times")
}

func TestATreeThatIsBeingWrittenHasNoNews(t *testing.T) {
	s := newShared(t)
	s.put(ours)
	r := s.reader()
	_, err := r.read()
	require.NoError(t, err)
	s.write("generation", "5\n")
	s.write("intel-rapl:0/energy_uj", "")
	_, err = r.read()
	require.ErrorIs(t, err, errHalfWritten)
	s.write("generation", "6\n")
	_, err = r.read()
	require.ErrorIs(t, err, errHalfWritten, "a file is rewritten in place")
	s.write("intel-rapl:0/energy_uj", "1000")
	_, err = r.read()
	require.ErrorIs(t, err, errHalfWritten, "its line has no end")
	s.write("intel-rapl:0/energy_uj", "1000002\n")
	got, err := r.read()
	require.NoError(t, err)
	assert.Equal(t, units.Energy(1_000_002), got.Zones[0].Energy)
}

func TestAFileThatIsRewrittenIsEmptyForAMoment(t *testing.T) {
	s := newShared(t)
	s.put(scaphandre)
	s.write("intel-rapl:0/energy_uj", "")
	_, err := s.reader().read()
	require.ErrorIs(t, err, errHalfWritten)
}

func TestWhatChangesWhileItIsReadIsReadAgain(t *testing.T) {
	s := newShared(t)
	s.put(ours)
	written := 0
	defer kernfs.InjectFaults(func(path string, got []byte, err error) ([]byte, error) {
		if filepath.Base(path) == energyFile && written < 2 {
			written++
			s.write("intel-rapl:0/energy_uj", fmt.Sprintln(1_000_000+written))
			s.write("generation", fmt.Sprintln(4+2*written))
		}
		return got, err
	})()
	got, err := s.reader().read()
	require.NoError(t, err)
	assert.Equal(t, units.Energy(1_000_002), got.Zones[0].Energy)
	assert.Equal(t, uint64(8), got.Generation)
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
				require.NoError(s, os.MkdirAll(filepath.Join(s.path, fmt.Sprintf(format, i)), 0o755))
			}
		}
	}
	const energy = "intel-rapl:0/energy_uj"
	for name, test := range map[string]struct {
		change func(shared)
		want   string
	}{
		"a link to a file elsewhere":      {link("/etc/passwd", energy), "intel-rapl:0: energy_uj: path escapes from parent"},
		"a link to a device":              {link("/dev/zero", energy), "intel-rapl:0: energy_uj: path escapes from parent"},
		"a link out of the tree":          {link("../..", "intel-rapl:0"), "intel-rapl:0: not a directory"},
		"a link beside the zones":         {link("../..", "intel-rapl:0:7"), ""},
		"a link in a zone":                {link("../..", "intel-rapl:0/intel-rapl:0:7"), ""},
		"a link to itself":                {link("energy_uj", energy), "intel-rapl:0: energy_uj: too many levels of symbolic links"},
		"a pipe":                          {pipe(energy), "intel-rapl:0: energy_uj: not a regular file"},
		"a pipe for the generation":       {pipe("generation"), "generation: not a regular file"},
		"a pipe for a zone":               {pipe("intel-rapl:7"), "intel-rapl:7: not a directory"},
		"a directory for a counter":       {func(s shared) { s.write("intel-rapl:7/energy_uj/0", "") }, "intel-rapl:7: energy_uj: not a regular file"},
		"a huge file":                     {func(s shared) { require.NoError(s, os.Truncate(filepath.Join(s.path, energy), 1<<40)) }, "intel-rapl:0: energy_uj: longer than 256 bytes"},
		"a negative counter":              {write(energy, "-1\n"), "intel-rapl:0: energy_uj: not a decimal number"},
		"more than 64 bits":               {write(energy, "18446744073709551616\n"), "intel-rapl:0: energy_uj: number exceeds 64 bits"},
		"two lines":                       {write(energy, "1\n2\n"), "intel-rapl:0: energy_uj: not a decimal number"},
		"garbage for the generation":      {write("generation", "four\n"), "generation: not a decimal number"},
		"garbage for the epoch":           {write("epoch", "A\nB\n"), "epoch: not a word of letters, digits and dashes"},
		"a long epoch":                    {write("epoch", strings.Repeat("A", 1<<20)), "epoch: longer than 256 bytes"},
		"garbage for the time":            {write("update_time", "noon\n"), "update_time: not a decimal number"},
		"too many directories":            {directories("intel-rapl:%d", maxEntries+1), "more than 1024 entries or 256 zones"},
		"another name":                    {write("intel-rapl:0/name", "package-0\nintel\n"), ""},
		"a name out of the tree":          {write("intel-rapl:0/name", "../../etc\n"), ""},
		"a zone whose name has a newline": {directories("intel-rapl:9\n%d", 3), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShared(t)
			s.put(ours)
			test.change(s)
			got, err := s.reader().read()
			if test.want != "" {
				require.EqualError(t, err, test.want)
				return
			}
			require.NoError(t, err)
			assert.LessOrEqual(t, len(got.Zones), 3)
		})
	}
}

func TestTooManyZonesAreRefused(t *testing.T) {
	s := newShared(t)
	for i := range maxZones + 1 {
		s.write("intel-rapl:"+strconv.Itoa(i)+"/energy_uj", "1\n")
	}
	_, err := s.reader().read()
	require.ErrorIs(t, err, errTooMany)
}

func TestTooManyDirectoriesWithoutAZoneAreRefused(t *testing.T) {
	s := newShared(t)
	s.write("intel-rapl:0/energy_uj", "1\n")
	for i := range maxEntries {
		s.write(fmt.Sprintf("intel-rapl:%d/intel-rapl:%[1]d:%d/x", i%32, i), "")
	}
	_, err := s.reader().read()
	require.ErrorIs(t, err, errTooMany)
}

func TestDirectoriesWithoutAZone(t *testing.T) {
	s := newShared(t)
	_, err := s.reader().read()
	require.ErrorIs(t, err, errNoZone)
	_, err = (&reader{path: filepath.Join(s.path, "none")}).read()
	require.ErrorIs(t, err, os.ErrNotExist)
	s.write("file", "")
	_, err = (&reader{path: filepath.Join(s.path, "file")}).read()
	require.ErrorIs(t, err, errNoDirectory)
	require.NoError(t, syscall.Mkfifo(filepath.Join(s.path, "pipe"), 0o644))
	_, err = (&reader{path: filepath.Join(s.path, "pipe")}).read()
	require.ErrorIs(t, err, errNoDirectory)
}

func TestReadingLeavesNothingOpen(t *testing.T) {
	open := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(names)
	}
	s := newShared(t)
	s.put(ours)
	_, _ = s.reader().read()
	before := open()
	for _, archive := range []string{ours, scaphandre, kernels, "-- generation --\nx\n", "-- intel-rapl:0/energy_uj --\nx\n"} {
		s.put(archive)
		_, _ = s.reader().read()
		require.NoError(t, os.RemoveAll(filepath.Join(s.path, "generation")))
		_, _ = s.reader().read()
	}
	assert.Equal(t, before, open())
}

// FuzzTree reads two generations of a tree with any files. The energy added is the difference of
// the numbers in the files, or none.
func FuzzTree(f *testing.F) {
	f.Add("2\n", "A\n", "1\n", "package-0\n", "5\n", "9223372036854775807\n", "9\n")
	f.Add("2", "", "", "", "18446744073709551615", "", "-1")
	f.Add("", "B", "-1", "psys\n", "1", "0", "1\n\n")
	f.Add("3", "B", "1", "package-0-die-1", "1", "x", "2")
	f.Fuzz(func(t *testing.T, generation, epoch, updated, name, energy, limit, later string) {
		s := newShared(t)
		for file, text := range map[string]string{
			"generation": generation, "epoch": epoch, "update_time": updated,
			"intel-rapl:0/name": name, "intel-rapl:0/energy_uj": energy, "intel-rapl:0/max_energy_range_uj": limit,
		} {
			if text != "" {
				s.write(file, text)
			}
		}
		r, follower, now := s.reader(), NewFollower("the tree", nil), time.Now()
		follow := func(after time.Duration) (counter units.Energy) {
			report, err := r.read()
			if err != nil {
				return 0
			}
			require.Len(t, report.Zones, 1)
			_, err = follower.Values(report, now.Add(after))
			require.NoError(t, err)
			return report.Zones[0].Energy
		}
		before := follow(0)
		s.write("intel-rapl:0/energy_uj", later)
		if n, err := strconv.ParseUint(strings.TrimSuffix(generation, "\n"), 10, 62); err == nil {
			s.write("generation", strconv.FormatUint(n+2, 10))
		}
		after := follow(time.Second)
		if len(follower.zones) == 0 {
			return
		}
		z := follower.zones[0]
		switch total := z.total; {
		case total == 0:
		case after < before: // wrapped
			assert.Equal(t, power.Wrapped, z.event)
			assert.LessOrEqual(t, total, power.MaxWatts(z.Kind)*1_010_000)
		default:
			assert.Equal(t, after-before, total)
		}
	})
}
