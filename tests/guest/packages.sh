#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Run as root on an installed Debian machine, from the disk that holds the packages; `stage` on the kernel's command line
# says which part. What an operator types is printed before what it prints.
set -u
export HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive COLUMNS=110
PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /mnt || exit
stage=$(sed 's/.*stage=\([a-z]*\).*/\1/' /proc/cmdline)

say() {
	echo "boot: $*"
}

# typed COMMAND: as an operator types it; its status is said by the name $name
typed() {
	echo "# $1"
	eval "$1"
	say "$name-status" $?
}

driver_of() {
	basename "$(readlink "/sys/class/net/$1/device/driver")"
}

answers() {
	ip address add 10.0.3.15/24 dev eth1 2>/dev/null
	ip link set eth1 up
	ping -c 10 -i 0.5 -W 2 10.0.3.2 | sed -n 's/.* \([0-9]*\) received.*/\1/p'
}

look() {
	device=$(readlink -f /sys/class/net/eth1/device)
	say "nic driver" "$(driver_of eth1)"
	say answers "$(answers)"
	for file in policy level state; do
		say "nic $file" "$(cat "$device/xsmmu/$file" 2>/dev/null || echo absent)"
	done
}

say release "$(uname -r)"
case $stage in
install)
	name=install typed 'apt install -y ./xsmmu-dkms_*.deb ./xsmmu_*.deb'
	name=dkms typed 'dkms status'
	name=version typed 'xsmmu --version'
	name=modprobe typed 'modprobe xsmmu'
	name=set typed 'xsmmu set eth1 fused --rebind --persist'
	name=apply typed 'xsmmu apply --initramfs'
	look
	;;
use)
	look
	name=status typed 'xsmmu status'
	name=service typed 'systemctl --no-pager status xsmmu'
	name=remove typed 'apt remove -y xsmmu xsmmu-dkms'
	say left "$(ls -d /etc/modprobe.d/xsmmu.conf /usr/src/xsmmu-* /lib/modules/*/updates/dkms/xsmmu* 2>/dev/null | tr '\n' ' ')"
	;;
removed)
	look
	say loaded "$(lsmod | grep -c '^xsmmu ')"
	;;
esac
say end
