// SPDX-License-Identifier: Apache-2.0

//go:build linux

package integration

import (
	"bufio"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"testing"
	"time"
)

// bmc is a BMC for QEMU's device ipmi-bmc-extern. It reports the machine's power by DCMI, and its
// energy by IBM's Active Energy Manager (the kernel's driver ibmaem).
type bmc struct {
	*peripheral
	consumed *consumption
	// windows are the rolling averages of the BMC, as DCMI encodes them.
	windows []byte
	enables byte
}

// newBMC returns a BMC that runs until the test ends.
func newBMC(t *testing.T, consumed *consumption, windows ...byte) *bmc {
	t.Helper()
	b := &bmc{consumed: consumed, windows: windows}
	b.peripheral = newPeripheral(t, b.serve)
	return b
}

// qemu returns the options of QEMU for the BMC.
func (b *bmc) qemu() []string {
	return []string{
		"-chardev", b.chardev("bmc"), "-device", "ipmi-bmc-extern,id=bmc0,chardev=bmc", "-device", "isa-ipmi-kcs,bmc=bmc0",
	}
}

// The protocol of OpenIPMI's lanserv for virtual machines (lanserv/README.vm): messages end with
// endOfMessage, control commands with endOfCommand.
const (
	endOfMessage = 0xa0
	endOfCommand = 0xa1
	escape       = 0xaa // the next byte has bit 4 set in addition
)

func (b *bmc) serve(conn net.Conn) {
	from := bufio.NewReader(conn)
	var message []byte
	for escaped := false; ; {
		c, err := from.ReadByte()
		switch {
		case err != nil:
			return
		case c == escape:
			escaped = true
		case c == endOfMessage:
			if len(message) >= 4 {
				if _, err := conn.Write(encode(b.answer(message))); err != nil {
					return
				}
			}
			message = message[:0]
		case c == endOfCommand:
			message = message[:0] // a command of the hardware, ignored
		default:
			if escaped {
				c &^= 0x10
			}
			escaped = false
			message = append(message, c)
		}
	}
}

// encode adds the checksum and the end to a message.
func encode(message []byte) []byte {
	sum := byte(0)
	for _, c := range message {
		sum += c
	}
	var out []byte
	for _, c := range append(message, -sum) {
		if c == endOfMessage || c == endOfCommand || c == escape {
			out = append(out, escape, c|0x10)
		} else {
			out = append(out, c)
		}
	}
	return append(out, endOfMessage)
}

// answer answers a request: sequence number, network function, command, data, checksum.
func (b *bmc) answer(request []byte) []byte {
	response := []byte{request[0], request[1] | 1<<2, request[2]}
	data, err := b.execute(request[1]>>2, request[2], request[3:len(request)-1])
	if err != nil {
		return append(response, 0xc1) // invalid command
	}
	return append(append(response, 0), data...)
}

var errNoSuchCommand = errors.New("no such command")

// ibm is the manufacturer in IBM's commands.
var ibm = []byte{0x4d, 0x4f, 0x00}

func (b *bmc) execute(netFn, command byte, data []byte) ([]byte, error) {
	now := time.Now()
	switch {
	case netFn == 0x06 && command == 0x01: // Get Device ID: IPMI 2.0, a sensor device
		return []byte{0x20, 1, 1, 0, 0x02, 0x01, 0, 0, 0, 1, 0}, nil
	case netFn == 0x06 && command == 0x2e: // Set BMC Global Enables
		b.enables = data[0]
		return nil, nil
	case netFn == 0x06 && command == 0x2f: // Get BMC Global Enables
		return []byte{b.enables}, nil
	case netFn == 0x06 && command == 0x30: // Clear Message Flags
		return nil, nil
	case netFn == 0x06 && command == 0x31: // Get Message Flags
		return []byte{0}, nil
	// DCMI Capabilities: power statistics.
	case netFn == 0x2c && command == 0x01 && len(data) == 2 && data[1] == 5:
		return append([]byte{0xdc, 1, 5, 2, byte(len(b.windows))}, b.windows...), nil
	case netFn == 0x2c && command == 0x02 && len(data) == 4: // DCMI Get Power Reading
		return b.power(now, data), nil
	case netFn == 0x2e && command == 0x80: // AEM: one instance
		return append(ibm[:3:3], 1), nil
	// AEM: energy in mJ.
	case netFn == 0x2e && command == 0x81 && len(data) == 8 && data[4] == 1 && data[7] == 8:
		return binary.BigEndian.AppendUint64(ibm[:3:3], uint64(b.consumed.joules(now)*1e3)), nil
	}
	return nil, errNoSuchCommand
}

// power answers Get Power Reading: the current power, and its minimum, maximum and mean over the
// requested window, or over the last minute.
func (b *bmc) power(now time.Time, request []byte) []byte {
	over := time.Minute
	if request[1] == 2 {
		over = time.Duration(request[2]) * time.Second // its two upper bits are 0: seconds
	}
	least, most := b.consumed.bounds(now, over)
	response := []byte{0xdc}
	for _, w := range []float64{b.consumed.watts(now), least, most, b.consumed.average(now, over)} {
		response = binary.LittleEndian.AppendUint16(response, uint16(math.Round(w)))
	}
	response = binary.LittleEndian.AppendUint32(response, uint32(now.Unix()))
	response = binary.LittleEndian.AppendUint32(response, uint32(over.Milliseconds()))
	return append(response, 0x40)
}
