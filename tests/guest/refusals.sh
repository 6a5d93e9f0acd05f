# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Refusals of the module: the errno, the single log line, and the unchanged state.

case_unknown_policy() {
	pattern='refused: unknown policy "turbo"; read the policy file for the valid ones'
	refused $E1000E policy turbo 'Invalid argument' "$pattern"
	refused $E1000E policy 'fused xsmmu' 'Invalid argument' 'unknown policy "fused xsmmu"'
	refused $E1000E policy Fused 'Invalid argument' 'unknown policy "Fused"'
	refused $E1000E policy '' 'Invalid argument' 'unknown policy ""'
	refused $E1000E policy "$(printf '%0100d' 7)" 'Invalid argument' 'unknown policy "0{32}"'
	expect_equal "the policy" "$(policy_of $E1000E)" none
	expect_equal "the state" "$(get $E1000E state)" off
}

case_menu() {
	expect_equal "the menu" "$(get $E1000E policy)" "[none] auto copy $POLICIES"
	for policy in copy $POLICIES; do
		accepted $E1000E policy "$policy"
		expect_equal "the policy" "$(policy_of $E1000E)" "$policy"
		expect_equal "the state under $policy" "$(get $E1000E state)" idle
		expect_equal "the level of $policy without a driver" "$(get $E1000E level)" none
	done
	accepted $E1000E policy '  none  '
	expect_equal "the policy" "$(policy_of $E1000E)" none
}

# as_nobody COMMAND: runs a shell command without capabilities.
as_nobody() {
	mkdir -p /etc
	echo "nobody:x:65534:65534::/:/bin/sh" >/etc/passwd
	start-stop-daemon -S -p /tmp/none.pid -c nobody -x /bin/busybox -- sh -c "$1" 2>/tmp/put
}

# A user who may not change a group's type may not choose a policy, whatever the file's mode; nor see the traffic.
case_without_a_capability() {
	chmod 666 "$(xs $E1000E policy)" "$(xs $E1000E batch_pages)"
	expect "it runs, and may read the policy" as_nobody "cat $(xs $E1000E policy)"
	for file in policy batch_pages; do
		if as_nobody "echo strict >$(xs $E1000E $file)"; then
			failure "$file was changed without a capability"
		fi
		grep -q 'Permission denied' /tmp/put || failure "$file: the error is '$(cat /tmp/put)'"
	done
	expect_equal "the policy" "$(policy_of $E1000E)" none
	for file in used exposure_ns stats/maps stats/live_pages; do
		if as_nobody "cat $(xs $E1000E $file)"; then
			failure "$file can be read by everybody"
		fi
	done
	chmod 644 "$(xs $E1000E policy)" "$(xs $E1000E batch_pages)"
}

case_bound_driver() {
	bind $E1000E
	for policy in $POLICIES; do
		refused $E1000E policy "$policy" 'busy' 'refused: a driver is bound: unbind the drivers of its whole IOMMU group first'
	done
	accepted $E1000E policy none
	unbind $E1000E
	take fused $E1000E
	refused $E1000E policy none 'busy' 'refused: a driver is bound'
	expect_equal "the policy" "$(policy_of $E1000E)" fused
	nic_start $E1000E
	ping_peer $E1000E 5
	expect_equal "the state" "$(get $E1000E state)" active
}

case_group_with_another_driver_bound() {
	bind $DISK1
	refused $DISK0 policy xsmmu 'busy' "$DISK1: xsmmu: refused: a driver is bound"
	unbind $DISK1
	accepted $DISK0 policy xsmmu
	expect_equal "the other device's policy" "$(policy_of $DISK1)" xsmmu
	bind $DISK0
	refused $DISK1 policy none 'busy' "$DISK0: xsmmu: refused: a driver is bound"
	all_off
	expect_equal "the other device's policy" "$(policy_of $DISK1)" none
}

case_tuning_before_a_policy() {
	for file in max_window_us batch_pages range_commands_max; do
		refused $E1000E $file 5 'No data available' "refused: choose a policy before $file"
	done
}

# out_of_range FILE LAST
out_of_range() {
	for value in 0 $(($2 + 1)) 4294967295; do
		refused $E1000E "$1" "$value" 'Numerical result out of range' "refused: $1 \"$value\": must be a whole number from 1 to $2"
	done
	for value in 4294967296 99999999999999999999; do
		refused $E1000E "$1" $value 'Numerical result out of range' "refused: $1 \"$value\": must be a whole number from 1 to $2"
	done
	for value in many 1.5 -1 '' '1 2' 0x; do
		refused $E1000E "$1" "$value" 'Invalid argument' "refused: $1 \"$value\": must be a whole number from 1 to $2"
	done
	for value in 1 "$2"; do
		accepted $E1000E "$1" "$value"
		expect_equal "$1" "$(get $E1000E "$1")" "$value"
	done
}

case_values_out_of_range() {
	put $E1000E policy fused
	out_of_range max_window_us 10000000
	out_of_range batch_pages 1024
	out_of_range range_commands_max 32
	accepted $E1000E policy xsmmu
	expect_equal "max_window_us of a newly chosen policy" "$(get $E1000E max_window_us)" 1000
	accepted $E1000E policy none
}

case_values_out_of_range_under_a_driver() {
	take fused $E1000E
	nic_start $E1000E
	out_of_range max_window_us 10000000
	out_of_range batch_pages 1024
	out_of_range range_commands_max 32
	ping_peer $E1000E 5
}

