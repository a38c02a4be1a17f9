#!/usr/bin/env bash
# Installs the tools that the integration tests need, if available, and runs the tests. A test without
# its requirements is skipped with the reason. Fails if a test fails, or if no test ran.
#
#   RUN=Docker          only the tests that match. Attacks run only if RUN contains Attack; kubernetes.sh
#                       runs the tests of Kubernetes
#   SHORT=1             install nothing, and build no collector for GPUs
#   RAPL_SECONDS=60     minimum duration of the measurement of the RAPL guest; the default is 10
set -euo pipefail
cd "$(dirname "$0")/../../.."

cache=build/integration
mkdir -p "$cache/debs"
log=$cache/prepare.log
: >"$log"

. receiver/test/integration/tests.sh

say() { printf '%s\n' "$*" | tee -a "$log"; }

# Keeps apt from starting daemons: the tests start them.
without_services() {
	local policy=/usr/sbin/policy-rc.d status=0
	if [ -e "$policy" ]; then
		"$@" || status=$?
	else
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod +x "$policy"
		"$@" || status=$?
		rm -f "$policy"
	fi
	return "$status"
}

updated=
update() {
	test -z "$updated" || return 0
	updated=yes
	timeout 60 apt-get update >>"$log" 2>&1 || say "apt-get update failed, see $log"
}

# installs the packages if a program is missing
installs() {
	local program=$1
	shift
	if command -v "$program" >/dev/null; then
		return
	fi
	update
	say "Installing $*"
	without_services timeout 180 env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y --no-install-recommends "$@" >>"$log" 2>&1 || say "could not install $*, see $log"
}

# downloads the newest 6.1 kernel of Debian and the files to build modules for it
downloads_kernel() {
	if ls "$cache"/debs/linux-image-6.1.0-*.deb >/dev/null 2>&1; then
		return
	fi
	update
	local image
	image=$(apt-cache search --names-only '^linux-image-6\.1\.0-[0-9]+-amd64$' | awk '{print $1}' | sort -V | tail -n 1)
	if [ -z "$image" ]; then
		say "apt has no linux-image-6.1.0-*-amd64"
		return
	fi
	local release=${image#linux-image-}
	say "Downloading $image and its headers"
	# The image comes last: if it exists, the download is complete.
	(cd "$cache/debs" && timeout 180 apt-get download "linux-headers-$release" "linux-headers-${release%-amd64}-common" \
		linux-kbuild-6.1 linux-compiler-gcc-12-x86 && timeout 180 apt-get download "$image") >>"$log" 2>&1 ||
		say "could not download $image, see $log"
}

# makes apt use the backports of a release of Debian, by the options in the array options. apt uses a
# separate list and state, so the machine's sources are unchanged.
backports() {
	local apt keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	apt=$PWD/$cache/apt-$1
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
	echo "deb [signed-by=$keyring] http://deb.debian.org/debian $1-backports main" >"$apt/sources.list"
	options=(-o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$apt/lists"
		-o Dir::Cache="$apt/cache" -o APT::Architecture=amd64 -o APT::Architectures::=arm64)
	timeout 60 apt-get "${options[@]}" update >>"$log" 2>&1 || say "apt-get update of $1-backports failed, see $log"
}

# downloads packages of these backports
downloads_from_backports() {
	say "Downloading $*"
	(cd "$cache/debs" && timeout 180 apt-get "${options[@]}" download "$@") >>"$log" 2>&1 || {
		say "could not download $*, see $log"
		return 1
	}
}

# prints the newest kernel of these backports that matches a pattern
newest_of_backports() {
	apt-cache "${options[@]}" search --names-only "^linux-image-$1\$" | awk '{print $1}' | sort -V | tail -n 1
}

# downloads the newest 6.18 kernels for amd64 and arm64 from Debian 13's backports
downloads_kernels_of_debian_13() {
	if ls "$cache"/debs/linux-image-6.18.*_amd64.deb "$cache"/debs/linux-image-6.18.*_arm64.deb >/dev/null 2>&1; then
		return
	fi
	local architecture image
	backports trixie
	for architecture in amd64 arm64; do
		image=$(newest_of_backports "6\.18\.[0-9]+\+deb13-$architecture")
		if [ -z "$image" ]; then
			say "trixie-backports has no linux-image-6.18.*-$architecture"
			continue
		fi
		downloads_from_backports "$image:$architecture" || true
	done
}

# downloads the newest 6.12 kernel from Debian 12's backports, and the files to build modules for it
downloads_kernel_of_debian_12() {
	if ls "$cache"/debs/linux-image-6.12.*_amd64.deb >/dev/null 2>&1; then
		return
	fi
	local release
	backports bookworm
	release=$(newest_of_backports "6\.12\.[0-9]+\+deb12-amd64")
	release=${release#linux-image-}
	if [ -z "$release" ]; then
		say "bookworm-backports has no linux-image-6.12.*-amd64"
		return
	fi
	# The image comes last: if it exists, the download is complete.
	downloads_from_backports "linux-headers-$release" "linux-headers-${release%-amd64}-common" "linux-kbuild-${release%-amd64}" &&
		downloads_from_backports "linux-image-$release" || true
}

if [ -n "${SHORT:-}" ]; then
	say "Nothing is installed, because SHORT is set."
elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	installs qemu-system-x86_64 qemu-system-x86 seabios
	installs qemu-system-aarch64 qemu-system-arm
	installs iasl acpica-tools
	installs xz xz-utils
	installs dockerd docker.io
	installs docker docker-cli # in docker.io before Debian 13
	installs libvirtd libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients
	installs virsh libvirt-clients
	installs redfishtool redfishtool
	installs chromium chromium fonts-dejavu-core
	downloads_kernel
	downloads_kernel_of_debian_12
	downloads_kernels_of_debian_13
else
	say "Nothing can be installed: that needs root and apt."
fi

if [ -z "${SHORT:-}" ]; then
	began=$SECONDS
	make --no-print-directory build-gpu || say "could not build the collector that reads NVIDIA GPUs"
	say "make build-gpu took $((SECONDS - began)) s"
fi

skip='^Test(Kubernetes|Attack)'
case ${RUN:-} in *Attack*) skip=^TestKubernetes ;; esac
tests "$cache/tests.log" -run "${RUN:-.}" -skip "$skip"
