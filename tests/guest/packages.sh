#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Run as root on an installed Debian machine, from the disk with the packages; `stage` on the kernel's command line
# selects the part. Each typed command is printed before its output.
set -u
export HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive COLUMNS=120
PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /mnt || exit
part=$(sed 's/.*stage=\([a-z]*\).*/\1/' /proc/cmdline)

say() {
	printf '\nboot: %s\n' "$*"
}

# typed NAME COMMAND: as an operator types the command; its status is printed under NAME
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

# The state that hourly runs of a configuration system must not change: the link, its addresses and routes, the rules'
# files and the initramfs.
watched() {
	cat /sys/class/net/eth1/ifindex /sys/class/net/eth1/carrier_changes
	ip -4 -o address show dev eth1
	ip -4 route show dev eth1
	stat -c '%n %i %Y' /etc/xsmmu.conf /etc/modprobe.d/xsmmu.conf "/boot/initrd.img-$(uname -r)" 2>&1
}

# kept NAME COMMAND: as typed, and prints whether the command left that state alone.
kept() {
	watched >/root/before
	typed "$1" "$2"
	watched >/root/after
	say "$1-changed" "$(diff /root/before /root/after | grep -c '^[<>]')"
}

address_of() {
	ip -4 -o address show dev "$1" | sed -n 's/.*inet \([^ ]*\).*/\1/p'
}

# The first steps of a new user, with the NIC of the default route, another NIC, the disk of the root file system, and a
# mounted disk.
trial() {
	typed bench 'xsmmu bench eth0 --rebind --save --policies kernel-strict,kernel-lazy,strict,fused'
	ip address add 10.0.2.15/24 dev eth0
	ip link set eth0 up
	ip route add default via 10.0.2.2
	ip route add 10.9.0.0/16 via 10.0.3.2 dev eth1
	typed overview 'xsmmu status'
	typed doctor 'xsmmu doctor'
	typed doctor-nic 'xsmmu doctor eth1'
	typed help 'xsmmu set --help'

	kept again 'xsmmu set eth1 fused --rebind --persist'
	kept strict 'xsmmu set eth1 strict'
	say strict-level "$(cat /sys/class/net/eth1/device/xsmmu/level)"
	typed differs 'xsmmu status eth1'
	kept bound 'xsmmu set nvme0n1 strict'
	kept essential 'xsmmu set nvme0n1 strict --rebind'
	kept mounted 'xsmmu set nvme1n1 strict --rebind'
	kept way-out 'xsmmu set eth0 fused --rebind'
	kept no-policy 'xsmmu set eth1 fussed'
	kept no-device 'xsmmu set eth7 fused'
	kept no-rebind 'xsmmu set eth1 copy'

	kept announced 'xsmmu set eth1 copy --rebind --dry-run'
	typed copy 'xsmmu set eth1 copy --rebind'
	say copy-address "$(address_of eth1)"
	gives='ip link set eth1 up && ip addr replace 10.0.3.15/24 dev eth1 && ip route replace 10.9.0.0/16 via 10.0.3.2 dev eth1'
	typed unset "xsmmu unset eth1 --rebind --after '$gives'"
	kept unset-again 'xsmmu unset eth1 --rebind'
	typed back "xsmmu set eth1 fused --rebind --after '$gives'"
	say back-address "$(address_of eth1) $(ip route show 10.9.0.0/16)"

	typed root 'xsmmu set nvme0n1 strict --persist'
	kept root-again 'xsmmu set nvme0n1 strict --persist'
	echo 'class:2=strict' >>/etc/xsmmu.conf
	kept class 'xsmmu apply'
	sed -i '/^class:2=/d' /etc/xsmmu.conf
	typed apply 'xsmmu apply --initramfs'
	kept apply-again 'xsmmu apply --initramfs'

	ping -q -i 0.05 10.0.3.2 >/dev/null 2>&1 &
	typed watch 'xsmmu watch eth1 --interval 2 --count 2'
	# Input before the first picture is not read.
	while sleep 8 && printf q; do :; done | typed top "script -qec 'xsmmu top' /root/top"
	typed compare 'xsmmu compare eth1 --policies strict,fused --output-folder /root/compared -- ping -q -c 20 -i 0.05 10.0.3.2'
	kill $!
	typed metrics "xsmmu metrics | grep '^xsmmu_group_info'"
	typed status 'xsmmu status'
}

say release "$(uname -r)"
case $part in
# From packages to the page in five commands (docs/record.md), without the module; `page` stands for a browser. Then
# another NIC, whose driver is loaded last, so that its name is certain, and the disk. The initramfs stays as it is, which
# saves half of the time: nothing is attached at boot.
"record")
	echo update_initramfs=no >/etc/initramfs-tools/update-initramfs.conf
	typed install 'apt install -y ./xsmmu_*.deb ./xsmmu-trace_*.deb python3-numpy python3-zstandard'
	say "nic driver" "$(driver_of eth1)"
	answers >/dev/null
	ping -q -i 0.05 -s 1400 10.0.3.2 >/dev/null 2>&1 &
	pings=$!
	typed record 'xsmmu record eth1 -O eth1.xsr --seconds 10'
	typed info 'xsmmu trace info eth1.xsr'
	typed replay 'xsmmu replay eth1.xsr --aware --html eth1.html'
	typed page 'ls -l eth1.html'
	kill $pings
	modprobe e1000e
	say second-driver "$(driver_of eth2)"
	ip address add 10.0.4.15/24 dev eth2
	ip link set eth2 up
	ping -q -i 0.05 -s 1400 10.0.4.2 >/dev/null 2>&1 &
	pings=$!
	typed second 'xsmmu record eth2 -O eth2.xsr --seconds 5'
	typed second-replay 'xsmmu replay eth2.xsr'
	kill $pings
	while dd if=/dev/nvme0n1 of=/dev/null bs=64k count=100 iflag=direct; do :; done 2>/dev/null &
	reads=$!
	typed disk 'xsmmu record nvme0n1 -O disk.xsr --seconds 5'
	typed disk-replay 'xsmmu replay disk.xsr'
	kill $reads
	say loaded "$(lsmod | grep -c '^xsmmu ')"
	;;
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
trial)
	look
	trial
	;;
use)
	look
	say root-policy "$(cat /sys/block/nvme0n1/device/device/xsmmu/policy)"
	typed status 'xsmmu status'
	typed service 'systemctl --no-pager status xsmmu'
	typed report 'xsmmu report --bundle --output-file /root/report.tar.xz'
	mkdir -p /var/lib/prometheus/node-exporter /root/venv
	# A Python of root's own, such as `make install` may use.
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
