#!/bin/bash
# Starts a real systemd with one unit: systemd.sh DIRECTORY UNIT CGROUP
#
# systemd is the first process of its own namespaces, on a writable copy of this machine's root in
# DIRECTORY, with the files of DIRECTORY/files/ on top. Its cgroups are below CGROUP in every hierarchy.
# It ends with this program.
set -euo pipefail
dir=$1 unit=$2 cgroup=$3

if [ "${4:-}" != inside ]; then
	findmnt --noheadings --list --output TARGET --types cgroup,cgroup2 | while read -r hierarchy; do
		mkdir "$hierarchy/$cgroup"
		if [ -e "$hierarchy/cpuset.cpus" ]; then # version 1, where it is empty in a new cgroup
			cat "$hierarchy/cpuset.cpus" >"$hierarchy/$cgroup/cpuset.cpus"
			cat "$hierarchy/cpuset.mems" >"$hierarchy/$cgroup/cpuset.mems"
		fi
		echo $$ >"$hierarchy/$cgroup/cgroup.procs"
	done
	exec unshare --mount --pid --uts --ipc --cgroup --net --fork --kill-child "$0" "$dir" "$unit" "$cgroup" inside
fi

mount --make-rprivate /
mount -t tmpfs tmpfs "$dir/copy"
mkdir "$dir/copy/upper" "$dir/copy/work" "$dir/copy/root"
cp -a "$dir/files/." "$dir/copy/upper/"
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/copy/upper,workdir=$dir/copy/work" "$dir/copy/root"
cd "$dir/copy/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys # systemd would change some settings
mount -o remount,bind,ro proc/sys
mount --rbind /sys sys
hierarchies=$(awk '$3 == "cgroup" || $3 == "cgroup2" {print $2, $3, $4}' /proc/self/mounts | grep '^/sys/fs/cgroup')
umount -R sys/fs/cgroup
echo "$hierarchies" | grep -q '^/sys/fs/cgroup ' || mount -t tmpfs tmpfs sys/fs/cgroup
echo "$hierarchies" | while read -r target kind options; do
	mkdir -p ".$target"
	if [ "$kind" = cgroup2 ]; then
		mount -t cgroup2 cgroup2 ".$target"
	else
		mount -t cgroup -o "$(echo "$options" | tr ',' '\n' | grep -vE '^(rw|ro|relatime|noexec|nosuid|nodev|xattr|release_agent=.*)$' | paste -sd,)" cgroup ".$target"
	fi
done
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
exec chroot . /usr/bin/env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit="$unit" \
	--log-target=null --show-status=no
