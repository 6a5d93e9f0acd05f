# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Events at a working device: unload, unbind, unplug, reset, a change of policy, CPUs that come and go.

# --- load --------------------------------------------------------------------------------------------------------

# Loads run at the lowest priority, so that the events of a case do not wait for loads. Settings: SLOWER is the factor
# of run time compared with a stock kernel; STREAMS and JOBS are the numbers of parallel parts.

# Copies count, too.
maps_of() {
	echo $(($(stat_of "$1" maps) + $(stat_of "$1" copied_maps)))
}

# maps_more BDF: since the last call, about a tenth of a second ago, the device has mapped more than a connection setup
# or a partition scan needs.
maps_more() {
	maps_before=$maps_now
	maps_now=$(maps_of "$1")
	[ "$maps_now" -gt $((maps_before + 20)) ] && [ "$(stat_of "$1" live_pages)" -gt 0 ]
}

# expect_at_work BDF: the load has begun and is running at this moment.
expect_at_work() {
	maps_now=$(maps_of "$1")
	until_true 20 maps_more "$1" || failure "$1 is not at work: nothing is mapped"
	kill -0 "$load" || failure "$1 is not at work: its load has ended"
}

# iperf_begin BDF SECONDS: STREAMS to the device, and as many from it.
iperf_begin() {
	iperf_wire=$(wire_of "$1")
	ip netns exec "peer$iperf_wire" nice -n 19 iperf3 -s -1 >/tmp/server 2>&1 &
	until_true 30 iperf_listens "$iperf_wire" || failure "iperf3's server does not listen: $(cat /tmp/server)"
	nice -n 19 iperf3 -c "10.0.$iperf_wire.2" -P "${STREAMS:-4}" -t $(($2 * ${SLOWER:-1})) --bidir -b "${NET_RATE:-0}" -i 0 -J >/tmp/iperf 2>&1 &
	load=$!
}

iperf_start() {
	iperf_begin "$@"
	expect_at_work "$1"
}

# iperf_end: the run must end by itself, with bytes moved in both directions.
iperf_end() {
	wait $load || failure "iperf3 failed: $(grep -m 1 '"error"' /tmp/iperf)"
	[ "$(grep -c '"bytes":[[:space:]]*[1-9]' /tmp/iperf)" -gt 8 ] || failure "iperf3 moved nothing: $(tail -n 5 /tmp/iperf)"
}

# No segment arrived with a wrong checksum (InCsumErrors, the last column), on either side of the wire.
expect_checksums() {
	{ cat /proc/net/snmp && ip netns exec peer1 cat /proc/net/snmp; } >/tmp/snmp
	wrong=$(awk '/^Tcp: [0-9]/ {wrong += $NF} END {print wrong}' /tmp/snmp)
	expect_equal "segments with a wrong checksum" "$wrong" 0
}

# load_abort: end the load after its device has gone. Unsent packets of a peer would stay in the peer's queue.
load_abort() {
	for each in 0 1; do
		ip -n "peer$each" link set peer down
	done
	kill "$load" 2>/dev/null
	for each in $(pidof iperf3) $(pidof fio); do
		kill -9 "$each" 2>/dev/null
	done
	wait "$load" 2>/dev/null
	load=
	sleep 0.2
}

# Unsent data of a peer is in sockets that iperf3 left behind.
no_sockets() {
	grep -q '^TCP: .* orphan 0 ' /proc/net/sockstat
}

# memory_mark, expect_no_memory_lost KIB: between the two the kernel grew by less than KIB. A leaked engine, or memory
# held under load, is megabytes; the kernel's caches of sockets and objects vary less. Not on a debug kernel: KASAN
# keeps freed memory, and kmemleak reports leaks.
memory_mark() {
	echo 0 >/proc/sys/net/ipv4/tcp_max_orphans
	until_true 30 no_sockets || failure "iperf3 left sockets"
	memory_before=$(used_kib)
}

expect_no_memory_lost() {
	until_true 30 no_sockets || failure "iperf3 left sockets"
	memory_grew=$(($(used_kib) - memory_before))
	echo "the kernel grew by $memory_grew KiB" >/dev/kmsg
	[ $memory_grew -le "$1" ] || [ -e /sys/kernel/debug/kmemleak ] || failure "the kernel grew by $memory_grew KiB"
}

