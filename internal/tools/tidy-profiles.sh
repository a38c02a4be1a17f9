#!/bin/sh
# Writes deploy/builder-config-profiles.mod and .sum: the versions and sums of the modules of this collector. go mod tidy
# downloads modules that only the profiler's tests import, and some are not always available: -e continues without them.
set -eu
cd "$(dirname "$0")/../.."
export GOWORK=off CGO_ENABLED=0
config=deploy/builder-config-profiles out=build/profiles
mkdir -p $out
cp $config.mod $out/go.mod
cp $config.sum $out/go.sum
go tool -modfile=internal/tools/go.mod builder --skip-get-modules --skip-compilation --config $config.yaml
# shellcheck disable=SC2046 # several words
go mod edit $(sed -n 's/^ *- gomod: \(.*\) \(v.*\)$/-require=\1@\2/p' $config.yaml) $out/go.mod
go -C $out mod tidy -e
cp $out/go.mod $config.mod
cp $out/go.sum $config.sum
