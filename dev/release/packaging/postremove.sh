#!/bin/sh
# Arguments: deb "remove", "purge" or "upgrade"; rpm 0 (removal) or 1 (upgrade).
set -e
test ! -d /run/systemd/system || systemctl daemon-reload || :
# Only a purge removes the totals.
if [ "$1" = purge ]; then rm -rf /var/lib/otelcol-energy /var/lib/private/otelcol-energy; fi
