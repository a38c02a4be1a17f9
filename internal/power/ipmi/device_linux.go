// SPDX-License-Identifier: Apache-2.0

package ipmi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The structures of linux/ipmi.h.
type (
	systemInterface struct { // struct ipmi_system_interface_addr
		kind    int32
		channel int16
		_       uint8 // logical unit number: 0
	}
	message struct { // struct ipmi_msg
		netFn   uint8
		command uint8
		length  uint16
		data    *byte
	}
	sent struct { // struct ipmi_req
		addr   *systemInterface
		size   uint32 // of addr
		id     int    // a C long
		packet message
	}
	received struct { // struct ipmi_recv
		kind   int32
		addr   *byte // of the length size
		size   uint32
		id     int
		packet message
	}
)

const (
	kindSystemInterface = 0x0c // IPMI_SYSTEM_INTERFACE_ADDR_TYPE
	channelBMC          = 0x0f // IPMI_BMC_CHANNEL
	kindResponse        = 1    // IPMI_RESPONSE_RECV_TYPE
	longestMessage      = 272  // IPMI_MAX_MSG_LENGTH

	netFnGroup = 0x2c // requests; responses have one more
)

// The requests of ioctl: _IOR('i', 13, struct ipmi_req) and _IOWR('i', 11, struct ipmi_recv).
var (
	sendCommand    = ioctl(true, false, 13, unsafe.Sizeof(sent{}))
	receiveMessage = ioctl(true, true, 11, unsafe.Sizeof(received{})) // truncates long messages
)

// ioctl returns the number of a request of the IPMI driver, as asm/ioctl.h makes it.
func ioctl(read, write bool, number, size uintptr) uintptr {
	readBit, writeBit := uintptr(2)<<30, uintptr(1)<<30
	if strings.HasPrefix(runtime.GOARCH, "ppc") || strings.HasPrefix(runtime.GOARCH, "mips") {
		readBit, writeBit = 2<<29, 4<<29
	}
	request := size<<16 | 'i'<<8 | number
	if read {
		request |= readBit
	}
	if write {
		request |= writeBit
	}
	return request
}

// driver is a device of the kernel's IPMI driver, drivers/char/ipmi/ipmi_devintf.c.
type driver struct {
	file *os.File
	id   int // of the last request
}

// openDevice opens a device. The driver does not require write permission.
func openDevice(path string) (device, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &driver{file: f}, nil
}

func (d *driver) Close() error { return d.file.Close() }

func (d *driver) request(ctx context.Context, command byte, data []byte) ([]byte, error) {
	conn, err := d.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	// A deadline in the past ends the wait below.
	stop := context.AfterFunc(ctx, func() { _ = d.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	d.id++
	var failed error
	err = conn.Control(func(fd uintptr) { failed = d.send(fd, command, data) })
	if err = cmp.Or(err, failed); err != nil {
		return nil, fmt.Errorf("send a request: %w", err)
	}
	var response []byte
	err = conn.Read(func(fd uintptr) bool { // called again when the driver has something to receive
		response, failed = d.receive(fd, command)
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err = cmp.Or(ctx.Err(), err, failed); err != nil {
		return nil, fmt.Errorf("receive a response: %w", err)
	}
	return response, nil
}

// send sends a request to the BMC itself.
func (d *driver) send(fd uintptr, command byte, data []byte) error {
	addr := systemInterface{kind: kindSystemInterface, channel: channelBMC}
	request := sent{
		addr: &addr, size: uint32(unsafe.Sizeof(addr)), id: d.id,
		packet: message{netFn: netFnGroup, command: command, length: uint16(len(data)), data: &data[0]},
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, sendCommand, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(request)
	if errno != 0 {
		return errno
	}
	return nil
}

// receive returns the response to the last request. The error is EAGAIN if there is no response
// yet.
func (d *driver) receive(fd uintptr, command byte) ([]byte, error) {
	for {
		var addr [64]byte // struct ipmi_addr is the longest, with 40
		buf := make([]byte, longestMessage)
		response := received{addr: &addr[0], size: uint32(len(addr)), packet: message{length: longestMessage, data: &buf[0]}}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, receiveMessage, uintptr(unsafe.Pointer(&response)))
		runtime.KeepAlive(response)
		if errno != 0 {
			return nil, errno
		}
		p := &response.packet
		if response.kind == kindResponse && response.id == d.id && p.netFn == netFnGroup+1 && p.command == command {
			return buf[:min(int(p.length), len(buf))], nil
		}
	}
}
