// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// documents parses the YAML documents of a file.
func documents(t *testing.T, path string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for text := range strings.SplitSeq(read(t, path), "\n---\n") {
		var document map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &document), path)
		all = append(all, document)
	}
	return all
}

// at follows keys into maps, and takes the only element of any list on the way.
func at(t *testing.T, value any, keys ...string) any {
	t.Helper()
	for _, key := range keys {
		if list, ok := value.([]any); ok {
			require.Len(t, list, 1, "before %s", key)
			value = list[0]
		}
		m, ok := value.(map[string]any)
		require.Truef(t, ok, "%s is in no map", key)
		require.Contains(t, m, key)
		value = m[key]
	}
	return value
}

func strs(t *testing.T, value any) []string {
	t.Helper()
	var all []string
	for _, v := range value.([]any) {
		all = append(all, v.(string))
	}
	return all
}

// named returns the list's elements with these names.
func named(t *testing.T, list any, names ...string) []any {
	t.Helper()
	var found []any
	for _, name := range names {
		i := slices.IndexFunc(list.([]any), func(v any) bool { return v.(map[string]any)["name"] == name })
		require.GreaterOrEqual(t, i, 0, name)
		found = append(found, list.([]any)[i])
	}
	return found
}

func TestEachMakeTargetHasHelpOrAPageOfDev(t *testing.T) {
	pages := read(t, "../dev/release/README.md") + read(t, "../CONTRIBUTING.md")
	names, err := filepath.Glob("../dev/*.md")
	require.NoError(t, err)
	for _, name := range names {
		pages += read(t, name)
	}
	helped := 0
	for _, line := range regexp.MustCompile(`(?m)^([a-z0-9-]+):.*$`).FindAllStringSubmatch(read(t, "../Makefile")+read(t, "../dev/release/release.mk"), -1) {
		if strings.Contains(line[0], " ## ") {
			helped++
		} else {
			assert.True(t, regexp.MustCompile(`make `+line[1]+`\b[^-]`).MatchString(pages), line[1])
		}
	}
	assert.LessOrEqual(t, helped, 20, "make help fits on a screen")
}

