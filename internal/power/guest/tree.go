// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// The files of a tree beside those of powercap (Documentation/power/powercap/powercap.rst). Numbers
// are decimal. Each file ends with a newline.
const (
	// generationFile has a number that is odd while the tree is written. Two reads of the same even
	// number have nothing in between that belongs to another generation.
	generationFile = "generation"
	updateTimeFile = "update_time" // Report.Time in nanoseconds since 1970
	epochFile      = "epoch"       // Report.Epoch
	vmIDFile       = "vm_id"       // VM.ID

	energyFile = "energy_uj"
	nameFile   = "name"
	rangeFile  = "max_energy_range_uj"
)

// maxEnergy is the range of the counters of a tree. A total stays there: no virtual machine uses 2.5 TWh.
const maxEnergy units.Energy = math.MaxInt64

// keepZones is how long a tree that was opened keeps the zones that it had.
const keepZones = time.Minute

// maxWord is the most bytes that are read of a file of a tree: more than an ID has.
const maxWord = 512

// newFile is where a file of a tree is written before it is renamed. There is one at most.
const newFile = ".new"

// treeKinds are the kinds that a tree shows, each in its Place: a kind has the same place in each
// tree, so that no counter is ever another zone's.
var treeKinds = [...]power.Kind{power.Package, power.DRAM, power.Core, power.Uncore, power.PSys, power.Platform}

// whole is the place, by its number, of the kinds that cover the whole machine: psys and platform.
const (
	whole     = 4
	numPlaces = 5
)

// placeOf returns the number of the place of the i-th kind of a tree.
func placeOf(i int) int { return min(i, whole) }

// directory returns the directory of a place, and the name of its zone.
func directory(place int) (dir, name string) {
	id, name, parent := Place(treeKinds[place])
	return path.Join(parent, id), name
}

// tree is the directory of a virtual machine as it was last written, with what is needed to go on
// from there. One goroutine uses it.
//
// The virtual machine may be able to write to the directory, if it is shared so. Then it can hold
// anything. No file that is there is opened for writing, none is opened without looking at it, and
// os.Root confines all of it to the directory.
//
// Nothing is synced to the disk. After a crash of the host the virtual machines begin anew as well;
// what a crash leaves of a tree is gone on from if it can be understood.
type tree struct {
	dir string // its name
	id  string // of the virtual machine

	epoch      string
	generation uint64 // even
	// total is the energy that the tree shows, by place.
	total [numPlaces]units.Energy
	// written is the energy attributed to the virtual machine, as passed to the last successful write,
	// by the index in treeKinds.
	written [len(treeKinds)]units.Energy
	// kinds are the kinds that the files show, as indices in treeKinds, -1 for none, by place.
	kinds [numPlaces]int
	// lost marks places whose total is not known, as the tree that was read does not have them.
	// They may have had one, before the host lost the zone: the epoch does not go on with them.
	lost [numPlaces]bool
	// kept marks places that the tree had as it was opened, of zones that were not attributed
	// since. They keep their files until keepUntil: after a restart of the host's receiver some
	// meters answer later than others.
	kept      [numPlaces]bool
	keepUntil time.Time
	// prepared reports whether all files are there that do not change.
	prepared bool
}

var (
	errNoDirectory   = errors.New("not a directory")
	errMisunderstood = errors.New("not written by this receiver")
	errInTheWay      = errors.New("a directory with files is in its place")
	// errOfAnother is returned for a tree that belongs to a virtual machine of the host, where one
	// that a user or a container runs has the same name.
	errOfAnother = errors.New("the directory belongs to another virtual machine")
)

// openTree returns the tree in the directory dir of trees, for a virtual machine. It goes on from
// what the directory holds. If that cannot be understood, or is of a virtual machine of another ID,
// a new epoch begins; owner is the ID that the directory has then. Nothing is written.
func openTree(trees *os.Root, dir, id string) (t *tree, owner string, err error) {
	t = &tree{dir: dir, id: id, kinds: [numPlaces]int{-1, -1, -1, -1, -1}}
	root, err := openDirectory(trees, dir)
	if errors.Is(err, fs.ErrNotExist) {
		t.epoch = rand.Text()
		return t, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = root.Close() }()
	owner, err = t.read(root)
	switch {
	case errors.Is(err, errMisunderstood), err == nil && owner != id:
		t.beginEpoch()
	case err != nil:
		return nil, "", err
	default:
		t.keepUntil = time.Now().Add(keepZones)
		for p := range t.kept {
			t.kept[p] = !t.lost[p]
		}
	}
	return t, owner, nil
}

// beginEpoch has the totals begin anew.
func (t *tree) beginEpoch() {
	t.epoch = rand.Text()
	t.total, t.lost, t.kept = [numPlaces]units.Energy{}, [numPlaces]bool{}, [numPlaces]bool{}
}