# The allowed extremes must work.
case_extreme_tuning_works() {
	take fused $E1000E
	nic_start $E1000E
	put $E1000E batch_pages 1
	put $E1000E range_commands_max 1
	put $E1000E max_window_us 1
	ping_peer $E1000E 20
	put $E1000E max_window_us 10000000
	put $E1000E batch_pages 1024
	ping_peer $E1000E 20
	put $E1000E max_window_us 1000
	ping_peer $E1000E 5
	sleep 0.1
	expect_equal "pages still waiting after the bound" "$(stat_of $E1000E held_pages)" 0
}

# mode_is MODE FILE...
mode_is() {
	mode=$1
	shift
	for file in "$@"; do
		expect_equal "the mode of $file" "$(stat -c %a "$(xs $E1000E $file)")" "$mode"
	done
}

case_read_only_files() {
	mode_is 444 level state declined defaults can_copy
	mode_is 400 stats/maps exposure_ns auto_policy
	mode_is 644 policy max_window_us batch_pages range_commands_max
}

# Without translation the module does not attach: the driver gets the kernel's own path, and the log names the remedy.
case_group_without_translation() {
	maps=$(stat_of $E1000E maps)
	set_group_type $E1000E identity
	accepted $E1000E policy fused
	log_mark
	bind $E1000E
	expect_log "$E1000E: xsmmu: not attached, the device stays on the kernel's own path: its IOMMU group does not translate: write DMA-FQ to /sys/kernel/iommu_groups/<group>/type first"
	expect_equal "the state" "$(get $E1000E state)" failed
	expect_equal "the level" "$(get $E1000E level)" none
	expect_equal "the module's reference count" "$(references)" 0
	nic_start $E1000E
	ping_peer $E1000E 5
	expect_equal "maps" "$(stat_of $E1000E maps)" "$maps"
	# A change of the policy attaches nothing under the driver.
	for choice in max_window_us=777 policy=strict; do
		accepted $E1000E ${choice%=*} ${choice#*=}
		expect_equal "the state after $choice" "$(get $E1000E state)" failed
	done
	unbind $E1000E
	accepted $E1000E policy fused
	expect_equal "the state without the driver" "$(get $E1000E state)" idle
	set_group_type $E1000E DMA-FQ
	log_mark
	bind $E1000E
	expect_silence
	expect_equal "the state once the group translates" "$(get $E1000E state | sed s/attached/active/)" active
	nic_start $E1000E
	ping_peer $E1000E 5
	expect_equal "the state under traffic" "$(get $E1000E state)" active
}

# An untrusted device stays on the kernel's own path, which is strict for the device and copies partial pages.
case_untrusted_device() {
	for policy in $POLICIES copy auto; do
		refused $IGB policy "$policy" 'not supported' "$IGB: xsmmu: refused: untrusted \(external-facing\) device: leave its IOMMU group to the kernel's own path"
	done
	expect_equal "declined" "$(get $IGB declined | sed 's/: leave.*//')" "$IGB: untrusted (external-facing) device"
	expect_equal "declined of a trusted device" "$(get $E1000E declined)" ""
	accepted $IGB policy none
	# Linux accepts the DMA-FQ that all_off wrote. By default Linux chooses DMA for such a device.
	set_group_type $IGB auto
	log_mark
	bind $IGB
	nic_start $IGB
	ping_peer $IGB 5
	expect_silence
	expect_equal "the state" "$(get $IGB state)" off
	expect_equal "the type of the group" "$(group_type $IGB)" DMA
}

case_external_facing_port() {
	refused 0000:00:04.0 policy strict 'not supported' "0000:00:04.0: xsmmu: refused: untrusted \(external-facing\) device"
}

case_rmmod_while_attached() {
	take xsmmu $E1000E
	nic_start $E1000E
	if rmmod xsmmu 2>/tmp/rmmod; then
		give_up "rmmod of a module in use was not refused"
	fi
	grep -q 'Resource temporarily unavailable' /tmp/rmmod || failure "rmmod: the error is '$(cat /tmp/rmmod)'"
	ping_peer $E1000E 5
	expect_equal "the state" "$(get $E1000E state)" active
}

case_rmmod_when_idle() {
	put $E1000E policy lazy
	put $DISK0 policy fused
	log_mark
	rmmod xsmmu || give_up "rmmod was refused"
	[ ! -e "$(xs $E1000E policy)" ] || failure "the device still has its xsmmu folder"
	expect_silence
	start_and_work_on_kernel_path
	insmod /modules/xsmmu.ko || give_up "insmod failed"
	expect_silence
	expect_equal "the policy after loading again" "$(policy_of $E1000E)" none
	expect_equal "maps after loading again" "$(stat_of $E1000E maps)" 0
}

start_and_work_on_kernel_path() {
	for each_device in $E1000E $DATA; do
		bind $each_device
		start $each_device
		work_on $each_device
		unbind $each_device
	done
}

# Loading the module changes nothing for bound drivers.
case_loading_under_bound_drivers() {
	rmmod xsmmu || give_up "rmmod was refused"
	bind $E1000E
	nic_start $E1000E
	insmod /modules/xsmmu.ko || give_up "insmod failed"
	ping_peer $E1000E 5
	expect_equal "the state" "$(get $E1000E state)" off
	expect_equal "the module's reference count" "$(references)" 0
	rmmod xsmmu || give_up "rmmod was refused"
	ping_peer $E1000E 5
	insmod /modules/xsmmu.ko || give_up "insmod failed"
}
