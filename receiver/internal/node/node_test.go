// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// blockedReader is a part of the receiver whose reads are blocked if err is not nil.
type blockedReader struct{ err error }

func (b blockedReader) Blocked() error { return b.err }

func TestBlockedReadsOfAllPartsAreReported(t *testing.T) {
	times, names := blockedReader{errors.New("CPU times of user 1")}, blockedReader{errors.New("names of user 2")}
	require.EqualError(t, blockedProcesses(times, names), "CPU times of user 1; names of user 2")
	require.EqualError(t, blockedProcesses(times, blockedReader{}), "CPU times of user 1")
	require.EqualError(t, blockedProcesses(struct{}{}, names), "names of user 2")
	require.NoError(t, blockedProcesses(blockedReader{}, blockedReader{}))
}
