// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/ianlancetaylor/demangle"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"golang.org/x/sys/unix"
)

// symbols names the functions of native code, for which the profiler has only a file and an address. It uses the symbol
// tables of the files.
type symbols struct {
	files map[file][]elf.Symbol // by address; nil if the file was not found
	paths map[string][]string   // of files that processes had mapped, by name
}

// maxFiles and maxPaths bound the memory for tables, of which one may have megabytes: beyond, all are read again.
const maxFiles, maxPaths = 100, 100_000

// file identifies a file by its name and by the profiler's hash of its content.
type file struct{ name, hash string }

// name adds functions to the locations of native code. It must be called while the processes run, or soon after.
func (t *symbols) name(pd pprofile.Profiles) {
	if t.files == nil || len(t.files) > maxFiles || len(t.paths) > maxPaths {
		t.files, t.paths = map[file][]elf.Symbol{}, map[string][]string{}
	}
	maps.DeleteFunc(t.files, func(_ file, table []elf.Symbol) bool { return table == nil }) // another process may have it
	for name, paths := range t.paths {
		t.paths[name] = paths[len(paths)-1:] // earlier ones are of processes that may have ended
	}
	d := dictionary{pd.Dictionary()}
	for _, rp := range pd.ResourceProfiles().All() {
		t.notePaths(rp.Resource())
	}
	for _, rp := range pd.ResourceProfiles().All() {
		for _, sp := range rp.ScopeProfiles().All() {
			for _, of := range sp.Profiles().All() {
				for _, s := range of.Samples().All() {
					for loc := range d.stack(s) {
						t.nameLocation(d, loc)
					}
				}
			}
		}
	}
}

// notePaths notes the files that a process has mapped. In a container, the paths are below its root directory.
func (t *symbols) notePaths(process pcommon.Resource) {
	paths := []string{text(process, "process.executable.path")} // empty of a kernel thread
	dir := fmt.Sprintf("/proc/%s/", text(process, "process.pid"))
	b, _ := os.ReadFile(dir + "maps") // it may have ended
	for line := range strings.Lines(string(b)) {
		if at := strings.IndexByte(line, '/'); at >= 0 {
			paths = append(paths, strings.TrimSpace(line[at:]))
		}
	}
	for _, path := range slices.Compact(paths) {
		name := filepath.Base(path)
		t.paths[name] = append(t.paths[name], dir+"root"+path, path)
	}
}

// nameLocation names the function of a location that has none.
func (t *symbols) nameLocation(d dictionary, loc pprofile.Location) {
	mapping := d.mapping(loc)
	of := file{name: d.text(mapping.FilenameStrindex())}
	if loc.Lines().Len() > 0 || of.name == "" {
		return
	}
	if attributes, err := pprofile.FromAttributeIndices(d.AttributeTable(), mapping, d.ProfilesDictionary); err == nil {
		if hash, ok := attributes.Get("process.executable.build_id.htlhash"); ok {
			of.hash = hash.AsString()
		}
	}
	name := functionAt(t.table(of), loc.Address())
	if name == "" {
		return
	}
	d.StringTable().Append(demangle.Filter(name, demangle.NoParams, demangle.NoTemplateParams, demangle.MaxLength(10))) // 2^10 bytes
	f := d.FunctionTable().AppendEmpty()
	f.SetNameStrindex(int32(d.StringTable().Len() - 1))
	f.SetFilenameStrindex(mapping.FilenameStrindex())
	loc.Lines().AppendEmpty().SetFunctionIndex(int32(d.FunctionTable().Len() - 1))
}

// table returns the functions of a file, nil if it is not found.
func (t *symbols) table(of file) []elf.Symbol {
	table, known := t.files[of]
	if known {
		return table
	}
	for _, path := range t.paths[of.name] {
		if table = readFunctions(path, of.hash); table != nil {
			break
		}
	}
	t.files[of] = table
	return table
}

// readFunctions returns the functions of an ELF file by their addresses, nil if the file has
// another hash. Processes may have put anything else at its path, such as a FIFO.
func readFunctions(path, hash string) []elf.Symbol {
	r, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = r.Close() }()
	info, err := r.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	if got, err := hashOf(r, info.Size()); err != nil || hash != "" && got != hash {
		return nil
	}
	f, err := elf.NewFile(r)
	if err != nil {
		return nil
	}
	functions := []elf.Symbol{}
	for _, list := range []func() ([]elf.Symbol, error){f.Symbols, f.DynamicSymbols} {
		all, _ := list() // there may be none
		for _, s := range all {
			if kind := elf.ST_TYPE(s.Info); s.Section != elf.SHN_UNDEF && (kind == elf.STT_FUNC || kind == elf.STT_GNU_IFUNC) {
				functions = append(functions, s)
			}
		}
	}
	slices.SortFunc(functions, func(a, b elf.Symbol) int {
		return cmp.Or(cmp.Compare(a.Value, b.Value), cmp.Compare(a.Name, b.Name))
	})
	return functions
}

// functionAt returns the name of the function at an address of the file, empty if there is none. Of
// several names it is the last, so that malloc precedes __libc_malloc. A function of assembly may
// have no size; it reaches to the next one.
func functionAt(functions []elf.Symbol, address uint64) string {
	after := sort.Search(len(functions), func(i int) bool { return functions[i].Value > address })
	if after == 0 {
		return ""
	}
	if f := functions[after-1]; address-f.Value < f.Size || f.Size == 0 && after < len(functions) {
		return f.Name
	}
	return ""
}

// hashOf returns the hash of an executable's content by which the profiler identifies it: SHA-256 of the first and the
// last 4 KiB and the size, cut to 128 bits (process.executable.build_id.htlhash of the semantic conventions).
func hashOf(f io.ReaderAt, size int64) (string, error) {
	const part = 4096
	h := sha256.New()
	for _, from := range []int64{0, max(0, size-part)} {
		if _, err := io.Copy(h, io.NewSectionReader(f, from, part)); err != nil {
			return "", err
		}
	}
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(size)))
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}