// The first column of the page's table of privileges names every capability that a file grants.
func TestEveryGrantedPrivilegeIsDocumented(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `CAP_[^|]*\\|")
	capability := regexp.MustCompile(`CAP_[A-Z_]+`)
	page := capability.FindAllString(strings.Join(row.FindAllString(read(t, "../docs/permissions.md"), -1), " "), -1)
	slices.Sort(page)
	page = slices.Compact(page)

	unit := read(t, "systemd/otelcol-energy.service")
	for _, setting := range []string{"AmbientCapabilities", "CapabilityBoundingSet"} {
		line := regexp.MustCompile("(?m)^" + setting + "=.*$").FindString(unit)
		granted := capability.FindAllString(line, -1)
		slices.Sort(granted)
		assert.Equal(t, page, granted, "%s= of the service and the table of docs/permissions.md", setting)
	}

	security := at(t, documents(t, "kubernetes/daemonset.yaml")[0], "spec", "template", "spec", "containers", "securityContext")
	assert.Equal(t, []string{"ALL"}, strs(t, at(t, security, "capabilities", "drop")))
	for _, granted := range strs(t, at(t, security, "capabilities", "add")) {
		assert.Contains(t, page, "CAP_"+granted)
	}
}

// Of several configurations, a list in the last one takes the place of those before.
func TestNVIDIAConfigurationKeepsTheExtensionsOfTheOtherNodes(t *testing.T) {
	base, nvidia := documents(t, "kubernetes/config.yaml")[0], documents(t, "kubernetes-nvidia/nodes/nvidia.yaml")[0]
	extensions := strs(t, at(t, nvidia, "service", "extensions"))
	assert.Subset(t, extensions, strs(t, at(t, base, "service", "extensions")))
	for _, name := range strs(t, at(t, nvidia, "receivers", "energy", "meters", "gpu", "extensions")) {
		assert.Contains(t, extensions, name)
	}

	assert.NotContains(t, documents(t, "docker/config.yaml")[0], "extensions", "the image for GPUs adds docker/gpu.yaml, whose list would replace theirs")
}

// The directory of the state is the one that the unit, the images and the DaemonSet provide.
func TestServicesKeepTheirTotals(t *testing.T) {
	const directory = "/var/lib/otelcol-energy"
	for path, config := range shippedConfigs(t) {
		kept := strings.HasPrefix(path, "systemd") || strings.HasPrefix(path, "docker") || strings.HasPrefix(path, "kubernetes")
		receiver := at(t, config, "receivers", "energy").(map[string]any)
		if !kept {
			assert.NotContains(t, receiver, "storage", path)
			continue
		}
		want := directory
		if strings.HasPrefix(path, "systemd") {
			want = "${env:STATE_DIRECTORY:-" + directory + "}"
		}
		assert.Equal(t, want, receiver["storage"], path)
	}
	assert.Contains(t, read(t, "systemd/otelcol-energy.service"), "\nStateDirectory="+strings.TrimPrefix(directory, "/var/lib/")+"\n")
	pod := at(t, documents(t, "kubernetes/daemonset.yaml")[0], "spec", "template", "spec")
	mount := named(t, at(t, pod, "containers", "volumeMounts"), "state")[0].(map[string]any)
	assert.Equal(t, map[string]any{"name": "state", "mountPath": directory}, mount)
	assert.Contains(t, read(t, "../dev/release/image/main.go"), `stateDirectory = "`+directory+`"`)
}

func TestEmissionsFollowTheProcessorsOfTheCollector(t *testing.T) {
	processors := func(path string) []string {
		return strs(t, at(t, documents(t, path)[0], "service", "pipelines", "metrics", "processors"))
	}
	assert.Equal(t, append(processors("prometheus/collector.yaml"), "emissions"), processors("prometheus/emissions.yaml"))
}

// The directory of the state is written.
func TestMountsOfTheNodeAreReadOnly(t *testing.T) {
	pod := at(t, documents(t, "kubernetes/daemonset.yaml")[0], "spec", "template", "spec")
	for _, volume := range at(t, pod, "volumes").([]any) {
		v := volume.(map[string]any)
		if v["hostPath"] == nil || v["name"] == "state" {
			continue
		}
		mount := named(t, at(t, pod, "containers", "volumeMounts"), v["name"].(string))[0].(map[string]any)
		assert.Equal(t, true, mount["readOnly"], v["name"])
		assert.Equal(t, "IfPossible", mount["recursiveReadOnly"], v["name"])
		assert.Equal(t, "/hostfs"+at(t, v, "hostPath", "path").(string), mount["mountPath"], v["name"])
	}
}

// shippedConfigs returns all shipped collector configurations.
func shippedConfigs(t *testing.T) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, path := range []string{
		"../config.yaml", "docker/config.yaml", "systemd/config.yaml", "kubernetes/config.yaml",
		"kepler/config.yaml", "kepler/kubernetes.yaml", "scaphandre/config.yaml", "prometheus/collector.yaml",
	} {
		all[path] = documents(t, path)[0]
	}
	return all
}

// docs/production.md has the reasons. TestShippedPipelinesLoseNothing of `make integration` runs these pipelines.
func TestShippedPipelinesAcknowledgeAfterDelivery(t *testing.T) {
	for path, config := range shippedConfigs(t) {
		for _, processor := range strs(t, at(t, config, "service", "pipelines", "metrics", "processors")) {
			kind, _, _ := strings.Cut(processor, "/")
			assert.Contains(t, []string{"memory_limiter", "k8s_attributes", "resource", "filter", "transform", "emissions"}, kind, path)
		}
		for name, exporter := range at(t, config, "exporters").(map[string]any) {
			if strings.HasPrefix(name, "otlp_") {
				assert.Equal(t, false, at(t, exporter, "sending_queue", "enabled"), path)
				assert.Equal(t, false, at(t, exporter, "retry_on_failure", "enabled"), path)
				assert.Equal(t, true, at(t, config, "service", "telemetry", "logs", "disable_stacktrace"),
					"%s: each collection that cannot be sent is an error in the log", path)
				if strings.HasPrefix(name, "otlp_http") { // otlp_grpc has 5s by default
					assert.Equal(t, "5s", at(t, exporter, "timeout"), path)
				}
			} else {
				assert.Equal(t, "prometheus", name, path)
			}
		}
	}
}

// A gateway or balancer that acknowledged what it has not delivered would lose it when it is
// killed: docs/production.md.
func TestGatewaysAcknowledgeAfterDelivery(t *testing.T) {
	gateway, balancer := documents(t, "gateway/gateway.yaml")[0], documents(t, "gateway/balancer.yaml")[0]
	for _, config := range []map[string]any{gateway, balancer} {
		assert.Equal(t, []string{"memory_limiter"}, strs(t, at(t, config, "service", "pipelines", "metrics", "processors")))
	}
	toStore := at(t, gateway, "exporters", "otlp_http")
	assert.Equal(t, false, at(t, toStore, "sending_queue", "enabled"))
	toGateways := at(t, balancer, "exporters", "load_balancing")
	assert.NotContains(t, toGateways, "sending_queue")
	for _, setting := range []string{"sending_queue", "retry_on_failure"} {
		assert.Equal(t, false, at(t, toGateways, "protocol", "otlp", setting, "enabled"), setting)
	}
	assert.Equal(t, []string{"host.name"}, strs(t, at(t, toGateways, "routing_attributes")), "all series of a node go to one gateway")

	wait := at(t, documents(t, "prometheus/collector.yaml")[0], "exporters", "otlp_http", "timeout").(string)
	node, err := time.ParseDuration(wait)
	require.NoError(t, err)
	for _, setting := range []any{at(t, toStore, "timeout"), at(t, toStore, "retry_on_failure", "max_elapsed_time")} {
		d, err := time.ParseDuration(setting.(string))
		require.NoError(t, err)
		assert.Less(t, d, node, "the gateway answers while the node waits")
	}
}

func TestOnlyContainersListenOnAllAddresses(t *testing.T) {
	listens := regexp.MustCompile(`(?m)^ *endpoint: .*(0\.0\.0\.0|\[::\]).*$`)
	allowed := map[string]string{
		"docker/config.yaml":     "    endpoint: ${env:ENERGY_PROMETHEUS_ENDPOINT:-0.0.0.0:8889}",
		"kepler/kubernetes.yaml": "    endpoint: 0.0.0.0:28282", // the pod's port, which Prometheus scrapes
	}
	for path := range shippedConfigs(t) {
		for _, line := range listens.FindAllString(read(t, path), -1) {
			assert.Equal(t, allowed[path], line, path)
		}
	}
}

// By default, servers wait for a minute or without limit.
func TestServersCloseConnectionsOfSlowClients(t *testing.T) {
	servers := 0
	configs := shippedConfigs(t)
	delete(configs["kepler/kubernetes.yaml"]["exporters"].(map[string]any), "prometheus") // has the settings of kepler/config.yaml
	for path, config := range configs {
		exporters, _ := config["exporters"].(map[string]any)
		extensions, _ := config["extensions"].(map[string]any)
		for name, server := range map[string]any{"prometheus": exporters["prometheus"], "health_check": extensions["health_check"]} {
			if s, ok := server.(map[string]any); ok {
				servers++
				assert.Contains(t, s, "write_timeout", path)
				assert.Contains(t, s, "read_timeout", path)
				if name == "prometheus" { // health_check uses read_timeout for headers
					assert.Contains(t, s, "read_header_timeout", path)
				}
			}
		}
	}
	assert.GreaterOrEqual(t, servers, 7)
}

// A hundred connections with large headers exceed the memory limit of the pod.
func TestNoPodReachesTheHealthCheck(t *testing.T) {
	policy := at(t, documents(t, "kubernetes/networkpolicy.yaml")[0], "spec")
	pod := at(t, documents(t, "kubernetes/daemonset.yaml")[0], "spec", "template", "metadata", "labels")
	assert.Subset(t, pod, at(t, policy, "podSelector", "matchLabels"))
	assert.Equal(t, []string{"Ingress"}, strs(t, at(t, policy, "policyTypes")))
	assert.Empty(t, at(t, policy, "ingress"))
	assert.Contains(t, strs(t, at(t, documents(t, "kubernetes/kustomization.yaml")[0], "resources")), "networkpolicy.yaml")
}

func TestOnlyConfigurationsWithNamesOfOtherToolsEstimateNothing(t *testing.T) {
	off := regexp.MustCompile(`(?m)^ *model: none`)
	for path := range shippedConfigs(t) {
		assert.Equal(t, path == "kepler/config.yaml" || path == "scaphandre/config.yaml", off.MatchString(read(t, path)), path)
	}
}

// Troubleshooting relies on the receiver's own metrics. They are sent like other metrics, or served on loopback.
func TestShippedConfigurationsHaveTheReceiversOwnMetrics(t *testing.T) {
	for path, config := range shippedConfigs(t) {
		if path == "kepler/kubernetes.yaml" { // is added to kepler/config.yaml
			continue
		}
		metrics := at(t, config, "service", "telemetry", "metrics")
		assert.Equal(t, "normal", at(t, metrics, "level"), path)
		reader := at(t, metrics, "readers").([]any)[0].(map[string]any)
		if reader["periodic"] == nil {
			host := at(t, reader, "pull", "exporter", "prometheus", "host")
			assert.Contains(t, []string{"127.0.0.1", "${env:ENERGY_TELEMETRY_HOST:-127.0.0.1}"}, host, path)
		}
	}
}

// The collector serves its metrics about itself, otelcol_*, at another port than the receiver's.
func TestPrometheusScrapesAllMetricsOfAlertsAndOfTheDashboard(t *testing.T) {
	config := documents(t, "systemd/config.yaml")[0]
	telemetry := at(t, config, "service", "telemetry", "metrics", "readers", "pull", "exporter", "prometheus")
	ports := map[string]bool{} // by whether the metrics at the port are otelcol_*
	byDefault := regexp.MustCompile(`:-(?:[\d.]+:)?(\d+)\}$`)
	for endpoint, own := range map[any]bool{
		at(t, config, "exporters", "prometheus", "endpoint"): false,
		at(t, telemetry, "port"):                             true,
	} {
		found := byDefault.FindStringSubmatch(endpoint.(string))
		require.NotNil(t, found, endpoint)
		ports[found[1]] = own
	}
	scraped := map[bool]bool{}
	for _, target := range strs(t, at(t, documents(t, "prometheus/scrape.yaml")[0], "scrape_configs", "static_configs", "targets")) {
		_, port, err := net.SplitHostPort(target)
		require.NoError(t, err)
		require.Contains(t, ports, port)
		scraped[ports[port]] = true
	}
	metric := regexp.MustCompile(`\b(?:otelcol|system|process|container|k8s_pod|vm|slurm_step|hw)_[a-z_]+`)
	for _, path := range []string{"prometheus/rules.yaml", "dashboards/energy.json"} {
		used := map[bool]bool{}
		for _, name := range metric.FindAllString(read(t, path), -1) {
			own := strings.HasPrefix(name, "otelcol_")
			assert.True(t, scraped[own], "%s of %s is at no target of scrape.yaml", name, path)
			used[own] = true
		}
		assert.Len(t, used, 2, path)
	}
}

// Prometheus drops a resource attribute that is not promoted.
func TestPrometheusPromotesTheResourceAttributesOfTheReceiver(t *testing.T) {
	names := slices.Collect(maps.Keys(at(t, documents(t, "../metadata.yaml")[0], "resource_attributes").(map[string]any)))
	promoted := strs(t, at(t, documents(t, "prometheus/prometheus.yaml")[0], "otlp", "promote_resource_attributes"))
	missing := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(promoted, name) })
	assert.ElementsMatch(t, []string{"process.command_line", "process.parent_pid"}, missing, "long values, and numbers that are reused")
}

// Series of several nodes differ by host.name only.
func TestServicesNameTheirNode(t *testing.T) {
	for _, path := range []string{"systemd/config.yaml", "docker/config.yaml"} {
		config := documents(t, path)[0]
		name := at(t, config, "processors", "resource", "attributes")
		assert.Equal(t, []any{map[string]any{"key": "host.name", "value": "${env:HOST_NAME:-}", "action": "upsert"}}, name, path)
		assert.Contains(t, strs(t, at(t, config, "service", "pipelines", "metrics", "processors")), "resource", path)

		telemetry := at(t, config, "service", "telemetry")
		own := at(t, telemetry, "resource", "attributes")
		assert.Equal(t, []any{map[string]any{"name": "host.name", "value": "${env:HOST_NAME:-}"}}, own, path)
		labels := at(t, telemetry, "metrics", "readers", "pull", "exporter", "prometheus", "with_resource_constant_labels", "included")
		assert.Equal(t, []string{"host.name"}, strs(t, labels), path)
	}
	assert.Contains(t, read(t, "systemd/otelcol-energy.service"), "\nEnvironment=HOST_NAME=%H ")
	openrc := read(t, "../dev/release/packaging/openrc") // Alpine Linux has no systemd
	assert.Contains(t, openrc, "\nexport HOST_NAME=")
	assert.Contains(t, openrc, " . /etc/otelcol-energy/environment;")
	assert.Contains(t, read(t, "../docs/server.md"), " --env HOST_NAME=", "docker run")
}

// A collector that grows collects garbage before the kernel ends it.
func TestTheServiceCollectsGarbageBelowItsLimit(t *testing.T) {
	unit := read(t, "systemd/otelcol-energy.service")
	mib := func(pattern string) int {
		found := regexp.MustCompile(pattern).FindStringSubmatch(unit)
		require.NotNil(t, found, pattern)
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		return n
	}
	goal, limit := mib(`(?m)^Environment=.*GOMEMLIMIT=(\d+)MiB`), 1024*mib(`(?m)^MemoryMax=(\d+)G$`)
	assert.LessOrEqual(t, goal, limit*4/5)
	assert.Greater(t, goal, at(t, documents(t, "systemd/config.yaml")[0], "processors", "memory_limiter", "limit_mib"))
	assert.NotContains(t, unit, "\nMemoryHigh=", "a throttled collector collects late")
}

type panel struct {
	Title, Type string
	Collapsed   bool
	Panels      []panel
	Targets     []struct{ Expr, LegendFormat string }
	FieldConfig struct {
		Defaults struct{ NoValue string }
	}
}

// panels returns all rows and panels of the dashboard, with the panels of collapsed rows.
func panels(t *testing.T) (all []panel) {
	t.Helper()
	var dashboard struct{ Panels []panel }
	require.NoError(t, json.Unmarshal([]byte(read(t, "dashboards/energy.json")), &dashboard))
	for _, p := range dashboard.Panels {
		all = append(append(all, p), p.Panels...)
	}
	return all
}

func TestRowsOfWhatFewMachinesHaveAreCollapsed(t *testing.T) {
	var collapsed []string
	for _, p := range panels(t) {
		if p.Type == "row" {
			assert.Equal(t, p.Collapsed, len(p.Panels) > 0, p.Title)
		}
		if p.Collapsed {
			collapsed = append(collapsed, p.Title)
		}
	}
	assert.Equal(t, []string{"Virtual machines", "GPUs", "Requests and tokens", "Carbon and cost"}, collapsed)
}

func TestPanelsSayWhyTheyAreEmpty(t *testing.T) {
	for _, p := range panels(t) {
		if p.Type != "row" {
			assert.NotEmpty(t, p.FieldConfig.Defaults.NoValue, p.Title)
		}
	}
}

// The links of nodes, namespaces and pods set variables that exist, to labels that their panels have.
func TestLinksOfTheDashboardSetVariables(t *testing.T) {
	text := read(t, "dashboards/energy.json")
	set := map[string]int{}
	for _, found := range regexp.MustCompile(`var-(\w+)=\$\{__(?:field\.labels|data\.fields)\.(\w+)\}`).FindAllStringSubmatch(text, -1) {
		assert.Contains(t, text, `"name": "`+found[1]+`"`)
		assert.True(t, strings.Contains(text, "{{"+found[2]+"}}") || strings.Contains(text, `": "`+found[2]+`"`), found[0])
		set[found[1]]++
	}
	assert.Equal(t, map[string]int{"node": 2, "namespace": 5, "pod": 2}, set)
}

