// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"io/fs"
	"path"
)

// Files reads one file of the memory controller of cgroups for a reader outside of this package.
// The tree keeps the files open, and closes them when no descriptor is left. A Files belongs to its
// Tree, which has one at a time.
type Files struct {
	tree    *Tree
	counter counter
	known   map[*File]struct{}
}

// File is the file of one cgroup.
type File struct {
	node Node   // node.dir is that of the cgroup that was read last
	own  string // the dir of the cgroup itself
	from source
}

// MemoryFiles returns the files of a name, with their parsers for the hierarchies of both versions.
// It reads nothing yet.
func (t *Tree) MemoryFiles(name string, parseV1, parseV2 func(text []byte) error) *Files {
	t.closeFiles()
	parse := func(f func([]byte) error) func([]byte) (uint64, error) {
		return func(text []byte) (uint64, error) { return 0, f(text) }
	}
	t.files = &Files{tree: t, known: map[*File]struct{}{}, counter: counter{
		controller: controllerMemory, v1: name, parseV1: parse(parseV1), v2: name, parseV2: parse(parseV2), missing: errNoMemory,
	}}
	return t.files
}

// closeFiles closes all files. Those that are read again are opened again.
func (t *Tree) closeFiles() {
	if t.files == nil {
		return
	}
	for file := range t.files.known {
		t.release(&file.from)
	}
}

// File returns the file of the cgroup at path, until Forget.
func (f *Files) File(path string) *File {
	own := dirOf(path)
	file := &File{node: Node{path: path, dir: own}, own: own}
	f.known[file] = struct{}{}
	return file
}

// Forget closes a file. It is not read again.
func (f *Files) Forget(file *File) {
	f.tree.release(&file.from)
	delete(f.known, file)
}

// Kept returns how many files are open.
func (f *Files) Kept() (n int) {
	for file := range f.known {
		if file.from.kept.IsOpen() {
			n++
		}
	}
	return n
}

// Read parses the file of its cgroup, or that of the nearest cgroup around it that has a memory
// controller.
func (f *Files) Read(file *File) error {
	failed := errOutside
	if file.node.dir != file.own { // which may have a controller now
		f.tree.release(&file.from)
		file.from = source{}
	}
	for dir := file.own; dir != "" && dir != "."; dir = path.Dir(dir) {
		file.node.dir = dir
		_, _, failed = f.tree.read(&file.node, &file.from, &f.counter)
		if failed == nil || !errors.Is(failed, fs.ErrNotExist) {
			break
		}
		f.tree.release(&file.from)
		file.from = source{}
	}
	if failed != nil {
		file.node.dir = file.own
	}
	return failed
}

var (
	errOutside  = errors.New("outside of the cgroup namespace")
	errNoMemory = errors.New("no mounted hierarchy has a memory controller")
)
