#!/usr/bin/env bash
# Installs what `make release` has built for this machine's architecture, and removes it again. Everything happens in throwaway copies of
# this machine's root file system (overlayfs in a mount namespace) or in empty roots. Needs root; apt installs rpm, if it is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
dist=$PWD/dist
if [ -z "${IN_NAMESPACE:-}" ]; then
	test "$(id -u)" = 0 || { echo "needs root" >&2; exit 1; }
	IN_NAMESPACE=1 exec unshare --mount --pid --fork --mount-proc --propagation private "$0"
fi
arch=$(go env GOHOSTARCH 2>/dev/null || dpkg --print-architecture)
scratch=$(mktemp -d)
trap 'umount -R -l "$scratch" 2>/dev/null || :; rm -rf --one-file-system "$scratch"' EXIT
mount -t tmpfs tmpfs "$scratch"
failed=

# checks WHAT COMMAND...
checks() {
	local what=$1 start=${EPOCHREALTIME/./}
	shift
	if "$@" >"$scratch/out" 2>&1; then
		printf 'ok       %s (%d ms)\n' "$what" $(((${EPOCHREALTIME/./} - start) / 1000))
	else
		printf 'FAILED   %s\n' "$what"
		tail -n 20 "$scratch/out" | sed 's/^/         /'
		failed=yes
	fi
}

# copy NAME: a copy of this machine's root at $scratch/NAME/files, with /proc, /sys and /dev.
copy() {
	local at=$scratch/$1
	mkdir -p "$at"/{upper,work,files}
	mount -t overlay overlay -o "lowerdir=/,upperdir=$at/upper,workdir=$at/work" "$at/files"
	mount -t proc proc "$at/files/proc"
	mount --rbind /sys "$at/files/sys"
	mount --rbind /dev "$at/files/dev"
	mkdir -p "$at/files/tmp/dist" && mount --bind "$dist" "$at/files/tmp/dist"
}

# changed NAME: the files that were created or changed in a copy, without logs, caches and package databases.
changed() {
	(cd "$scratch/$1/upper" && find . -type f -o -type l | grep -vE '^\./(tmp|run|var/(log|cache|lib/(dpkg|apt|rpm)))/' | sort || :)
}

# The unit's command with the identity, capabilities and system call rights that systemd gives it, until it serves energy.
service() { # ROOT
	chroot "$1" bash -c '
		set -e
		command=$(sed -n "s/^ExecStart=//p" /usr/lib/systemd/system/otelcol-energy.service)
		caps=$(sed -n "s/^AmbientCapabilities=CAP_//p" /usr/lib/systemd/system/otelcol-energy.service | tr A-Z a-z | sed "s/ cap_/,+/g")
		install -d -o 64123 -g 64123 -m 0700 /var/lib/otelcol-energy
		export STATE_DIRECTORY=/var/lib/otelcol-energy ENERGY_PROMETHEUS_ENDPOINT=127.0.0.1:18887 ENERGY_TELEMETRY_PORT=18885
		setpriv --reuid=64123 --regid=64123 --clear-groups --inh-caps="-all,+$caps" --ambient-caps="-all,+$caps" --bounding-set="-all,+$caps" \
			--no-new-privs $command >/tmp/service.log 2>&1 &
		for i in $(seq 100); do
			if curl -sf http://127.0.0.1:18887/metrics | grep -m1 "^system_energy_joules_total"; then
				kill %1 && wait %1 && exit 0
			fi
			sleep 0.2
		done
		tail /tmp/service.log
		exit 1'
}

