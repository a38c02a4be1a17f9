#!/usr/bin/env bash
# Pushes the images and the chart of dist/ to a registry. With SIGN=1 it signs them, attaches the SBOMs to the images, and signs SHA256SUMS,
# by cosign with the identity of the workflow (keyless).
#
#   publish.sh ghcr.io/energyreceiver
#
# To try it: crane registry serve --address 127.0.0.1:5055 & publish.sh 127.0.0.1:5055/try
set -euo pipefail
cd "$(dirname "$0")/../.."
registry=$1
tool() { GOWORK=off go tool -modfile="$PWD/dev/release/go.mod" "$@"; }
version=$(ls dist/otelcol-energy-chart-*.tgz | sed 's/.*chart-\(.*\)\.tgz/\1/')
plain=
case $registry in 127.0.0.1:* | localhost:*) plain=--plain-http ;; esac

if [ -n "${REGISTRY_TOKEN:-}" ]; then
	tool crane auth login "${registry%%/*}" --username "$REGISTRY_USER" --password-stdin <<<"$REGISTRY_TOKEN"
	tool helm registry login "${registry%%/*}" --username "$REGISTRY_USER" --password-stdin <<<"$REGISTRY_TOKEN"
fi

# sign REFERENCE [SBOM...]
sign() {
	local reference=$1 sbom
	test -n "${SIGN:-}" || return 0
	cosign sign --yes --recursive "$reference" # also the images of an index, which clients on one architecture verify
	shift
	for sbom in "$@"; do cosign attest --yes --type cyclonedx --predicate "$sbom" "$reference"; done
}

for layout in dist/*.oci; do
	image=$(basename "$layout" .oci)
	reference=$(tool crane push "$layout" "$registry/$image:$version")
	case $version in *-*) ;; *) tool crane tag "$reference" latest ;; esac
	echo "$reference"
	sboms=$image
	test "$image" != otelcol-energy || sboms=otelcol-energy-image
	sign "$reference" "dist/${sboms}_${version}"_linux_*.cdx.json
done

pushed=$(tool helm push "dist/otelcol-energy-chart-$version.tgz" "oci://$registry/charts" $plain 2>&1)
echo "$pushed"
sign "$registry/charts/otelcol-energy@$(grep -o 'sha256:[0-9a-f]*' <<<"$pushed")"

if [ -n "${SIGN:-}" ]; then cosign sign-blob --yes --bundle dist/SHA256SUMS.sigstore.json dist/SHA256SUMS; fi
