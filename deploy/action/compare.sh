#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the energy of a command in two commits of a Git repository, in pairs of runs. Requires bash, git and jq, and curl to download energy.
#
#   compare.sh measure    exits with 124 if the head uses significantly more energy than the base, and more than the limit
#   compare.sh comment    writes the result to a pull request on GitHub, as one comment that is updated. Requires gh
#
#   ENERGY_COMMAND        command to measure, for bash
#   ENERGY_BUILD          build command, run once in the work tree of each commit
#   ENERGY_BASE           commit, branch or tag to compare with. Default: the base of the pull request or merge request
#   ENERGY_PAIRS          pairs of runs (40)
#   ENERGY_MAX_RATIO      limit of the ratio head / base of energy, or of CPU time if all energy is modeled (1.02; 0: no limit)
#   ENERGY_VERSION        release of energy to download. Default: energy in PATH
#   ENERGY_NAME           title of comment and badge, if a pull request has several
#   ENERGY_BADGE          SVG file to write
#   ENERGY_RESULTS        directory of energy.json and energy.md (energy-results)
set -euo pipefail
shopt -s inherit_errexit

fail() {
	echo "compare.sh: $*" >&2
	exit 1
}

# Prints the commit to compare with.
base_commit() {
	local base=${ENERGY_BASE:-${CI_MERGE_REQUEST_TARGET_BRANCH_SHA:-${CI_MERGE_REQUEST_DIFF_BASE_SHA:-${GITHUB_BASE_REF:-}}}} name depth=()
	# GitHub checks out the merge of a pull request into its base. With fetch-depth: 2, the checkout has the base, HEAD^1.
	if [[ -z ${ENERGY_BASE:-} && ${GITHUB_REF:-} == refs/pull/*/merge && $(git rev-parse HEAD) == "${GITHUB_SHA:-}" ]]; then
		git rev-parse --verify --quiet 'HEAD^1^{commit}' && return
	fi
	[ -n "$base" ] || fail "no base to compare with: set ENERGY_BASE"
	for name in "origin/$base" "$base"; do
		git rev-parse --verify --quiet --end-of-options "$name^{commit}" && return
	done
	[ "$(git rev-parse --is-shallow-repository)" = false ] || depth=(--depth=1)
	git fetch --quiet --no-tags "${depth[@]}" -- origin "$base" || fail "the base is not available: $base"
	git rev-parse 'FETCH_HEAD^{commit}'
}

# Prints the path of energy. A release is downloaded to $work.
energy_path() {
	local version=${ENERGY_VERSION:-} name url
	version=${version#v}
	if [ -z "$version" ]; then
		command -v energy || fail "energy is not in PATH: set ENERGY_VERSION"
		return
	fi
	[[ $version =~ ^[0-9][0-9A-Za-z.-]*$ ]] || fail "not a version: $version"
	name=energy_${version}_linux_$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
	url=${ENERGY_RELEASES:-https://github.com/energyreceiver/energyreceiver/releases/download}/v$version
	curl -fsSL --retry 3 -o "$work/$name.tar.gz" "$url/$name.tar.gz" -o "$work/SHA256SUMS" "$url/SHA256SUMS"
	(cd "$work" && sha256sum --check --quiet --ignore-missing SHA256SUMS >&2) ||
		fail "the checksum of $name.tar.gz differs from the release"
	tar -xzf "$work/$name.tar.gz" -C "$work"
	echo "$work/$name/energy"
}

# Checks out and builds both commits. The scripts $work/head and $work/base run the command in the work tree of a commit.
prepare() {
	local side
	cat >"$work/head" <<-'SIDE'
		#!/usr/bin/env bash
		cd "$WORK/trees/${0##*/}" && exec bash -eo pipefail -c "$ENERGY_COMMAND" >"$WORK/${0##*/}.log" 2>&1
	SIDE
	chmod +x "$work/head"
	cp "$work/head" "$work/base"
	for side in head base; do
		git worktree add --quiet --detach "$work/trees/$side" "${!side}"
		echo "== build of the $side, ${!side}"
		(cd "$work/trees/$side" && bash -eo pipefail -c "${ENERGY_BUILD:-}") || fail "the build of the $side failed"
	done
}

# Prints an SVG image. Its texts contain no characters that XML reserves.
badge() {
	local text color='#5f6368' left right
	text=$(LC_ALL=C awk -v j="$joules" -v ratio="$ratio" -v significant="$significant" -v of="${quantity#energy}" 'BEGIN {
		if (j == "") { printf "not available"; exit }
		n = split("mJ J kJ MJ", unit); j *= 1000
		for (i = 1; j >= 999.5 && i < n; i++) j /= 1000
		printf "%.3g %s, ", j, unit[i]
		if (significant == "true") printf "%+.1f %%%s", 100 * (ratio - 1), of == "" ? "" : " " of; else printf "no difference shown" }')
	if [ "$status" = 124 ]; then color='#b3261e'; elif [[ $significant == true && $ratio == 0* ]]; then color='#2e7d32'; fi
	left=$((13 * ${#name} / 2 + 12)) right=$((13 * ${#text} / 2 + 12))
	cat <<-SVG
		<svg xmlns="http://www.w3.org/2000/svg" width="$((left + right))" height="20" role="img" aria-label="$name: $text">
		<rect width="$left" height="20" fill="#444"/><rect x="$left" width="$right" height="20" fill="$color"/>
		<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
		<text x="6" y="14" textLength="$((left - 12))">$name</text>
		<text x="$((left + 6))" y="14" textLength="$((right - 12))">$text</text></g>
		</svg>
	SVG
}

measure() {
	local head base energy figures joules quantity ratio significant verdict status=0 limit=${ENERGY_MAX_RATIO:-1.02} pairs=${ENERGY_PAIRS:-40}
	local summary=${GITHUB_STEP_SUMMARY:-/dev/null} output=${GITHUB_OUTPUT:-/dev/null}
	# Otherwise programs that write summaries, outputs or variables for GitHub would write them in every run.
	unset GITHUB_ENV GITHUB_OUTPUT GITHUB_PATH GITHUB_STATE GITHUB_STEP_SUMMARY
	[ -n "${ENERGY_COMMAND:-}" ] || fail "no command to measure: set ENERGY_COMMAND"
	[[ $pairs =~ ^[1-9][0-9]{0,5}$ ]] || fail "ENERGY_PAIRS must be a number of at least 1, not $pairs"
	[[ $limit =~ ^(0|[1-9][0-9]*)(\.[0-9]+)?$ && ! $limit =~ ^0.*[1-9] ]] || fail "ENERGY_MAX_RATIO must be 0 or at least 1, not $limit"
	[[ $limit == 0* || $pairs != 1 ]] || fail "ENERGY_MAX_RATIO needs at least 2 pairs: set ENERGY_PAIRS"
	mkdir -p "$results"
	rm -f "$results"/energy.{json,md}
	work=$(mktemp -d)
	trap 'rm -rf "$work" || true; git worktree prune' EXIT
	head=$(git rev-parse HEAD)
	base=$(base_commit)
	energy=$(energy_path)
	export WORK=$work
	prepare
	(cd "$work" && "$energy" measure --runs="$pairs" --warmup=1 --max-ratio="$limit" \
		-o energy.json -o energy.md --vs ./base -- ./head) || status=$?
	if [ ! -s "$work/energy.json" ]; then
		if compgen -G "$work/*.log" >/dev/null; then
			echo "compare.sh: a run failed. This script has no --ignore-failure. The last output of the runs:" >&2
			tail -n 50 "$work"/*.log >&2
		fi
		exit "$status"
	fi
	figures=$(jq -r '.ratios.compared_by as $by | .ratios[$by] as $ratio | {joules: "energy", cpu_seconds: "CPU time"}[$by],
		.commands[0].joules.mean // "", $ratio.a_to_b // "", $ratio.significant // false' "$work/energy.json")
	{ read -r quantity; read -r joules; read -r ratio; read -r significant; } <<<"$figures"
	case $status in
	0) verdict="Passed: the limit of the ratio of $quantity is $limit" ;;
	124) verdict="**Failed: the ratio of $quantity is above $limit, and the difference is significant**" ;;
	*) verdict="The limit $limit of the ratio of $quantity is not checked" ;;
	esac
	[[ $limit =~ [1-9] ]] || verdict="No limit is set"
	cp "$work/energy.json" "$results"
	{
		printf '%s\n### %s\n\nA is the head, %.12s. B is the base, %.12s.\n\n' "$marker" "$name" "$head" "$base"
		cat "$work/energy.md"
		printf '\n%s.\n' "$verdict"
	} >"$results/energy.md"
	tee -a "$summary" <"$results/energy.md"
	printf '%s\n' "joules=$joules" "ratio=$ratio" "significant=$significant" >>"$output"
	if [ -n "${ENERGY_BADGE:-}" ]; then
		mkdir -p -- "$(dirname -- "$ENERGY_BADGE")"
		badge >"$ENERGY_BADGE"
	fi
	exit "$status"
}

# Pull requests from forks have read-only tokens. Their results are only in the job summary.
comment() {
	local api=repos/$GITHUB_REPOSITORY/issues comments id request
	request=(POST "$api/$ENERGY_PULL_REQUEST/comments")
	comments=$(gh api --paginate "${request[1]}") || return
	id=$(jq -nr --arg marker "$marker" \
		'[inputs[] | select(.user.login == "github-actions[bot]" and (.body | startswith($marker))) | .id][0] // ""' <<<"$comments")
	[ -z "$id" ] || request=(PATCH "$api/comments/$id")
	gh api --silent --method "${request[@]}" --field "body=@$results/energy.md"
}

results=$(realpath -m -- "${ENERGY_RESULTS:-energy-results}")
name=$(tr -cd 'A-Za-z0-9 ._-' <<<"${ENERGY_NAME:-}")
name=${name:-Energy}
marker="<!-- energy: $name -->"
case ${1:-} in
measure) measure ;;
comment)
	comment || echo "::notice::No comment was written. It requires the permission pull-requests: write," \
		"which pull requests from forks do not have."
	;;
*) fail "usage: compare.sh measure|comment" ;;
esac
