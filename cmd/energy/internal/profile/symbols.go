// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/ianlancetaylor/demangle"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/internal/profiles"
)

// symbols names the functions of native code. The profiler reports only a file and an address for
// them. symbols uses the symbol tables of the files. The command controls these files and
// /proc/PID/maps: their sizes, and whether reads block.
type symbols struct {
	files map[file]*symbolTable // nil if the file was not found
	paths map[string][]string   // of files that processes had mapped, by name
	bytes int64                 // size of files and paths
	named int                   // bytes of the names in the batch
	guard patience.Guard        // while a read blocks, no other file is read
	read  func(path, hash string, most int64) *symbolTable
}

func newSymbols() *symbols {
	return &symbols{
		files: map[file]*symbolTable{}, paths: map[string][]string{}, guard: patience.Guard{Grace: readWithin}, read: readSymbols,
	}
}

const (
	// maxSymbolBytes bounds the memory for symbols. Beyond half of it, no further paths are noted,
	// and the next batch begins anew.
	maxSymbolBytes = 256 << 20
	// entryBytes is the memory of a file or a path, without its text.
	entryBytes = 200
	// maxNameBytes is the maximum number of bytes of the names that are added to a batch. Each
	// location gets a text of its own.
	maxNameBytes = 32 << 20
	// maxPathsOfName is how many files of the same name are tried.
	maxPathsOfName = 16
	// maxMaps is the maximum number of bytes read of a file maps: a process may have 65,530
	// mappings with paths of 4 KiB.
	maxMaps = 16 << 20
	// readWithin bounds the wait for a file, which may be on a slow disk.
	readWithin = 10 * time.Second
)

// file identifies a file by its name and by the profiler's hash of its content.
type file struct{ name, hash string }

// name adds functions to the locations of native code. It must be called while the processes run,
// or soon after.
func (t *symbols) name(pd pprofile.Profiles) {
	if t.bytes > maxSymbolBytes/2 {
		t.files, t.paths, t.bytes = map[file]*symbolTable{}, map[string][]string{}, 0
	}
	maps.DeleteFunc(t.files, func(_ file, table *symbolTable) bool { return table == nil }) // another process may have the file
	for name, paths := range t.paths {
		t.paths[name] = paths[len(paths)-1:] // the processes of earlier paths may have exited
	}
	t.named = 0
	d := profiles.DictionaryOf(pd)
	for _, rp := range pd.ResourceProfiles().All() {
		t.notePaths(rp.Resource())
	}
	for _, rp := range pd.ResourceProfiles().All() {
		for of := range profiles.All(rp) {
			for _, s := range of.Samples().All() {
				for loc := range d.Stack(s) {
					t.nameLocation(d, loc)
				}
			}
		}
	}
}

// notePaths notes the files that a process has mapped.
func (t *symbols) notePaths(process pcommon.Resource) {
	pid, err := strconv.ParseInt(text(process, "process.pid"), 10, 32)
	if err != nil {
		return
	}
	if path := text(process, "process.executable.path"); path != "" { // empty for kernel threads
		t.notePath(pid, path)
	}
	for line := range bytes.Lines(unlessBlocked(&t.guard, func() []byte { return readMaps(pid) })) {
		if at := bytes.IndexByte(line, '/'); at >= 0 {
			t.notePath(pid, string(bytes.TrimSpace(line[at:])))
		}
	}
}

// unlessBlocked calls do, and returns its result. The result is empty if do, or an earlier call,
// blocks.
func unlessBlocked[T any](g *patience.Guard, do func() T) (none T) {
	var result T
	if g.Blocked() || g.Call(context.Background(), func() { result = do() }) != nil {
		return none
	}
	return result
}

// readMaps returns the mappings of a process. Functions of missing mappings have no names.
func readMaps(pid int64) []byte {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil // the process may have exited
	}
	defer func() { _ = f.Close() }()
	text, _ := io.ReadAll(io.LimitReader(f, maxMaps))
	return text
}

// notePath notes a file that a process has mapped. In a container, the path is below its root
// directory.
func (t *symbols) notePath(pid int64, path string) {
	name := filepath.Base(path)
	for _, p := range []string{fmt.Sprintf("/proc/%d/root%s", pid, path), path} {
		if t.bytes < maxSymbolBytes/2 && len(t.paths[name]) < maxPathsOfName && !slices.Contains(t.paths[name], p) {
			t.paths[name] = append(t.paths[name], p)
			t.bytes += int64(len(p)) + entryBytes
		}
	}
}

// nameLocation names the function of a location without functions.
func (t *symbols) nameLocation(d profiles.Dictionary, loc pprofile.Location) {
	mapping := d.Mapping(loc)
	of := file{name: d.Text(mapping.FilenameStrindex())}
	if loc.Lines().Len() > 0 || of.name == "" || t.named >= maxNameBytes {
		return
	}
	if attributes, err := pprofile.FromAttributeIndices(d.AttributeTable(), mapping, d.ProfilesDictionary); err == nil {
		if hash, ok := attributes.Get("process.executable.build_id.htlhash"); ok {
			of.hash = hash.AsString()
		}
	}
	table := t.table(of)
	if table == nil {
		return
	}
	name := table.at(loc.Address())
	if name == "" {
		return
	}
	name = clean(demangle.Filter(name, demangle.NoParams, demangle.NoTemplateParams, demangle.MaxLength(10))) // 2^10 bytes
	t.named += len(name)
	d.StringTable().Append(name)
	f := d.FunctionTable().AppendEmpty()
	f.SetNameStrindex(int32(d.StringTable().Len() - 1))
	f.SetFilenameStrindex(mapping.FilenameStrindex())
	loc.Lines().AppendEmpty().SetFunctionIndex(int32(d.FunctionTable().Len() - 1))
}

// table returns the functions of a file, nil if it is not found.
func (t *symbols) table(of file) *symbolTable {
	table, known := t.files[of]
	if known {
		return table
	}
	for _, path := range t.paths[of.name] {
		read, most := t.read, maxSymbolBytes-t.bytes
		table = unlessBlocked(&t.guard, func() *symbolTable { return read(path, of.hash, most) })
		if table != nil {
			t.bytes += table.bytes() + int64(len(of.name)) + entryBytes
			break
		}
	}
	t.files[of] = table
	return table
}
