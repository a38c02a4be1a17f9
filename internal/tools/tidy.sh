#!/bin/sh
# Runs go mod tidy in a module of the checkout: tidy.sh MODULE [-diff]. The modules require each other in versions that may not be
# published yet, and go mod tidy ignores the workspace, so a copy of go.mod replaces them by the checkout.
set -eu
cd "$(dirname "$0")/../.."
export GOWORK=off
root=$PWD module=$1
shift
receiver=$(go list -m)

copy=$(mktemp -d)
trap 'rm -r "$copy"' EXIT
cp "$module/go.mod" "$module/go.sum" "$copy"
edits='' drops=''
for m in processor/emissions processor/energyprofile extension/nvml; do # which cmd/energy requires
	edits="$edits -replace=$receiver/$m=$root/$m" drops="$drops -dropreplace=$receiver/$m"
done
# shellcheck disable=SC2086 # several words
test "$module" = . || go mod edit -replace="$receiver=$root" $edits "$copy/go.mod"
go -C "$module" mod tidy -modfile="$copy/go.mod" "$@"
# shellcheck disable=SC2086
test "$module" = . || go mod edit -dropreplace="$receiver" $drops "$copy/go.mod"
test $# -gt 0 || cp "$copy/go.mod" "$copy/go.sum" "$module"
