// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/golden"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

func TestTheTableHasTheFirstFunctions(t *testing.T) {
	r := Result{Zones: []Zone{{Name: "package", Source: "modeled", Static: StaticModel, Used: 780_000_000, Active: 1_000_000_000}}}
	for i := range 12 {
		r.Functions = append(r.Functions, Function{Name: strings.Repeat("f", 5*i+1), Used: units.Energy(120-10*i) * 1e6, Base: units.Energy(20*i) * 1e6})
	}
	table := func() string {
		var b bytes.Buffer
		require.NoError(t, r.WriteTable(&b))
		_, functions, _ := strings.Cut(b.String(), "\n\nFUNCTION")
		return functions
	}
	once := table()
	r.Compared = true
	golden.Equal(t, "functions.txt", once+table())
}
