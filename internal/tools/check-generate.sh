#!/bin/sh
# Generates all files anew and fails if that changes, adds or removes one. It compares with the files before the run,
# not with the last commit, so it also works before committing.
set -eu
cd "$(dirname "$0")/../.."

before=$(mktemp)
after=$(mktemp)
trap 'rm -f "$before" "$after"' EXIT

list() { git ls-files -z --cached --others --exclude-standard | xargs -0 sha256sum 2>/dev/null | sort -u; }

list >"$before"
make --no-print-directory generate # compiling BPF needs clang: the objects in git are not rebuilt
list >"$after"

drifted=$(sort "$before" "$after" | uniq -u | sed 's/^[0-9a-f]*  //' | sort -u)
if [ -n "$drifted" ]; then
	echo "not as generated (make generate has now written them, commit them):" >&2
	echo "$drifted" | sed 's/^/  /' >&2
	exit 1
fi

# A generated file that is not committed is missing in every other checkout.
untracked=$(git ls-files --others --exclude-standard -- '*/documentation.md' '*/generated_*' '*_bpfel.*' '*_bpfeb.*')
if [ -n "$untracked" ]; then
	echo "generated, but not in git:" >&2
	echo "$untracked" | sed 's/^/  /' >&2
	exit 1
fi
echo "Generated files are up to date."
