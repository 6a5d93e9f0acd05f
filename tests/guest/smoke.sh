# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# The minimum for every kernel: load, every policy, a little work, unload.

case_policies_on_a_nic() {
	for policy in $POLICIES; do
		take "$policy" $E1000E
		nic_start $E1000E
		ping_peer $E1000E 5
		expect_equal "the state under $policy" "$(get $E1000E state)" active
		unbind $E1000E
		expect_balance $E1000E
	done
}

case_policies_on_a_disk() {
	for policy in $POLICIES; do
		take "$policy" $DATA
		disk_start $DATA
		work_on $DATA
		expect_equal "the state under $policy" "$(get $DATA state)" active
		unbind $DATA
		expect_balance $DATA
	done
}

# On real pages in a real NAPI poll; the levels are those of the policies' table.
case_micro() {
	for pair in copy:strict strict:strict lazy:lazy fands:bounded xsmmu:held fused:held strict-identity:strict \
		fused-identity:held; do
		take "${pair%:*}" $TESTDEV
		expect_equal "the state before" "$(get $TESTDEV state)" attached
		echo 'ring=256 rounds=4' >/sys/kernel/debug/xsmmu_lab/$TESTDEV/micro || failure "micro failed under ${pair%:*}"
		sleep 0.1
		expect_equal "the level" "$(get $TESTDEV level)" "${pair#*:}"
		expect_equal "the state" "$(get $TESTDEV state)" active
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
}

case_change_under_a_driver() {
	take strict $DATA
	disk_start $DATA
	for policy in fused fused-identity lazy strict-identity xsmmu fands strict fused; do
		put $DATA policy $policy || failure "policy $policy was refused"
		work_on $DATA
	done
}

case_unload() {
	take fused $E1000E
	if rmmod xsmmu 2>/dev/null; then
		give_up "rmmod of a module in use was not refused"
	fi
	all_off
	expect "rmmod" rmmod xsmmu
	bind $DATA
	disk_start $DATA
	work_on $DATA
	unbind $DATA
	expect "insmod" insmod /modules/xsmmu.ko
}

# A change of policy reaches the engine: under strict nothing is deferred.
case_a_change_arrives() {
	take lazy $DATA
	disk_start $DATA
	read_disk $DATA 1
	put $DATA policy strict || failure "strict was refused"
	before=$(stat_of $DATA deferred_pages)
	read_disk $DATA 1
	expect_equal "pages deferred under strict" $(($(stat_of $DATA deferred_pages) - before)) 0
	unbind $DATA
	# Each file is a number and the end of its line; stat_of would not notice more.
	for file in "$(xs $DATA stats)"/*; do
		expect_equal "$file" "$(cat "$file" && echo .)" "$(stat_of $DATA "${file##*/}" && echo .)"
	done
}

# The function has no driver here; if the IOMMU is found only at a driver's bind, the lab's driver binds once.
make_a_virtual_function() {
	echo 1 >$functions || failure "no virtual function"
	virtual=$(basename "$(readlink "$(device_dir $IGB)/virtfn0")")
	echo xsmmu_lab >"$(device_dir $virtual)/driver_override"
	grouped $virtual xsmmu_lab
}

choose_fused() {
	put $1 policy fused || failure "$1: the policy was refused: $(cat /tmp/put)"
	put $1 max_window_us 555
}

group_of() {
	readlink "$(device_dir $1)/iommu_group"
}

# A new virtual function has the policy that was chosen for its predecessor. Without ACS (arm64 without ACPI) the
# function is in the group of its physical function, for which nothing can be chosen while bound.
case_a_virtual_function_is_made_anew() {
	bind $IGB
	functions=$(device_dir $IGB)/sriov_numvfs
	make_a_virtual_function
	if [ "$(group_of $virtual)" = "$(group_of $IGB)" ]; then
		echo 0 >$functions
		unbind $IGB
		choose_fused $IGB
		bind $IGB
	else
		choose_fused $virtual
		echo 0 >$functions
	fi
	[ ! -e "$(device_dir $virtual)" ] || failure "$virtual is still there"
	make_a_virtual_function
	expect_equal "its policy" "$(policy_of $virtual)" fused
	expect_equal "its window" "$(get $virtual max_window_us)" 555
	put $virtual policy none
	echo 0 >$functions
}
