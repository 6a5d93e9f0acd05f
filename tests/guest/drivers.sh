# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Real drivers that semantic patches made batch-aware: their data, their level, their own flushes, and no misuse of the
# API as seen by the module's debug mode. Traffic comes from load.sh.

# drivers_load: xsmmu first, so that the drivers find its symbols. The drivers may poll, which takes two of their
# queues.
drivers_load() {
	expect "insmod xsmmu" insmod /modules/xsmmu.ko debug=1
	drivers_swap patched
}

drivers_unload() {
	drivers_swap .
	all_off
}

# drivers_swap FOLDER: replace the drivers by the drivers in /modules/FOLDER.
drivers_swap() {
	for each in nvme igb e1000e; do
		expect "rmmod $each" rmmod $each
	done
	expect "insmod nvme" without_probes insmod "/modules/$1/nvme.ko" poll_queues=1
	expect "insmod igb" without_probes insmod "/modules/$1/igb.ko"
	expect "insmod e1000e" without_probes insmod "/modules/$1/e1000e.ko"
}

# drivers_expect BDF POLICY BEFORE: the driver flushed more than BEFORE times, and its level is strict.
drivers_expect() {
	expect_equal "$1: the state under $2" "$(get "$1" state)" active
	expect_equal "$1: the level under $2" "$(get "$1" level)" strict
	[ "$(stat_of "$1" flush_explicit)" -gt "$3" ] || failure "$1: no flush of its own under $2"
}

# On the kernel's own path: first with a kernel without xsmmu, then on devices without a policy.
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
	for nic in $IGB $E1000E; do
		bind $nic
		nic_start $nic
		ping_peer $nic 10
		iperf_begin $nic 2
		iperf_end
		unbind $nic
	done
}

case_drivers_disk() {
	expect "rmmod xsmmu" rmmod xsmmu
	drivers_load
	log_mark
	for policy in fused xsmmu fands strict; do
		before=$(stat_of $DATA flush_explicit)
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

# Two controllers share an IOMMU domain; a batch of polled completions has requests of both.
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
	before=$(stat_of $DISK0 flush_explicit)
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

# drivers_nic BDF
drivers_nic() {
	expect "rmmod xsmmu" rmmod xsmmu
	drivers_load
	log_mark
	for policy in fused xsmmu fands strict; do
		before=$(stat_of $1 flush_explicit)
		take $policy $1
		nic_start $1
		ping_peer $1 10
		iperf_start $1 3
		iperf_end
		[ $policy = strict ] || drivers_expect $1 $policy "$before"
		expect_equal "the level under $policy" "$(get $1 level)" strict
		unbind $1
		expect_balance $1
	done
	expect_no_timeouts
	expect_silence
	drivers_unload
}

case_drivers_nic() {
	drivers_nic $IGB
}

case_drivers_e1000e() {
	drivers_nic $E1000E
}

# Packets that reached the stack (InReceives); the driver's own counter shows the device's packets.
drivers_handed_on() {
	awk '/^Ip: [0-9]/ {print $4}' /proc/net/snmp
}

# drivers_flood BYTES COUNT: packets to e1000e, which the stack drops at once, and from it. Each packet has memory of
# its own, which has no other user when the driver hands the packet on or frees it.
drivers_flood() {
	mac=$(cat "/sys/class/net/$link/address")
	received=$(drivers_handed_on)
	ip netns exec peer0 sh -c ". /lab/lib.sh; . /lab/parts/net.sh
		arg_packets=$2; pktgen peer $mac 10.0.0.2 198.18.0.1 0 $1" || failure "pktgen cannot send $1 bytes to the driver"
	arg_packets=$2 pktgen "$link" 52:54:00:00:01:00 10.0.0.1 198.18.0.1 0 "$1" || failure "pktgen cannot send $1 bytes"
	received=$(($(drivers_handed_on) - received))
}

# drivers_mtu BYTES PEER
drivers_mtu() {
	ip link set "$link" mtu "$1" || failure "$link takes no packets of $1 bytes"
	ip -n peer0 link set peer mtu "$2" || failure "the peer takes no packets of $2 bytes"
	until_true 20 has_carrier "$link" || failure "$link: no carrier"
}

# Small packets, which the driver copies; others; large packets, which are split; and oversized packets, which are
# dropped. With a transmit interrupt (IntMode=2, MSI-X), and without (1), when a poll frees sent packets.
case_drivers_e1000e_packets() {
	expect "rmmod xsmmu" rmmod xsmmu
	drivers_load
	log_mark
	for mode in 1 2; do
		expect "rmmod e1000e" rmmod e1000e
		expect "insmod e1000e" without_probes insmod /modules/patched/e1000e.ko IntMode=$mode
		before=$(stat_of $E1000E flush_explicit)
		take fused $E1000E
		nic_start $E1000E
		for bytes in 60 1000; do
			drivers_flood $bytes 5000
			[ $received -ge 4000 ] || failure "of 5000 packets of $bytes bytes $received have come"
		done
		drivers_mtu 9000 9000
		drivers_flood 3000 2000
		[ $received -ge 1500 ] || failure "of 2000 packets of 3000 bytes $received have come"
		iperf_start $E1000E 3
		iperf_end
		drivers_mtu 5000 9000
		drivers_flood 9000 200
		expect_equal "packets of too many bytes that have come" "$received" 0
		drivers_mtu 1500 1500
		ping_peer $E1000E 10
		drivers_expect $E1000E fused "$before"
		unbind $E1000E
		expect_balance $E1000E
	done
	expect_no_timeouts
	expect_silence
	drivers_unload
}

# The driver is removed with many buffers in flight: nothing stays mapped or unflushed.
case_drivers_unbind_under_load() {
	expect "rmmod xsmmu" rmmod xsmmu
	drivers_load
	log_mark
	for nic in $IGB $E1000E; do
		take fused $nic
		nic_start $nic
		iperf_start $nic 60
		unbind $nic
		load_abort
		expect_clean $nic
	done
	take fused $DATA
	disk_start $DATA
	fio_start $DATA 60
	unbind $DATA
	load_abort
	expect_clean $DATA
	drivers_unload
}
