#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Run as root on an installed Debian machine, from the disk that holds the packages; `stage` on the kernel's command line
# says which part. What an operator types is printed before what it prints.
set -u
export HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive COLUMNS=110
PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /mnt || exit
part=$(sed 's/.*stage=\([a-z]*\).*/\1/' /proc/cmdline)

say() {
	printf '\nboot: %s\n' "$*"
}

# typed NAME COMMAND: as an operator types it; its status is said by the name
typed() {
	echo "# $2"
	eval "$2"
	say "$1-status" $?
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
case $part in
"install")
	typed install 'apt install -y ./xsmmu-dkms_*.deb ./xsmmu_*.deb'
	typed dkms 'dkms status'
	typed version 'xsmmu --version'
	typed doctor 'xsmmu doctor'
	typed modprobe 'modprobe xsmmu'
	typed healthy 'xsmmu doctor eth1'
	typed set 'xsmmu set eth1 fused --rebind --persist'
	typed apply 'xsmmu apply --initramfs'
	look
	;;
use)
	look
	typed status 'xsmmu status'
	typed service 'systemctl --no-pager status xsmmu'
	typed bench 'xsmmu bench eth0 --rebind --policies kernel-strict,kernel-lazy,strict,fused'
	typed report 'xsmmu report --bundle --output-file /root/report.tar.xz'
	mkdir -p /var/lib/prometheus/node-exporter /root/venv
	# A Python of root's own, as make install may have been told of one.
	ln -s /usr/bin/python3 /root/venv/python
	sed -i '1s|.*|#!/root/venv/python|' /usr/bin/xsmmu
	typed metrics 'systemctl start xsmmu-metrics'
	say counted "$(grep -c '^xsmmu_module_loaded 1' /var/lib/prometheus/node-exporter/xsmmu.prom)"
	typed remove 'apt remove -y xsmmu xsmmu-dkms'
	say left "$(find /etc/modprobe.d /usr/src /lib/modules -name 'xsmmu*' | tr '\n' ' ')"
	;;
removed)
	look
	say loaded "$(lsmod | grep -c '^xsmmu ')"
	;;
esac
say end reached
