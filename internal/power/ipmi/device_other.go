// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package ipmi

import "errors"

func openDevice(string) (device, error) { return nil, errors.ErrUnsupported }
