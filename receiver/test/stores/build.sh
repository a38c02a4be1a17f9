#!/usr/bin/env bash
# Builds the databases that the test of stores sends to, once, into build/integration. What cannot be built is left out: the test
# says so. With arguments it builds only those programs: prometheus, otelcol-stores, ...
set -euo pipefail
cd "$(dirname "$0")/../../.."

cache=$PWD/build/integration
export CGO_ENABLED=0 GOWORK=off
only=" $* "

# wanted NAME reports whether a program is to be built
wanted() { [ "$only" = "  " ] || [[ "$only" == *" $1 "* ]]; }

# builds DIRECTORY MODULE FLAGS... PACKAGES: programs from a module whose go.mod is in a directory, unless they are there from the
# same go.sum
builds() {
	local from=$1 name=$2
	shift 2
	wanted "$name" || return 0
	mkdir -p "$cache/$name"
	if cmp -s "$from/go.sum" "$cache/$name/go.sum"; then
		return
	fi
	echo "Building $name; the first time, this takes some minutes"
	if timeout 600 go -C "$from" build -trimpath -ldflags='-s -w' -o "$cache/$name/" "$@"; then
		cp "$from/go.sum" "$cache/$name/"
	else
		echo "could not build $name"
	fi
}

builds receiver/test/integration/prometheus prometheus -tags=remove_all_sd,netgo \
	github.com/prometheus/prometheus/cmd/prometheus github.com/prometheus/prometheus/cmd/promtool

# The collector that writes remotely
name=otelcol-stores
if wanted "$name" && ! cmp -s receiver/test/stores/otelcol.yaml "$cache/$name/otelcol.yaml"; then
	echo "Building $name; the first time, this takes some minutes"
	if GOWORK=off timeout 600 go tool -modfile=internal/tools/go.mod builder --config receiver/test/stores/otelcol.yaml >"$cache/$name.log" 2>&1; then
		cp receiver/test/stores/otelcol.yaml "$cache/$name/"
	else
		echo "could not build $name, see $cache/$name.log"
	fi
fi

builds receiver/test/stores/victoriametrics victoriametrics github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics \
	github.com/VictoriaMetrics/VictoriaMetrics/app/vmalert-tool

# builds_mimir builds Mimir by the go.mod of its own module, which pins all that it needs.
builds_mimir() {
	local version=v1.3.1-0.20260423142704-aced80d74930 # Mimir 3.0.5
	local source free name=mimir
	[ "$(cat "$cache/$name/version" 2>/dev/null)" != "$version" ] || return 0
	free=$(df --output=avail -B1G "$cache" | tail -n 1)
	if [ "$free" -lt 10 ]; then
		echo "no room to build Mimir: that takes 5 GB, there are $free"
		return
	fi
	echo "Building Mimir, which takes some minutes the first time"
	source=$(cd / && timeout 300 go mod download -json "github.com/grafana/mimir@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	if [ -z "$source" ]; then
		echo "could not download Mimir"
		return
	fi
	mkdir -p "$cache/$name/module"
	install -m 644 "$source/go.mod" "$source/go.sum" "$cache/$name/module/"
	(
		cd "$cache/$name/module"
		sed -i 's#^module .*#module stores#' go.mod
		go mod edit -require="github.com/grafana/mimir@$version"
		GOFLAGS=-mod=mod timeout 1800 nice go build -tags netgo,stringlabels -trimpath -ldflags='-s -w' -o ../mimir github.com/grafana/mimir/cmd/mimir
	) && echo "$version" >"$cache/$name/version" || echo "could not build Mimir"
}
if wanted mimir; then
	builds_mimir
fi

# the VictoriaMetrics of Debian 12, unpacked only, as its package would start it
if wanted victoriametrics-1.79 && ! [ -e "$cache/victoriametrics-1.79/usr/bin/victoria-metrics" ] && command -v apt-get >/dev/null; then
	mkdir -p "$cache/victoriametrics-1.79"
	(
		cd "$cache/victoriametrics-1.79"
		timeout 60 apt-get update -qq || true
		timeout 180 apt-get download -qq 'victoria-metrics=1.79.*' &&
			dpkg-deb --fsys-tarfile victoria-metrics_*.deb | tar -x ./usr/bin/victoria-metrics &&
			rm -f victoria-metrics_*.deb
	) || echo "could not get victoria-metrics 1.79: only Debian 12 has it"
fi

# the engine of ClickHouse, as a library of Node.js
if wanted clickhouse && ! cmp -s receiver/test/stores/clickhouse/package-lock.json "$cache/clickhouse/package-lock.json" && command -v npm >/dev/null; then
	mkdir -p "$cache/clickhouse"
	cp receiver/test/stores/clickhouse/package.json "$cache/clickhouse/"
	echo "Installing chdb, 550 MB"
	cp receiver/test/stores/clickhouse/package-lock.json "$cache/clickhouse/"
	# Not npm ci: it asks for the libraries of all systems.
	if (cd "$cache/clickhouse" && timeout 300 npm install --ignore-scripts --no-audit --no-fund --loglevel=error); then
		cp receiver/test/stores/clickhouse/package-lock.json "$cache/clickhouse/"
	else
		rm -f "$cache/clickhouse/package-lock.json"
		echo "could not install chdb"
	fi
fi