// core and uncore are inside package, platform and psys contain it. Panels that add zones up select
// them with the variable, and those of GPUs select GPUs.
func TestPanelsUseTheZoneVariable(t *testing.T) {
	ofZones := regexp.MustCompile(`(system|process|container|pod|vm|unattributed)_(energy_joules_total|emissions_grams_total|cost)\{`)
	matchers := regexp.MustCompile(`energy_zone=~?"([^"]*)"`)
	row, found := "", map[string]int{}
	for _, panel := range panels(t) {
		if panel.Type == "row" {
			row = panel.Title
		}
		want := "$zones"
		if row == "GPUs" {
			want = "gpu"
		}
		for _, target := range panel.Targets {
			zones := matchers.FindAllStringSubmatch(target.Expr, -1)
			assert.Len(t, zones, len(ofZones.FindAllString(target.Expr, -1)), "%s: %s", panel.Title, target.Expr)
			for _, zone := range zones {
				assert.Equal(t, want, zone[1], "%s: %s", panel.Title, target.Expr)
				found[want]++
			}
		}
	}
	assert.Len(t, found, 2)
	assert.Contains(t, read(t, "dashboards/energy.json"), `"query": "package + dram + gpu : package|dram|gpu, with other : package|dram|gpu|other, `+
		`package + dram : package|dram, gpu : gpu, platform : platform, psys : psys"`)
}
