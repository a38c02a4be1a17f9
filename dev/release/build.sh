#!/usr/bin/env bash
# Builds the released programs for amd64 and arm64 into build/release/ARCH. VERSION is the version that they print.
# The builder runs on this machine's architecture; only its output is cross-compiled.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CGO_ENABLED=0 GOWORK=off GOFLAGS='-buildvcs=false -trimpath'
export GOAMD64=v1 GOARM64=v8.0
out=$PWD/build/release

# collector NAME CONFIG: builds the collector of a builder configuration.
collector() {
	local name=$1 sources=build/release/src/$1 arch
	mkdir -p "$sources"
	local committed=${2%.yaml} modules=
	sed -e "s#^  version: .*#  version: $VERSION#" -e "s#^  output_path: .*#  output_path: $sources#" "$2" >"$sources.yaml"
	if [ -e "$committed.mod" ]; then
		sed 's#=> \.\./\.\.#=> ../../../..#' "$committed.mod" >"$sources/go.mod"
		cp "$committed.sum" "$sources/go.sum"
		modules=--skip-get-modules
	fi
	GOWORK=off GOFLAGS=-buildvcs=false go tool -modfile=internal/tools/go.mod builder --skip-compilation $modules --config "$sources.yaml"
	for arch in $ARCHS; do
		GOARCH=$arch go -C "$sources" build -ldflags='-s -w' -o "$out/$arch/$name" .
	done
}

collector otelcol-energy builder-config.yaml
collector otelcol-energy-k8s deploy/builder-config-k8s.yaml
collector otelcol-energy-gpu deploy/builder-config-gpu.yaml
if [ -n "${PROFILES:-}" ]; then collector otelcol-energy-profiles deploy/builder-config-profiles.yaml; fi

# With the modules of this checkout, and otherwise exactly the versions of its go.mod.
cp cmd/energy/go.mod build/release/src/energy.mod
cp cmd/energy/go.sum build/release/src/energy.sum
# shellcheck disable=SC2046 # several words
go mod edit $(sed -n 's#^\t\(.*\) v.* => \.#-replace=\1=../..#p' go.work) build/release/src/energy.mod
for arch in $ARCHS; do
	GOARCH=$arch go -C cmd/energy build -modfile="$PWD/build/release/src/energy.mod" -ldflags="-s -w -X main.release=v$VERSION" \
		-o "$out/$arch/energy" .
	GOARCH=$arch go -C cmd/energy build -tags=nvml -modfile="$PWD/build/release/src/energy.mod" -ldflags="-s -w -X main.release=v$VERSION" \
		-o "$out/$arch/energy-gpu" .
done
