#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# /sbin/init of a machine that crashes: loads a crash kernel, crashes while the disk is written, and in the crash kernel
# writes a dump to the same disk.
# shellcheck source=boot_lib.sh
. /sbin/boot_lib.sh

DISK=0000:00:03.0

# Loads as Debian's kdump-tools do. The crash kernel's first line is printed, too, which separates its lines from
# earlier lines.
crash_kernel() {
	set -- --reuse-cmdline --append="irqpoll nr_cpus=1 reset_devices loglevel=6" --initrd=/boot/initrd.img /boot/vmlinuz
	/usr/sbin/kexec -p -s "$@"
	say "loaded $(cat /sys/kernel/kexec_crash_loaded)"
}

# Writes past the page cache, so that some writes are always in flight.
writes() {
	while :; do
		dd if=/tmp/data of=/load bs=64k oflag=direct conv=notrunc 2>/dev/null
	done
}

crash() {
	network
	crash_kernel
	dd if=/dev/urandom of=/tmp/data bs=1M count=8 2>/dev/null
	write_and_read /tmp/data /data
	writes &
	writes &
	ping -q 10.0.2.2 >/dev/null &
	sleep 2
	before=$(value "$DISK/xsmmu/stats/maps")
	sleep 1
	say "meanwhile $(($(value "$DISK/xsmmu/stats/maps") - before))"
	devices
	say crashing now
	echo c >/proc/sysrq-trigger
}

# The first part of the crashed kernel's memory, with the headers.
dump() {
	say "copied $(dmesg | grep -c 'DMAR: Copied translation tables from previous kernel')"
	dd if=/proc/vmcore of=/tmp/data bs=1M count=16 2>/dev/null
	write_and_read /tmp/data /dump
	network
	devices
	end
}

begin
if [ -e /proc/vmcore ]; then
	dump
else
	crash
fi
