// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/redfish"
	rt "github.com/energyreceiver/energyreceiver/internal/power/redfish/redfishtest"
)

// Whatever one resource answers, there is no panic, and what comes of it is possible and bounded.
func FuzzAnswers(f *testing.F) {
	resources := []string{
		"/redfish/v1", "/redfish/v1/SessionService/Sessions", "/redfish/v1/Systems", "/redfish/v1/Systems/1", "/redfish/v1/Chassis/1",
		"/redfish/v1/Chassis/1/PowerSubsystem", rt.HPESupplies, rt.HPESupplies + "/0", rt.HPESupplies + "/0/Metrics", rt.HPEPower,
	}
	for i, body := range []string{
		`{"Systems": {"@odata.id": "/redfish/v1/Systems"}}`, `{"@odata.id": "x"}`, `{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}`,
		`{"UUID": "x", "Links": {"Chassis": [{"@odata.id": "/redfish/v1/Chassis/1"}]}}`,
		`{"Power": {"@odata.id": "/redfish/v1/Chassis/1/Power"}, "Links": {"ComputerSystems": []}}`,
		`{"PowerSupplies": null}`, `{"Members": [{"@odata.id": "//x/%zz"}, {}]}`, `{"Status": {"State": "Absent"}}`,
		`{"InputPowerWatts": {"Reading": "230.5"}, "EnergykWh": {"Reading": 1e-400, "ReadingTime": 7}}`,
		`{"PowerControl": [{"PowerConsumedWatts": -1e308, "PowerMetrics": {"IntervalInMin": 1e300}}]}`,
	} {
		f.Add(uint8(i), []byte(body))
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		path := resources[int(which)%len(resources)]
		synctest.Test(t, func(t *testing.T) {
			server := rt.New(rt.HPE(rt.Live{Watts: 400}))
			server.Fail(rt.Text(string(body)), func(r *http.Request) bool { return rt.Path(path)(r) && r.Method == http.MethodGet })
			sensor, err := redfish.New(redfish.Options{
				Client: &http.Client{Transport: server, Timeout: time.Minute}, Endpoint: "http://bmc.example",
				Username: rt.Username, Password: func() (string, error) { return rt.Password, nil },
			})
			require.NoError(t, err)
			meter := power.Poll(sensor, power.PollOptions{Name: "redfish"})
			_, _ = meter.Read(t.Context(), power.Sample{}) // begins to poll
			time.Sleep(15 * time.Second)
			synctest.Wait()
			readings, err := meter.Read(t.Context(), power.Sample{})
			assert.NotEqual(t, err == nil, len(readings) == 0, "there is a zone or an error")
			if err != nil {
				assert.Less(t, len(err.Error()), 64*130+500)
			}
			for _, r := range readings {
				assert.LessOrEqual(t, r.Total.Joules(), 15.0*float64(r.Zone.MaxWatts))
				assert.LessOrEqual(t, len(r.Zone.ID)+len(r.Zone.Name), 400)
			}
			assert.NoError(t, meter.Close())
		})
	})
}