# fio_begin BDF SECONDS: writes and reads back with checksums, on a disk that keeps its data, each job in its own part.
fio_begin() {
	fio_size=$((16 / ${JOBS:-1}))M
	nice -n 19 fio --name=load --filename="$(disk_of "$1")" --thread --ioengine=libaio --direct=1 --rw=randwrite --bs=4k-64k \
		--rate_iops="${DISK_RATE:-0}" --iodepth=16 --size=$fio_size --offset_increment=$fio_size --numjobs="${JOBS:-1}" --group_reporting --loops=1000 --runtime=$(($2 * ${SLOWER:-1})) --time_based --verify=crc32c --verify_fatal=1 \
		--verify_backlog=64 --verify_backlog_batch=32 >/tmp/fio 2>&1 &
	load=$!
}

fio_start() {
	fio_begin "$@"
	expect_at_work "$1"
}

fio_end() {
	wait $load || failure "fio failed: $(grep -iE 'verify|error|err=' /tmp/fio | head -n 3)"
	grep -q 'err= 0' /tmp/fio || failure "fio did not end well: $(head -n 5 /tmp/fio)"
}

# expect_no_timeouts: no driver's device timed out.
expect_no_timeouts() {
	said=$(log_since | grep -iE 'NETDEV WATCHDOG|I/O .*timeout|timed out|I/O error|Tx Unit Hang|completion polled')
	[ -z "$said" ] || failure "a driver waited in vain: $(echo "$said" | head -n 3)"
}

# expect_clean BDF: after the driver's removal nothing is mapped, and the log has no complaint.
expect_clean() {
	expect_balance "$1"
	expect_silence
	expect_equal "the state" "$(get "$1" state)" idle
}

# works_on_kernel_path BDF: without a policy, from bind to unbind; the module takes no part.
works_on_kernel_path() {
	put "$1" policy none || failure "policy none was refused: $(cat /tmp/put)"
	kernel_path_maps=$(stat_of "$1" maps)
	bind "$1"
	start "$1"
	work_on "$1"
	expect_equal "the state on the kernel's own path" "$(get "$1" state)" off
	unbind "$1"
	expect_equal "maps on the kernel's own path" "$(stat_of "$1" maps)" "$kernel_path_maps"
}

# --- rmmod, unbind -----------------------------------------------------------------------------------------------

# rmmod_refused: nothing changes.
rmmod_refused() {
	if rmmod xsmmu 2>/tmp/rmmod; then
		give_up "rmmod of a module in use was not refused"
	fi
}

case_rmmod_under_network_load() {
	log_mark
	take fused $IGB
	nic_start $IGB
	iperf_start $IGB 10
	for _ in 1 2 3 4 5 6 7 8; do
		rmmod_refused
	done
	expect_at_work $IGB
	iperf_end
	expect_no_timeouts
	unbind $IGB
	expect_clean $IGB
}

case_rmmod_under_disk_load() {
	log_mark
	take xsmmu $DATA
	disk_start $DATA
	fio_start $DATA 4
	for _ in 1 2 3 4 5 6 7 8; do
		rmmod_refused
	done
	expect_at_work $DATA
	fio_end
	expect_no_timeouts
	unbind $DATA
	expect_clean $DATA
}

# unload_again_and_again: while /tmp/binding exists. Devices that appear without a driver get a policy.
unload_again_and_again() {
	while [ -e /tmp/binding ]; do
		rmmod xsmmu 2>/dev/null || continue
		insmod /modules/xsmmu.ko policy=lazy
		echo >>/tmp/unloaded
	done
}

# An unload during a driver's bind is refused, or the driver gets the kernel's own path.
case_rmmod_while_a_driver_binds() {
	rmmod xsmmu || give_up "rmmod was refused"
	insmod /modules/xsmmu.ko policy=lazy || give_up "insmod failed"
	log_mark
	: >/tmp/unloaded
	: >/tmp/binding
	unload_again_and_again &
	unloader=$!
	binds_left=200
	while [ $binds_left -gt 0 ]; do
		bind $TESTDEV
		unbind $TESTDEV
		binds_left=$((binds_left - 1))
	done
	rm /tmp/binding
	wait $unloader || failure "insmod failed"
	log_since | grep 'xsmmu: ' | sed 's/.*xsmmu: //' | sort | uniq -c >/tmp/said
	echo "$(wc -l </tmp/unloaded) unloads; $(cat /tmp/said)" >/dev/kmsg
	[ "$(wc -l </tmp/unloaded)" -gt 10 ] || failure "only $(wc -l </tmp/unloaded) unloads"
	rmmod xsmmu || give_up "rmmod was refused"
	insmod /modules/xsmmu.ko || give_up "insmod failed"
}

