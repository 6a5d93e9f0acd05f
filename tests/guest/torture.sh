# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Torture: a disk and a NIC work without a pause while every event that can happen to a device happens, in an order
# chosen by a seed. TORTURE_S and SEED are settings. Two CPUs run freely, so the same seed gives the same acts, at other
# moments.

# --- choices of the seed ------------------------------------------------------------------------------------------

# below NUMBER: sets `chosen` to a number below NUMBER.
below() {
	random=$(((random * 1103515245 + 12345) & 2147483647))
	chosen=$((random / 65536 % $1))
}

# one_of WORD...: sets `chosen` to one of the words.
one_of() {
	below $#
	shift $chosen
	chosen=$1
}

# With odd seeds small buffers of up to COPY bytes are copied.
COPY=$((SEED % 2 * 2048))

choose_policy() {
	if [ $COPY = 0 ]; then one_of $POLICIES; else one_of copy $POLICIES; fi
}

# --- the two loads -----------------------------------------------------------------------------------------------

# `disk_load` and `net_load` are the processes of the two loads.

disk_work() {
	disk_start $DATA
	fio_start $DATA 3600
	disk_load=$load
}

net_work() {
	nic_start $IGB
	iperf_start $IGB 3600
	net_load=$load
}

# work_begins DEVICE: under a policy chosen by the seed.
work_begins() {
	choose_policy
	take $chosen $1
	case $1 in
	"$DATA") disk_work ;;
	*) net_work ;;
	esac
}

# expect_verified: the data read equals the data written. Not if the disk disappeared under fio: such reads are short,
# and fio compares its buffer's earlier content (also on the kernel's own path).
expect_verified() {
	grep -iE 'verify.*(bad|failed)|bad magic' /tmp/fio >/tmp/bad && failure "data was lost: $(head -n 3 /tmp/bad)"
}

disk_ends() {
	for each in $disk_load $(pidof fio); do
		kill $1 "$each" 2>/dev/null
	done
	wait $disk_load 2>/dev/null
}

net_ends() {
	ip -n peer1 link set peer down
	for each in $net_load $(pidof iperf3); do
		kill -9 "$each" 2>/dev/null
	done
	wait $net_load 2>/dev/null
	expect_checksums
}

# disk_leaves, nic_leaves: the driver is removed under load.
disk_leaves() {
	unbind $DATA
	disk_ends -9
}

nic_leaves() {
	unbind $IGB
	net_ends
}

# --- acts --------------------------------------------------------------------------------------------------------

act_policy() {
	one_of $DATA $IGB
	act_device=$chosen
	choose_policy
	put $act_device policy $chosen || failure "policy $chosen was refused: $(cat /tmp/put)"
	expect_equal "the policy" "$(policy_of $act_device)" $chosen
}

act_tables() {
	one_of $DATA $IGB
	act_device=$chosen
	one_of kernel direct
	put $act_device tables $chosen || failure "tables $chosen was refused: $(cat /tmp/put)"
	expect_no_surprise
}

act_tune() {
	one_of $DATA $IGB
	act_device=$chosen
	one_of 1 50 1000 10000
	put $act_device max_window_us $chosen
	one_of 1 2 63 64 250 1024
	put $act_device batch_pages $chosen
	below 32
	put $act_device range_commands_max $((chosen + 1))
}

act_copy() {
	one_of $DATA $IGB
	act_device=$chosen
	one_of 2 4 64
	put $act_device pool_mib $chosen || failure "$chosen MiB were refused: $(cat /tmp/put)"
	one_of 0 256 2048 4096
	[ $COPY = 0 ] || put $act_device copy_bytes $chosen || failure "copy_bytes $chosen was refused: $(cat /tmp/put)"
}

act_unbind_disk() {
	disk_leaves
	expect_balance $DATA
	work_begins $DATA
}

act_unbind_nic() {
	nic_leaves
	expect_balance $IGB
	work_begins $IGB
}

