#!/bin/sh
# Downloads axe-core, which tests the accessibility of pages, to build/browser/axe.min.js. Its license is MPL-2.0, and it
# is not a part of this project.
set -eu
cd "$(dirname "$0")/../../.."
version=4.14.1
mkdir -p build/browser
cd build/browser
echo "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c  axe.min.js" >axe.sum
if sha256sum --check --status axe.sum 2>/dev/null; then
	exit
fi
rm -f axe.min.js
if ! command -v npm >/dev/null; then
	echo "npm was not found, so the accessibility of pages is not tested"
elif ! npm pack --silent "axe-core@$version" >/dev/null; then
	echo "axe-core could not be downloaded, so the accessibility of pages is not tested"
else
	tar -xzf "axe-core-$version.tgz" --strip-components=1 package/axe.min.js
	sha256sum --check --quiet axe.sum || { rm axe.min.js; exit 1; }
fi