case_unbind_under_network_load() {
	memory_mark
	for pair in fused:$IGB xsmmu:$E1000E fands:$E1000E lazy:$IGB strict:$IGB; do
		nic=${pair#*:}
		log_mark
		take "${pair%%:*}" "$nic"
		nic_start "$nic"
		iperf_start "$nic" 60
		unbind "$nic"
		load_abort
		expect_clean "$nic"
	done
	expect_no_memory_lost 4096
	works_on_kernel_path $IGB
	works_on_kernel_path $E1000E
}

case_unbind_under_disk_load() {
	memory_mark
	for policy in $POLICIES; do
		log_mark
		take "$policy" $DATA
		disk_start $DATA
		fio_start $DATA 60
		unbind $DATA
		load_abort
		expect_clean $DATA
	done
	expect_no_memory_lost 1024
	works_on_kernel_path $DATA
}

# One device of a group goes, the other works on.
case_unbind_one_of_a_group() {
	log_mark
	take fused $DISK0 $DISK1
	disk_start $DISK0
	disk_start $DISK1
	nice -n 19 fio --name=load --filename="$(disk_of $DISK1)" --thread --ioengine=libaio --direct=1 --rw=randread --bs=4k \
		--iodepth=16 --runtime=4 --time_based >/tmp/fio 2>&1 &
	load=$!
	sleep 1
	unbind $DISK0
	expect_equal "the state" "$(get $DISK1 state)" active
	bind $DISK0
	disk_start $DISK0
	read_disk $DISK0 2
	unbind $DISK0
	fio_end
	expect_no_timeouts
	unbind $DISK1
	expect_clean $DISK0
}

# --- hot-plug ----------------------------------------------------------------------------------------------------

# qmp COMMAND ARGUMENTS: send a request to the host; the guest sees the effect.
qmp() {
	emit "{\"event\":\"qmp\",\"execute\":\"$1\",\"arguments\":{$2}}"
}

is_gone() {
	[ ! -e "$(device_dir "$1")" ]
}

is_there() {
	[ -e "$(device_dir "$1")" ]
}

# unplug BDF ID: by hot-plug, which notifies the guest first.
unplug() {
	unplugged_policy=$(policy_of "$1")
	qmp device_del "\"id\":\"$2\""
	until_true 20 is_gone "$1" || give_up "$1 is still there 20 s after it was unplugged"
	[ ! -e "$(xs "$1" policy)" ] || failure "an unplugged device still has its folder"
}

# plug BDF ARGUMENTS
plug() {
	qmp device_add "$2"
	until_true 20 is_there "$1" || give_up "$1 is not there 20 s after it was plugged in"
	until_true 5 test -e "$(xs "$1" policy)" || failure "$1 has no xsmmu folder after it was plugged in"
	# The kernel binds a plugged-in device's driver by itself.
	until_true 20 has_driver "$1" || failure "$1 has no driver after it was plugged in"
}

# plug_off BDF: a plugged-in device has its earlier policy, and works; for another policy the driver must be unbound.
plug_off() {
	expect_equal "the policy of a device that is back" "$(policy_of "$1")" "$unplugged_policy"
	start "$1"
	work_on "$1"
	expect_equal "its state" "$(get "$1" state)" "$([ "$unplugged_policy" = none ] && echo off || echo active)"
	unbind "$1"
}

plug_igb() {
	plug $IGB '"driver":"igb","id":"dut-igb","bus":"port-igb","netdev":"wire1","romfile":""'
}

plug_data() {
	plug $DATA '"driver":"nvme","id":"dut-nvme-data","bus":"port-data","serial":"data","drive":"data","share-rw":true'
}

case_unplug_nic_under_load() {
	memory_mark
	for policy in fused xsmmu strict; do
		log_mark
		take "$policy" $IGB
		nic_start $IGB
		iperf_start $IGB 60
		unplug $IGB dut-igb
		load_abort
		expect_silence
		expect_equal "the module's reference count" "$(references)" 0
		plug_igb
		plug_off $IGB
	done
	expect_no_memory_lost 4096
	take fused $IGB
	nic_start $IGB
	ping_peer $IGB 10
	expect_equal "the state" "$(get $IGB state)" active
	unbind $IGB
	expect_clean $IGB
}

# Memory that caches take at the first use of a load is no loss.
case_unplug_disk_under_load() {
	for policy in fused fands lazy; do
		[ $policy != fands ] || memory_mark
		log_mark
		take "$policy" $DATA
		disk_start $DATA
		fio_start $DATA 60
		unplug $DATA dut-nvme-data
		load_abort
		expect_silence
		expect_equal "the module's reference count" "$(references)" 0
		plug_data
		plug_off $DATA
	done
	expect_no_memory_lost 1024
	take xsmmu $DATA
	disk_start $DATA
	work_on $DATA
	unbind $DATA
	expect_clean $DATA
}

# A device plugged into an attached group with a working device gets the group's policy.
case_plug_into_a_group_at_work() {
	log_mark
	take fused $DISK0 $DISK1
	disk_start $DISK0
	disk_start $DISK1
	nice -n 19 fio --name=load --filename="$(disk_of $DISK0)" --thread --ioengine=libaio --direct=1 --rw=randread --bs=4k \
		--iodepth=16 --runtime=8 --time_based >/tmp/fio 2>&1 &
	load=$!
	unplug $DISK1 dut-nvme1
	expect_equal "the state of the other" "$(get $DISK0 state)" active
	plug $DISK1 '"driver":"nvme","id":"dut-nvme1","bus":"downstream1","serial":"null1","drive":"null1"'
	expect_equal "the policy" "$(policy_of $DISK1)" fused
	disk_start $DISK1
	read_disk $DISK1 2
	fio_end
	unbind $DISK0 $DISK1
	expect_clean $DISK0
}

# --- reset -------------------------------------------------------------------------------------------------------

# nvme_freeze_is_misread: at a reset or sleep one process freezes a disk's queues and another thaws them; lockdep of
# 6.12 reports this as a lock that is held forever.
nvme_freeze_is_misread() {
	[ -e /proc/lockdep ]
}

case_function_reset_under_an_idle_driver() {
	for device in $IGB $DATA $E1000E; do
		[ -e "$(device_dir $device)/reset" ] || continue
		[ $device = $DATA ] && nvme_freeze_is_misread && continue
		log_mark
		take fused $device
		start $device
		work_on $device
		# igb and e1000e do not notice a reset while their link is up.
		[ $device = $DATA ] || ip link set "$(link_of $device)" down
		echo 1 >"$(device_dir $device)/reset" || failure "$device: reset failed"
		sleep 0.5
		start $device
		work_on $device
		expect_equal "the state" "$(get $device state)" active
		unbind $device
		expect_clean $device
		echo "$device was reset" >/dev/kmsg
	done
}

case_function_reset_without_a_driver() {
	for device in $IGB $DATA; do
		log_mark
		put $device policy fused
		echo 1 >"$(device_dir $device)/reset" || failure "$device: reset failed"
		bind $device
		start $device
		work_on $device
		unbind $device
		expect_clean $device
	done
}

# --- live changes ------------------------------------------------------------------------------------------------

# change_policies BDF TIMES: walk through the module's policies, there and back, and tune them.
change_policies() {
	change_left=$2
	while [ "$change_left" -gt 0 ]; do
		for policy in fused strict fused-identity xsmmu lazy strict-identity fands xsmmu fused fands fused-identity strict \
			strict-identity lazy; do
			put "$1" policy "$policy" || failure "policy $policy was refused: $(cat /tmp/put)"
			expect_equal "the policy" "$(policy_of "$1")" $policy
			put "$1" max_window_us $((change_left % 3 * 5000 + 1))
			put "$1" batch_pages $((change_left * 37 % 1024 + 1))
			put "$1" range_commands_max $((change_left % 32 + 1))
		done
		change_left=$((change_left - 1))
	done
}

case_change_policy_under_network_load() {
	for nic in $IGB $E1000E; do
		log_mark
		take strict $nic
		nic_start $nic
		iperf_start $nic 4
		change_policies $nic 8
		iperf_end
		expect_no_timeouts
		ping_peer $nic 10
		expect_equal "the state" "$(get $nic state)" active
		unbind $nic
		expect_clean $nic
	done
}

case_change_policy_under_disk_load() {
	log_mark
	take strict $DATA
	disk_start $DATA
	fio_start $DATA 5
	change_policies $DATA 12
	fio_end
	expect_no_timeouts
	work_on $DATA
	unbind $DATA
	expect_clean $DATA
}

# The kernel permits the change from DMA to DMA-FQ under a bound driver.
case_change_group_type_under_load() {
	set_group_type $DATA DMA
	log_mark
	take fused $DATA
	disk_start $DATA
	fio_start $DATA 3
	set_group_type $DATA DMA-FQ
	if echo identity 2>/dev/null >"$(device_dir $DATA)/iommu_group/type"; then
		failure "the kernel made a group with a bound driver an identity one"
	fi
	fio_end
	expect_no_timeouts
	unbind $DATA
	expect_clean $DATA
}

# Reads statistics, and makes refused writes, during all other changes.
case_statistics_under_load() {
	log_mark
	take fused $DATA
	disk_start $DATA
	fio_start $DATA 3
	while kill -0 $load 2>/dev/null; do
		cat "$(xs $DATA stats)"/* "$(xs $DATA exposure_ns)" "$(xs $DATA state)" "$(xs $DATA level)" >/dev/null ||
			failure "a file could not be read"
		mapped=$(stat_of $DATA mapped_pages)
		unmapped=$(stat_of $DATA unmapped_pages)
		[ "$(stat_of $DATA live_pages)" -lt 1000000 ] || failure "live_pages is $(stat_of $DATA live_pages)"
		[ "$(stat_of $DATA held_pages)" -lt 1000000 ] || failure "held_pages is $(stat_of $DATA held_pages)"
		[ "$mapped" -gt 0 ] && [ "$unmapped" -ge 0 ] || failure "nothing was counted"
	done
	fio_end
	unbind $DATA
	expect_clean $DATA
}

# --- CPUs --------------------------------------------------------------------------------------------------------

# toggle_cpu TIMES
toggle_cpu() {
	toggle_left=$1
	while [ "$toggle_left" -gt 0 ]; do
		echo 0 >/sys/devices/system/cpu/cpu1/online || failure "the CPU does not go offline"
		sleep 0.2
		echo 1 >/sys/devices/system/cpu/cpu1/online || failure "the CPU does not come back"
		sleep 0.2
		toggle_left=$((toggle_left - 1))
	done
}

case_cpu_hotplug_under_network_load() {
	for policy in fused xsmmu; do
		log_mark
		take "$policy" $IGB
		nic_start $IGB
		iperf_start $IGB 4
		toggle_cpu 4
		iperf_end
		expect_no_timeouts
		ping_peer $IGB 10
		unbind $IGB
		expect_clean $IGB
	done
}

case_cpu_hotplug_under_disk_load() {
	for policy in fused lazy; do
		log_mark
		take "$policy" $DATA
		disk_start $DATA
		fio_start $DATA 4
		toggle_cpu 4
		fio_end
		expect_no_timeouts
		unbind $DATA
		expect_clean $DATA
	done
}

# Attach and detach while a CPU is offline: nothing waits for that CPU's caches.
case_attach_with_a_cpu_away() {
	echo 0 >/sys/devices/system/cpu/cpu1/online
	log_mark
	take fused $DATA
	disk_start $DATA
	work_on $DATA
	echo 1 >/sys/devices/system/cpu/cpu1/online
	work_on $DATA
	echo 0 >/sys/devices/system/cpu/cpu1/online
	unbind $DATA
	expect_clean $DATA
	echo 1 >/sys/devices/system/cpu/cpu1/online
}

# cpu_goes_at_give_back TURN: bind a driver that defers unmaps on CPU 1, without a poll there that flushes them; then
# take the CPU offline while the group is detached, at a moment that depends on TURN.
cpu_goes_at_give_back() {
	taskset 2 sh -c "echo $TESTDEV >/sys/bus/pci/drivers/xsmmu_dma_api_test/bind
		echo 1 >$PARAMETERS/release" || failure "the driver does not bind"
	(echo 0 >/sys/devices/system/cpu/cpu1/online) &
	offliner=$!
	# Some tenths of the detach's duration.
	awk -v turns=$(($1 % 10 * 2000)) 'BEGIN{for (i = 0; i < turns; i++) x += i}'
	unbind $TESTDEV
	wait $offliner || failure "the CPU does not go offline"
	echo 1 >/sys/devices/system/cpu/cpu1/online || failure "the CPU does not come back"
	expect_balance $TESTDEV
}

case_cpu_goes_at_give_back() {
	echo crowd >/sys/module/xsmmu_dma_api_test/parameters/mode
	put $TESTDEV policy lazy
	put $TESTDEV max_window_us 10000000
	log_mark
	turn=0
	while [ $turn -lt ${TURNS:-30} ]; do
		cpu_goes_at_give_back $turn
		turn=$((turn + 1))
	done
	expect_silence
	take fused $E1000E
	nic_start $E1000E
	ping_peer $E1000E 20
}
