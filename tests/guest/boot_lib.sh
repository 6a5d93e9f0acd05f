#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# For scripts that are /sbin/init of a machine booted from its own disk. Loads no module.
export PATH=/bin:/tmp

say() {
	printf '\nboot: %s\n' "$*"
}

value() {
	cat "/sys/bus/pci/devices/$1" 2>/dev/null || printf 'absent'
}

device() {
	driver=$(readlink "/sys/bus/pci/devices/$2/driver")
	say "$1 driver ${driver##*/}"
	for file in policy level state stats/maps; do
		say "$1 $file $(value "$2/xsmmu/$file")"
	done
}

# Reports the state after the initramfs: the root disk, and that the disk is writable.
begin() {
	busybox mount -t proc proc /proc 2>/dev/null
	busybox mount -t sysfs sysfs /sys 2>/dev/null
	busybox mount -t tmpfs tmpfs /tmp
	busybox --install -s /tmp
	mount -o remount,rw /
	say "root $(awk '$2 == "/" && $3 == "ext4" { print $1 }' /proc/mounts)"
}

# write_and_read DATA FILE: the hashes of the data and of the file on the disk.
write_and_read() {
	cp "$1" "$2"
	sync
	echo 3 >/proc/sys/vm/drop_caches
	say "written $(sha256sum <"$1")"
	say "read $(sha256sum <"$2")"
}

network() {
	ip addr add 10.0.2.15/24 dev eth0
	ip link set eth0 up
	say "ping $(ping -c 3 -w 20 10.0.2.2 | sed -n 's/ packets received.*//; s/.*, //p' | head -n 1)"
}

devices() {
	device disk 0000:00:03.0
	device nic 0000:00:02.0
}

end() {
	mount -o remount,ro /
	say end reached
	poweroff -f
}
