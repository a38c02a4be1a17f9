#!/usr/bin/env bash
# Builds a release into dist/: archives, packages, images as OCI layouts, SBOMs, the chart and SHA256SUMS. Needs what `make build` needs,
# Debian's packages of ca-certificates, and libc6-arm64-cross (on amd64) for the image for GPUs. Same commit, same bytes.
#
#   ARCHS=amd64            only this architecture
#   PROFILES=1             also the image with the eBPF profiler
#   VERSION=0.1.0          another version than that of the tag of the commit
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD/dev/release
TAG=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null || echo "v0.0.0-dev.$(git rev-parse --short=12 HEAD)")
export VERSION=${VERSION:-${TAG#v}} ARCHS=${ARCHS:-amd64 arm64} REVISION SOURCE_DATE_EPOCH GOWORK=off GOFLAGS=-buildvcs=false TZ=UTC LC_ALL=C
REVISION=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
dist=$PWD/dist work=$PWD/build/release
umask 022
rm -rf "$dist" "$work/stage"
mkdir -p "$dist" "$work/stage"

say() { printf '== %s\n' "$*"; }
tool() { GOWORK=off CGO_ENABLED=0 GOFLAGS='-buildvcs=false -trimpath' go tool -modfile="$here/go.mod" "$@"; }

# pack DIRECTORY FILE: a reproducible archive.
pack() {
	tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu --mode=u+w,go-w,a+rX \
		--directory "${1%/*}" "${1##*/}" | gzip -9n >"$2"
}

# sbom PROGRAM ARCH FILE: the modules of a program. Those of the checkout have relative paths in place of names and versions.
sbom() {
	tool cyclonedx-gomod bin -json -std -noserial -notimestamp -version "v$VERSION" "$work/$2/$1" 2>/dev/null |
		sed "s#\(\.\./\)*\.\.\([\"/@]\)#github.com/energyreceiver/energyreceiver\2#g; s#(devel)#v$VERSION#g" >"$3"
}

say "programs $VERSION, for $ARCHS"
"$here/build.sh"

say "man pages and completions"
host=$(go env GOHOSTARCH)
rm -rf "$work/share"
energy=$work/$host/energy share=$work/share
mkdir -p "$share/bash-completion/completions" "$share/zsh/site-functions" "$share/fish/vendor_completions.d"
"$energy" man "$share/man/man1"
gzip -9n "$share"/man/man1/*
"$energy" completion bash >"$share/bash-completion/completions/energy"
"$energy" completion zsh >"$share/zsh/site-functions/_energy"
"$energy" completion fish >"$share/fish/vendor_completions.d/energy.fish"

say "archives and SBOMs"
for arch in $ARCHS; do
	for name in otelcol-energy otelcol-energy-gpu energy energy-gpu; do
		full=${name}_${VERSION}_linux_$arch
		stage=$work/stage/$full
		install -D -m 0755 "$work/$arch/$name" "$stage/${name%-gpu}"
		install -m 0644 LICENSE "$stage"
		cp -R LICENSES "$stage"
		if [ "${name%-gpu}" = energy ]; then
			cp -R "$work/share" "$stage"
		else
			install -m 0644 deploy/systemd/config.yaml deploy/systemd/otelcol-energy.service "$stage"
		fi
		if [ "$name" = otelcol-energy-gpu ]; then install -m 0644 deploy/docker/gpu.yaml deploy/systemd/nvidia.conf "$stage"; fi
		pack "$stage" "$dist/$full.tar.gz"
		sbom "$name" "$arch" "$dist/$full.cdx.json"
	done
	sbom otelcol-energy-kubernetes "$arch" "$dist/otelcol-energy-image_${VERSION}_linux_$arch.cdx.json"
	test -z "${PROFILES:-}" || sbom otelcol-energy-profiles "$arch" "$dist/otelcol-energy-profiles_${VERSION}_linux_$arch.cdx.json"
done

# package NAME ARCH FORMATS
package() {
	local stage=$work/stage/packages/$1_$2 root format conflicts=otelcol-energy
	root=$stage/root
	install -D -m 0755 "$work/$2/$1" "$root/usr/bin/otelcol-energy"
	install -m 0755 "$work/$2/energy${1#otelcol-energy}" "$root/usr/bin/energy"
	install -D -m 0644 LICENSE "$root/usr/share/doc/$1/copyright"
	install -D -m 0644 -t "$root/usr/share/doc/$1/examples" deploy/systemd/ipmi.conf deploy/systemd/vsock.conf
	cp -R "$work/share/." "$root/usr/share"
	mkdir -p "$stage/zsh" && mv "$root/usr/share/zsh/site-functions/_energy" "$stage/zsh/_energy" && rm -r "$root/usr/share/zsh"
	install -D -m 0644 deploy/systemd/config.yaml "$root/etc/otelcol-energy/config.yaml"
	install -d "$root/usr/lib/systemd/system"
	sed '/^# Install:/,/^# .*systemctl enable/d; s#/usr/local/bin/#/usr/bin/#' deploy/systemd/otelcol-energy.service \
		>"$root/usr/lib/systemd/system/otelcol-energy.service"
	if [ "$1" = otelcol-energy-gpu ]; then
		install -m 0644 deploy/docker/gpu.yaml "$root/etc/otelcol-energy"
		mkdir "$root/usr/lib/systemd/system/otelcol-energy.service.d"
		{ sed '/^#/d' deploy/systemd/nvidia.conf; grep -v '^#' "$here/packaging/gpu.conf"; } \
			>"$root/usr/lib/systemd/system/otelcol-energy.service.d/nvidia.conf"
	else
		conflicts=otelcol-energy-gpu
	fi
	cp -R "$here/packaging" "$stage/scripts" && mv "$stage/scripts/openrc" "$stage/openrc"
	find "$stage" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} + # the apk has the times of the files
	for format in $3; do
		(cd "$stage" && NAME=$1 ARCH=$2 PROVIDES=$(test "$1" = otelcol-energy || echo otelcol-energy) CONFLICTS=$conflicts \
			DEB_DEPENDS=$(test "$1" = otelcol-energy || echo libc6) \
			tool nfpm package -f "$here/nfpm.yaml" -p "$format" -t "$dist/" >/dev/null)
	done
}

say "packages"
for arch in $ARCHS; do
	package otelcol-energy "$arch" "deb rpm apk"
	package otelcol-energy-gpu "$arch" "deb rpm"
done

say "images"
image() { go -C dev/release run ./image -title "$1" -program "$work/ARCH/$2" -archs "$ARCHS" -out "$dist/$1.oci"; }
image otelcol-energy otelcol-energy-kubernetes
image otelcol-energy-gpu otelcol-energy-gpu
test -z "${PROFILES:-}" || image otelcol-energy-profiles otelcol-energy-profiles

say "chart"
mkdir -p "$work/stage/chart"
cp -RL deploy/chart "$work/stage/chart/otelcol-energy" # -L: files/ has links to other directories
rm -r "$work/stage/chart/otelcol-energy/"{ci,test.sh,render.sh}
sed -i "s/^\(version\|appVersion\): .*/\1: $VERSION/" "$work/stage/chart/otelcol-energy/Chart.yaml"
pack "$work/stage/chart/otelcol-energy" "$dist/otelcol-energy-chart-$VERSION.tgz"

# In the form that grafana.com takes.
requires='{"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"},'
requires+='{"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"}'
sed "1a \  \"__inputs\": [], \"__requires\": [$requires]," deploy/dashboards/energy.json >"$dist/grafana-dashboard.json"

say "checksums"
(cd "$dist" && find . -maxdepth 1 -type f -not -name SHA256SUMS -printf '%f\n' | sort | xargs sha256sum >SHA256SUMS && ls -sh)
