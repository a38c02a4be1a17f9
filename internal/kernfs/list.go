// SPDX-License-Identifier: Apache-2.0

package kernfs

import "bytes"

// maxListed bounds the numbers of a list. Linux is built for 8,192 CPUs at most.
const maxListed = 1 << 16

// ParseList calls yield with each number of a list like "0-3,5", which sysfs prints of CPUs
// (Documentation/admin-guide/cputopology.rst). White space around the list is allowed. If the list is empty or
// malformed ParseList returns an error, possibly after some calls. It does not allocate.
func ParseList(b []byte, yield func(n int)) error {
	for part := range bytes.SplitSeq(bytes.TrimSpace(b), []byte{','}) {
		first, last, isRange := bytes.Cut(part, []byte{'-'})
		from, err := ParseUint(first)
		if err != nil {
			return err
		}
		to := from
		if isRange {
			if to, err = ParseUint(last); err != nil {
				return err
			}
		}
		if to < from || to >= maxListed {
			return ErrRange
		}
		for n := from; n <= to; n++ {
			yield(int(n))
		}
	}
	return nil
}
