#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# /sbin/init of a machine with Python: xsmmu bench's measurements and duration, and the restored state afterwards.
# shellcheck source=boot_lib.sh
. /sbin/boot_lib.sh

NIC=/sys/bus/pci/devices/0000:00:02.0
export PYTHONPATH=/opt LANG=C.UTF-8

# try NAME ARGUMENT...: the command's exit status and last line, and the NIC's state afterwards.
try() {
	name=$1
	shift
	python3 -m xsmmu "$@" >/tmp/out 2>/tmp/said
	say "$name-status $?"
	say "$name-says $(tail -n 1 /tmp/said)"
	driver=$(readlink $NIC/driver)
	chosen=$(sed 's/.*\[\(.*\)\].*/\1/' $NIC/xsmmu/policy)
	say "$name-nic ${driver##*/} $chosen $(cat $NIC/xsmmu/state $NIC/iommu_group/type $NIC/driver_override | tr '\n' ' ')$(
		ls -d /sys/module/xsmmu_bench 2>/dev/null)"
}

begin
network
try bound bench eth0
try root bench nvme0n1 --rebind
try measured bench eth0 --rebind --rounds 1 --policies kernel-strict,kernel-lazy,passthrough,strict,fused,copy -o json
python3 - <<'END'
import json
found = json.load(open("/tmp/out"))
print("\nboot: left-out", found["left_out"])
print("boot: hypervisor", found["hypervisor"])
for row in found["ranking"]:
    per_page = row["invalidations_per_page"]
    times = [round(row[name]["median"], 1) for name in ("map_ns", "unmap_ns")]
    print("boot: cost-%s %s %s" % (row["policy"], *times), per_page and round(per_page["median"], 4))
END
network

try small bench eth0 --rebind --rounds 1 --bytes 256 --policies copy -o json
say "small $(tr -d '\n ' </tmp/out)"

try chosen set eth0 fused max_window_us=500 --rebind
try saved bench eth0 --rebind --rounds 2 --policies strict,kernel-lazy --save
say "window $(cat $NIC/xsmmu/max_window_us)"
say "table $(tail -n 1 /tmp/out)"
say "calibration $(tr -d '\n' </var/lib/xsmmu/calibration.json)"

# Ctrl-C. The command runs in the foreground, because background processes ignore SIGINT.
(
	until [ -e $NIC/xsmmu_bench/micro ]; do sleep 0.1; done
	sleep 3
	kill -INT "$(pidof python3)"
) &
try stopped bench eth0 --rebind --rounds 1000 --policies strict,fused
network
end
