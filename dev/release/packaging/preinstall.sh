#!/bin/sh
# Arguments: deb "install", with the former version after a removal, or "upgrade"; rpm and apk others.
# After a removal without a purge, dpkg configures as it does after an upgrade. postinstall.sh needs to distinguish them.
installed=/run/otelcol-energy.installed
if [ "$1" = install ]; then touch $installed || :; else rm -f $installed; fi # one that failed halfway left it
