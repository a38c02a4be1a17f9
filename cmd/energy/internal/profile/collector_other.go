// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package profile

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
func inPIDNamespace() bool             { return false }
func missing() []string                { return []string{"Linux"} }
