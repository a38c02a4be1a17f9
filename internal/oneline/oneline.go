// SPDX-License-Identifier: Apache-2.0

// Package oneline formats errors for logs and status conditions, which have one line each.
package oneline

import (
	"fmt"
	"strings"
)

// Join joins errors as errors.Join does, separated by semicolons instead of line ends.
func Join(errs ...error) error {
	var all error
	for _, err := range errs {
		switch {
		case err == nil:
		case all == nil:
			all = err
		default:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}

// Text returns the text of an error with semicolons instead of line ends.
func Text(err error) string { return strings.ReplaceAll(fmt.Sprint(err), "\n", "; ") }
