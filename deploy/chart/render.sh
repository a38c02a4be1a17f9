#!/usr/bin/env bash
# Renders the objects of deploy/kubernetes from the chart if one of them has changed: to build helm takes a minute.
set -eu
cd "$(dirname "$0")/../.."
sums=deploy/kubernetes/rendered.sha256
if test -e $sums && sha256sum --check --status $sums; then exit; fi
out=$(mktemp -d)
trap 'rm -r "$out"' EXIT
GOWORK=off CGO_ENABLED=0 go tool -modfile=dev/release/go.mod helm template otelcol-energy deploy/chart --output-dir "$out" --kube-version 1.34 \
	--namespace energy --set createNamespace=energy,image.repository=otelcol-energy,otlp.endpoint=otel-gateway.observability.svc:4317 >/dev/null
for name in daemonset namespace networkpolicy rbac; do
	# kustomization.yaml makes the ConfigMap. The labels and annotations of helm have no meaning without it.
	{
		echo "# Written from deploy/chart by make generate."
		awk -v RS='---\n' '/kind: ConfigMap/ {next} /kind:/ {printf "%s%s", n++ ? "---\n" : "", $0}' "$out/otelcol-energy/templates/$name.yaml" |
			sed '/^# Source: /d; /managed-by: Helm$/d; /helm.sh\/chart:/d; /^ *annotations:$/d; /checksum\/config:/d'
	} >deploy/kubernetes/$name.yaml
done
sha256sum deploy/chart/*.yaml deploy/chart/templates/* deploy/chart/render.sh deploy/kubernetes/{config,daemonset,namespace,networkpolicy,rbac}.yaml >$sums
