# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2034,SC2086,SC2154 # variables for rude.sh; addresses are single words; variables from elsewhere
# Devices, IOMMU groups and domains come and go while files are read, locks are held and the module is busy.

# stall FUNCTION=MS: each call of FUNCTION takes MS longer, with the caller's locks held.
stall() {
	echo "$1" >$PARAMETERS/stall || give_up "there is no function ${1%=*}"
}

# reads UID FILE...: UID reads files of the test device repeatedly, in the background, until `read_no_more`.
reads() {
	reader=$1
	shift
	/usr/bin/setpriv --reuid=$reader --regid=$reader --clear-groups sh -c "while [ ! -e /tmp/read_no_more ]; do
		for file; do
			read -r line <$PCI/$TESTDEV/xsmmu/\$file
		done
	done" reads "$@" 2>/dev/null &
}

read_no_more() {
	: >/tmp/read_no_more
	wait
	rm /tmp/read_no_more
}

# A device is removed and found again beside readers of all readable files. Reading an IOMMU's state takes long.
case_life_readers_beside_an_unplug() {
	stall xs_iommu_look=20
	reads 65534 auto_policy policy
	reads 65534 level state tables
	reads 0 auto_policy stats/maps exposure_ns
	for round in 1 2 3 4; do
		sleep 1
		echo 1 >"$(device_dir $TESTDEV)/remove"
		echo 1 >/sys/bus/pci/rescan
		unbind $TESTDEV
		if dmesg | grep -q 'Oops\|BUG:'; then give_up "round $round: a reader made the kernel oops"; fi
	done
	read_no_more
	stall ''
	expect_equal "root reads" "$(get $TESTDEV auto_policy)" "strict strict: a device that is neither storage nor an Ethernet NIC: such devices were never tested"
}

case_life_files_of_root() {
	for file in auto_policy exposure_ns stats/maps stats/live_pages; do
		expect_equal "the mode of $file" "$(stat -c %a "$(xs $E1000E $file)")" 400
	done
}

# The displayed choice of auto follows a change of the group's type, without a driver.
case_life_a_type_is_read_after_its_change() {
	type=$(group_type $E1000E)
	for _ in 1 2 3 4 5; do
		set_group_type $E1000E identity
		expect_equal "the reason" "$(get $E1000E auto_policy)" "strict strict: the group does not translate, or the IOMMU is not known"
		set_group_type $E1000E DMA
		expect_equal "the reason" "$(get $E1000E auto_policy)" "strict strict: the kernel's own path is strict (type DMA)"
	done
	set_group_type $E1000E "$type"
	put $E1000E policy auto || failure "auto was refused: $(cat /tmp/put)"
	expect_equal "the reason" "$(get $E1000E auto_policy)" "fused held: an Ethernet NIC: its polls flush deferred unmaps"
}

# The device's folder disappears after all notifiers have run; links to the folder disappear before.
is_released() {
	[ ! -e "$folder" ]
}

# When a device is released, the IOMMU core resets its DMA operations to the kernel's own while the module is busy: the
# module still frees the mappings that the device's driver left.
case_life_a_orphaned_device_goes_while_the_module_is_busy() {
	orphan fused
	folder=$(readlink -f "$(device_dir $TESTDEV)")
	stall xs_iommu_look=3000
	for _ in 1 2 3; do
		put $E1000E policy auto
	done &
	sleep 1
	echo 1 >"$(device_dir $TESTDEV)/remove" &
	until_true 60 is_released || failure "it was not released"
	release_late || failure "$(log_since | grep 'rude: wrong')"
	wait
	stall ''
	until_true 10 is_unused || failure "the module's reference count is $(references)"
	echo 1 >/sys/bus/pci/rescan
	unbind $TESTDEV
	put $E1000E policy none
	bad_unmaps=0
	given_back
}

# lock_other: of two attached devices in a group, another task holds the lock of one when the driver of the other is
# removed.
lock_other() {
	put $one policy strict || failure "strict was refused: $(cat /tmp/put)"
	bind $one
	echo api >$PARAMETERS/mode
	echo $other >$RUDE/bind || failure "$(log_since | grep 'rude: wrong')"
	unbind $other
	echo "$other=2000" >$PARAMETERS/lock &
	sleep 0.3
	unbind $one
	expect_equal "the module's reference count" "$(references)" 0
	put $one policy none || failure "none was refused: $(cat /tmp/put)"
}

works_on_kernels_path() {
	log_mark
	echo kernel >$PARAMETERS/mode
	echo $other >$RUDE/bind || failure "the kernel's own path does not translate: $(log_since | grep 'rude: wrong')"
	unbind $other
}

# The group is detached, and the locked device gets the kernel's own path before the probe of its next driver.
case_life_a_device_is_locked_while_its_group_is_given_back() {
	one=0000:0a:00.0
	other=0000:0b:00.0
	unbind 0000:09:00.0 $one $other
	lock_other
	works_on_kernels_path
	wait
	lock_other
	rmmod xsmmu || give_up "rmmod was refused"
	wait
	works_on_kernels_path
	insmod /modules/xsmmu.ko || give_up "insmod failed"
}

# replace BDF ID ARGUMENTS: hot-plugs another device into the slot; the new device has no driver.
replace() {
	emit "{\"event\":\"qmp\",\"execute\":\"device_del\",\"arguments\":{\"id\":\"$2\"}}"
	until_true 20 test ! -e "$(device_dir $1)" || give_up "$1 is still there"
	emit "{\"event\":\"qmp\",\"execute\":\"device_add\",\"arguments\":{\"bus\":\"port-igb\",$3}}"
	until_true 20 test -e "$(xs $1 policy)" || give_up "$1 is not there"
	sleep 1
	unbind $1
}

# A choice applies only to the device for which it was made.
case_life_another_device_comes_to_a_slot() {
	rmmod xsmmu || give_up "rmmod was refused"
	insmod /modules/xsmmu.ko rules=class:0108=strict || give_up "insmod failed"
	put $IGB policy fused || failure "fused was refused: $(cat /tmp/put)"
	log_mark
	replace $IGB dut-igb '"id":"dut-igb","driver":"igb","netdev":"wire1","romfile":""'
	expect_equal "the policy of the same device" "$(policy_of $IGB)" fused
	expect_silence
	replace $IGB dut-igb '"id":"other","driver":"nvme","serial":"other","drive":"null0","share-rw":true'
	expect_equal "the policy of a disk in the slot of a NIC" "$(policy_of $IGB)" strict
	expect_log "$IGB: xsmmu: the choice of fused is dropped: it was for device 8086:10c9 of class 020000, which was at this address before: choose again"
	log_mark
	replace $IGB other '"id":"dut-igb","driver":"igb","netdev":"wire1","romfile":""'
	expect_equal "the policy of the NIC, after the disk" "$(policy_of $IGB)" none
	expect_silence
	rmmod xsmmu || give_up "rmmod was refused"
	insmod /modules/xsmmu.ko || give_up "insmod failed"
}

# --- VT-d, where the page table of a device is not found: the module is a build that never finds it ------------------

case_unknown_stage_in_caching_mode() {
	set_group_type $TESTDEV DMA
	refused $TESTDEV policy strict 'not supported' "$TESTDEV: xsmmu: refused: its IOMMU is in caching mode, and the page table of the device is not found"
	expect_equal "auto" "$(get $E1000E auto_policy)" "none none: its IOMMU is in caching mode, and the page table of the device is not found"
}
