// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import "log"

func main() { log.Fatal("cost measures processes of Linux") }
