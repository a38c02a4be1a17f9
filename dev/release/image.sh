#!/usr/bin/env bash
# Writes a multi-architecture image as an OCI layout, without a container engine, a base image or network. Same input, same digest.
#
#   image.sh LAYOUT COLLECTOR      COLLECTOR is otelcol-energy-kubernetes, -gpu or -profiles, which build.sh has built
#
# The first layer has certificates, for GPUs also glibc, and the directories. The second has the collector and its configuration.
# CA_BUNDLE names the certificates. The glibc of another architecture is that of Debian's package libc6-ARCH-cross.
set -euo pipefail
cd "$(dirname "$0")/../.."
layout=$1 collector=$2
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$layout/blobs/sha256"

title=otelcol-energy env='' cmd='"--config","/etc/otelcol-energy/config.yaml"'
if [ "$collector" = otelcol-energy-profiles ]; then title=$collector cmd=$cmd',"--feature-gates=service.profilesSupport"'; fi
if [ "$collector" = otelcol-energy-gpu ]; then
	title=$collector cmd=$cmd',"--config","/etc/otelcol-energy/gpu.yaml"'
	# The directories into which NVIDIA's runtimes put the driver's library; all GPUs; only the management library.
	env='"Env":["LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/local/nvidia/lib64",
	"NVIDIA_VISIBLE_DEVICES=all","NVIDIA_DRIVER_CAPABILITIES=utility"],'
fi

# glibc ROOT ARCH: what the collector and NVIDIA's library need of it.
glibc() {
	local loader=lib64/ld-linux-x86-64.so.2 triplet=x86_64-linux-gnu from library
	test "$2" = amd64 || loader=lib/ld-linux-aarch64.so.1 triplet=aarch64-linux-gnu
	from=/lib/$triplet
	test -e "$from/libc.so.6" || from=/usr/$triplet/lib
	test -e "$from/libc.so.6" || { echo "glibc for $2 was not found: apt-get install libc6-$2-cross" >&2; exit 1; }
	install -D -m 0755 "$from/${loader##*/}" "$1/$loader"
	for library in libc.so.6 libm.so.6 librt.so.1 libpthread.so.0 libdl.so.2; do
		install -D -m 0644 "$from/$library" "$1/lib/$triplet/$library"
	done
}

# blob FILE MEDIA_TYPE: stores a file, and prints its descriptor without the closing brace.
blob() {
	local digest
	digest=$(sha256sum "$1" | cut -d' ' -f1)
	cp "$1" "$layout/blobs/sha256/$digest"
	printf '{"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%d' "$2" "$digest" "$(stat -c %s "$1")"
}

# layer DIRECTORY: appends to the variables layers and diffs.
layer() {
	find "$1" -type d -exec chmod 0755 {} +
	tar --create --file "$1.tar" --directory "$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
		--format=gnu --transform='s#^\./##' $(ls "$1")
	diffs+=${diffs:+,}\"sha256:$(sha256sum "$1.tar" | cut -d' ' -f1)\"
	gzip -9 --no-name "$1.tar"
	layers+=${layers:+,}$(blob "$1.tar.gz" layer.v1.tar+gzip)}
}

labels='"org.opencontainers.image.title":"'$title'","org.opencontainers.image.version":"'$VERSION'",
"org.opencontainers.image.revision":"'$REVISION'","org.opencontainers.image.created":"'$created'",
"org.opencontainers.image.source":"https://github.com/energyreceiver/energyreceiver","org.opencontainers.image.licenses":"Apache-2.0",
"org.opencontainers.image.description":"OpenTelemetry Collector that measures the energy of a node, its pods, containers and processes"'
manifests=
for arch in $ARCHS; do
	base=$scratch/$arch/base program=$scratch/$arch/program layers='' diffs=''
	install -D -m 0644 "${CA_BUNDLE:-/etc/ssl/certs/ca-certificates.crt}" "$base/etc/ssl/certs/ca-certificates.crt"
	install -d "$base/var/lib/otelcol-energy"
	install -D -m 0755 "build/release/$arch/$collector" "$program/otelcol-energy"
	install -D -m 0644 deploy/docker/config.yaml "$program/etc/otelcol-energy/config.yaml"
	if [ "$collector" = otelcol-energy-gpu ]; then
		glibc "$base" "$arch"
		install -m 0644 deploy/docker/gpu.yaml "$program/etc/otelcol-energy/gpu.yaml"
	fi
	layer "$base"
	layer "$program"
	cat >"$scratch/config.json" <<-JSON
	{"created":"$created","architecture":"$arch","os":"linux","config":{"User":"65532:65532",$env"Entrypoint":["/otelcol-energy"],
	"Cmd":[$cmd],"WorkingDir":"/var/lib/otelcol-energy","Labels":{$labels}},"rootfs":{"type":"layers","diff_ids":[$diffs]},
	"history":[{"created":"$created","created_by":"certificates and directories"},{"created":"$created","created_by":"collector"}]}
	JSON
	printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s},"layers":[%s],"annotations":{%s}}' \
		"$(blob "$scratch/config.json" config.v1+json)" "$layers" "$labels" >"$scratch/manifest.json"
	manifests+=${manifests:+,}$(blob "$scratch/manifest.json" manifest.v1+json)',"platform":{"architecture":"'$arch'","os":"linux"}}'
done
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s],"annotations":{%s}}' \
	"$manifests" "$labels" >"$scratch/index.json"
printf '{"schemaVersion":2,"manifests":[%s,"annotations":{"org.opencontainers.image.ref.name":"%s"}}]}' \
	"$(blob "$scratch/index.json" index.v1+json)" "$VERSION" >"$layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
sha256sum "$scratch/index.json" | sed 's/ .*//; s/^/sha256:/'
