// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// unreadReader is a part of the receiver whose files are not read if err is not nil.
type unreadReader struct{ err error }

func (b unreadReader) Unread() error { return b.err }

func TestUnreadFilesOfAllPartsAreReported(t *testing.T) {
	times, names := unreadReader{errors.New("CPU times of user 1")}, unreadReader{errors.New("names of user 2")}
	require.EqualError(t, unreadProcesses(times, names), "CPU times of user 1; names of user 2")
	require.EqualError(t, unreadProcesses(times, unreadReader{}), "CPU times of user 1")
	require.EqualError(t, unreadProcesses(struct{}{}, names), "names of user 2")
	require.NoError(t, unreadProcesses(unreadReader{}, unreadReader{}))
}
