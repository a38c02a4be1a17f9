#!/usr/bin/env bash
# Checks every file of deploy/ with the tool that reads it, and lists the tools that are missing. Fails if a tool
# reports an error. Checks that need an API server are part of `make integration RUN=Kubernetes`.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=

checks() {
	local what=$1
	shift
	if timeout 300 "$@" >"$scratch/out" 2>&1; then
		echo "ok       $what"
	else
		echo "FAILED   $what"
		sed 's/^/         /' "$scratch/out"
		failed=yes
	fi
}
lacks() { echo "skipped  $1: lacks $2"; }

# The environment variables that the manifests set.
export K8S_NODE_NAME=node K8S_POD_IP=127.0.0.1 OTLP_ENDPOINT=localhost:4317 KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT=6443
export GRID=FRA

# kubectl and promtool, if `make integration RUN=Kubernetes` and `make integration` have built them.
PATH=$PWD/build/integration/kubernetes/bin:$PWD/build/integration/prometheus:$PATH

# validates COLLECTOR CONFIG...: the last configuration, on top of the others.
validates() {
	local collector=build/$1 flags=() config
	shift
	for config in "$@"; do flags+=(--config "$config"); done
	checks "$config, by $collector" "$collector" validate "${flags[@]}"
}

for config in config.yaml deploy/{systemd,docker}/config.yaml deploy/prometheus/collector.yaml deploy/gateway/gateway.yaml; do
	validates otelcol-energy $config
done
for config in deploy/{kubernetes,kepler,scaphandre}/config.yaml; do
	validates kubernetes/otelcol-energy $config
done
validates otelcol-energy deploy/prometheus/collector.yaml deploy/prometheus/emissions.yaml
checks "deploy/prometheus/emissions.yaml is refused without a place" bash -c '! GRID= build/otelcol-energy validate \
	--config deploy/prometheus/collector.yaml --config deploy/prometheus/emissions.yaml'
validates otelcol-energy deploy/prometheus/collector.yaml deploy/compose/collector.yaml
validates kubernetes/otelcol-energy deploy/kepler/config.yaml deploy/kepler/kubernetes.yaml
validates gpu/otelcol-energy deploy/docker/config.yaml deploy/docker/gpu.yaml
validates gpu/otelcol-energy deploy/kubernetes/config.yaml deploy/kubernetes-nvidia/nodes/nvidia.yaml
validates otelcol-energy deploy/gateway/gateway.yaml deploy/gateway/disk-queue.yaml
if command -v otelcol-contrib >/dev/null; then
	checks "deploy/gateway/balancer.yaml, by otelcol-contrib" \
		env GATEWAYS='["gateway-1:4317", "gateway-2:4317"]' otelcol-contrib validate --config deploy/gateway/balancer.yaml
else
	lacks deploy/gateway/balancer.yaml otelcol-contrib
fi

# actionlint checks a local action only if it is in the repository of the workflow.
mkdir -p "$scratch/action/.git" "$scratch/action/.github/workflows" "$scratch/action/deploy"
cp -R deploy/action "$scratch/action/deploy"
awk '/^```yaml$/ {inside = 1; next} /^```$/ && inside {exit} inside' deploy/action/README.md |
	sed 's#energyreceiver/energyreceiver/deploy/action@.*#./deploy/action#' >"$scratch/action/.github/workflows/example.yml"
checks "deploy/action with the example of its page, by actionlint" env GOWORK=off GOFLAGS=-buildvcs=false \
	go tool -modfile=internal/tools/docs/go.mod actionlint "$scratch/action/.github/workflows/example.yml"
if command -v shellcheck >/dev/null; then
	checks "deploy/action/compare.sh, by shellcheck" shellcheck deploy/action/compare.sh
else
	lacks deploy/action/compare.sh shellcheck
fi

