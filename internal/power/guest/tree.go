// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/regular"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	// reportFile has the document of the last report. It is replaced by renaming. A restarted
	// publisher continues from it.
	reportFile = "report.json"

	// A zone has the files of powercap (Documentation/power/powercap/powercap.rst), for programs that
	// do not read the report. They are written and never read.
	energyFile = "energy_uj"
	nameFile   = "name"
	rangeFile  = "max_energy_range_uj"

	// newFile is the name of a file before it replaces a file of the tree.
	newFile = ".new"
)

// maxEnergy is the range of the counters of a tree, 2.5 TWh. A total does not exceed it.
const maxEnergy units.Energy = math.MaxInt64

// keepZones is the time that a tree keeps zones of the previous report that no meter has read yet.
// After a restart of the host's receiver, some meters are read later than others.
const keepZones = time.Minute

// treeKinds are the exported zone kinds. Each has its Place in every tree, so that a counter never
// becomes another zone's. Platform, the last one, has the place of PSys.
var treeKinds = [...]power.Kind{power.Package, power.DRAM, power.Core, power.Uncore, power.PSys, power.Platform}

// tree is the directory of a virtual machine: a report, and a powercap zone for each zone of the
// report. One goroutine uses it.
//
// The virtual machine may be able to write to the directory, if it is shared so. Then the directory
// can hold anything. Existing files are not opened for writing, and are opened for reading only if
// they are regular files. os.Root confines all access to the directory.
//
// Files are not synced to the disk. After a crash of the host the virtual machines restart as well.
type tree struct {
	machine    *machine
	epoch      string
	generation uint64
	// base holds the totals of the report that the tree continues from. The totals of the machine are
	// added to these totals.
	base      []Zone
	keepUntil time.Time // see keepZones. It is zero if the tree does not continue a report
	reported  []Zone    // the last totals of the machine that a report included
	begun     []Zone    // reported at the beginning of the epoch. They are subtracted from the totals

	shown   []Zone       // by the last report
	counted []power.Kind // the zones whose files are complete
}

var (
	errNoDirectory = errors.New("not a directory")
	errInTheWay    = errors.New("a directory with files is in its place")
)

// openTree returns the tree in a directory, for a virtual machine. It continues from the report in
// the directory. A new epoch begins if there is no report of this machine.
func openTree(root *os.Root, of *machine) (*tree, error) {
	t := &tree{machine: of, epoch: rand.Text()}
	text, err := regular.ReadIn(root, reportFile, maxDocument)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, regular.ErrNotRegular), errors.Is(err, regular.ErrTooLarge):
		return t, nil
	case err != nil:
		return nil, err
	}
	if r, err := unmarshal(text); err == nil && r.ID == of.id {
		t.epoch, t.generation, t.base, t.keepUntil = r.Epoch, r.Generation, r.Zones, time.Now().Add(keepZones)
	}
	return t, nil
}

// writeReport writes the next report, with the totals of the machine's report. After an error, the
// previous report remains.
func (t *tree) writeReport(root *os.Root, of *Report) error {
	next := t.next(of.Zones)
	text, err := marshal(&Report{ID: t.machine.id, Epoch: next.epoch, Generation: next.generation, Time: of.Time, Zones: next.shown})
	if err != nil {
		return err
	}
	if err := put(root, reportFile, string(text)); err != nil {
		return err
	}
	*t = next
	return nil
}

// next returns the tree after the next report, which contains the zones of the machine. If the report
// that the tree continues from lacks one of these zones, a new epoch begins, because the zone may
// have had a total earlier in the epoch. The new epoch does not repeat energy that was reported:
// programs that read only the counters add the first value after a step back.
func (t *tree) next(zones []Zone) tree {
	next := *t
	next.generation++
	if !t.keepUntil.IsZero() && slices.ContainsFunc(zones, func(z Zone) bool { return indexOf(t.base, z.Kind) < 0 }) {
		next.epoch, next.base, next.keepUntil, next.begun = rand.Text(), nil, time.Time{}, t.reported
	}
	old := slices.DeleteFunc(slices.Clone(t.reported), func(z Zone) bool { return indexOf(zones, z.Kind) >= 0 })
	next.reported, next.shown = slices.Concat(old, zones), slices.Clone(zones)
	for _, z := range next.begun {
		if i := indexOf(zones, z.Kind); i >= 0 {
			next.shown[i].Energy -= z.Energy
		}
	}
	for _, z := range next.base {
		if i := indexOf(zones, z.Kind); i >= 0 {
			next.shown[i].Energy = min(units.AddSaturating(zones[i].Energy, z.Energy), maxEnergy)
		} else if time.Now().Before(next.keepUntil) {
			if i := indexOf(t.shown, z.Kind); i >= 0 {
				z = t.shown[i]
			}
			next.shown = append(next.shown, z)
		}
	}
	return next
}

// indexOf returns the index of the zone of a kind, -1 if the kind is missing.
func indexOf(zones []Zone, k power.Kind) int {
	return slices.IndexFunc(zones, func(z Zone) bool { return z.Kind == k })
}

