// SPDX-License-Identifier: Apache-2.0

package drm

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/stall"
)

// files reads the descriptors of one process at a time. A Guard runs its reads, because a process
// can block them by the locks of its directory fd and of its open files (dev/kernel-reads.md).
type files struct {
	proc, kfd *kernfs.Dir
	// links reads the links of descriptors that were just listed, which the kernel has in its
	// cache.
	links  *kernfs.Dir
	isProc bool // otherwise it is a copy, without devices
	buf    []byte
	name   []byte
	link   [maxLink]byte

	// The parameters: a descriptor, descriptors whose texts are read together, and the name of a file
	// of KFD.
	descriptor
	batch []batched
	file  string

	// The results.
	err    error
	size   int64  // of the directory fd
	target []byte // of the descriptor's link
	text   []byte
	texts  []byte // of the batch
	found  listed
	each   func(name []byte) bool
	listed []int32 // PIDs of the processes that KFD lists
	add    func(name []byte)
}

// descriptor is a descriptor of a process.
type descriptor struct {
	pid, fd int32
	kept    *kernfs.File // its text, if the text is kept open
	checked bool         // the process did not run since it was a DRM device
}

// batched is a descriptor, and the result of reading its text.
type batched struct {
	descriptor
	end int // of the text, in files.texts
	err error
}

// listed is the result of listing descriptors.
type listed struct {
	nodes []int32 // descriptors whose links name nodes that may be a GPU's
	seen  int     // the number of descriptors read
	next  int32   // the first descriptor not read, 0 if there is none
}

func newFiles(root string) *files {
	proc := filepath.Join(root, "proc")
	f := &files{
		proc: kernfs.New(proc), links: kernfs.New(proc), kfd: kernfs.New(filepath.Join(root, "sys/class/kfd/kfd/proc")),
		buf: make([]byte, 16<<10),
	}
	f.each, f.add = f.listOne, f.addListed
	if f.isProc, _ = kernfs.IsProc(proc); f.isProc { // nothing locks a copy
		f.proc = kernfs.NewKillable(proc)
	}
	return f
}

// Close implements stall.Job.
func (f *files) Close() error {
	for _, b := range append(f.batch, batched{descriptor: f.descriptor}) {
		if b.kept != nil {
			_ = b.kept.Close() // it was only read from
		}
	}
	return errors.Join(f.kfd.Close(), f.links.Close(), f.proc.Close())
}

// readSize reads the size of the directory fd.
func (f *files) readSize() { f.size, f.err = f.proc.SizeOf(f.pid, "fd") }

// list finds the nodes among the descriptors from fd on.
func (f *files) list() {
	f.found = listed{nodes: f.found.nodes[:0]}
	f.err = nil
	if err := f.proc.EachOf(f.pid, "fd", f.each); err != nil {
		f.err = err
	}
}

// listOne reads the link of one descriptor.
func (f *files) listOne(name []byte) bool {
	fd, err := strconv.ParseInt(string(name), 10, 32)
	if err != nil || int32(fd) < f.fd {
		return true
	}
	if fd > lastDescriptor {
		return false
	}
	if f.found.seen == maxLook || len(f.found.nodes) == maxTexts {
		f.found.next = int32(fd)
		return false
	}
	f.found.seen++
	target, err := f.links.LinkOf(f.pid, string(f.nameOf("fd/", int32(fd))), f.link[:])
	if err != nil {
		if denied(err) {
			f.err = err
		}
		return !denied(err)
	}
	if _, ok := nodeOf(target); ok {
		f.found.nodes = append(f.found.nodes, int32(fd))
	}
	return true
}

// readLink reads the link of a descriptor. Unless the descriptor is a DRM device, readLink fails as
// if the descriptor were closed.
func (f *files) readLink() {
	name := string(f.nameOf("fd/", f.fd))
	if f.target, f.err = f.proc.LinkOf(f.pid, name, f.link[:]); f.err != nil {
		return
	}
	if _, ok := nodeOf(f.target); !ok {
		f.err = syscall.ENOENT
		return
	}
	f.check(name)
}

