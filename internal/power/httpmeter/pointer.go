// SPDX-License-Identifier: Apache-2.0

package httpmeter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Pointer names a value in a JSON document (RFC 6901). The zero Pointer is the whole document.
type Pointer struct {
	text   string
	tokens []string // unescaped
}

// ParsePointer parses a JSON pointer, such as "/meters/0/total".
func ParsePointer(text string) (Pointer, error) {
	p := Pointer{text: text}
	if text == "" {
		return p, nil
	}
	if text[0] != '/' {
		return Pointer{}, errors.New("a JSON pointer begins with /")
	}
	for token := range strings.SplitSeq(text[1:], "/") {
		unescaped, ok := unescape(token)
		if !ok {
			return Pointer{}, errors.New("in a JSON pointer ~ is written ~0, and / inside of a name ~1")
		}
		p.tokens = append(p.tokens, unescaped)
	}
	return p, nil
}

// unescape replaces ~1 by / and ~0 by ~, and reports whether no other character follows a ~.
func unescape(token string) (string, bool) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(token, "~")
		b.WriteString(before)
		switch {
		case !found:
			return b.String(), true
		case strings.HasPrefix(after, "0"):
			b.WriteByte('~')
		case strings.HasPrefix(after, "1"):
			b.WriteByte('/')
		default:
			return "", false
		}
		token = after[1:]
	}
}

// String returns the pointer as it was written.
func (p Pointer) String() string { return p.text }

// Find returns the value in a document. The error names the part of the path that the document
// lacks.
func (p Pointer) Find(document json.RawMessage) (json.RawMessage, error) {
	value := document
	for _, token := range p.tokens {
		var err error
		if value, err = child(value, token); err != nil {
			return nil, err
		}
	}
	return value, nil
}

// child returns the member or the element of a value that a token names.
func child(value json.RawMessage, token string) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(value, &members); err == nil && members != nil {
		member, ok := members[token]
		if !ok {
			return nil, fmt.Errorf("the answer has no member %q", token)
		}
		return member, nil
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(value, &elements); err != nil || elements == nil {
		return nil, fmt.Errorf("the answer has no value that could contain %q", token)
	}
	// RFC 6901, section 4: no leading zeros.
	index, err := strconv.ParseUint(token, 10, 31)
	if err != nil || strconv.FormatUint(index, 10) != token {
		return nil, fmt.Errorf("%q is not an array index", token)
	}
	if index >= uint64(len(elements)) {
		return nil, fmt.Errorf("the array has no element %s", token)
	}
	return elements[index], nil
}