# leaves BDF ID: unplug it.
leaves() {
	left_group=$(readlink "$(device_dir $1)/iommu_group")
	left_there=$(echo "$(device_dir $1)"/iommu_group/devices/* | wc -w)
	unplug $1 $2
}

# returns BDF: plugs the device in again. Failures are counted by group: the group of a single device went with the
# device, and a device whose bridge kept the group may get another (arm64 without ACPI learns of ACS only then).
returns() {
	[ $left_there -gt 1 ] && [ "$(readlink "$(device_dir $1)/iommu_group")" = "$left_group" ] || rm -f /tmp/map_failures.$1
}

act_unplug_disk() {
	leaves $DATA dut-nvme-data
	disk_ends -9
	plug_data
	plug_off $DATA
	returns $DATA
	work_begins $DATA
}

act_unplug_nic() {
	leaves $IGB dut-igb
	net_ends
	plug_igb
	plug_off $IGB
	returns $IGB
	work_begins $IGB
}

# The disk's driver survives a reset under load; the NIC's needs its link down.
act_reset_disk() {
	nvme_freeze_is_misread && return
	echo 1 >"$(device_dir $DATA)/reset" || failure "$DATA: reset failed"
}

act_reset_nic() {
	net_ends
	ip link set "$(link_of $IGB)" down
	echo 1 >"$(device_dir $IGB)/reset" || failure "$IGB: reset failed"
	net_work
}

act_cpu() {
	toggle_cpu 1
}

# Devices are really suspended and resumed, the CPUs only as far as the kernel's own test goes. The far end of the wire
# is quiet meanwhile, because virtio_net may send on queues that are gone. NO_SUSPEND gives the reason if the kernel
# cannot suspend with this IOMMU, even without the module (tests/guest/suspend.sh).
act_suspend() {
	if [ -n "$NO_SUSPEND" ]; then
		echo "torture: not suspended: $NO_SUSPEND" >/dev/kmsg
		return
	fi
	ip -n peer1 link set peer down
	! nvme_freeze_is_misread || disk_leaves
	one_of devices processors
	# A machine that can only suspend to idle (QEMU's arm64) stops no processor.
	! { [ $chosen = processors ] && ! grep -q deep /sys/power/mem_sleep; } || chosen=platform
	echo $chosen >/sys/power/pm_test
	echo 1 >/sys/module/suspend/parameters/pm_test_delay 2>/dev/null
	echo mem >/sys/power/state || failure "suspend ($chosen) failed"
	echo none >/sys/power/pm_test
	! nvme_freeze_is_misread || work_begins $DATA
	ip -n peer1 link set peer up
}

act_rmmod() {
	rmmod_refused
}

act_read() {
	for device in $DATA $IGB; do
		cat "$(xs $device stats)"/* "$(xs $device exposure_ns)" "$(xs $device state)" "$(xs $device level)" >/dev/null ||
			failure "a file could not be read"
	done
}

# Allocations of one process fail, three in ten, while the process chooses policies: each choice is made whole or not at
# all.
allocations_fail() {
	failslab=/sys/kernel/debug/failslab
	disk_leaves
	echo Y >$failslab/task-filter
	echo 30 >$failslab/probability
	echo 1 >$failslab/interval
	echo 0 >$failslab/verbose
	echo -1 >$failslab/times
	for policy in none $POLICIES none fused none xsmmu none lazy none; do
		policy_before=$(policy_of $DATA)
		(echo 1 >/proc/self/make-it-fail && echo $policy >"$(xs $DATA policy)") 2>/tmp/put
		case $(policy_of $DATA) in
		"$policy" | "$policy_before") ;;
		*) failure "policy is $(policy_of $DATA) after $policy failed over $policy_before" ;;
		esac
	done
	echo 0 >$failslab/probability
	put $DATA policy none || failure "policy none was refused: $(cat /tmp/put)"
	work_begins $DATA
}

has_failed() {
	[ "$(cat $FAIL)" = 0 ]
}

# Single maps and allocations of the module fail, for the disk or the NIC, under load and while policies change: drivers
# try again. The NIC has so many that the disk's never fail beside them.
maps_fail() {
	one_of $DATA $IGB
	failing=$chosen
	[ $failing = $IGB ] || nic_leaves
	failed_before=$(stat_of $failing map_failures)
	fails=0
	while [ $fails -lt 16 ]; do
		below 30
		echo $((chosen + 1)) >$FAIL
		until_true 20 has_failed || failure "nothing was there to fail"
		act_policy
		fails=$((fails + 1))
	done
	for each in $DATA $IGB; do
		stat_of $each map_failures >/tmp/map_failures.$each
	done
	fails=$(($(stat_of $failing map_failures) - failed_before))
	[ $fails -gt 0 ] && [ $fails -le 16 ] || failure "$failing: $fails maps have failed, not 1 to 16"
	echo "torture: $failing: $fails maps have failed" >/dev/kmsg
	[ $failing = $IGB ] || work_begins $IGB
}

# The stock kernel has no fault injection for allocations; there the module is a build for tests with its own.
act_memory() {
	if [ -e $FAIL ]; then maps_fail; else allocations_fail; fi
}

ACTS='policy policy policy tune tune copy copy unbind_disk unbind_nic unplug_disk unplug_nic reset_disk reset_nic cpu cpu suspend
rmmod read memory'

# next_act: sets `act`. Every act of ACTS comes once, in an order chosen by the seed, before any act repeats.
next_act() {
	case $acts_left in
	*[a-z]*) ;;
	*)
		set -- $ACTS
		acts_left=" $* "
		;;
	esac
	one_of $acts_left
	act=$chosen
	acts_left="${acts_left%% "$act" *} ${acts_left#* "$act" }"
}

# --- the case ----------------------------------------------------------------------------------------------------

seconds_now() {
	cut -d. -f1 /proc/uptime
}

both_begin() {
	work_begins $DATA
	work_begins $IGB
}

both_end() {
	disk_ends -INT
	net_ends
	unbind $DATA $IGB
}

case_torture() {
	random=$SEED
	log_mark
	# Memory that caches take at the first use of a load is no loss. (A second round of all acts grows by half a
	# MiB, the first by up to three.)
	both_begin
	both_end
	memory_mark
	both_begin
	torture_until=$(($(seconds_now) + TORTURE_S))
	acts=0
	acts_left=
	while [ $acts -lt "$(echo $ACTS | wc -w)" ] || [ "$(seconds_now)" -lt $torture_until ]; do
		acts=$((acts + 1))
		next_act
		echo "torture: seed $SEED, act $acts: $act" >/dev/kmsg
		act_$act
		expect_at_work $DATA
		expect_at_work $IGB
		[ -z "$failures" ] || break
	done
	echo "torture: seed $SEED, $acts acts" >/dev/kmsg
	[ -n "$failures" ] && failure "in act $acts of seed $SEED ($act)"
	both_end
	expect_verified
	expect_clean $DATA
	expect_clean $IGB
	expect_no_memory_lost 4096
	works_on_kernel_path $DATA
	works_on_kernel_path $IGB
}
