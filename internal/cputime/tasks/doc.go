// Package tasks holds the BPF programs that list processes with their CPU time, compiled.
//
// `make generate-bpf` compiles tasks.bpf.c, and is the only thing that needs clang: what it writes is
// committed. What must never be here: an interpretation of what the programs say.
package tasks
