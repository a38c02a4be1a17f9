// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"strconv"

	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// Network returns the bytes that the network namespace of a process received and transmitted,
// loopback excluded. ok is false in the namespace of the host's first process, or if a file cannot
// be read.
func (id *Identifier) Network(p *proc.Process) (received, transmitted uint64, ok bool) {
	if id.hostNetwork == 0 {
		if _, host, err := id.readNetwork(&proc.Process{Sight: proc.Sight{ID: proc.ID{PID: 1}}}); err == nil {
			id.hostNetwork = host
		}
	}
	text, namespace, err := id.readNetwork(p)
	if err != nil || len(text) >= maxFile || id.hostNetwork == 0 || namespace == id.hostNetwork {
		return 0, 0, false
	}
	return parseNetwork(text)
}

// readNetwork returns /proc/PID/net/dev and its inode number, which differs between network
// namespaces. The links in /proc/PID/ns would identify the namespace as well, but require
// CAP_SYS_PTRACE.
func (id *Identifier) readNetwork(p *proc.Process) (text []byte, namespace uint64, err error) {
	f := id.files.Job()
	if text, err = id.read(p, (*files).readNetwork); err != nil { // f may still be in use
		return nil, 0, err
	}
	return text, f.inode, nil
}

// parseNetwork parses /proc/PID/net/dev, which has a line of 16 numbers for each interface, the bytes
// received first and the bytes transmitted ninth (proc_pid_net(5)).
func parseNetwork(text []byte) (received, transmitted uint64, ok bool) {
	for line := range bytes.Lines(text) {
		name, numbers, isInterface := bytes.Cut(line, []byte(":"))
		if !isInterface || string(bytes.TrimSpace(name)) == "lo" {
			continue
		}
		fields := bytes.Fields(numbers)
		if len(fields) < 9 {
			return 0, 0, false
		}
		in, err := strconv.ParseUint(string(fields[0]), 10, 64)
		if err != nil {
			return 0, 0, false
		}
		out, err := strconv.ParseUint(string(fields[8]), 10, 64)
		if err != nil {
			return 0, 0, false
		}
		received, transmitted, ok = received+in, transmitted+out, true
	}
	return received, transmitted, ok
}
