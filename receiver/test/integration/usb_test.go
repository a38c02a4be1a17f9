// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"testing"
	"time"
)

// usbChip is a power supply with a PMBus interface, on the I2C bus of a USB adapter. QEMU's device
// usb-redir connects the adapter to the kernel's drivers i2c-tiny-usb and pmbus.
type usbChip struct {
	*peripheral
	consumed *consumption
	command  byte // PMBus command of the next read
	refused  bool // the chip did not acknowledge the last message
}

// chipAddress is the chip's address on the I2C bus.
const chipAddress = 0x58

// newUSBChip returns a chip that is connected until the test ends.
func newUSBChip(t *testing.T, consumed *consumption) *usbChip {
	t.Helper()
	u := &usbChip{consumed: consumed}
	u.peripheral = newPeripheral(t, u.serve)
	return u
}

// qemu returns the options of QEMU for the adapter.
func (u *usbChip) qemu() []string {
	return []string{"-chardev", u.chardev("usb"), "-device", "qemu-xhci", "-device", "usb-redir,chardev=usb"}
}

// Packets of the USB redirection protocol (usbredir's docs/usb-redirection-protocol.md).
const (
	usbHello            = 0
	usbDeviceConnect    = 1
	usbInterfaceInfo    = 4
	usbEndpointInfo     = 5
	usbSetConfiguration = 6
	usbGetConfiguration = 7
	usbConfiguration    = 8
	usbSetAltSetting    = 9
	usbGetAltSetting    = 10
	usbAltSetting       = 11
	usbControlPacket    = 100
	usbControlHeader    = 10
	usbFullSpeed        = 1
	usbStall            = 4 // a status: the device refuses
	usbUnusedEndpoint   = 255
	usbVendorSpecific   = 0xff
	usbVersion          = "integration tests"
	// Packet sizes of endpoints, 64-bit identifiers, 32-bit bulk lengths.
	usbCapabilities      = 1<<4 | 1<<5 | 1<<6
	usbEndpoints         = 32
	adapterVendor        = 0x0403
	adapterProduct       = 0xc631
	usbRequestDescriptor = 6
)

// usbHeader precedes every packet after the two hellos.
type usbHeader struct {
	Type, Length uint32
	ID           uint64
}

func (u *usbChip) serve(conn net.Conn) {
	write := func(kind uint32, id uint64, body []byte) {
		packet, _ := binary.Append(nil, binary.LittleEndian, usbHeader{kind, uint32(len(body)), id})
		_, _ = conn.Write(append(packet, body...)) // the next read reports the error
	}
	if !greet(conn) {
		return
	}
	write(usbInterfaceInfo, 0, interfaceInfo())
	write(usbEndpointInfo, 0, endpointInfo())
	write(usbDeviceConnect, 0, []byte{
		usbFullSpeed, usbVendorSpecific, 0, 0, adapterVendor & 0xff, adapterVendor >> 8, adapterProduct & 0xff, adapterProduct >> 8,
	})
	for {
		var header usbHeader
		if err := binary.Read(conn, binary.LittleEndian, &header); err != nil {
			return
		}
		body := make([]byte, header.Length)
		if _, err := io.ReadFull(conn, body); err != nil {
			return
		}
		switch header.Type {
		case usbSetConfiguration, usbGetConfiguration:
			write(usbConfiguration, header.ID, []byte{0, 1})
		case usbSetAltSetting, usbGetAltSetting:
			write(usbAltSetting, header.ID, []byte{0, 0, 0})
		case usbControlPacket:
			write(usbControlPacket, header.ID, u.control(body[:usbControlHeader], body[usbControlHeader:]))
		}
	}
}

// greet exchanges hellos: a header with a 32-bit identifier, the name of the program, and
// capabilities. It reports whether the other side answered.
func greet(conn net.Conn) bool {
	hello, _ := binary.Append(nil, binary.LittleEndian, []uint32{usbHello, 64 + 4, 0})
	hello = append(hello, make([]byte, 64)...)
	copy(hello[12:], usbVersion)
	hello = binary.LittleEndian.AppendUint32(hello, usbCapabilities)
	if _, err := conn.Write(hello); err != nil {
		return false
	}
	var header [3]uint32
	if err := binary.Read(conn, binary.LittleEndian, &header); err != nil {
		return false
	}
	_, err := io.CopyN(io.Discard, conn, int64(header[1]))
	return err == nil
}

