#!/usr/bin/env bash
# Tags the last commit for each released module: tag.sh v0.1.0. Git signs the tags. Push them with git push --tags.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=$1
for module in $(go work edit -json | sed -n 's/.*"DiskPath": "\(.*\)".*/\1/p'); do
	case $module in
	./receiver/test) ;; # tests, not released
	.) git tag -s -m "$version" "$version" ;;
	*) git tag -s -m "${module#./}/$version" "${module#./}/$version" ;;
	esac
done
git tag --points-at HEAD
