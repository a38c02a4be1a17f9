#!/bin/sh
# Writes the collector's versions, which are those of builder and confmap in internal/tools/go.mod, into all files that name them. A bump is
#
#   cd internal/tools && GOWORK=off go get go.opentelemetry.io/collector/cmd/builder@v0.160.0 go.opentelemetry.io/collector/confmap@v1.66.0
#   make tidy
#
# Lines with "pinned" stay, and so do modules outside of go.work, which follow other programs.
set -eu
cd "$(dirname "$0")/../.."
new=$(mktemp)
trap 'rm "$new"' EXIT
version() { sed -n "s#^\tgo.opentelemetry.io/collector/$1 \(v[^ ]*\).*#\1#p" internal/tools/go.mod; }
beta=$(version cmd/builder) stable=$(version confmap)
module='((go\.opentelemetry\.io/collector|github\.com/open-telemetry/opentelemetry-collector-contrib)[^ @]*[ @])'
modules=$(sed -n 's#^\t\./\(.*\)#\1/go.mod#p' go.work)
# shellcheck disable=SC2086 # several words
git ls-files --cached --others --exclude-standard -- '*.md' '*.yaml' 'deploy/*.mod' go.mod internal/tools/go.mod $modules | while IFS= read -r file; do
	test -f "$file" || continue
	sed -E "/pinned/! { s#${module}v0\.[0-9]+\.[0-9]+#\1$beta#g; s#${module}v1\.[0-9]+\.[0-9]+#\1$stable#g; }" "$file" >"$new"
	cmp -s "$new" "$file" || cat "$new" >"$file"
done
