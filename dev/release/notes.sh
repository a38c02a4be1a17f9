#!/usr/bin/env bash
# Prints the release notes: the section of CHANGELOG.md of VERSION, by default that of the tag of the commit.
set -euo pipefail
cd "$(dirname "$0")/../.."
tag=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null || :)
awk -v version="${VERSION:-${tag#v}}" '
	/^## / { on = index($0, "## " version " ") == 1 || $0 == "## " version; next }
	on { print; found = 1 }
	END { if (!found) { print "CHANGELOG.md has no section " version >"/dev/stderr"; exit 1 } }' CHANGELOG.md
