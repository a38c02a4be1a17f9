// SPDX-License-Identifier: Apache-2.0

//go:build linux

package crowd

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed testdata/load.c
var loadSource []byte

// ErrNoCgroups is returned if a machine has containers and no cgroup can be created.
var ErrNoCgroups = errors.New("containers require root and a cgroup v2 hierarchy below /sys/fs/cgroup")

// Machine describes the processes of a machine.
type Machine struct {
	Processes  int // as of Start
	Active     int // number of Processes that run ten times a second
	Containers int // cgroups for Processes, with names as of Docker
	ActiveIn   int // number of Containers with active processes; 0 means all
	Exits      int // processes that start and end each second, in addition to Processes
}

// Run compiles the programs into dir and starts the processes of the machine. It returns when all
// run. stop ends them, waits for their exit, and removes the cgroups.
func Run(dir string, m Machine) (stop func() error, err error) {
	var stops []func() error
	stop = func() (err error) {
		for i := len(stops) - 1; i >= 0; i-- {
			err = errors.Join(err, stops[i]())
		}
		return err
	}
	add := func(s func() error, err error) error {
		if err == nil {
			stops = append(stops, s)
		}
		return err
	}
	err = add(startContained(dir, m))
	if err == nil && m.Exits > 0 {
		err = add(launch(filepath.Join(dir, "load"), loadSource, strconv.Itoa(m.Exits)))
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// startContained starts the crowd, in containers if the machine has any.
func startContained(dir string, m Machine) (stop func() error, err error) {
	p, err := start(filepath.Join(dir, "crowd"), source, strconv.Itoa(m.Processes), strconv.Itoa(m.Active))
	if err != nil {
		return nil, err
	}
	if m.Containers == 0 {
		return p.stop, nil
	}
	children, err := childrenOf(p.pid())
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	remove, err := contain(children, m)
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return func() error { return errors.Join(p.stop(), remove()) }, nil
}

func childrenOf(pid int) (pids []int, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, err
	}
	for _, field := range strings.Fields(string(b)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, child)
	}
	return pids, nil
}

// contain moves processes, the active ones first, into the cgroups of containers, in turn. remove
// removes the cgroups after the processes have ended.
func contain(pids []int, m Machine) (remove func() error, err error) {
	root, err := cgroupRoot()
	if err != nil {
		return nil, err
	}
	var dirs []string
	remove = func() (err error) {
		for _, dir := range dirs {
			err = errors.Join(err, os.Remove(dir))
		}
		return err
	}
	for i := range m.Containers {
		dir := filepath.Join(root, fmt.Sprintf("docker-%032x%032x.scope", os.Getpid(), i+1))
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // like other cgroups
			return nil, errors.Join(ErrNoCgroups, err, remove())
		}
		dirs = append(dirs, dir)
	}
	for i, pid := range pids {
		among := m.Containers
		if i < m.Active && m.ActiveIn > 0 {
			among = m.ActiveIn
		}
		if err := os.WriteFile(filepath.Join(dirs[i%among], "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			moveOut(root, pids[:i])
			return nil, errors.Join(err, remove())
		}
	}
	return remove, nil
}

// moveOut moves processes into the root's cgroup. They may have ended.
func moveOut(root string, pids []int) {
	for _, pid := range pids {
		_ = os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	}
}

func cgroupRoot() (string, error) {
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err == nil && os.Getuid() == 0 {
			return mount, nil
		}
	}
	return "", ErrNoCgroups
}
