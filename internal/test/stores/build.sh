#!/usr/bin/env bash
# Builds the databases that the test of stores sends to, once, into build/integration. What cannot be built is left out: the test
# says so.
set -euo pipefail
cd "$(dirname "$0")/../../.."

cache=$PWD/build/integration
export CGO_ENABLED=0

# builds DIRECTORY MODULE FLAGS... PACKAGES: programs from a module whose go.mod is in a directory, unless they are there from the
# same go.sum
builds() {
	local from=$1 name=$2
	shift 2
	mkdir -p "$cache/$name"
	if cmp -s "$from/go.sum" "$cache/$name/go.sum"; then
		return
	fi
	echo "Building $name; the first time, this takes some minutes"
	if timeout 600 go -C "$from" build -trimpath -ldflags='-s -w' -o "$cache/$name/" "$@"; then
		cp "$from/go.sum" "$cache/$name/"
	else
		echo "could not build $name"
	fi
}

builds internal/test/integration/prometheus prometheus -tags=remove_all_sd,netgo \
	github.com/prometheus/prometheus/cmd/prometheus github.com/prometheus/prometheus/cmd/promtool

# The collector that writes remotely
name=otelcol-stores
if ! cmp -s internal/test/stores/otelcol.yaml "$cache/$name/otelcol.yaml"; then
	echo "Building $name; the first time, this takes some minutes"
	if timeout 600 go tool -modfile=internal/tools/go.mod builder --config internal/test/stores/otelcol.yaml >"$cache/$name.log" 2>&1; then
		cp internal/test/stores/otelcol.yaml "$cache/$name/"
	else
		echo "could not build $name, see $cache/$name.log"
	fi
fi
