// SPDX-License-Identifier: Apache-2.0

// Package cgroups holds the compiled BPF program that reports the path of every cgroup that is
// created.
//
// `make generate-bpf` compiles cgroups.bpf.c with clang. Its output is committed, so that other
// builds need no clang.
package cgroups

//go:generate bpf2go -target amd64,arm64 cgroups cgroups.bpf.c -- -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
