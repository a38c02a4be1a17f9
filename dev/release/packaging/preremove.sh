#!/bin/sh
# Arguments: deb "remove" or "upgrade"; rpm 0 (removal) or 1 (upgrade).
set -e
case "$1" in
upgrade | 1) exit 0 ;;
esac
command -v systemctl >/dev/null || exit 0
test ! -d /run/systemd/system || systemctl stop otelcol-energy.service || :
systemctl disable otelcol-energy.service || :
