// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command guest is the first process of a virtual machine. It sets up the machine, runs the command
// of the kernel's command line, and powers off the machine:
//
//	guest.load="burn 30 0"    runs /load with these arguments until the machine is ended
//	guest.agent=/dev/ttyS1    answers the calls of the test over this port
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest runs only as the first process of a virtual machine")
		os.Exit(2)
	}
	err := run()
	if err != nil {
		fmt.Println("guest: failed:", err)
	}
	unix.Sync()
	err = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	fmt.Println("guest: power off:", err)
}

func run() error {
	if err := mounts(); err != nil {
		return err
	}
	text, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	options := parseOptions(string(text))
	if load, ok := options["guest.load"]; ok {
		cmd := exec.Command("/load", strings.Fields(load)...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return cmd.Run()
	}
	return serve(options["guest.agent"])
}

// parseOptions reads key=value and key="several words".
func parseOptions(line string) map[string]string {
	options := map[string]string{}
	quoted := false
	for _, word := range strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && (r == ' ' || r == '\n')
	}) {
		key, value, _ := strings.Cut(word, "=")
		if strings.HasPrefix(key, `"`) { // the kernel puts the quotes around the whole word
			key, value = strings.TrimPrefix(key, `"`), strings.TrimSuffix(value, `"`)
		}
		options[key] = strings.Trim(value, `"`)
	}
	return options
}

func mounts() error {
	for _, m := range []struct{ source, target, kind string }{
		{"proc", "/proc", "proc"},
		{"sysfs", "/sys", "sysfs"},
		{"devtmpfs", "/dev", "devtmpfs"},
		{"tmpfs", "/tmp", "tmpfs"},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2"},
		{"tracefs", "/sys/kernel/tracing", "tracefs"},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return nil
}
