#!/bin/sh
# Arguments: deb "configure" and the former version, if any; rpm 1 (installation) or 2 (upgrade); apk the version.
set -e
command -v systemctl >/dev/null || exit 0
unit=otelcol-energy.service
running=
if [ -d /run/systemd/system ]; then # not in a chroot or container
	running=yes
	systemctl daemon-reload || :
fi
installed=/run/otelcol-energy.installed # by preinstall.sh
if [ -e $installed ]; then
	rm $installed
	set -- configure
fi
case "$1:${2-}" in
configure: | 1:)
	systemctl enable $unit || :
	test -z "$running" || systemctl start $unit || :
	;;
*) test -z "$running" || systemctl try-restart $unit || : ;;
esac
