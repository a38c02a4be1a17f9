// SPDX-License-Identifier: Apache-2.0

package ipmi

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The sizes and offsets of linux/ipmi.h where a long has 64 bits, as on amd64, arm64 and ppc64le.
func TestStructuresAreTheKernels(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("a long has 32 bits here, and the structures another layout")
	}
	assert.EqualValues(t, 8, unsafe.Sizeof(systemInterface{}))
	assert.EqualValues(t, 40, unsafe.Sizeof(sent{}))
	assert.EqualValues(t, 24, unsafe.Offsetof(sent{}.packet))
	assert.EqualValues(t, 48, unsafe.Sizeof(received{}))
	assert.EqualValues(t, 32, unsafe.Offsetof(received{}.packet))
	assert.EqualValues(t, 8, unsafe.Offsetof(message{}.data))
	if sendCommand>>30 == 2 { // amd64 and arm64
		assert.Equal(t, uint32(0x8028690d), uint32(sendCommand))
		assert.Equal(t, uint32(0xc030690b), uint32(receiveMessage))
	}
}

func TestAFileThatIsNoDeviceIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ipmi0")
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	d, err := openDevice(path)
	require.NoError(t, err)
	_, err = get(t.Context(), d, 0)
	require.ErrorIs(t, err, unix.ENOTTY)
	require.NoError(t, d.Close())
}
