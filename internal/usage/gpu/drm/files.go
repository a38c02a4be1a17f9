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
)

// files holds the parameters and results of a read, and the directories that it keeps open. It
// implements kernfs.Job.
type files struct {
	proc, kfd *kernfs.Dir
	links     *kernfs.Dir // reads links of descriptors that were just listed: the kernel has cached them
	isProc    bool        // otherwise proc is a copy, without devices
	buf       []byte
	name      []byte

	// The parameters.
	pid, fd int32
	batch   []descriptor
	asleep  []string // device nodes of GPUs that must not be woken up
	file    string   // of KFD

	// The results.
	err   error
	found listed
	node  []byte // the name of the device node of the descriptor
	text  []byte
}

// descriptor is a descriptor of a process.
type descriptor struct {
	pid, fd int32
	kept    *kernfs.Kept // its text, nil unless the text is kept open
	checked bool         // the process has not run since the descriptor was a DRM device

	// The results of readBatch.
	end int // of its text in files.text
	err error
}

// listed is the result of listing a directory.
type listed struct {
	size    int64   // of the directory fd
	entries []int32 // descriptors whose links name nodes that may be a GPU's, or the PIDs in KFD's directory
	seen    int     // the number of descriptors read
	next    int32   // the first descriptor not read, 0 if all were read
}

// maxLink is the maximum number of bytes read of a descriptor's link.
const maxLink = 128

// drmMajor is the major number of DRM devices (DRM_MAJOR, include/drm/drm_file.h).
const drmMajor = 226

// errAsleep reports that a GPU is suspended and its clients cannot be read without waking it up.
var errAsleep = errors.New("the GPU is suspended")

func newFiles(root string) *files {
	proc := filepath.Join(root, "proc")
	f := &files{
		proc: kernfs.New(proc), links: kernfs.New(proc), kfd: kernfs.New(filepath.Join(root, "sys/class/kfd/kfd/proc")),
		buf: make([]byte, 16<<10+maxLink),
	}
	if f.isProc, _ = kernfs.IsProc(proc); f.isProc { // a user can lock the directories of procfs only
		f.proc = kernfs.NewKillable(proc)
	}
	return f
}

// Close implements kernfs.Job.
func (f *files) Close() error {
	for _, b := range f.batch { // of an abandoned read
		if b.kept != nil {
			_ = b.kept.Close() // it was only read from
		}
	}
	return errors.Join(f.kfd.Close(), f.links.Close(), f.proc.Close())
}

// readSize reads the size of the directory fd.
func (f *files) readSize() { f.found.size, f.err = f.proc.SizeOf(f.pid, "fd") }

// list finds the nodes among the descriptors from fd on.
func (f *files) list() {
	f.found, f.err = listed{entries: f.found.entries[:0]}, nil
	if err := f.proc.EachOf(f.pid, "fd", f.listOne); err != nil {
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
	if f.found.seen == maxLook || len(f.found.entries) == maxTexts {
		f.found.next = int32(fd)
		return false
	}
	f.found.seen++
	target, err := f.links.LinkOf(f.pid, string(f.nameOf("fd/", int32(fd))), f.buf[:maxLink])
	if err != nil {
		if denied(err) {
			f.err = err
		}
		return !denied(err)
	}
	if _, ok := nodeOf(target); ok {
		f.found.entries = append(f.found.entries, int32(fd))
	}
	return true
}

// readText reads the device node and the text of the descriptor fd. If the text names no client,
// the descriptor must still refer to the same node after the read, or it counts as closed.
func (f *files) readText() {
	d := descriptor{pid: f.pid, fd: f.fd}
	f.text = f.text[:0]
	if f.node, f.err = f.readNode(&d, f.buf[:maxLink]); f.err != nil {
		return
	}
	if slices.ContainsFunc(f.asleep, func(node string) bool { return node == string(f.node) }) {
		f.err = errAsleep
		return
	}
	if f.err = f.read(&d); f.err != nil || bytes.Contains(f.text, []byte("drm-client-id:")) {
		return
	}
	node, err := f.readNode(&d, f.buf[maxLink:2*maxLink])
	if err != nil || !bytes.Equal(node, f.node) {
		f.err = syscall.ENOENT
	}
}

// readBatch reads the texts of the batch.
func (f *files) readBatch() {
	f.text, f.err = f.text[:0], nil
	for i := range f.batch {
		b := &f.batch[i]
		if b.err = f.verify(b); b.err == nil {
			b.err = f.read(b)
		}
		b.end = len(f.text)
	}
}

// verify returns the error of a closed descriptor if the descriptor is not a DRM device, because
// blocked reads of other texts cannot be killed. A process that may open a DRM device can replace
// the descriptor after the check (dev/kernel-reads.md).
func (f *files) verify(d *descriptor) (err error) {
	switch {
	case d.kept == nil || !d.kept.IsOpen() || !f.isProc && !d.checked:
		_, err = f.readNode(d, f.buf[:maxLink])
	case !d.checked:
		err = f.check(d)
	}
	return err
}

// readNode reads the name of the device node of a descriptor into buf. If the descriptor is not a
// DRM device, it returns the error of a closed descriptor.
func (f *files) readNode(d *descriptor, buf []byte) (node []byte, err error) {
	target, err := f.proc.LinkOf(d.pid, string(f.nameOf("fd/", d.fd)), buf)
	if err != nil {
		return nil, err
	}
	node, ok := nodeOf(target)
	if !ok {
		return nil, syscall.ENOENT
	}
	return node, f.check(d)
}

// check returns the error of a closed descriptor if the descriptor is not a DRM device. The link of
// the descriptor must have been read before.
func (f *files) check(d *descriptor) error {
	if !f.isProc { // a copy has no devices
		return nil
	}
	major, err := f.proc.MajorOf(d.pid, string(f.nameOf("fd/", d.fd)))
	if err == nil && major != drmMajor {
		return syscall.ENOENT
	}
	return err
}

// read appends the text of a descriptor to text.
func (f *files) read(d *descriptor) (err error) {
	name, got := string(f.nameOf("fdinfo/", d.fd)), []byte(nil)
	if d.kept == nil {
		got, err = f.proc.ReadOf(d.pid, name, f.buf[maxLink:])
	} else {
		if !d.kept.IsOpen() {
			err = f.proc.OpenOf(d.kept, d.pid, name)
		}
		if err == nil {
			got, err = f.proc.ReadKeptOf(d.kept, d.pid, name, f.buf[maxLink:])
		}
		if err != nil {
			_ = d.kept.Close() // it was only read from
		}
	}
	f.text = append(f.text, got...)
	return err
}

// listKFD lists the processes in KFD's directory.
func (f *files) listKFD() {
	f.found = listed{entries: f.found.entries[:0]}
	f.err = f.kfd.Each(func(name []byte) {
		if pid, err := strconv.ParseInt(string(name), 10, 32); err == nil && pid > 0 {
			f.found.entries = append(f.found.entries, int32(pid))
		}
	})
}

// readKFD reads a file of the process in KFD's directory.
func (f *files) readKFD() {
	got, err := f.kfd.ReadOf(f.pid, f.file, f.buf)
	f.text, f.err = append(f.text[:0], got...), err
}

// nameOf returns the name of a file of a descriptor. It is valid until the next call.
func (f *files) nameOf(dir string, fd int32) []byte {
	f.name = strconv.AppendInt(append(f.name[:0], dir...), int64(fd), 10)
	return f.name
}

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
