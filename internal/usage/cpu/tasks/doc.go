// SPDX-License-Identifier: Apache-2.0

// Package tasks holds the BPF programs that list processes with their CPU time, compiled.
//
// `make generate-bpf` compiles tasks.bpf.c, and is the only thing that needs clang: what it writes is
// committed. What must never be here: an interpretation of what the programs say.
package tasks

//go:generate go tool -modfile=../../../tools/go.mod bpf2go -target amd64,arm64 -type process -type ended -type scanned tasks tasks.bpf.c -- -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
