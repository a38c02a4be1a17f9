// SPDX-License-Identifier: Apache-2.0

//go:build linux

package ring

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// event returns a descriptor that wakes its waiters, as a ring buffer does.
func event(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fd), "event")
	t.Cleanup(func() { assert.NoError(t, file.Close()) })
	return file
}

func wake(t *testing.T, file *os.File) {
	t.Helper()
	_, err := file.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0})
	require.NoError(t, err)
}

func TestAWakeupRingsTheAlarmAlsoDuringACall(t *testing.T) {
	file := event(t)
	began, end := make(chan struct{}, 4), make(chan struct{}, 4)
	a, err := NewAlarm(int(file.Fd()), func() { began <- struct{}{}; <-end })
	require.NoError(t, err)
	<-began // at first
	wake(t, file)
	wake(t, file)
	end <- struct{}{}
	<-began    // again, and once more if the poller saw the wakeups one by one
	close(end) // no call waits any more
	wake(t, file)
	<-began
	require.NoError(t, a.Close())
}

func TestACloseWaitsForTheCallThatRuns(t *testing.T) {
	file := event(t)
	began, end := make(chan struct{}), make(chan struct{})
	rings := 0
	a, err := NewAlarm(int(file.Fd()), func() { rings++; close(began); <-end })
	require.NoError(t, err)
	<-began
	closed := make(chan error)
	go func() { closed <- a.Close() }()
	select {
	case err := <-closed:
		t.Fatal("a call runs", err)
	default:
	}
	close(end)
	require.NoError(t, <-closed)
	wake(t, file)
	assert.Equal(t, 1, rings, "no call follows")
}

func TestAFileThatWakesNobodyIsRefused(t *testing.T) {
	regular, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer func() { require.NoError(t, regular.Close()) }()
	_, err = NewAlarm(int(regular.Fd()), func() { t.Error("it rang") })
	require.ErrorContains(t, err, "wait for a ring buffer")
	_, err = NewAlarm(-1, func() { t.Error("it rang") })
	require.ErrorIs(t, err, unix.EBADF)
}
