#!/usr/bin/env bash
# Builds the released programs for amd64 and arm64 into build/release/ARCH. VERSION is the version that they print.
# The builder runs on this machine's architecture; only its output is cross-compiled.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CGO_ENABLED=0 GOWORK=off GOFLAGS='-buildvcs=false -trimpath'
export GOAMD64=v1 GOARM64=v8.0
out=$PWD/build/release

# collector PROGRAM NAME: builds a collector.
collector() {
	local program=$1 sources=build/release/src/$1 arch
	GOFLAGS=-buildvcs=false go run ./deploy/collector -out "$sources" -version "$VERSION" "$2" --skip-compilation
	for arch in $ARCHS; do
		GOARCH=$arch go -C "$sources" build -ldflags='-s -w' -o "$out/$arch/$program" .
	done
}

collector otelcol-energy default
collector otelcol-energy-kubernetes kubernetes
collector otelcol-energy-gpu gpu
if [ -n "${PROFILES:-}" ]; then collector otelcol-energy-profiles profiles; fi

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
