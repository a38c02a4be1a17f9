#!/bin/sh
# Runs go mod tidy in a module of the checkout: tidy.sh MODULE [-diff]. The modules require each other in versions that may not be
# published yet, and go mod tidy ignores the workspace, so a copy of go.mod replaces them by the checkout.
set -eu
cd "$(dirname "$0")/../.."
export GOWORK=off
root=$PWD module=$1
shift

copy=$(mktemp -d)
trap 'rm -r "$copy"' EXIT
cp "$module/go.mod" "$module/go.sum" "$copy"
modules=$(sed -n 's#^\t\(.*\) v.* => \(.*\)#\1=\2#p' go.work) # those that other modules require
edits='' drops=''
for m in $modules; do
	edits="$edits -replace=${m%%=*}=$root/${m#*=}" drops="$drops -dropreplace=${m%%=*}"
done
# shellcheck disable=SC2086 # several words
test "$module" = . || go mod edit $edits "$copy/go.mod"
go -C "$module" mod tidy -modfile="$copy/go.mod" "$@"
# shellcheck disable=SC2086
test "$module" = . || go mod edit $drops "$copy/go.mod"
test $# -gt 0 || cp "$copy/go.mod" "$copy/go.sum" "$module"