// interfaceInfo lists the adapter's one interface.
func interfaceInfo() []byte {
	info := make([]byte, 4+4*usbEndpoints)
	info[0] = 1
	info[4+usbEndpoints] = usbVendorSpecific // the classes follow the numbers
	return info
}

// endpointInfo lists the adapter's two endpoints, for control transfers.
func endpointInfo() []byte {
	info := make([]byte, (3+2)*usbEndpoints)
	for i := range usbEndpoints {
		if i%16 != 0 {
			info[i] = usbUnusedEndpoint
		} else {
			info[3*usbEndpoints+2*i] = 8 // packet sizes follow types, intervals and interfaces
		}
	}
	return info
}

// control answers a control transfer: endpoint, request, type, status, value, index, length.
func (u *usbChip) control(header, data []byte) []byte {
	response := bytes.Clone(header)
	response[3] = 0 // good; a request's status is undefined
	value, index, length := binary.LittleEndian.Uint16(header[4:]), binary.LittleEndian.Uint16(header[6:]), binary.LittleEndian.Uint16(header[8:])
	request, isRead, isStandard := header[1], header[2]&0x80 != 0, header[2]&0x60 == 0
	var answer []byte
	switch {
	case isStandard && request == usbRequestDescriptor:
		if answer = descriptor(value); answer == nil {
			response[3] = usbStall
		}
	case isStandard:
		answer = []byte{0, 0}
	default:
		answer = u.transfer(request, index, data, int(length))
	}
	if !isRead {
		return response
	}
	answer = answer[:min(len(answer), int(length))]
	binary.LittleEndian.PutUint16(response[8:], uint16(len(answer)))
	return append(response, answer...)
}

// descriptor returns the adapter's descriptors (USB 2.0, section 9.6), or nil for others.
func descriptor(value uint16) []byte {
	switch value {
	case 0x0100: // device: USB 1.1, one configuration, no strings
		return []byte{18, 1, 0x10, 0x01, usbVendorSpecific, 0, 0, 8, adapterVendor & 0xff, adapterVendor >> 8, adapterProduct & 0xff, adapterProduct >> 8, 0, 1, 0, 0, 0, 1}
	case 0x0200: // configuration, with an interface without endpoints
		return []byte{9, 2, 18, 0, 1, 1, 0, 0x80, 50, 9, 4, 0, 0, 0, usbVendorSpecific, 0, 0, 0}
	}
	return nil
}

// transfer answers a request of the kernel's drivers/i2c/busses/i2c-tiny-usb.c.
func (u *usbChip) transfer(request byte, address uint16, data []byte, length int) []byte {
	// Requests 4 to 7 are messages, with marks for the first and the last.
	const functionality, status, transferMessage = 1, 3, 4
	switch {
	case request == functionality:
		return binary.LittleEndian.AppendUint32(nil, 0x0eff0009) // I2C, and SMBus by messages
	case request == status && u.refused:
		return []byte{2}
	case request == status:
		return []byte{1}
	case request >= transferMessage && address != chipAddress:
		u.refused = true
		return make([]byte, length)
	case request >= transferMessage && len(data) > 0: // a write
		u.command = data[0]
		_, known := u.register()
		u.refused = !known
	case request >= transferMessage:
		value, known := u.register()
		u.refused = !known
		return append(binary.LittleEndian.AppendUint16(nil, value), make([]byte, length)...)
	}
	return nil
}

// register returns the register of the last command. The chip refuses other commands.
func (u *usbChip) register() (value uint16, known bool) {
	switch u.command {
	// CLEAR_FAULTS, WRITE_PROTECT, CAPABILITY and status registers.
	case 0x03, 0x10, 0x19, 0x78, 0x79, 0x7e:
		return 0, true
	case 0x20: // VOUT_MODE: linear
		return 0x17, true
	case 0x88: // READ_VIN
		return linear11(230), true
	case 0x97: // READ_PIN
		return linear11(u.consumed.watts(time.Now())), true
	}
	return 0, false
}

// linear11 encodes a positive number in PMBus's format: five bits of exponent and eleven of
// mantissa, both signed.
func linear11(v float64) uint16 {
	exponent := 0
	for ; v > 1023; v /= 2 {
		exponent++
	}
	for ; v < 511 && exponent > -16; v *= 2 {
		exponent--
	}
	return uint16(exponent&0x1f)<<11 | uint16(math.Round(v))
}
