// SPDX-License-Identifier: Apache-2.0

// Package phase implements the events that divide a run into phases such as install, build and
// test. A phase lasts until the next phase begins, or until it ends. The time outside of all phases
// has a name of its own.
//
// An event is a Mark. Send sends marks as lines of text over a Unix socket, and a Server receives them.
package phase

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// None names the time outside of all phases. Phases must have other names.
	None = "none"
	// MaxName is the longest name of a phase, in bytes.
	MaxName = 100
	// Variable is the environment variable with the path of the socket, for the command.
	Variable = "ENERGY_PHASE_SOCKET"
)

// Mark begins a phase and ends the previous phase. The mark End only ends the previous phase.
type Mark struct{ Phase string }

// End is the mark that ends a phase.
var End = Mark{None}

// String returns the line that Parse takes.
func (m Mark) String() string {
	if m == End {
		return "end"
	}
	return "begin " + m.Phase
}

// Parse returns the mark of a line: "begin NAME" or "end". White space around the line and the name is ignored.
func Parse(line string) (Mark, error) {
	verb, name, _ := strings.Cut(strings.TrimSpace(line), " ")
	name = strings.TrimSpace(name)
	switch {
	case verb == "begin":
		return Mark{name}, checkName(name)
	case verb == "end" && name == "":
		return End, nil
	}
	return Mark{}, errors.New(`want "begin NAME" or "end"`)
}

// checkName returns why a phase may not have a name, nil if it may. A name is text that can be printed on one line.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("the phase has no name")
	case name == None:
		return fmt.Errorf("no phase can be called %q: that is the time outside of all phases", None)
	case len(name) > MaxName:
		return fmt.Errorf("the phase's name is longer than %d bytes", MaxName)
	case !utf8.ValidString(name):
		return errors.New("the phase's name is not UTF-8")
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("the phase's name has %q, which cannot be printed", r)
		}
	}
	return nil
}
