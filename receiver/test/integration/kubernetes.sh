#!/usr/bin/env bash
# Builds the components of a Kubernetes node, once, and tests the DaemonSet and the chart of deploy/ on
# it. A test without its requirements is skipped with the reason. Fails if a test fails, or if no test ran.
#
#   RUN=Manifests       only the tests that match; all have Kubernetes in their names
#   BUILD_ONLY=1        builds and runs nothing
set -euo pipefail
cd "$(dirname "$0")/../../.."

version=1.34.4 # of Kubernetes; its libraries are 0.34.4
cache=$PWD/build/integration
bin=$cache/kubernetes/bin
mkdir -p "$bin"
log=$cache/kubernetes.log
: >"$log"

. receiver/test/integration/tests.sh

say() { printf '%s\n' "$*" | tee -a "$log"; }

# Keeps apt from starting daemons: the test starts them.
installs() {
	local program=$1 package=$2 policy=/usr/sbin/policy-rc.d own=
	if command -v "$program" >/dev/null; then
		return
	fi
	say "Installing $package"
	if ! [ -e "$policy" ]; then
		own=yes
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod +x "$policy"
	fi
	timeout 60 apt-get update >>"$log" 2>&1 || say "apt-get update failed, see $log"
	timeout 180 env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package" >>"$log" 2>&1 ||
		say "could not install $package, see $log"
	test -z "$own" || rm -f "$policy"
}

# Kubernetes builds from its published modules: its go.mod pins all dependencies, but looks for its
# libraries in a directory that the module does not contain.
builds_kubernetes() {
	local program missing=()
	for program in kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do
		[ -x "$bin/$program" ] || missing+=("$program")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	local free source module=$cache/kubernetes/module
	local -x GOWORK=off
	free=$(df --output=avail -B1G "$cache" | tail -n 1)
	if [ "$free" -lt 10 ]; then
		say "not enough room to build Kubernetes: that takes 8 GB, there are $free"
		return
	fi
	say "Building ${missing[*]} $version, which takes 5 to 20 minutes the first time"
	source=$(cd / && timeout 300 go mod download -json "k8s.io/kubernetes@v$version" 2>>"$log" |
		sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	if [ -z "$source" ]; then
		say "could not download k8s.io/kubernetes, see $log"
		return
	fi
	mkdir -p "$module"
	cp "$source/go.sum" "$module/go.sum"
	sed -e 's#^module .*#module node#' \
		-e "s#=> ./staging/src/\(.*\)#=> \1 v0.${version#1.}#" "$source/go.mod" >"$module/go.mod"
	chmod u+w "$module/go.mod" "$module/go.sum"
	(
		cd "$module"
		go mod edit -require="k8s.io/kubernetes@v$version"
		for program in "${missing[@]}"; do
			CGO_ENABLED=0 GOFLAGS=-mod=mod timeout 3600 nice go build -trimpath -o "$bin/$program.part" \
				-ldflags="-s -w -X k8s.io/component-base/version.gitVersion=v$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34" \
				"k8s.io/kubernetes/cmd/$program" && mv "$bin/$program.part" "$bin/$program"
		done
	) >>"$log" 2>&1 || say "could not build Kubernetes, see $log"
}

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	installs containerd containerd
	installs etcd etcd-server
else
	say "Nothing can be installed: that needs root and apt."
fi
builds_kubernetes
[ -x "$bin/helm" ] || GOWORK=off CGO_ENABLED=0 go build -modfile=dev/release/go.mod -o "$bin/" helm.sh/helm/v3/cmd/helm >>"$log" 2>&1 ||
	say "could not build helm, see $log"
PATH=$PATH:$bin
[ -z "${BUILD_ONLY:-}" ] || exit 0

tests "$cache/kubernetes-tests.log" -run "${RUN:-Kubernetes}"
