// SPDX-License-Identifier: Apache-2.0

package energyreceiver

// GuestsConfig says how the virtual machines of this node are told the energy that they were attributed.
type GuestsConfig struct {
	// Path is a directory in which each virtual machine has a directory with a powercap tree, to be shared with it read-only.
	Path string `mapstructure:"path"`
	// VsockPort is the vsock port at which virtual machines are told. 0 means none.
	VsockPort int `mapstructure:"vsock_port"`

	_ struct{}
}