// openDirectory opens a directory that is no symbolic link.
func openDirectory(in *os.Root, dir string) (*os.Root, error) {
	info, err := in.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() { // to open a pipe would wait for a writer
		return nil, errNoDirectory
	}
	return in.OpenRoot(dir)
}

// read reads a tree, and returns whose it is. It fails with errMisunderstood if the tree is none,
// or damaged; the generation is then 0 unless it is known.
func (t *tree) read(root *os.Root) (owner string, err error) {
	text, err := readWord(root, generationFile)
	if err != nil {
		return "", err
	}
	if t.generation, err = strconv.ParseUint(text, 10, 62); err != nil {
		t.generation = 0
		return "", errMisunderstood
	}
	t.generation &^= 1
	if owner, err = readWord(root, vmIDFile); err != nil {
		return "", err
	}
	if t.epoch, err = readWord(root, epochFile); err != nil || !safeName(t.epoch) {
		return owner, errors.Join(err, errMisunderstood)
	}
	for p := range t.total {
		dir, _ := directory(p)
		if _, err := root.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			t.lost[p] = true
			continue
		} else if !isDirectory(root, dir) {
			return owner, errMisunderstood
		}
		text, err := readWord(root, path.Join(dir, energyFile))
		if err != nil {
			return owner, err
		}
		if text == "" {
			t.lost[p] = true
			continue
		}
		energy, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return owner, errMisunderstood
		}
		t.total[p] = units.Energy(energy)
	}
	return owner, nil
}

// readWord returns the only line of a file, "" if there is no such file. It fails with
// errMisunderstood if it is no regular file, or does not hold one short line.
func readWord(root *os.Root, name string) (string, error) {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", cause(err)
	case !info.Mode().IsRegular():
		return "", errMisunderstood
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become a pipe meanwhile
	if err != nil {
		return "", cause(err)
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errMisunderstood
	}
	text, err := io.ReadAll(io.LimitReader(f, maxWord))
	if err != nil {
		return "", cause(err)
	}
	line, rest, ended := strings.Cut(string(text), "\n")
	if !ended || line == "" || rest != "" {
		return "", errMisunderstood
	}
	return line, nil
}

// write writes a generation of the tree: what the virtual machine was attributed until a moment.
// After an error the tree shows the last good generation or an odd one; the next write adds what
// this one did not.
func (t *tree) write(trees *os.Root, at time.Time, zones []Zone) error {
	known := t.prepared
	err := t.tryWrite(trees, at, zones)
	if err != nil && known { // a part of the tree may have been removed
		err = t.tryWrite(trees, at, zones)
	}
	return err
}

func (t *tree) tryWrite(trees *os.Root, at time.Time, zones []Zone) (err error) {
	defer func() { t.prepared = err == nil }()
	root, err := makeDirectory(trees, t.dir)
	if err != nil {
		return fmt.Errorf("%w", cause(err))
	}
	defer func() { _ = root.Close() }()

	next := *t
	next.add(zones)
	next.generation += 2
	if err := putNumber(root, generationFile, next.generation-1); err != nil {
		return err
	}
	if !t.prepared || next.kinds != t.kinds || next.kept != t.kept {
		if err := next.prepare(root); err != nil {
			return err
		}
	}
	for p, i := range next.kinds {
		if i < 0 {
			continue
		}
		dir, _ := directory(p)
		if err := putNumber(root, path.Join(dir, energyFile), uint64(next.total[p])); err != nil {
			return err
		}
	}
	if err := putNumber(root, updateTimeFile, uint64(max(at.UnixNano(), 0))); err != nil {
		return err
	}
	if err := putNumber(root, generationFile, next.generation); err != nil {
		return err
	}
	*t = next
	return nil
}

// add adds what was attributed since the last generation. Of two kinds that cover the whole machine
// the tree shows the first that it had.
func (t *tree) add(zones []Zone) {
	var now [len(treeKinds)]*Zone
	for i := range zones {
		if j := slices.Index(treeKinds[:], zones[i].Kind); j >= 0 {
			now[j] = &zones[i]
		}
	}
	for i, zone := range now {
		if zone != nil && t.lost[placeOf(i)] {
			t.beginEpoch()
		}
	}
	before := t.kinds[whole]
	t.kinds = [numPlaces]int{-1, -1, -1, -1, -1}
	if before >= 0 && now[before] != nil {
		t.kinds[whole] = before
	}
	if !time.Now().Before(t.keepUntil) {
		t.kept = [numPlaces]bool{}
	}
	for i, zone := range now {
		if zone == nil {
			continue
		}
		p := placeOf(i)
		t.kept[p] = false
		if t.kinds[p] < 0 {
			t.kinds[p] = i
		}
		if t.kinds[p] == i {
			t.total[p] = min(units.AddSaturating(t.total[p], units.Advance(t.written[i], zone.Energy)), maxEnergy)
		}
		t.written[i] = zone.Energy
	}
}