if command -v kubectl >/dev/null; then
	checks "deploy/kubernetes, by kubectl kustomize" kubectl kustomize deploy/kubernetes
	checks "deploy/kepler, by kubectl kustomize" kubectl kustomize deploy/kepler
	# One DaemonSet selects the nodes that the other one avoids.
	checks "deploy/kubernetes-nvidia, by kubectl kustomize" bash -c 'out=$(kubectl kustomize deploy/kubernetes-nvidia) &&
		test "$(grep -c nvidia.com/gpu.present <<<"$out")" = 2 || { echo "$out"; exit 1; }'
	# Also where deploy/kubernetes names an image that was pushed.
	cp -R deploy/kubernetes deploy/kubernetes-nvidia "$scratch"
	echo 'images: [{name: otelcol-energy, newName: registry.example.com/otelcol-energy}]' >>"$scratch/kubernetes/kustomization.yaml"
	checks "deploy/kubernetes-nvidia has an image of its own" bash -c 'out=$(kubectl kustomize "$0") &&
		test "$(grep -o "image: .*" <<<"$out" | sort | xargs)" = \
			"image: otelcol-energy-gpu:0.1.0-dev image: registry.example.com/otelcol-energy:0.1.0-dev" || { echo "$out"; exit 1; }' \
		"$scratch/kubernetes-nvidia"
else
	lacks deploy/kubernetes kubectl
fi

# promtool 2 does not know the settings of OTLP. A promtool that make integration has built prints no version.
if promtool --version 2>&1 | grep '^promtool, version' | grep -qv 'version 2\.'; then
	for config in prometheus scrape; do
		checks "deploy/prometheus/$config.yaml, by promtool" promtool check config "deploy/prometheus/$config.yaml"
	done
	for rules in prometheus/rules prometheus/price-fixed prometheus/price-time-of-use scaphandre/rules; do
		checks "deploy/$rules.yaml, by promtool check rules" promtool check rules --lint=all --lint-fatal "deploy/$rules.yaml"
		checks "deploy/$rules.yaml, by promtool test rules" promtool test rules "deploy/${rules}_test.yaml"
	done
	checks "deploy/prometheus/work_test.yaml, by promtool test rules" promtool test rules deploy/prometheus/work_test.yaml
else
	lacks deploy/prometheus "promtool 3 (receiver/test/stores/build.sh prometheus builds it)"
fi

if command -v systemd-analyze >/dev/null; then
	# The program is not installed on this machine.
	sed "s#/usr/local/bin/otelcol-energy#$PWD/build/otelcol-energy#" deploy/systemd/otelcol-energy.service \
		>"$scratch/otelcol-energy.service"
	# A line that systemd does not know is a warning only, with the path of its file.
	verify='out=$(systemd-analyze verify --man=no "$0" 2>&1) && ! grep otelcol-energy.service <<<"$out" || { echo "$out"; exit 1; }'
	checks "deploy/systemd/otelcol-energy.service, by systemd-analyze verify" bash -c "$verify" "$scratch/otelcol-energy.service"
	# 3.0 of 10: the exposure is the network and the processes that it reads.
	checks "deploy/systemd/otelcol-energy.service, by systemd-analyze security" \
		systemd-analyze security --offline=true --threshold=30 "$scratch/otelcol-energy.service"
	for drop_in in ipmi nvidia vsock; do
		install -D -m 0644 deploy/systemd/$drop_in.conf "$scratch/otelcol-energy.service.d/$drop_in.conf"
		checks "deploy/systemd/$drop_in.conf, by systemd-analyze verify" bash -c "$verify" "$scratch/otelcol-energy.service"
	done
else
	lacks deploy/systemd systemd-analyze
fi

if docker compose version >/dev/null 2>&1; then
	checks "deploy/compose/compose.yaml, by docker compose" docker compose --file deploy/compose/compose.yaml config --quiet
else
	lacks deploy/compose/compose.yaml "docker compose"
fi

if docker info >/dev/null 2>&1; then
	checks "the image, by docker load" make image
else
	lacks "the image" "a Docker daemon"
fi

test -z "$failed"
