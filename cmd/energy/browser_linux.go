// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// browserOpener is the program that opens a file in the browser of the desktop.
const browserOpener = "xdg-open"

// openBrowser opens an address in the browser. The arguments of processes are public, so the address,
// which contains the token, is in a private file that redirects to it. remove removes the file, which
// also happens after a minute.
func openBrowser(address string) (remove func(), err error) {
	remove = func() {}
	path, err := exec.LookPath(browserOpener)
	if err != nil {
		return remove, err
	}
	dir, err := os.MkdirTemp("", "energy-web-")
	if err != nil {
		return remove, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	time.AfterFunc(time.Minute, remove)
	file := filepath.Join(dir, "open.html")
	page := fmt.Sprintf("<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">"+
		"<meta http-equiv=\"refresh\" content=\"0;url=%s\"><title>energy web</title>\n", html.EscapeString(address))
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		return remove, err
	}
	c := exec.Command(path, file) //nolint:noctx // the browser outlives this process
	if err := asInvoker(c, file, dir); err != nil {
		return remove, err
	}
	if err := c.Start(); err != nil {
		return remove, err
	}
	go func() { _ = c.Wait() }()
	return remove, nil
}

// asInvoker makes a command of root run as the user who ran sudo, and gives files to that user.
func asInvoker(c *exec.Cmd, files ...string) error {
	if os.Geteuid() != 0 || os.Getenv("SUDO_UID") == "" {
		return nil
	}
	uid, err1 := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 31)
	gid, err2 := strconv.ParseUint(os.Getenv("SUDO_GID"), 10, 31)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for _, file := range files {
		if err := os.Lchown(file, int(uid), int(gid)); err != nil {
			return err
		}
	}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	c.Env = append(os.Environ(), fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", uid))
	if u, err := user.LookupId(os.Getenv("SUDO_UID")); err == nil {
		c.Env = append(c.Env, "HOME="+u.HomeDir, "USER="+u.Username, "LOGNAME="+u.Username)
	}
	return nil
}
