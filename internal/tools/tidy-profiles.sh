#!/bin/sh
# Writes deploy/builder-config-profiles.mod and .sum: the versions and sums of the modules of this collector. go mod tidy
# downloads modules that only the profiler's tests import, and some are not always available: -e continues without them.
set -eu
cd "$(dirname "$0")/../.."
export GOWORK=off CGO_ENABLED=0
out=build/profiles
go run ./deploy/collector -out $out profiles --skip-compilation
# shellcheck disable=SC2046 # several words
go mod edit $(sed -n 's/^ *- gomod: \(.*\) \(v.*\)$/-require=\1@\2/p' $out/builder-config.yaml) $out/go.mod
go -C $out mod tidy -e
cp $out/go.mod deploy/builder-config-profiles.mod
cp $out/go.sum deploy/builder-config-profiles.sum
