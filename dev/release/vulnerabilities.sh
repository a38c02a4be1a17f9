#!/usr/bin/env bash
# Reports known vulnerabilities in code that the modules call. Needs network access to vuln.go.dev.
set -euo pipefail
cd "$(dirname "$0")/../.."
go install golang.org/x/vuln/cmd/govulncheck@v1.1.4
for module in $(sed -n 's#^\t\(\..*\)#\1#p' go.work | grep -v receiver/test); do
	echo "== $module"
	"$(go env GOPATH)/bin/govulncheck" -C "$module" ./...
done
