#!/bin/sh
# Arguments: deb "install", with the former version after a removal, or "upgrade"; rpm and apk others.
# After a removal without a purge, dpkg configures as it does after an upgrade. postinstall.sh needs to distinguish them.
if [ "$1" = install ]; then touch /run/otelcol-energy.installed || :; fi
