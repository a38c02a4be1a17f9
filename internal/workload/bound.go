// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// The maximum sizes of attributes in bytes. A process chooses its names, paths and arguments, and
// the kernel limits few of them.
const (
	maxName = 256  // names and ids
	maxText = 4096 // paths and command lines
)

const ellipsis = "…"

// bound returns s as valid UTF-8 of at most size bytes. A truncated string ends in an ellipsis.
func bound(s string, size int) string {
	valid := strings.ToValidUTF8(s, "\uFFFD")
	if max(len(s), len(valid)) <= size {
		return valid
	}
	return prefix(valid, size-len(ellipsis)) + ellipsis
}

// boundID returns an id as valid UTF-8 of at most maxName bytes. Different ids have different
// results: a truncated id ends in an ellipsis and a hash of the whole id.
func boundID(id string) string {
	if len(id) <= maxName && utf8.ValidString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	hash := hex.EncodeToString(sum[:16])
	return prefix(strings.ToValidUTF8(id, "\uFFFD"), maxName-len(ellipsis)-len(hash)) + ellipsis + hash
}

// prefix returns the complete characters of s, which is valid UTF-8, in its first size bytes.
func prefix(s string, size int) string {
	if len(s) <= size {
		return s
	}
	for !utf8.RuneStart(s[size]) {
		size--
	}
	return s[:size]
}

// boundWorkload limits the sizes of the attributes of a workload: distinguishing attributes by
// boundID, and all others by bound.
func boundWorkload(w *identity.Workload) {
	for _, a := range identity.ProcessEntity.Attributes() {
		*a.Field(w) = boundID(*a.Field(w))
	}
	for entity := identity.ContainerEntity; entity < identity.NumEntities; entity++ {
		for _, a := range entity.Attributes() {
			*a.Field(w) = bound(*a.Field(w), maxName)
		}
	}
}

func boundVM(vm *identity.VM) {
	vm.ID, vm.Name = boundID(vm.ID), bound(vm.Name, maxName)
}
