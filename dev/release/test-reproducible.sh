#!/usr/bin/env bash
# Builds the release of this commit in two clones in directories of different depth, and compares all bytes.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for clone in first deeper/second; do
	git clone --quiet . "$scratch/$clone"
	make -C "$scratch/$clone" release
done
diff -r "$scratch/first/dist" "$scratch/deeper/second/dist" && echo identical
