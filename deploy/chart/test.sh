#!/usr/bin/env bash
# Checks deploy/scaling by the schemas of its objects, and the chart: lint, rendering with each file of ci/, schemas of all objects and
# of deploy/kubernetes, refused values, and, where `make build-kubernetes`, `make build-gpu` and `make build-profiles` have built the
# collectors, the configurations. The schemas come from the Go module proxy.
set -euo pipefail
cd "$(dirname "$0")/../.."
chart=$PWD/deploy/chart
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export GOWORK=off
module() { (cd / && go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'); }
go build -modfile=dev/release/go.mod -o "$scratch/bin/" helm.sh/helm/v3/cmd/helm github.com/yannh/kubeconform/cmd/kubeconform
PATH=$scratch/bin:$PATH
operator=$(module github.com/prometheus-operator/prometheus-operator@v0.85.0)/example/prometheus-operator-crd
keda=$(module github.com/kedacore/keda/v2@v2.17.2)/config/crd/bases
openshift=$(module github.com/openshift/api@v0.0.0-20251015095338-264e80a2b6e7)/payload-manifests/crds
go -C dev/release run ./schemas "$scratch/schemas" "$(module k8s.io/kubernetes@v1.34.4)/api/openapi-spec/swagger.json" \
	"$operator"/monitoring.coreos.com_{podmonitors,prometheusrules}.yaml "$openshift"/*_securitycontextconstraints.crd.yaml "$keda"/keda.sh_scaledobjects.yaml
kubeconform -strict -summary -schema-location "$scratch/schemas/{{.ResourceKind}}{{.KindSuffix}}.json" deploy/scaling deploy/kubernetes/{daemonset,namespace,networkpolicy,rbac}.yaml

# render FILE [ARGUMENT...]
render() { helm template otelcol-energy "$chart" --namespace energy --kube-version 1.34 --values "$@" 2>"$scratch/log" || { cat "$scratch/log" >&2; return 1; }; }

# The variables that the DaemonSet sets, and what a node has.
export K8S_NODE_NAME=node K8S_POD_IP=127.0.0.1 OTLP_ENDPOINT=localhost:4317 OTLP_INSECURE=true KUBERNETES_SERVICE_HOST=127.0.0.1 \
	KUBERNETES_SERVICE_PORT=6443 TOKEN=x REDFISH_USERNAME=x
for values in "$chart"/ci/*.yaml; do
	name=$(basename "$values" .yaml)
	helm lint --strict --quiet --kube-version 1.34 "$chart" --values "$values" 2>/dev/null
	render "$values" >"$scratch/$name.yaml"
	kubeconform -strict -summary -schema-location "$scratch/schemas/{{.ResourceKind}}{{.KindSuffix}}.json" "$scratch/$name.yaml"
	# The configurations of the ConfigMaps: first that of the other nodes, then that of the nodes with NVIDIA GPUs.
	awk -v base="$scratch/$name" '/^  config.yaml: \|/ {n++; on = 1; next} /^[^ ]/ {on = 0} on {sub(/^    /, ""); print >(base "." n)}' "$scratch/$name.yaml"
	for pair in 1:build/kubernetes/otelcol-energy 2:build/gpu/otelcol-energy; do
		config=$scratch/$name.${pair%%:*} collector=${pair#*:} gates=
		test -s "$config" || continue
		if grep -q '^  profiling:' "$config"; then collector=build/profiles/otelcol-energy gates=service.profilesSupport; fi
		if test -x "$collector"; then
			"$collector" validate --config "$config" --feature-gates="$gates"
		else
			echo "skipped  configuration of $name: lacks $collector"
		fi
	done
	echo "ok       $name"
done

refused() { if render "$@" >/dev/null 2>"$scratch/error"; then echo "accepted: $*" >&2; exit 1; fi; echo "ok       refused: ${*:2}"; }
refused "$chart/values.yaml" --set collectionInterval=10s
refused "$chart/ci/01-gateway.yaml" --set otlp.endpont=x
refused "$chart/ci/01-gateway.yaml" --set collectionInterval=10
refused "$chart/ci/01-gateway.yaml" --set redfish.endpoint=https://bmc

refused "$chart/ci/01-gateway.yaml" --set profiles.enabled=true

CHARTS=$scratch go test ./deploy -run '^TestChart' -count 1
