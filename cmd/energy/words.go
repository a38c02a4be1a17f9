// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
)

// Characters that require a shell unless they are quoted (POSIX, Shell Command Language, 2.2
// Quoting): anywhere, or at the start of a word. In the first word, = also requires a shell,
// because it sets a variable.
const (
	special        = "|&;<>()$`*?[\n"
	specialAtStart = "~#!{"
)

// shellWords returns the arguments that run a command line. A line of plain and quoted words is
// split into these words, so that the energy of a shell is not measured. A line that needs a shell,
// for a pipe, a variable or a pattern, is run by sh -c; byShell reports that.
func shellWords(line string) (words []string, byShell bool, err error) {
	words, ok := splitWords(line)
	switch {
	case strings.TrimSpace(line) == "":
		return nil, false, errors.New("the command is empty")
	case !ok:
		return []string{"sh", "-c", line}, true, nil
	}
	return words, false, nil
}

// splitWords splits a line into words as a shell does. It reports false for a line that only a
// shell can read.
func splitWords(line string) (words []string, ok bool) {
	var word strings.Builder
	inWord, quote := false, rune(0)
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			if r == '\n' || quote == '"' && !strings.ContainsRune("\"\\$`", r) {
				return nil, false
			}
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote == r:
			quote = 0
		case quote == '\'':
			word.WriteRune(r)
		case quote == '"':
			if r == '$' || r == '`' {
				return nil, false
			}
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' || r == '\t':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		case strings.ContainsRune(special, r), !inWord && strings.ContainsRune(specialAtStart, r), len(words) == 0 && r == '=':
			return nil, false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if escaped || quote != 0 {
		return nil, false
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, true
}
