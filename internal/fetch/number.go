// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

// The errors of Number.
var (
	ErrNoValue   = errors.New("there is no value")
	ErrNotNumber = errors.New("the value is not a number")
)

// Number returns the finite number in a JSON number or JSON string. The error is ErrNoValue if the
// value is absent, null or an empty string, and ErrNotNumber for any other value.
func Number(value json.RawMessage) (float64, error) {
	text, err := NumberText(value)
	if err != nil {
		return 0, err
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil { // out of range
		return 0, ErrNotNumber
	}
	return number, nil
}

// NumberText is like Number, but returns the text of the JSON number as the server sent it.
func NumberText(value json.RawMessage) (string, error) {
	value = bytes.TrimSpace(value)
	if len(value) > 0 && value[0] == '"' {
		var text string
		if json.Unmarshal(value, &text) != nil {
			return "", ErrNotNumber
		}
		value = bytes.TrimSpace([]byte(text))
	}
	switch {
	case len(value) == 0, string(value) == "null":
		return "", ErrNoValue
	case value[0] != '-' && (value[0] < '0' || value[0] > '9'), !json.Valid(value):
		return "", ErrNotNumber
	}
	return string(value), nil
}
