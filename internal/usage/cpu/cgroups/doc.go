// SPDX-License-Identifier: Apache-2.0

// Package cgroups holds the BPF program that tells the path of every cgroup that is created, compiled.
//
// `make generate-bpf` compiles cgroups.bpf.c, and is the only thing that needs clang: what it writes is
// committed. What must never be here: an interpretation of what a path means.
package cgroups

//go:generate go tool -modfile=../../../tools/go.mod bpf2go -target amd64,arm64 cgroups cgroups.bpf.c -- -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
