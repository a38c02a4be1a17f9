// SPDX-License-Identifier: Apache-2.0

//go:build linux

package series

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Patience is how long a test waits for an event.
const Patience = 2 * time.Minute

// FreeAddress returns an address of loopback on which no program listens.
func FreeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err) // without loopback there is no test of a backend
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Program is a program that a test starts, ends and starts again.
type Program struct {
	// Command is started by each Start. Its output is appended to the file Log.
	Command *exec.Cmd
	Log     string

	mu      sync.Mutex
	running *exec.Cmd
	ended   chan struct{} // closed when running has ended
}

// Start starts the program and waits until a URL answers, with any status below 500.
func (p *Program) Start(url string) error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd, ended := exec.Command(p.Command.Path, p.Command.Args[1:]...), make(chan struct{})
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.Command.Dir, p.Command.Env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = cmd.Wait() // the test does not depend on the status
		close(ended)
	}()
	p.mu.Lock()
	p.running, p.ended = cmd, ended
	p.mu.Unlock()
	return Until(url+" answers", func() (bool, error) {
		select {
		case <-ended:
			text, _ := os.ReadFile(p.Log) // the log has the reason, if there is one
			return false, fmt.Errorf("%s ended: %s", cmd.Path, text)
		default:
		}
		answer, err := http.Get(url)
		if err != nil {
			return false, nil //nolint:nilerr // the program does not listen yet
		}
		return answer.StatusCode < http.StatusInternalServerError, answer.Body.Close()
	})
}

// PID returns the process ID, 0 if the program does not run.
func (p *Program) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return 0
	}
	return p.running.Process.Pid
}

// End sends a signal to the program and waits for its end. A program that does not end is killed.
func (p *Program) End(signal os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return
	}
	_ = p.running.Process.Signal(signal) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(Patience):
		_ = p.running.Process.Kill()
		<-p.ended
	}
	p.running = nil
}

// Until waits until a condition holds.
func Until(what string, holds func() (bool, error)) error {
	for began := time.Now(); time.Since(began) < Patience; time.Sleep(20 * time.Millisecond) {
		if done, err := holds(); done || err != nil {
			return err
		}
	}
	return errors.New("not in time: " + what)
}