// check fails as if the descriptor were closed unless the descriptor is a DRM device. The link was
// read before.
func (f *files) check(link string) {
	if !f.isProc { // a copy has no devices
		return
	}
	var major uint32
	if major, f.err = f.proc.MajorOf(f.pid, link); f.err == nil && major != drmMajor {
		f.err = syscall.ENOENT
	}
}

// drmMajor is the major number of DRM devices (DRM_MAJOR, include/drm/drm_file.h).
const drmMajor = 226

// readText reads the text of a descriptor of a DRM device. The texts of other files, such as epoll
// descriptors, depend on locks that a process can hold forever, and their readers cannot be killed.
// A process that may open a DRM device can replace the descriptor after the check
// (dev/kernel-reads.md).
func (f *files) readText() {
	switch f.err = nil; {
	case f.kept == nil || !f.kept.IsOpen() || !f.isProc && !f.checked:
		f.readLink()
	case !f.checked:
		f.check(string(f.nameOf("fd/", f.fd)))
	}
	if f.err != nil {
		return
	}
	if f.kept != nil {
		if !f.kept.IsOpen() { // which looks up names as any Dir
			if _, f.err = f.proc.SizeOf(f.pid, string(f.nameOf("fdinfo/", f.fd))); f.err != nil {
				return
			}
		}
		f.text, f.err = f.kept.Read(f.buf)
		return
	}
	f.text, f.err = f.proc.ReadOf(f.pid, string(f.nameOf("fdinfo/", f.fd)), f.buf)
}

// readBatch reads the texts of the batch.
func (f *files) readBatch() {
	f.texts = f.texts[:0]
	for i := range f.batch {
		b := &f.batch[i]
		f.descriptor = b.descriptor
		if f.readText(); f.err == nil {
			f.texts = append(f.texts, f.text...)
		}
		b.end, b.err = len(f.texts), f.err
	}
	f.descriptor = descriptor{}
}

// listKFD lists the processes in KFD's directory.
func (f *files) listKFD() {
	f.listed = f.listed[:0]
	f.err = f.kfd.Each(f.add)
}

func (f *files) addListed(name []byte) {
	if pid, err := strconv.ParseInt(string(name), 10, 32); err == nil && pid > 0 {
		f.listed = append(f.listed, int32(pid))
	}
}

// readKFD reads a file of the process in KFD's directory.
func (f *files) readKFD() { f.text, f.err = f.kfd.ReadOf(f.pid, f.file, f.buf) }

// nameOf returns the name of a file of a descriptor. It is valid until the next call.
func (f *files) nameOf(dir string, fd int32) []byte {
	f.name = strconv.AppendInt(append(f.name[:0], dir...), int64(fd), 10)
	return f.name
}

// maxLink is the maximum number of bytes read of a descriptor's link.
const maxLink = 128

// nodeOf returns the name of the device node that a descriptor's link names, if it may be a GPU's.
// In a container the node may have another name.
func nodeOf(link []byte) ([]byte, bool) {
	i := bytes.LastIndexByte(link, '/')
	if i < 0 || len(link) == maxLink || link[0] != '/' {
		return nil, false
	}
	if bytes.Contains(link, []byte("/dri/")) {
		return link[i+1:], true
	}
	name, ok := bytes.CutPrefix(link, []byte("/dev/"))
	if !ok || bytes.HasPrefix(name, []byte("pts/")) || bytes.HasPrefix(name, []byte("shm/")) {
		return nil, false
	}
	return name, !slices.ContainsFunc(otherNodes, func(other string) bool { return string(name) == other })
}

// otherNodes are nodes that many processes have open.
var otherNodes = []string{"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "kmsg", "fuse", "kvm", "vhost-net", "net/tun", "rtc0"}

// guardFiles returns a Guard of files.
func guardFiles(options stall.Options[*files]) *stall.Guard[*files] {
	options.New = func() *files { return newFiles(options.Root) }
	return stall.New(options)
}
