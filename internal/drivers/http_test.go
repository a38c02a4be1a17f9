// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/httpmeter"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// recipes returns the entries of http/NAME in the code blocks of docs/hardware.md, by name.
func recipes(t *testing.T) map[string]HTTPConfig {
	t.Helper()
	page, err := os.ReadFile("../../docs/hardware.md")
	require.NoError(t, err)
	found := map[string]HTTPConfig{}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(meters:\n +http/.*?)```").FindAllSubmatch(page, -1) {
		var loaded struct {
			Meters Config `mapstructure:"meters"`
		}
		loaded.Meters = Default()
		retrieved, err := confmap.NewRetrievedFromYAML(block[1])
		require.NoError(t, err)
		conf, err := retrieved.AsConf()
		require.NoError(t, err)
		require.NoError(t, conf.Unmarshal(&loaded))
		loaded.Meters.Check(func(setting, _ string, _ ...any) { t.Error(setting) }, nil, false)
		for id, entry := range loaded.Meters.HTTP {
			found[id.Name()] = entry
		}
	}
	return found
}

var documents = map[string]document{
	// https://shelly-api-docs.shelly.cloud/gen2/ComponentsAndServices/Switch, as a Plug US answers
	"shelly": {
		"http://shelly.example/rpc/Switch.GetStatus?id=0",
		`{"id":0, "source":"loopback", "output":true, "apower":10.7, "voltage":120.7, "current":0.133,
			"aenergy":{"total":46791.262,"by_minute":[73.921,177.749,177.749],"minute_ts":1682952864}, "temperature":{"tC":47.9, "tF":118.3}}`,
		`{"id":0, "source":"loopback", "output":true, "apower":10.7, "voltage":120.7, "current":0.133,
			"aenergy":{"total":46793.045,"by_minute":[73.921,177.749,177.749],"minute_ts":1682953464}, "temperature":{"tC":47.9, "tF":118.3}}`,
		6_418_800_000, // 1.783 Wh
	},
	// https://shelly-api-docs.shelly.cloud/gen1/#shelly-plug-plugs-status, shortened
	"shelly-gen1": {
		"http://shelly-gen1.example/status",
		`{"time":"11:08","serial":1,"relays":[{"ison":true,"has_timer":false,"overpower":false}],
			"meters":[{"power":2.21,"is_valid":true,"timestamp":1680779310,"counters":[2.115,2.114,2.142],"total":439237}],"uptime":18961214}`,
		`{"time":"11:18","serial":1,"relays":[{"ison":true,"has_timer":false,"overpower":false}],
			"meters":[{"power":2.21,"is_valid":true,"timestamp":1680779910,"counters":[2.115,2.114,2.142],"total":439259}],"uptime":18961814}`,
		22 * 60 * units.Joule,
	},
	// https://tasmota.github.io/docs/Commands/, Status 8
	"tasmota": {
		"http://tasmota.example/cm?cmnd=Status%208",
		`{"StatusSNS":{"Time":"2019-09-06T20:06:19","ENERGY":{"TotalStartTime":"2019-08-18T11:07:55","Total":0.003,"Yesterday":0.000,
			"Today":0.003,"Power":26,"ApparentPower":25,"ReactivePower":25,"Factor":0.06,"Voltage":239,"Current":0.106}}}`,
		`{"StatusSNS":{"Time":"2019-09-06T20:16:19","ENERGY":{"TotalStartTime":"2019-08-18T11:07:55","Total":0.007,"Yesterday":0.000,
			"Today":0.007,"Power":26,"ApparentPower":25,"ReactivePower":25,"Factor":0.06,"Voltage":239,"Current":0.106}}}`,
		4 * 3600 * units.Joule,
	},
	// https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries
	"pdu-outlet-7": {
		`http://prometheus.example:9090/api/v1/query?query=rPDU2OutletMeteredStatusPower{instance="pdu-1.example",rPDU2OutletMeteredStatusIndex="7"}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"rPDU2OutletMeteredStatusPower",
			"instance":"pdu-1.example","rPDU2OutletMeteredStatusIndex":"7"},"value":[1435781451.781,"412"]}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"rPDU2OutletMeteredStatusPower",
			"instance":"pdu-1.example","rPDU2OutletMeteredStatusIndex":"7"},"value":[1435782051.781,"412"]}]}}`,
		600 * 412 * units.Joule,
	},
	// https://docs.nvidia.com/datacenter/dcgm/latest/reference/dcgm-exporter-metrics.html, as Prometheus answers
	"gpu-0": {
		`http://prometheus.example:9090/api/v1/query?query=DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{Hostname="node-7",gpu="0"}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
			"Hostname":"node-7","gpu":"0"},"value":[1435781451.781,"82473829182"]}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
			"Hostname":"node-7","gpu":"0"},"value":[1435782051.781,"82653829183"]}]}}`,
		180_000_001_000, // 180000.001 J
	},
}

func testEnv() *Env {
	return &Env{Host: componenttest.NewNopHost(), Telemetry: componenttest.NewNopTelemetrySettings()}
}

// answers is a transport that answers without a network.
type answers func(*http.Request) string

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(strings.NewReader(a(r)))}, nil
}

func TestRecipesOnThePageReadTheVendorsDocuments(t *testing.T) {
	found := recipes(t)
	require.Len(t, found, len(documents))
	for name, d := range documents {
		entry, ok := found[name]
		require.True(t, ok, name)
		source, err := entry.source(t.Context(), "a", testEnv())
		require.NoError(t, err, name)
		if name == "gpu-0" {
			assert.Equal(t, power.GPU, source.Kind, name)
		} else {
			assert.Equal(t, power.Platform, source.Kind, name)
		}
		synctest.Test(t, func(t *testing.T) {
			var answer atomic.Value
			answer.Store(d.before)
			source.Client = &http.Client{Transport: answers(func(r *http.Request) string {
				assert.Equal(t, d.address, r.URL.String())
				_, err := url.ParseRequestURI(r.URL.RequestURI()) // as a server does
				assert.NoError(t, err)
				return answer.Load().(string)
			})}
			m := httpmeter.New([]httpmeter.Source{source})
			defer func() { require.NoError(t, m.Close()) }()
			_, err := m.Read(t.Context(), power.Sample{At: time.Now()})
			require.NoError(t, err, name)
			synctest.Wait()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			answer.Store(d.after)
			readings, err := m.Read(t.Context(), power.Sample{At: time.Now()})
			require.NoError(t, err, name)
			require.Len(t, readings, 1, name)
			require.NoError(t, readings[0].Err, name)
			if source.Unit.IsPower {
				assert.Equal(t, d.used, readings[0].Total, name)
				return
			}
			time.Sleep(source.Every)
			synctest.Wait()
			readings, err = m.Read(t.Context(), power.Sample{At: time.Now()})
			require.NoError(t, err, name)
			assert.Equal(t, d.used, readings[0].Total, name)
		})
	}
}

func TestOneTimeLimitEndsARequest(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 5 * time.Second, time.Second: time.Second} {
		entry := HTTPConfig{NumberConfig: NumberConfig{Unit: "W"}}
		entry.Timeout = timeout
		source, err := entry.source(t.Context(), "a", testEnv())
		require.NoError(t, err)
		assert.Equal(t, want, source.Timeout)
		assert.Zero(t, source.Client.Timeout, "else the error is one or the other")
	}
}

func TestAProxysPasswordIsInNoError(t *testing.T) {
	for _, open := range []func(confighttp.ClientConfig) error{
		func(c confighttp.ClientConfig) error {
			_, err := (&HTTPConfig{ClientConfig: c, NumberConfig: NumberConfig{Unit: "W"}}).source(t.Context(), "a", testEnv())
			return err
		},
		func(c confighttp.ClientConfig) error {
			_, err := (&RedfishConfig{ClientConfig: c}).sensor(t.Context(), testEnv())
			return err
		},
	} {
		err := open(confighttp.ClientConfig{Endpoint: "http://bmc.example", ProxyURL: "http://user:pass%word@proxy.example"})
		require.ErrorContains(t, err, "proxy_url")
		assert.NotContains(t, err.Error(), "pass")
	}
}

// document is the answer of a device at an address, before and after the device used some energy.
// The documents have the format of the vendors' documentation.
type document struct {
	address       string
	before, after string
	used          units.Energy // within ten minutes
}
