// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
)

// firmware is the firmware's description of the machine: the values of SMBIOS in /sys/class/dmi/id
// that any user can read (drivers/firmware/dmi-id.c), or a device tree.
type firmware struct {
	vendor, productName, biosVendor, biosVersion, assetTag string
	model                                                  string // of the device tree
	hypervisorNode                                         bool   // the device tree has a hypervisor
	virtualBoard                                           bool   // the device tree describes a virtual board
	hypervisor                                             string // sys/hypervisor/type: xen
}

func readFirmware(root string) firmware {
	read := func(name string) string { return printable(readSmall(filepath.Join(root, name))) }
	dmi := func(name string) string { return read("sys/class/dmi/id/" + name) }
	// proc/device-tree is a link to an absolute path, which is outside of root.
	const tree = "sys/firmware/devicetree/base"
	f := firmware{
		vendor: dmi("sys_vendor"), productName: dmi("product_name"), biosVendor: dmi("bios_vendor"), biosVersion: dmi("bios_version"),
		assetTag:   dmi("chassis_asset_tag"),
		hypervisor: read("sys/hypervisor/type"),
		model:      read(tree + "/model"),
	}
	_, err := os.Stat(filepath.Join(root, tree, "hypervisor"))
	f.hypervisorNode = err == nil
	// QEMU, Firecracker, Cloud Hypervisor and kvmtool have a board of that name.
	f.virtualBoard = strings.HasPrefix(read(tree+"/compatible"), "linux,dummy-virt")
	return f
}

// readSmall returns the beginning of a file up to a NUL, which ends strings in a device tree. It is
// empty if the file cannot be read.
func readSmall(path string) []byte {
	text, _ := kernfs.ReadSmall(path, make([]byte, 256))
	text, _, _ = bytes.Cut(text, []byte{0})
	return text
}

// product returns the vendor and the model of the machine.
func (f *firmware) product() string {
	if f.vendor == "" && f.productName == "" {
		return f.model
	}
	return strings.TrimSpace(f.vendor + " " + f.productName)
}

// cloud returns the public cloud and the instance type, or empty strings if they are not available.
// The variable ENERGY_INSTANCE_TYPE has precedence over the firmware, and the firmware over
// host.type and cloud.provider in OTEL_RESOURCE_ATTRIBUTES.
func (f *firmware) cloud(getenv func(string) string) (cloud, instance string) {
	i := slices.IndexFunc(clouds, func(c sign) bool { return c.shownBy(f) })
	if i >= 0 {
		cloud = clouds[i].cloud
	}
	attributes := resourceAttributes(getenv("OTEL_RESOURCE_ATTRIBUTES"))
	if cloud == "" {
		cloud = attributes["cloud.provider"]
	}
	switch {
	case getenv(InstanceVariable) != "":
		instance = printable([]byte(getenv(InstanceVariable)))
	case cloud == "aws" && strings.Contains(f.productName, "."): // since Nitro; before it is "HVM domU"
		instance = f.productName
	default:
		instance = attributes["host.type"]
	}
	return cloud, instance
}

// InstanceVariable is the environment variable with the machine's type in its cloud, for machines
// that do not report the type themselves.
const InstanceVariable = "ENERGY_INSTANCE_TYPE"

// resourceAttributes returns the attributes in a list of key=value pairs, with commas between them
// and percent-encoded values (https://opentelemetry.io/docs/specs/otel/resource/sdk/). Malformed
// pairs are omitted.
func resourceAttributes(list string) map[string]string {
	attributes := map[string]string{}
	for pair := range strings.SplitSeq(list, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if value, err := url.PathUnescape(strings.TrimSpace(value)); ok && err == nil {
			attributes[strings.TrimSpace(key)] = printable([]byte(value))
		}
	}
	return attributes
}

// sign is a text that identifies the machines of a cloud.
type sign struct {
	field func(*firmware) string
	text  string // is in the field
	cloud string
}

func (s *sign) shownBy(f *firmware) bool { return strings.Contains(s.field(f), s.text) }

func vendor(f *firmware) string      { return f.vendor }
func productName(f *firmware) string { return f.productName }
func biosVersion(f *firmware) string { return f.biosVersion }
func assetTag(f *firmware) string    { return f.assetTag }

// clouds are the signs that cloud-init also uses to identify a cloud without a network (its
// tools/ds-identify), in the words of cloud.provider if the semantic conventions have one.
var clouds = []sign{
	{vendor, "Amazon EC2", "aws"},
	{biosVersion, "amazon", "aws"}, // Xen: "4.11.amazon"
	{productName, "Google Compute Engine", "gcp"},
	{assetTag, "7783-7084-3265-9085-8269-3286-77", "azure"},
	{assetTag, "OracleCloud.com", "oracle_cloud"},
	{vendor, "Alibaba Cloud", "alibaba_cloud"},
	{vendor, "Tencent Cloud", "tencent_cloud"},
	{vendor, "Hetzner", "hetzner"},
	{vendor, "Vultr", "vultr"},
	{vendor, "Akamai", "akamai_cloud"},
	{vendor, "Linode", "akamai_cloud"},
	{vendor, "DigitalOcean", "digitalocean"},
	{vendor, "Scaleway", "scaleway"},
	{vendor, "UpCloud", "upcloud"},
	{productName, "Exoscale", "exoscale"},
}

// virtual reports whether the machine is virtual. On x86 the CPU reports that. On other
// architectures the firmware does, and instance types named metal have no hypervisor.
func (f *firmware) virtual(info *cpuInfo, instance string) bool {
	switch {
	case info.hypervisor || f.hypervisor != "" || f.hypervisorNode || f.virtualBoard:
		return true
	case info.flags || strings.Contains(instance, "metal"):
		return false
	}
	return slices.ContainsFunc(hypervisors, func(name string) bool {
		return strings.Contains(f.vendor, name) || strings.Contains(f.productName, name) || strings.Contains(f.biosVendor, name)
	})
}

// hypervisors are in the vendor's or product's name of a virtual machine (systemd's
// src/basic/virt.c has such a list).
var hypervisors = []string{
	"QEMU", "KVM", "KubeVirt", "OpenStack", "VMware", "VirtualBox", "innotek GmbH", "Xen", "Bochs", "Parallels", "BHYVE", "Hyper-V",
	"Virtual Machine", "Apple Virtualization", "Amazon EC2", "Google Compute Engine", "Alibaba Cloud ECS", "vServer", "Droplet",
}
