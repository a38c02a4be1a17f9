// SPDX-License-Identifier: Apache-2.0

// Package tasks holds the compiled BPF programs that list processes with their CPU time.
//
// `make generate-bpf` compiles tasks.bpf.c with clang. Its output is committed, so that other
// builds need no clang.
package tasks

//go:generate bpf2go -target amd64,arm64 -type process -type ended -type scanned tasks tasks.bpf.c -- -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate bpf2go -target amd64,arm64 -cflags "-mcpu=v3" ran ran.bpf.c -- -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
