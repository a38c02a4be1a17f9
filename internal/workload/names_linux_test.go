// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/identity"
)

// Opening a pipe would wait for a writer.
func TestAPipeInPlaceOfAFileNamesNothing(t *testing.T) {
	h := newNameHost(t)
	path := "var/lib/docker/containers/" + hexA + "/config.v2.json"
	h.mkdir(filepath.Dir(path))
	require.NoError(t, syscall.Mkfifo(filepath.Join(h.root, path), 0o600))
	assert.Equal(t, identity.Names{}, *h.of(alone(hexA, "docker")))
}

func TestAPipeInPlaceOfADirectoryNamesNothing(t *testing.T) {
	h := newNameHost(t)
	h.mkdir("var/log", "run/containerd")
	for _, dir := range []string{"var/log/pods", "var/log/containers", bundles} {
		require.NoError(t, syscall.Mkfifo(filepath.Join(h.root, dir), 0o600))
	}
	assert.Equal(t, identity.Names{}, *h.of(inPod(hexA, "containerd")))
}
