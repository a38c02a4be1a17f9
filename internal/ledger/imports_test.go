// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThePackageDependsOnAttributionIdentityUnitsAndTheStandardLibraryOnly(t *testing.T) {
	const module = "github.com/energyreceiver/energyreceiver"
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Equal(t, []string{module + "/internal/units", module + "/internal/attribution", module + "/internal/identity", module + "/internal/ledger"}, strings.Fields(string(out)))
}
