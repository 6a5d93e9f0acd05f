# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Real drivers that semantic patches made batch-aware: their data, their level, their own syncs, and no misuse of the
# API that the module's debug mode would find. Traffic comes from load.sh.

# drivers_load: xsmmu first, for the drivers to find it. They may poll, which takes two of their queues.
drivers_load() {
	expect "insmod xsmmu" insmod /modules/xsmmu.ko debug=1
	drivers_swap patched
}

drivers_unload() {
	drivers_swap .
	all_off
}

# drivers_swap FOLDER: replace the two drivers by those of /modules/FOLDER.
drivers_swap() {
	for each in nvme igb; do
		expect "rmmod $each" rmmod $each
	done
	expect "insmod nvme" insmod "/modules/$1/nvme.ko" poll_queues=1
	expect "insmod igb" insmod "/modules/$1/igb.ko"
}

# drivers_expect BDF POLICY BEFORE: it did its own syncs since there were BEFORE, and they make it strict.
drivers_expect() {
	expect_equal "$1: the state under $2" "$(get "$1" state)" active
	expect_equal "$1: the level under $2" "$(get "$1" level)" strict
	[ "$(stat_of "$1" sync_explicit)" -gt "$3" ] || failure "$1: no sync of its own under $2"
}

# As before, by the kernel's own path: first in a kernel that has no xsmmu, then on devices without a policy.
case_drivers_without_policy() {
	log_mark
	expect "rmmod xsmmu" rmmod xsmmu
	drivers_swap patched
	drivers_work
	expect "insmod xsmmu" insmod /modules/xsmmu.ko
	drivers_swap patched
	drivers_work
	expect_no_timeouts
	drivers_unload
}

drivers_work() {
	bind $DATA
	disk_start $DATA
	fio_begin $DATA 2
	fio_end
	unbind $DATA
	bind $IGB
	nic_start $IGB
	ping_peer $IGB 10
	iperf_begin $IGB 2
	iperf_end
	unbind $IGB
}

case_drivers_disk() {
	expect "rmmod xsmmu" rmmod xsmmu
	drivers_load
	log_mark
	for policy in fused xsmmu fands strict; do
		before=$(stat_of $DATA sync_explicit)
		take $policy $DATA
		disk_start $DATA
		fio_start $DATA 3
		fio_end
		[ $policy = strict ] || drivers_expect $DATA $policy "$before"
		expect_equal "the level under $policy" "$(get $DATA level)" strict
		unbind $DATA
		expect_balance $DATA
	done
	expect_no_timeouts
	expect_silence
	drivers_unload
}

# Two controllers behind one IOMMU domain; one batch of polled completions has requests of both.
case_drivers_disks_polled() {
	expect "rmmod xsmmu" rmmod xsmmu
	drivers_load
	log_mark
	take fused $DISK0 $DISK1
	disk_start $DISK0
	disk_start $DISK1
	for disk in $DISK0 $DISK1; do
		expect_equal "$disk: io_poll" "$(cat "/sys/block/$(basename "$(disk_of $disk)")/queue/io_poll")" 1
	done
	before=$(stat_of $DISK0 sync_explicit)
	fio --name=polled --filename="$(disk_of $DISK0):$(disk_of $DISK1)" --thread --ioengine=io_uring --hipri --direct=1 \
		--rw=randread --bs=4k-128k --iodepth=32 --runtime=3 --time_based >/tmp/fio 2>&1 ||
		failure "fio failed: $(grep -iE 'error|err=' /tmp/fio | head -n 3)"
	grep -q 'err= 0' /tmp/fio || failure "fio did not end well: $(head -n 5 /tmp/fio)"
	drivers_expect $DISK0 fused "$before"
	unbind $DISK0 $DISK1
	expect_balance $DISK0
	expect_no_timeouts
	expect_silence
	drivers_unload
}

case_drivers_nic() {
	expect "rmmod xsmmu" rmmod xsmmu
	drivers_load
	log_mark
	for policy in fused xsmmu fands strict; do
		before=$(stat_of $IGB sync_explicit)
		take $policy $IGB
		nic_start $IGB
		ping_peer $IGB 10
		iperf_start $IGB 3
		iperf_end
		[ $policy = strict ] || drivers_expect $IGB $policy "$before"
		expect_equal "the level under $policy" "$(get $IGB level)" strict
		unbind $IGB
		expect_balance $IGB
	done
	expect_no_timeouts
	expect_silence
	drivers_unload
}

# The driver goes while it has much in flight: nothing stays mapped, nothing waits for a sync.
case_drivers_unbind_under_load() {
	expect "rmmod xsmmu" rmmod xsmmu
	drivers_load
	log_mark
	take fused $IGB
	nic_start $IGB
	iperf_start $IGB 60
	unbind $IGB
	load_abort
	expect_clean $IGB
	take fused $DATA
	disk_start $DATA
	fio_start $DATA 60
	unbind $DATA
	load_abort
	expect_clean $DATA
	drivers_unload
}
