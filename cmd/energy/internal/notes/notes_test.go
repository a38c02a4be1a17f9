// SPDX-License-Identifier: Apache-2.0

package notes

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/zap"
)

func TestGPUsThatAreNotReadAreNoted(t *testing.T) {
	n := New()
	n.Logger().Info("NVIDIA GPUs not read", zap.Strings("gpus", []string{"0000:65:00.0"}))
	n.Logger().Info("CPU time source selected", zap.String("source", "command"))
	assert.Equal(t, []string{"NVIDIA GPUs not read: gpus [0000:65:00.0]"}, n.Lines())
}

func TestAMissingPermissionIsNoted(t *testing.T) {
	n := New()
	n.Logger().Warn("Collection degraded", zap.String("condition", "a"), zap.Error(errors.New("broken")))
	assert.False(t, n.Denied())
	n.Logger().Warn("Collection degraded", zap.String("condition", "b"), zap.Error(fmt.Errorf("read: %w", fs.ErrPermission)))
	assert.True(t, n.Denied())
	n.Logger().Info("Collection recovered", zap.String("condition", "b"))
	assert.Equal(t, []string{"a: broken"}, n.Lines())
}