// writeCounters writes the energy of the last report to the counters.
func (t *tree) writeCounters(root *os.Root) error {
	kinds := make([]power.Kind, 0, len(t.shown))
	for i := range t.shown {
		kinds = append(kinds, t.shown[i].Kind)
	}
	if slices.Equal(kinds, t.counted) && t.putEnergies(root) == nil {
		return nil
	}
	t.counted = nil // other zones, or a part of the tree was removed
	if err := t.makeZones(root); err != nil {
		return err
	}
	if err := t.putEnergies(root); err != nil {
		return err
	}
	t.counted = kinds
	return nil
}

func (t *tree) putEnergies(root *os.Root) error {
	for i := range t.shown {
		dir, _ := directory(t.shown[i].Kind)
		if err := putNumber(root, path.Join(dir, energyFile), uint64(t.shown[i].Energy)); err != nil {
			return err
		}
	}
	return nil
}

// directory returns the directory and the name of a zone.
func directory(k power.Kind) (dir, name string) {
	id, name, parent := Place(k)
	return path.Join(parent, id), name
}

// makeZones makes the zones of the report, except for their energy, and removes all other zones.
func (t *tree) makeZones(root *os.Root) error {
	for _, kind := range slices.Backward(treeKinds[:len(treeKinds)-1]) { // subzones before their parents
		dir, name := directory(kind)
		if !slices.ContainsFunc(t.shown, func(z Zone) bool { return samePlace(z.Kind, kind) }) {
			removeZone(root, dir)
		} else if err := makeZone(root, dir, name); err != nil {
			return err
		}
	}
	return nil
}

// removeZone removes the files of a zone. They may not exist.
func removeZone(root *os.Root, dir string) {
	for _, file := range []string{energyFile, nameFile, rangeFile, ""} {
		_ = root.Remove(path.Join(dir, file))
	}
	if flat := path.Base(dir); flat != dir {
		_ = root.Remove(flat)
	}
}

// makeZone makes the directory of a zone and its files except for the energy.
func makeZone(root *os.Root, dir, name string) error {
	if parent := path.Dir(dir); parent != "." {
		if err := makeDirectory(root, parent); err != nil {
			return fmt.Errorf("%s: %w", parent, cause(err))
		}
	}
	if err := makeDirectory(root, dir); err != nil {
		return fmt.Errorf("%s: %w", dir, cause(err))
	}
	if err := put(root, path.Join(dir, nameFile), name); err != nil {
		return err
	}
	if flat := path.Base(dir); flat != dir {
		// For programs that expect the links of /sys/class/powercap. The tree is complete without
		// them.
		_ = putLink(root, flat, dir)
	}
	return putNumber(root, path.Join(dir, rangeFile), uint64(maxEnergy))
}

// openPath opens a directory, or a symbolic link to one.
func openPath(path string) (*os.Root, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() { // to open a FIFO would wait for a writer
		return nil, errNoDirectory
	}
	return os.OpenRoot(path)
}

// openDirectory opens a directory that is no symbolic link.
func openDirectory(in *os.Root, dir string) (*os.Root, error) {
	info, err := in.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, errNoDirectory
	}
	return in.OpenRoot(dir)
}

// makeDirectory makes a directory that all users may read. Another file in its place is removed.
func makeDirectory(root *os.Root, dir string) error {
	err := root.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		if isDirectory(root, dir) {
			return nil
		}
		if err = root.Remove(dir); err == nil {
			err = root.Mkdir(dir, 0o755)
		}
	}
	if err != nil {
		return err
	}
	return root.Chmod(dir, 0o755) // whatever the umask is
}

func putNumber(root *os.Root, name string, number uint64) error {
	return put(root, name, strconv.FormatUint(number, 10))
}

// put atomically replaces a file of the tree by a file with one line.
func put(root *os.Root, name, line string) error {
	return replace(root, name, func() error { return create(root, line) })
}

// putLink replaces a file at the top of the tree by a symbolic link to a directory of the tree. The
// reader of this package does not follow the link.
func putLink(root *os.Root, name, to string) error {
	if at, err := root.Readlink(name); err == nil && at == to {
		return nil
	}
	return replace(root, name, func() error { return root.Symlink(to, newFile) })
}

// replace replaces a file of the tree by the new file, which create makes. A new file that a crash
// left is removed.
func replace(root *os.Root, name string, create func() error) error {
	err := create()
	if errors.Is(err, fs.ErrExist) {
		if root.Remove(newFile) != nil {
			return fmt.Errorf("%s: %w", newFile, errInTheWay)
		}
		err = create()
	}
	if err != nil {
		_ = root.Remove(newFile)
		return fmt.Errorf("%s: %w", newFile, cause(err))
	}
	err = root.Rename(newFile, name)
	if err != nil && isDirectory(root, name) {
		err = errInTheWay
		if root.Remove(name) == nil { // it was empty
			err = root.Rename(newFile, name)
		}
	}
	if err != nil {
		_ = root.Remove(newFile)
		return fmt.Errorf("%s: %w", name, cause(err))
	}
	return nil
}

// create writes the new file. It opens no existing file.
func create(root *os.Root, line string) error {
	f, err := root.OpenFile(newFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	if err == nil {
		err = f.Chmod(0o644) // whatever the umask is
	}
	return errors.Join(err, f.Close())
}

// isDirectory reports whether a name refers to a directory, and not to a link to a directory.
func isDirectory(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	return err == nil && info.IsDir()
}

// cause returns the cause of an error without the system call, which may differ between attempts.
func cause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	var in *fs.PathError
	if errors.As(err, &in) {
		return in.Err
	}
	return err
}