// prepare writes the files that do not change, and removes the zones that the tree does not show.
func (t *tree) prepare(root *os.Root) error {
	if err := put(root, epochFile, t.epoch); err != nil {
		return err
	}
	if err := put(root, vmIDFile, t.id); err != nil {
		return err
	}
	for p, i := range slices.Backward(t.kinds[:]) {
		dir, name := directory(p)
		if t.kept[p] {
			continue
		}
		if i < 0 {
			for _, file := range []string{energyFile, nameFile, rangeFile, ""} {
				_ = root.Remove(path.Join(dir, file)) // of a zone that may never have been there
			}
			if flat := path.Base(dir); flat != dir {
				_ = root.Remove(flat)
			}
			continue
		}
		if err := makeZone(root, dir, name); err != nil {
			return err
		}
	}
	return nil
}

// makeZone makes the directory of a zone and its files but the energy.
func makeZone(root *os.Root, dir, name string) error {
	if parent := path.Dir(dir); parent != "." {
		if err := makeSubdirectory(root, parent); err != nil {
			return fmt.Errorf("%s: %w", parent, cause(err))
		}
	}
	if err := makeSubdirectory(root, dir); err != nil {
		return fmt.Errorf("%s: %w", dir, cause(err))
	}
	if err := put(root, path.Join(dir, nameFile), name); err != nil {
		return err
	}
	if flat := path.Base(dir); flat != dir {
		// Programs that expect the links of /sys/class/powercap find the zone at the top. The tree is complete without.
		_ = putLink(root, flat, dir)
	}
	return putNumber(root, path.Join(dir, rangeFile), uint64(maxEnergy))
}

// makeDirectory opens a directory, and makes it if it is not there.
func makeDirectory(in *os.Root, dir string) (*os.Root, error) {
	root, err := openDirectory(in, dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return root, err
	}
	if err := makeSubdirectory(in, dir); err != nil {
		return nil, err
	}
	return openDirectory(in, dir)
}

// makeSubdirectory makes a directory that everybody may read. What is in its place and is none is removed.
func makeSubdirectory(root *os.Root, dir string) error {
	err := root.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		if isDirectory(root, dir) {
			return nil
		}
		if err := root.Remove(dir); err != nil {
			return err
		}
		if err := root.Mkdir(dir, 0o755); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return root.Chmod(dir, 0o755) // whatever the umask is
}

func putNumber(root *os.Root, name string, number uint64) error {
	return put(root, name, strconv.FormatUint(number, 10))
}

// put replaces a file of the tree by one with a line, so that a reader sees the whole of one or of the other.
func put(root *os.Root, name, line string) error {
	return replace(root, name, func() error { return create(root, line) })
}

// putLink replaces a file at the top of the tree by a symbolic link to a directory of the tree.
// Readers in this package do not follow the link.
func putLink(root *os.Root, name, to string) error {
	if at, err := root.Readlink(name); err == nil && at == to {
		return nil
	}
	return replace(root, name, func() error {
		err := root.Symlink(to, newFile)
		if errors.Is(err, fs.ErrExist) && root.Remove(newFile) == nil {
			err = root.Symlink(to, newFile)
		}
		return err
	})
}

// replace replaces a file of the tree by what create makes as the new file.
func replace(root *os.Root, name string, create func() error) error {
	if err := create(); err != nil {
		_ = root.Remove(newFile)
		return fmt.Errorf("%s: %w", newFile, cause(err))
	}
	err := root.Rename(newFile, name)
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

// create writes the new file. What a crash left of one is removed.
func create(root *os.Root, line string) error {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL // opens nothing that is there
	f, err := root.OpenFile(newFile, flags, 0o644)
	if errors.Is(err, fs.ErrExist) {
		if root.Remove(newFile) != nil {
			return errInTheWay
		}
		f, err = root.OpenFile(newFile, flags, 0o644)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	if err == nil {
		err = f.Chmod(0o644) // whatever the umask is
	}
	return errors.Join(err, f.Close())
}

// isDirectory reports whether there is a directory of a name. A link to one is none.
func isDirectory(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	return err == nil && info.IsDir()
}

// cause returns what is wrong, without the system call, which may differ from one attempt to the next.
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

// safeName reports whether a name can be that of a directory anywhere: letters, digits, dots,
// underscores and dashes, at most 64, a letter or digit first.
func safeName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}
