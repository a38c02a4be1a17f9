// SPDX-License-Identifier: Apache-2.0

// Package tasks runs the BPF programs that list processes with their CPU time.
//
// The programs in tasks.bpf.c list all processes and record exited ones. The programs in ran.bpf.c
// list the processes that ran since the previous call. tasks.h contains their shared parts. `make
// generate-bpf` compiles them with clang. The output is committed, so other builds need no clang.
package tasks

//go:generate bpf2go -target amd64,arm64 -type process -type ended -type scan_args tasks tasks.bpf.c -- -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate bpf2go -target amd64,arm64 -cflags "-mcpu=v3" -type cpu_counts ran ran.bpf.c -- -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