deb=$(ls "$dist"/otelcol-energy_*_"$arch".deb)
# installs PACKAGE: with a real systemd, the service measures after the installation, and ends with the removal.
installs() {
	local boot=$scratch/systemd result=/dev/shm/test-release-$$ pid status=1
	mkdir -p "$boot"/{copy,files/opt,files/etc/systemd/system/otelcol-energy.service.d}
	cp "$1" "$boot/files/opt/package.deb"
	local units=$boot/files/etc/systemd/system
	printf '[Unit]\nDefaultDependencies=no\nWants=\nAfter=\n' >"$units/otelcol-energy.service.d/test.conf"
	printf '[Unit]\nDefaultDependencies=no\nWants=test-release.service\n' >"$units/test-release.target"
	printf '[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nEnvironment=RESULT=%s\nExecStart=/bin/bash /opt/test.sh\n' \
		"$result" >"$units/test-release.service"
	cat >"$boot/files/opt/test.sh" <<-'SCRIPT'
	exec >"$RESULT" 2>&1
	ip link set lo up
	dpkg -i /opt/package.deb
	for i in $(seq 150); do
		curl -sf http://127.0.0.1:8889/metrics | grep -m1 '^system_energy_joules_total' && break
		sleep 0.2
	done
	ps -o user,args -C otelcol-energy
	dpkg -r otelcol-energy
	systemctl is-active otelcol-energy.service || echo stopped
	echo end
	SCRIPT
	: >"$result"
	*/test/integration/systemd.sh "$boot" test-release.target test-release >"$boot/log" 2>&1 &
	pid=$!
	for _ in $(seq 450); do
		if grep -qx end "$result" || ! kill -0 $pid 2>/dev/null; then break; fi
		sleep 0.2
	done
	kill -9 $pid 2>/dev/null
	wait $pid 2>/dev/null
	cat "$boot/log" "$result"
	grep -q '^system_energy_joules_total' "$result" && grep -q '^otelcol.*/usr/bin/otelcol-energy' "$result" && grep -qx stopped "$result" && status=0
	rm "$result"
	for _ in $(seq 20); do
		find /sys/fs/cgroup -depth -type d -path '*/test-release*' -exec rmdir {} + 2>/dev/null
		test -n "$(find /sys/fs/cgroup -type d -name test-release)" || break
		sleep 0.2
	done
	return $status
}
# Before the copies below: systemd.sh enters every cgroup hierarchy that is mounted.
checks "one command installs the package, and the service measures, with a real systemd" installs "$deb"

copy deb
root=$scratch/deb/files
checks "dpkg -i" chroot "$root" dpkg -i "/tmp/dist/${deb##*/}"
checks "the service is enabled" test -L "$root/etc/systemd/system/multi-user.target.wants/otelcol-energy.service"
checks "versions agree" chroot "$root" bash -c 'v=$(dpkg-query -f "\${Version}" -W otelcol-energy | tr "~" -)
	otelcol-energy --version | grep -F " $v" && energy version | grep -F "energy v$v "'
checks "systemd-analyze verify" chroot "$root" bash -c \
	'out=$(systemd-analyze verify /usr/lib/systemd/system/otelcol-energy.service 2>&1) && ! grep otelcol-energy.service <<<"$out"'
checks "systemd-analyze security: at most 3.0" chroot "$root" systemd-analyze security --offline=true --threshold=30 otelcol-energy.service
checks "the service measures" service "$root"
checks "man pages" chroot "$root" bash -c 'man -l --warnings=all /usr/share/man/man1/energy-measure.1.gz | grep -q -- --max-joules'
checks "completion of bash" chroot "$root" bash -c '. /usr/share/bash-completion/completions/energy
	_get_comp_words_by_ref() { cur=--max words=(energy measure --max) cword=2 prev=measure; }; compopt() { :; }
	__start_energy; test "${COMPREPLY[*]}" = --max-joules'
echo "# changed" >>"$root/etc/otelcol-energy/config.yaml"
checks "an upgrade keeps the configuration" bash -c 'chroot "$0" dpkg -i --force-confold "/tmp/dist/$1" && grep "# changed" "$0/etc/otelcol-energy/config.yaml"' \
	"$root" "${deb##*/}"
checks "dpkg -r" chroot "$root" dpkg -r otelcol-energy
left=$(changed deb)
checks "a removal leaves only configuration and state" test -z "$(grep -vE '^\./(etc|var/lib)/otelcol-energy/' <<<"$left")"
checks "an installation after a removal enables the service" bash -c \
	'chroot "$0" dpkg -i "/tmp/dist/$1" && test -L "$0/etc/systemd/system/multi-user.target.wants/otelcol-energy.service"' "$root" "${deb##*/}"
chroot "$root" systemctl disable otelcol-energy.service
touch "$root/run/otelcol-energy.installed" # as an installation that failed halfway leaves it
checks "an upgrade leaves a disabled service disabled" bash -c \
	'chroot "$0" dpkg -i "/tmp/dist/$1" && ! test -L "$0/etc/systemd/system/multi-user.target.wants/otelcol-energy.service"' "$root" "${deb##*/}"
checks "dpkg -P" chroot "$root" dpkg -P otelcol-energy
checks "a purge leaves nothing" test -z "$(changed deb)"

gpu=$(ls "$dist"/otelcol-energy-gpu_*_"$arch".deb)
copy gpu
checks "dpkg -i of the package for GPUs" chroot "$scratch/gpu/files" dpkg -i "/tmp/dist/${gpu##*/}"
checks "its configuration" chroot "$scratch/gpu/files" otelcol-energy validate --config /etc/otelcol-energy/config.yaml --config /etc/otelcol-energy/gpu.yaml
checks "its unit" chroot "$scratch/gpu/files" bash -c \
	'out=$(systemd-analyze verify /usr/lib/systemd/system/otelcol-energy.service 2>&1) && ! grep otelcol-energy.service <<<"$out"'

