#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# /sbin/init of a machine that has Python: what the operator's tool writes, and puts back, on the kernel's own files. It
# boots without a rule, and with a floor that refuses lazy.
# shellcheck source=boot_lib.sh
. /sbin/boot_lib.sh

NIC=/sys/bus/pci/devices/0000:00:02.0
export PYTHONPATH=/opt LANG=C.UTF-8

# try NAME ARGUMENT...: how the command ends, what it says last, and what the NIC is then.
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

begin
network
try bound set eth0 fused
try root set nvme0n1 fused --rebind

echo ${NIC##*/} >/sys/bus/pci/drivers/e1000e/unbind
echo identity >$NIC/iommu_group/type
echo ${NIC##*/} >/sys/bus/pci/drivers/e1000e/bind
try refused set eth0 lazy --rebind --persist
try chosen set eth0 fused max_window_us=500 --rebind --persist
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
try copied set eth0 copy --rebind
network

# The driver's bind fails, before and when it is put back.
echo pci-stub >$NIC/driver_override
try unbindable set eth0 fused --rebind
echo >$NIC/driver_override
echo ${NIC##*/} >/sys/bus/pci/drivers/e1000e/bind
try metrics metrics

try unset unset eth0 --rebind --persist
say "forgotten $(cat /etc/xsmmu.conf)$(ls /etc/modprobe.d)"
network
end
