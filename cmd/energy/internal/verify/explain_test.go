// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/power"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

func status(name, family string, err error, inUse bool, kinds ...power.Kind) power.Status {
	s := power.Status{Member: power.Member{Name: name, Family: family}, Err: err, InUse: inUse}
	for _, kind := range kinds {
		s.Readings = append(s.Readings, power.Reading{Zone: &power.Zone{Kind: kind}, At: time.Unix(1, 0)})
	}
	return s
}

func TestEachMissingPermissionHasItsCommand(t *testing.T) {
	denied := fmt.Errorf("open energy_uj: %w", fs.ErrPermission)
	const setcap = `sudo setcap cap_bpf,cap_dac_read_search,cap_perfmon+ep "$(command -v energy)"`
	powercap := func(err error) power.Status { return status("powercap", "rapl", err, err == nil, power.Package) }
	perf := func(err error) power.Status { return status("perf", "rapl", err, err == nil, power.Package) }
	for name, tt := range map[string]struct {
		status []power.Status
		bpf    error
		m      Machine
		want   []string
	}{
		"powercap and BPF":          {[]power.Status{powercap(denied), perf(denied)}, denied, Machine{}, []string{setcap, setcap}},
		"perf in place of powercap": {[]power.Status{powercap(denied), perf(nil)}, nil, Machine{}, nil},
		"no driver": {[]power.Status{powercap(fs.ErrNotExist), perf(fs.ErrNotExist)}, nil, Machine{Arch: "amd64"},
			[]string{"sudo modprobe intel_rapl_msr"}},
		"no driver of a virtual machine": {[]power.Status{powercap(fs.ErrNotExist), perf(fs.ErrNotExist)}, nil,
			Machine{Arch: "amd64", Virtual: true}, nil},
		"neither is used": {nil, nil, Machine{Arch: "amd64"}, nil},
		"BMC": {[]power.Status{powercap(nil), status("ipmi", "", denied, false)}, nil, Machine{},
			[]string{`sudo setfacl -m "u:$USER:r" /dev/ipmi0`}},
	} {
		var grants []string
		for _, l := range lacks(tt.status, tt.bpf, &tt.m) {
			grants = append(grants, l.Grant)
		}
		assert.Equal(t, tt.want, grants, name)
	}
}

func TestEachMeterHasAReason(t *testing.T) {
	all := []power.Status{
		status("http", "", errors.New("get http://secret.example: refused"), false),
		status("powercap", "rapl", nil, true, power.Package, power.DRAM),
		status("perf", "rapl", nil, false),
		status("hwmon", "", nil, false, power.Package),
		status("ipmi", "", fs.ErrNotExist, false),
	}
	all[2].Replaced = true
	want := []string{
		"it is configured but cannot be read",
		"it is the first of powercap, perf, cray, hwmon, ipmi that reads package, dram",
		"it reads the same registers as powercap, which is preferred",
		"preferred meters read its zones",
		"file does not exist",
	}
	for i, m := range explain(all, chosenOf(all), energyreceiver.DefaultConfig()) {
		assert.Equal(t, want[i], m.Why, m.Name)
		assert.Equal(t, m.Name == "ipmi", m.Absent, m.Name)
	}
}

func TestVersionsOfBackends(t *testing.T) {
	for name, tt := range map[string]struct {
		metrics, info string
		want          Backend
		status        Status
	}{
		"Prometheus":       {"", `{"data":{"version":"3.5.0"}}`, Backend{Name: "Prometheus", Version: "3.5.0"}, OK},
		"Prometheus 2":     {"", `{"data":{"version":"2.53.1"}}`, Backend{Name: "Prometheus", Version: "2.53.1"}, Note},
		"Prometheus 2.42":  {"", `{"data":{"version":"2.42.0"}}`, Backend{Name: "Prometheus", Version: "2.42.0"}, Fault},
		"VictoriaMetrics":  {`vm_app_version{version="x",short_version="v1.140.0"} 1`, `{"data":{"version":"2.24.0"}}`, Backend{Name: "VictoriaMetrics", Version: "1.140.0"}, OK},
		"Mimir":            {"", `{"data":{"application":"Grafana Mimir","version":"2.17.0"}}`, Backend{Name: "Grafana Mimir", Version: "2.17.0"}, Unchecked},
		"long names":       {"", `{"data":{"application":"` + strings.Repeat("x", 500) + `","version":"1"}}`, Backend{Name: strings.Repeat("x", 79) + "…", Version: "1"}, Unchecked},
		"something else":   {"", `<html>`, Backend{Err: "its build information has another format"}, Fault},
		"nothing there":    {"", "", Backend{Err: "it has no Prometheus API: HTTP status 404"}, Fault},
		"not a web server": {"-", "", Backend{Err: "it has no Prometheus API: no response"}, Fault},
	} {
		mux := http.NewServeMux()
		for path, text := range map[string]string{"/metrics": tt.metrics, "/api/v1/status/buildinfo": tt.info} {
			if text != "" {
				mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
			}
		}
		server := httptest.NewServer(mux)
		if tt.metrics == "-" {
			server.Close()
		}
		b := AskBackend(t.Context(), server.URL+"/")
		server.Close()
		assert.Equal(t, tt.want, *b, name)
		assert.Contains(t, fmt.Sprint(with(tt.status, &Observation{Backend: b})), "backend", name)
	}
}

func TestZonesOfConfiguredMetersHaveNoNames(t *testing.T) {
	rack := &power.Zone{ID: "http:rack-7-customer", Kind: power.Platform}
	first := &Zone{Meter: "http", ID: publicID("http", rack, nil)}
	assert.Equal(t, "platform 1", first.ID)
	assert.Equal(t, "platform 2", publicID("http", rack, []*Zone{first}))
	assert.Equal(t, "intel-rapl:0", publicID("powercap", &power.Zone{ID: "intel-rapl:0"}, nil))
}
