// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// browserOpener is the program that opens a file in the browser of the desktop.
const browserOpener = "xdg-open"

// openBrowser opens an address in the browser. Other users can read the arguments of processes, and
// the address contains the token. Therefore the argument is a private file that redirects to the
// address. remove removes the file, as does a timer after a minute. failed is called if the program
// that opens the browser fails later.
func openBrowser(address string, failed func(error)) (remove func(), err error) {
	file, err := os.CreateTemp("", "energy-web-*.html") // only its owner can read it
	if err != nil {
		return func() {}, err
	}
	remove = func() { _ = os.Remove(file.Name()) }
	time.AfterFunc(time.Minute, remove)
	_, err = fmt.Fprintf(file, "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">"+
		"<meta http-equiv=\"refresh\" content=\"0;url=%s\"><title>energy web</title>\n", html.EscapeString(address))
	c := exec.Command(browserOpener, file.Name()) //nolint:noctx // the browser outlives this process
	if err = errors.Join(err, asInvoker(c, file), file.Close()); err == nil {
		err = c.Start()
	}
	if err == nil {
		go func() {
			if err := c.Wait(); err != nil {
				failed(fmt.Errorf("%s: %w", browserOpener, err))
			}
		}()
	}
	return remove, err
}

// asInvoker makes a command run as the user who called sudo, and makes that user the owner of file.
func asInvoker(c *exec.Cmd, file *os.File) error {
	if os.Geteuid() != 0 || os.Getenv("SUDO_UID") == "" {
		return nil
	}
	u, err := user.LookupId(os.Getenv("SUDO_UID"))
	if err != nil {
		return err
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 31)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 31)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	c.Env = append(os.Environ(), "XDG_RUNTIME_DIR=/run/user/"+u.Uid, "HOME="+u.HomeDir,
		"USER="+u.Username, "LOGNAME="+u.Username)
	return errors.Join(err1, err2, file.Chown(int(uid), int(gid)))
}
