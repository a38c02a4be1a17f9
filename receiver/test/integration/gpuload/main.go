// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command gpuload uses an emulated GPU (../gpu/emulated_gpu.c). The fourth argument selects the way
// to get its descriptor:
//
//	gpuload NODE RENDER COPY opens           opens the node
//	gpuload NODE RENDER COPY waits FILE      opens the node when the file exists
//	gpuload NODE RENDER COPY forks FILE      opens the node, starts a child that inherits the
//	                                         descriptor, and closes it when the file exists
//	gpuload NODE RENDER COPY brings SOCKET   opens the node, passes the descriptor to the client
//	                                         of the socket, and also keeps it
//	gpuload NODE RENDER COPY gets SOCKET     receives the descriptor from the socket
//
// RENDER and COPY are the parts of the engines' time that work for the descriptor, in 1/1000. A
// process with the descriptor prints the fourth argument and its PID.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	fmt.Fprintln(os.Stderr, "gpuload:", run(os.Args[1:])) // until a signal ends it
	os.Exit(1)
}

// run performs the command of the arguments. It returns only on failure.
func run(args []string) error {
	if len(args) < 4 {
		return errors.New("usage: gpuload NODE RENDER COPY opens | waits FILE | forks FILE | brings SOCKET | gets SOCKET")
	}
	node, with, where := args[0], args[3], args[len(args)-1]
	var w work
	for i := range w {
		n, err := strconv.ParseUint(args[1+i], 10, 32)
		if err != nil {
			return err
		}
		w[i] = uint32(n)
	}
	var fd int
	var err error
	switch with {
	case "waits":
		appears(where)
		fallthrough
	case "opens", "forks", "brings":
		fd, err = unix.Open(node, unix.O_RDWR, 0)
	case "gets":
		fd, err = get(where)
	case "has": // the child of forks
		fd = inherited
	}
	if err != nil {
		return err
	}
	if with != "has" && with != "brings" {
		if err := w.begin(fd); err != nil {
			return err
		}
	}
	fmt.Println(with, os.Getpid())
	switch with {
	case "forks":
		err = fork(fd, where)
	case "brings":
		err = bring(fd, where)
	}
	if err != nil {
		return err
	}
	for { // runs at intervals, as most processes do
		time.Sleep(100 * time.Millisecond)
	}
}

// work is the argument of the module's ioctl.
type work [2]uint32

// ioctlWork is DRM_IOW(DRM_COMMAND_BASE, struct work) (include/uapi/drm/drm.h).
const ioctlWork = 1<<30 | unsafe.Sizeof(work{})<<16 | 'd'<<8 | 0x40

func (w *work) begin(fd int) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlWork, uintptr(unsafe.Pointer(w))); errno != 0 {
		return fmt.Errorf("ioctl: %w", errno)
	}
	return nil
}

// appears waits until a file exists.
func appears(file string) {
	for {
		if _, err := os.Stat(file); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// inherited is the GPU's descriptor in the child of fork.
const inherited = 3

func fork(fd int, file string) error {
	// The child ends with the thread that starts it.
	runtime.LockOSThread()
	child := exec.Command("/proc/self/exe", os.Args[1], "0", "0", "has") //nolint:gosec // this program
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
	f := os.NewFile(uintptr(fd), "gpu")
	child.ExtraFiles = []*os.File{f}
	if err := child.Start(); err != nil {
		return err
	}
	appears(file)
	return f.Close()
}

// bring passes the descriptor to the first process that connects.
func bring(fd int, socket string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	conn, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	_, _, err = conn.WriteMsgUnix([]byte{0}, unix.UnixRights(fd), nil)
	return err
}

// get receives the descriptor that bring passes.
func get(socket string) (int, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return 0, err
	}
	control := make([]byte, unix.CmsgSpace(4))
	if _, _, _, _, err := conn.ReadMsgUnix(make([]byte, 1), control); err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, err
	}
	return fds[0], nil
}
