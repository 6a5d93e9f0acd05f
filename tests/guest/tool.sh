#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# /sbin/init of a machine with Python: the operator's tool writes and restores the kernel's own files. Boots without a
# rule, and with a floor that refuses lazy.
# shellcheck source=boot_lib.sh
. /sbin/boot_lib.sh

NIC=/sys/bus/pci/devices/0000:00:02.0
export PYTHONPATH=/opt LANG=C.UTF-8

# try NAME ARGUMENT...: the command's exit status and last line, and the NIC's state afterwards.
try() {
	name=$1
	shift
	python3 -m xsmmu "$@" >/tmp/said 2>&1
	say "$name-status $?"
	say "$name-says $(tail -n 1 /tmp/said)"
	nic "$name"
}

nic() {
	driver=$(readlink $NIC/driver)
	say "$1-nic ${driver##*/} $(sed 's/.*\[\(.*\)\].*/\1/' $NIC/xsmmu/policy) $(cat $NIC/xsmmu/state $NIC/iommu_group/type | tr '\n' ' ')"
}

# The interface, which a rebind replaces; and the files of the rules.
link() {
	say "$1 $(cat /sys/class/net/eth0/ifindex /sys/class/net/eth0/carrier_changes | tr '\n' ' ')$(ip -o -4 addr show dev eth0 | sed -n 's/.*inet \([^ ]*\).*/\1/p')" \
		"$(stat -c %i /etc/xsmmu.conf /etc/modprobe.d/xsmmu.conf 2>&1 | tr '\n' ' ')"
}

# again NAME ARGUMENT...: try() with the full output and the actions on the link. A newly bound interface gets its
# carrier late.
again() {
	for _ in $(seq 200); do
		[ "$(cat /sys/class/net/eth0/carrier 2>/dev/null)" = 1 ] && break
		sleep 0.1
	done
	link "$1-link-before"
	try "$@"
	link "$1-link-after"
}

begin
network
try bound set eth0 fused
try root set nvme0n1 strict --rebind
try root-bound set nvme0n1 strict
try floor set nvme0n1 lazy --persist
try root-persist set nvme0n1 strict --persist
say "root-disk $(cat /sys/block/nvme0n1/device/device/xsmmu/policy)"
say "root-conf $(cat /etc/xsmmu.conf)"
again root-again set nvme0n1 strict --persist
try root-unset unset nvme0n1 --persist
rm -f /etc/xsmmu.conf /etc/modprobe.d/xsmmu.conf

echo ${NIC##*/} >/sys/bus/pci/drivers/e1000e/unbind
echo identity >$NIC/iommu_group/type
echo ${NIC##*/} >/sys/bus/pci/drivers/e1000e/bind
try refused set eth0 lazy --rebind --persist
try chosen set eth0 fused max_window_us=500 --rebind --persist
again chosen-again set eth0 fused max_window_us=500 --rebind --persist
again applied apply
say "window $(cat $NIC/xsmmu/max_window_us)"
say "conf $(cat /etc/xsmmu.conf)"
say "softdep $(tail -n 1 /etc/modprobe.d/xsmmu.conf)"
network
nic pinged

try copy set eth0 copy
try strict set eth0 strict batch_pages=7
try auto set eth0 auto --persist
say "shown $(python3 -m xsmmu status eth0 | tail -n 1)"
say "explained $(python3 -m xsmmu doctor eth0 | grep -A 1 '  auto$' | tail -n 1)"
say "conf-auto $(cat /etc/xsmmu.conf)"
again auto-again set eth0 auto --rebind --persist
python3 -m xsmmu set eth0 copy --rebind --dry-run >/tmp/said 2>&1
say "lost $(sed -n 1p /tmp/said)"
say "gives $(sed -n "2s/.*--after '\(.*\)'/\1/p" /tmp/said)"
ip route add 10.9.0.0/16 via 10.0.2.2 metric 5
try copied set eth0 copy --rebind --after "$(python3 -m xsmmu set eth0 copy --rebind --dry-run | sed -n "2s/.*--after '\(.*\)'/\1/p")"
say "address $(ip -o -4 addr show dev eth0 | sed -n 's/.*inet \([^ ]*\).*/\1/p') $(ip route show | grep -c '^10.9.0.0/16 via 10.0.2.2')"
again copied-again set eth0 copy --rebind
try copies set eth0 fused --rebind
again copies-again set eth0 copy copy_bytes=256 --rebind
network

# The driver's bind fails, both on the change and on the restoration.
echo pci-stub >$NIC/driver_override
try unbindable unset eth0 --rebind
echo >$NIC/driver_override
echo ${NIC##*/} >/sys/bus/pci/drivers/e1000e/bind
try metrics metrics

try unset unset eth0 --rebind --persist
again unset-again unset eth0 --rebind --persist
say "forgotten $(cat /etc/xsmmu.conf)$(ls /etc/modprobe.d)"
network
end