if ! command -v rpm >/dev/null; then DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends rpm >/dev/null 2>&1 || :; fi
rpm=$(ls "$dist"/otelcol-energy-[0-9]*"$(uname -m)".rpm)
mkdir "$scratch/rpm"
checks "rpm: metadata and files" bash -c 'rpm -qip "$0" && rpm -qlp "$0" | grep /usr/lib/systemd/system/otelcol-energy.service' "$rpm"
checks "rpm: installation into an empty root" rpm --root "$scratch/rpm" -i --nodeps --noscripts --ignoreos "$rpm"
checks "rpm: verification" rpm --root "$scratch/rpm" -V --nodeps otelcol-energy
checks "apk: files" bash -c 'tar -tzf "$0" 2>/dev/null | grep -x etc/init.d/otelcol-energy' "$(ls "$dist"/otelcol-energy_*_"$(uname -m)".apk)"

# A machine without anything but the archive.
mkdir -p "$scratch/bare"/{proc,sys,tmp}
mount -t proc proc "$scratch/bare/proc"
mount --rbind /sys "$scratch/bare/sys"
archive=$(ls "$dist"/energy_*_"linux_$arch".tar.gz)
first='tar -xzf "$0" -C "$1" --strip-components=1 && chroot "$1" /energy top --local --once --interval 1s'
checks "from the archive to the first figures of energy top, at most 5 s" timeout 5 bash -c "$first" "$archive" "$scratch/bare"

# image NAME: unpacks the image of this architecture, and prints its root.
image() {
	local layout=$dist/$1.oci manifest
	blob() { cat "$layout/blobs/sha256/$1"; }
	manifest=$(grep -o '"digest":"sha256:[^"]*"[^{}]*"platform":{"architecture":"'"$arch" < <(blob "$(grep -o 'sha256:[0-9a-f]*' "$layout/index.json" | cut -d: -f2)") |
		sed 's/.*sha256:\([0-9a-f]*\).*/\1/')
	mkdir -p "$scratch/$1"
	for layer in $(blob "$manifest" | grep -o 'layer[^}]*sha256:[0-9a-f]*' | grep -o '[0-9a-f]\{64\}'); do
		tar -xzf "$layout/blobs/sha256/$layer" -C "$scratch/$1"
	done
}
for layout in "$dist"/otelcol-energy*.oci; do
	name=$(basename "$layout" .oci)
	image "$name"
	checks "image $name: configuration, as its user" chroot --userspec=65532:65532 "$scratch/$name" /otelcol-energy validate \
		--config /etc/otelcol-energy/config.yaml $(test "$name" != otelcol-energy-gpu || echo --config /etc/otelcol-energy/gpu.yaml)
done
# The mounts of the DaemonSet, and nothing else.
root=$scratch/otelcol-energy
for mount in proc sys/bus sys/class sys/devices sys/fs/cgroup; do
	mkdir -p "$root/hostfs/$mount"
	mount --bind "/$mount" "$root/hostfs/$mount" && mount -o remount,bind,ro "$root/hostfs/$mount"
done
measures='ENERGY_PROMETHEUS_ENDPOINT=127.0.0.1:18886 ENERGY_TELEMETRY_PORT=18884 setpriv --bounding-set=-all,+sys_ptrace,+bpf,+perfmon,+sys_chroot chroot "$0" /otelcol-energy \
	--config /etc/otelcol-energy/config.yaml & trap "kill $! && wait $!" EXIT
	for i in $(seq 100); do curl -sf http://127.0.0.1:18886/metrics | grep -m1 "^system_energy_joules_total" && exit 0; sleep 0.2; done; exit 1'
checks "image otelcol-energy measures with the DaemonSet's mounts and capabilities" bash -c "$measures" "$root"
checks "image: at most 45 MB per architecture" bash -c 'for m in $(grep -l "image.config.v1" "$0"/blobs/sha256/*); do
	sizes=$(grep -o "\"size\":[0-9]*" "$m" | cut -d: -f2 | paste -sd+); test $((sizes)) -le 45000000 || { echo "$((sizes)) bytes"; exit 1; }; done' "$dist/otelcol-energy.oci"

(cd "$dist" && checks "checksums" sha256sum --quiet -c SHA256SUMS)
test -z "$failed"
