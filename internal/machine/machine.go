// SPDX-License-Identifier: Apache-2.0

// Package machine describes a machine without using a network: its CPU, its memory, whether it
// is virtual, and its type in a cloud.
package machine

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Machine describes a machine. Fields that are not available are zero. Its JSON has the fields of a
// trained power model.
type Machine struct {
	// Arch is the architecture of the CPUs, as in GOARCH: amd64, arm64, arm.
	Arch string `json:"-"`
	// CPU is the name that the system reports: "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz". On
	// Arm it is the names of the implementer and of the part: "Arm Neoverse-N1". If the machine has
	// several kinds of CPUs, it is the name of the most frequent kind.
	CPU string `json:"cpu"`
	// Chip is the name of the processor if only the cloud provides it: "AWS Graviton2".
	Chip string `json:"chip,omitempty"`
	// Vendor, Family, Model and Stepping are from /proc/cpuinfo on x86 ("GenuineIntel", 6, 85,
	// 7). On Arm Vendor is the implementer's name ("Arm"), Model the part of MIDR_EL1 (0xd0c) and
	// Stepping its revision.
	Vendor   string `json:"vendor,omitempty"`
	Family   int    `json:"family,omitempty"`
	Model    int    `json:"model,omitempty"`
	Stepping int    `json:"stepping,omitempty"`
	// Threads is the number of online CPUs. Cores and Sockets are the numbers of their cores and
	// packages. A virtual machine reports the topology that its hypervisor has configured.
	Threads int `json:"threads"`
	Cores   int `json:"cores,omitempty"`
	Sockets int `json:"sockets,omitempty"`
	// Memory is MemTotal in bytes.
	Memory uint64 `json:"memory,omitempty"`
	// Product is the vendor and the model of the machine in its firmware: "Dell Inc. PowerEdge
	// R740", "Raspberry Pi 4 Model B Rev 1.4".
	Product string `json:"-"`
	// Virtual reports whether the machine is virtual.
	Virtual bool `json:"-"`
	// Cloud is the public cloud, as in cloud.provider of the semantic conventions: aws, azure, gcp,
	// alibaba_cloud. Instance is the instance type: "m5.large".
	Cloud    string `json:"-"`
	Instance string `json:"-"`
}

// errNoCPU is returned if neither /proc/cpuinfo nor sysfs lists a CPU.
var errNoCPU = errors.New("no CPU found")

// Read returns the description of the machine whose root directory is at root. getenv returns the
// value of an environment variable, like os.Getenv. Read returns an error if no file describes the
// CPUs. The other fields of the Machine are valid even then.
func Read(root string, getenv func(string) string) (Machine, error) {
	var m Machine
	info, err := readCPUInfo(filepath.Join(root, "proc/cpuinfo"))
	info.describe(&m)
	m.count(filepath.Join(root, "sys/devices/system/cpu"))
	m.Memory = readMemory(filepath.Join(root, "proc/meminfo"))
	f := readFirmware(root)
	m.Product = f.product()
	m.Cloud, m.Instance = f.cloud(getenv)
	m.Virtual = f.virtual(&info, m.Instance)
	m.Chip = chip(m.Cloud, m.CPU)
	if m.Threads == 0 {
		if err == nil {
			err = errNoCPU
		}
		return m, fmt.Errorf("identify the machine: %w", err)
	}
	return m, nil
}

// IsVirtual reports whether the machine whose root directory is at root is virtual. For getenv, see
// Read.
func IsVirtual(root string, getenv func(string) string) bool {
	info, _ := readCPUInfo(filepath.Join(root, "proc/cpuinfo"))
	f := readFirmware(root)
	_, instance := f.cloud(getenv)
	return f.virtual(&info, instance)
}

// String returns the fields that a power model depends on: "Arm Neoverse-N1 (AWS Graviton2), 2
// CPUs, 7.54 GiB, virtual, aws m6g.large".
func (m Machine) String() string {
	text := cmp.Or(m.CPU, "unknown CPU")
	if m.Chip != "" {
		text += " (" + m.Chip + ")"
	}
	if m.Threads == 1 {
		text += ", 1 CPU"
	} else {
		text += fmt.Sprintf(", %d CPUs", m.Threads)
	}
	if m.Memory > 0 {
		text += fmt.Sprintf(", %.3g GiB", float64(m.Memory)/(1<<30))
	}
	if m.Virtual {
		text += ", virtual"
	}
	if place := strings.TrimSpace(m.Cloud + " " + m.Instance); place != "" {
		text += ", " + place
	}
	return text
}
