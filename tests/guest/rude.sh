# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# A driver that uses the DMA API correctly in every way, and incorrectly in some (see tests/guest/driver).

case_every_kind_of_mapping_on_the_kernels_path() {
	for _ in 1 2; do
		log_mark
		rude kernel 2>/dev/null || failure "$(log_since | grep 'rude: wrong')"
		unbind $TESTDEV
	done
}

case_every_kind_of_mapping() {
	for policy in $POLICIES; do
		put $TESTDEV policy "$policy"
		log_mark
		rude api 2>/dev/null || failure "$policy: $(log_since | grep 'rude: wrong')"
		expect_silence
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
}

# The managed memory of a failed probe is freed after the driver is gone, still on the module's path.
case_failed_probe() {
	for policy in none $POLICIES; do
		put $TESTDEV policy "$policy"
		log_mark
		if rude fail 2>/dev/null; then
			failure "the probe did not fail"
		fi
		expect_silence
		expect_balance $TESTDEV
		expect_equal "the module's reference count" "$(references)" 0
	done
	put $TESTDEV policy none
	rude kernel 2>/dev/null || failure "the kernel's own path afterwards: $(log_since | grep 'rude: wrong')"
}

LATE_PAGES=37

# orphan POLICY: a driver leaves mappings behind and is removed.
orphan() {
	put $TESTDEV policy "$1" || failure "the policy was refused: $(cat /tmp/put)"
	rude late || failure "the probe failed: $(log_since | grep 'rude: wrong')"
	expect_equal "live_pages" "$(stat_of $TESTDEV live_pages)" $LATE_PAGES
	log_mark
	unbind $TESTDEV
	expect_equal "$1: state" "$(get $TESTDEV state)" orphaned
	expect_equal "$1: level" "$(get $TESTDEV level)" none
	expect_equal "$1: stale kernel mappings named" "$(log_since | grep -c 'IOVA 0x[0-9a-f]*: [0-9]* pages are still mapped: a driver did not unmap them')" 8
	expect_equal "$1: lines that say so" "$(log_since | grep -c "orphaned: $LATE_PAGES pages in 15 mappings are still in use")" 1
	expect_equal "$1: live_pages" "$(stat_of $TESTDEV live_pages)" $LATE_PAGES
	expect_equal "$1: the module's reference count" "$(references)" 1
}

# given_back: the late mappings have been freed, and the kernel's own path is back.
given_back() {
	until_true 10 state_is idle || failure "the state is $(get $TESTDEV state)"
	expect_balance $TESTDEV
	expect_equal "bad_unmaps" "$(stat_of $TESTDEV bad_unmaps)" "$bad_unmaps"
	expect_equal "the module's reference count" "$(references)" 0
	put $TESTDEV policy none || failure "none was refused: $(cat /tmp/put)"
	log_mark
	rude kernel 2>/dev/null || failure "the kernel's own path afterwards: $(log_since | grep 'rude: wrong')"
	unbind $TESTDEV
}

# The log names a driver's leftovers, their handles work after the driver's removal, and then everything is freed.
case_handles_outlive_their_driver() {
	bad_unmaps=$(stat_of $TESTDEV bad_unmaps)
	for policy in $POLICIES; do
		orphan "$policy"
		refused $TESTDEV policy none "Device or resource busy" "refused: the group is orphaned, and $LATE_PAGES pages are still in use"
		release_late || failure "$policy: $(log_since | grep 'rude: wrong')"
		given_back
	done
}

# For handles of the kernel's own path the module warns, counts, and leaves their memory alone. A warning on the console
# ends the guest.
case_handles_outlive_the_kernels_path() {
	echo 1 >/proc/sys/kernel/printk
	rude late || failure "the probe failed: $(log_since | grep 'rude: wrong')"
	unbind $TESTDEV
	new_domain
	for policy in $POLICIES; do
		put $TESTDEV policy "$policy" || failure "the policy was refused: $(cat /tmp/put)"
		before=$(stat_of $TESTDEV bad_unmaps)
		rude api 2>/dev/null || failure "$policy: $(log_since | grep 'rude: wrong')"
		[ "$policy" = strict ] && { release_late || failure "$(log_since | grep 'rude: wrong')"; }
		expect_equal "$policy: bad unmaps" "$(stat_of $TESTDEV bad_unmaps)" $((before + $([ "$policy" = strict ] && echo 15 || echo 0)))
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
}

# Only the kernel's own path can unmap its own mappings: until then a device is not attached.
case_what_the_kernels_path_has_mapped() {
	put $TESTDEV policy strict || failure "the policy was refused: $(cat /tmp/put)"
	rude api || failure "$(log_since | grep 'rude: wrong')"
	unbind $TESTDEV
	put $TESTDEV policy none || failure "none was refused: $(cat /tmp/put)"
	rude late || failure "the probe failed: $(log_since | grep 'rude: wrong')"
	unbind $TESTDEV
	for policy in $POLICIES; do
		put $TESTDEV policy "$policy" || failure "the policy was refused: $(cat /tmp/put)"
		log_mark
		rude kernel || failure "$policy: $(log_since | grep 'rude: wrong')"
		expect_log "not attached, the device stays on the kernel's own path: a driver has left memory mapped on the kernel's own path: close the programs that use the memory"
		expect_equal "$policy: state" "$(get $TESTDEV state)" failed
		expect_equal "$policy: level" "$(get $TESTDEV level)" none
		unbind $TESTDEV
	done
	release_late || failure "$(log_since | grep 'rude: wrong')"
	log_mark
	rude api || failure "$(log_since | grep 'rude: wrong')"
	expect_silence
	expect_equal "state" "$(get $TESTDEV state)" active
}

# Two drivers of a group bind at once, while another task holds the module's lock: both devices are attached.
case_two_of_a_group_bind_at_once() {
	one=0000:0a:00.0
	other=0000:0b:00.0
	unbind $other
	put $one policy fused || failure "the policy was refused: $(cat /tmp/put)"
	# So the next attach checks for mappings of the kernel's own path, and takes long.
	rude kernel || failure "$(log_since | grep 'rude: wrong')"
	unbind $TESTDEV
	put $TESTDEV policy strict || failure "the policy was refused: $(cat /tmp/put)"
	log_mark
	rude api &
	sleep 0.03
	echo $other >$RUDE/bind &
	bind $one &
	wait
	expect_silence
	for each in $one $other; do
		[ -e "$(device_dir $each)/driver" ] || failure "$each has no driver"
	done
	expect_equal "the level" "$(get $one level)" held
	unbind $one $other $TESTDEV
	expect_balance $one
	put $one policy none || failure "none was refused: $(cat /tmp/put)"
}

# A driver that binds meanwhile is served by the same engine.
case_a_driver_comes_while_its_group_is_orphaned() {
	bad_unmaps=$(stat_of $TESTDEV bad_unmaps)
	for policy in $POLICIES; do
		orphan "$policy"
		log_mark
		rude api 2>/dev/null || failure "$policy: $(log_since | grep 'rude: wrong')"
		expect "$policy: a level" has_level $TESTDEV
		release_late || failure "$policy: $(log_since | grep 'rude: wrong')"
		log_mark
		unbind $TESTDEV
		expect_silence
		given_back
		orphan "$policy"
		rude api 2>/dev/null || failure "$policy: again: $(log_since | grep 'rude: wrong')"
		unbind $TESTDEV
		expect_equal "$policy: state" "$(get $TESTDEV state)" orphaned
		release_late || failure "$policy: $(log_since | grep 'rude: wrong')"
		given_back
	done
}

# A device is pulled, and plugged in again, while mappings of it are in use.
case_a_device_goes_while_its_group_is_orphaned() {
	orphan fused
	pull $TESTDEV
	expect_equal "the module's reference count" "$(references)" 1
	release_late || failure "$(log_since | grep 'rude: wrong')"
	until_true 10 is_unused || failure "the module's reference count is $(references)"
	plug_back $TESTDEV
	bad_unmaps=0
	expect_equal "the state" "$(get $TESTDEV state)" idle
	given_back
}

is_unused() {
	[ "$(references)" = 0 ]
}

# The group's type may change meanwhile, which frees the old domain.
case_the_type_changes_while_a_group_is_orphaned() {
	bad_unmaps=$(stat_of $TESTDEV bad_unmaps)
	type=$(group_type $TESTDEV)
	orphan fused
	set_group_type $TESTDEV identity
	log_mark
	if rude api 2>/dev/null; then failure "a driver could map"; fi
	log_since | grep -q 'all maps fail: memory of an earlier driver is still in use' || failure "the log does not say why"
	echo $(($(cat /tmp/map_failures.$TESTDEV 2>/dev/null || echo 0) + 1)) >/tmp/map_failures.$TESTDEV
	set_group_type $TESTDEV "$type"
	sleep 1
	release_late || failure "$(log_since | grep 'rude: wrong')"
	given_back
	orphan strict
	set_group_type $TESTDEV identity
	sleep 0.1
	release_late || failure "$(log_since | grep 'rude: wrong')"
	until_true 10 state_is idle || failure "the state is $(get $TESTDEV state)"
	set_group_type $TESTDEV "$type"
	given_back
}

# The domain stays until the driver's managed memory is freed, too.
case_the_type_changes_while_a_driver_goes() {
	type=$(group_type $TESTDEV)
	put $TESTDEV policy fused
	rude slow || failure "the probe failed"
	log_mark
	unbind $TESTDEV &
	going=$!
	sleep 1
	echo identity >"$(device_dir $TESTDEV)/iommu_group/type" 2>/dev/null &
	changing=$!
	sleep 0.5
	expect_equal "the type while the driver goes" "$(group_type $TESTDEV)" "$type"
	wait $going $changing
	expect_silence
	expect_balance $TESTDEV
	expect_equal "the module's reference count" "$(references)" 0
	set_group_type $TESTDEV "$type"
}

# A device that joins an attached group and must not be attached can map nothing; the others work on.
case_an_untrusted_device_joins_a_group_at_work() {
	joins=0000:0b:00.0
	works=0000:0a:00.0
	unbind $joins
	take fused $works
	trust $joins 1
	log_mark
	for mode in api kernel; do
		echo $mode >$PARAMETERS/mode
		if echo $joins >$RUDE/bind 2>/dev/null; then failure "$mode: it could map"; fi
		expect_equal "$mode: lines that say so" "$(log_since | grep -c "$joins: xsmmu: all maps fail: the IOMMU group is attached, but this device cannot be")" 1
		log_mark
	done
	expect_equal "the state" "$(get $works state)" active
	expect_equal "the level" "$(get $works level)" held
	expect_equal "blocked" "$(get $works blocked) $(get $joins blocked)" "0 1"
	for policy in strict fused; do
		put $works policy $policy || failure "a change to $policy was refused: $(cat /tmp/put)"
	done
	# After the detach the group stays on the kernel's own path while that device is present.
	unbind $works
	log_mark
	bind $works
	expect_equal "the state beside it" "$(get $works state)" off
	expect_equal "blocked after the detach" "$(get $works blocked) $(get $joins blocked)" "0 0"
	expect_equal "lines that say so" "$(log_since | grep -c "$joins: xsmmu: fused is chosen for IOMMU group .* and passed over")" 1
	unbind $works
	trust $joins 0
	bind $works
	expect_equal "the level" "$(get $works level)" held
	log_mark
	echo api >$PARAMETERS/mode
	echo $joins >$RUDE/bind || failure "$(log_since | grep 'rude: wrong')"
	expect_silence
	unbind $joins $works
	expect_balance $works
	put $works policy none || failure "none was refused: $(cat /tmp/put)"
}

# For an unmap that matches no mapping the module warns and counts; the named pages become unreachable. A warning on the
# console ends the guest.
case_bad_unmaps() {
	echo 1 >/proc/sys/kernel/printk
	for policy in $POLICIES; do
		put $TESTDEV policy "$policy"
		before=$(stat_of $TESTDEV bad_unmaps)
		log_mark
		rude bad_unmap || failure "$policy: $(log_since | grep 'rude: wrong')"
		expect_equal "$policy: warnings of bad unmaps" "$(log_since | grep -c "xsmmu: $TESTDEV: ignored: an unmap that matches no mapping, IOVA 0x")" 1
		expect_equal "$policy: warnings of mismatched unmaps" "$(log_since | grep -c "xsmmu: $TESTDEV: its driver unmaps 1 pages at IOVA 0x[0-9a-f]*, but the mapping there is 4 pages at IOVA 0x")" 1
		# The right unmap follows three bad unmaps that name all pages, and is a fourth bad unmap if the IOVAs
		# are free by then.
		bad_unmaps=$(($(stat_of $TESTDEV bad_unmaps) - before))
		[ $bad_unmaps = 3 ] || [ $bad_unmaps = 4 ] || failure "$policy: $bad_unmaps bad unmaps"
		until_true 5 live_pages_are 0 || failure "$policy: live_pages is $(stat_of $TESTDEV live_pages)"
		expect_equal "$policy: state" "$(get $TESTDEV state)" active
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
}

live_pages_are() {
	[ "$(stat_of $TESTDEV live_pages)" = "$1" ]
}

# torn MODE FILE: the driver makes all kinds of mismatched unmaps; writes the device's reach after each to FILE.
torn() {
	log_mark
	rude $1 || failure "$policy: $(log_since | grep 'rude: wrong')"
	log_since | sed -n 's/.*rude: tear \(.*\)/\1/p' >"$2"
	[ -s "$2" ] || failure "$policy: $1 tells of nothing"
}

# After a mismatched unmap the device reaches no named page, and of the rest no more than on the kernel's own path.
# After the driver's removal nothing is left.
case_mismatched_unmaps() {
	echo 1 >/proc/sys/kernel/printk
	policy=none
	# The virtio-iommu driver drops its records of such a range, and the device refuses the next map there.
	: >/tmp/torn.kernel
	if ! is_virtio_iommu; then
		put $TESTDEV policy none
		torn tear_left /tmp/torn.kernel
		unbind $TESTDEV
		new_domain
	fi
	for policy in $POLICIES; do
		for mode in tear tear_left; do
			put $TESTDEV policy "$policy" || failure "the policy was refused: $(cat /tmp/put)"
			before=$(stat_of $TESTDEV bad_unmaps)
			torn $mode /tmp/torn.ours
			expect_equal "$policy: $mode: warned of" "$(log_since | grep -c 'xsmmu: .*: its driver unmaps')" 1
			# If all pages of a mapping are named, the mapping may be freed before its right unmap, which
			# then is a further bad unmap.
			kinds=$(grep -c . /tmp/torn.ours)
			bad_unmaps=$(($(stat_of $TESTDEV bad_unmaps) - before))
			[ $bad_unmaps -ge $kinds ] && [ $bad_unmaps -le $((2 * kinds)) ] || failure "$policy: $mode: $bad_unmaps bad unmaps of $kinds kinds"
			left=0
			while read -r name named rest all; do
				kernels=$(sed -n "s/^$name //p" /tmp/torn.kernel)
				echo "$policy: $mode: $name: $named, $rest of $all; kernel: $kernels" >/dev/kmsg
				expect_equal "$policy: $mode: $name: named pages that the device reaches" "$named" 0
				# The whole mapping goes if the IOMMU's driver cannot remove a part.
				[ "$rest" = 0 ] || left=1
				[ "$rest" = "$all" ] || [ "$rest" = 0 ] || failure "$policy: $mode: $name: $rest of the other $all pages are reached; kernel: $kernels"
			done </tmp/torn.ours
			[ $mode = tear ] || expect_equal "$policy: state" "$(get $TESTDEV state)" "$([ $left = 1 ] && echo torn || echo active)"
			[ $mode = tear ] || [ "$(stat_of $TESTDEV torn_pages)" -gt 0 ] || [ $left = 0 ] || failure "$policy: torn_pages is 0"
			[ $mode = tear ] || [ "$(stat_of $TESTDEV torn_pages)" = 0 ] || [ $left = 1 ] || failure "$policy: torn_pages is not 0"
			[ $mode = tear_left ] || until_true 5 live_pages_are 0 || failure "$policy: live_pages is $(stat_of $TESTDEV live_pages)"
			unbind $TESTDEV
			expect_equal "$policy: $mode: the state without a driver" "$(get $TESTDEV state)" idle
			expect_balance $TESTDEV
			expect_equal "the module's reference count" "$(references)" 0
		done
	done
}

# Page-table pages of the IOMMU; empty if this kernel does not count them.
tables() {
	sed -n 's/^nr_iommu_pages //p' /proc/vmstat
}

tables_are_at_most() {
	[ "$(tables)" -le "$1" ]
}

# Many mappings at once leave 48 leaves empty, each with two page-table pages. A trim begins above 32 empty leaves and
# leaves 16; leaves that become empty behind an early trim stay up to 32, so at most 64 pages and the table above them
# stay. Only VT-d's driver frees empty tables, until 7.2.
case_empty_page_tables() {
	put $TESTDEV policy fused
	before=$(tables)
	log_mark
	rude many || failure "$(log_since | grep 'rude: wrong')"
	case $(uname -r)/$(ls "$(device_dir $TESTDEV)/iommu/") in
	6.12*intel-iommu*) until_true 10 tables_are_at_most $((before + 66)) || failure "$(tables) page-table pages, and $before before" ;;
	esac
	rude_again=$(stat_of $TESTDEV unmaps)
	unbind $TESTDEV
	rude many || failure "again: $(log_since | grep 'rude: wrong')"
	expect_equal "unmaps" "$(stat_of $TESTDEV unmaps)" $((rude_again + 49152))
	unbind $TESTDEV
	expect_silence
}

# fire: the device writes to late coherent memory. Fails if the write does not land.
fire() {
	echo 1 >$PARAMETERS/fire
}

# The device no longer reaches mappings that were left behind, not even through the IOMMU's caches.
case_orphaned_is_out_of_reach() {
	echo 1 >/proc/sys/kernel/printk
	bad_unmaps=$(stat_of $TESTDEV bad_unmaps)
	for policy in $POLICIES; do
		put $TESTDEV policy $policy
		rude late || failure "$(log_since | grep 'rude: wrong')"
		fire || failure "$policy: the device cannot reach a mapped page"
		unbind $TESTDEV
		expect_equal "the state" "$(get $TESTDEV state)" orphaned
		if fire 2>/dev/null; then failure "$policy: the device reaches its driver's leftovers"; fi
		release_late || failure "$(log_since | grep 'rude: wrong')"
		given_back
	done
}

# A group that is orphaned while another owner (VFIO) holds the group is detached when the owner releases the group, not
# before.
case_somebody_else_has_a_orphaned_group() {
	bad_unmaps=$(stat_of $TESTDEV bad_unmaps)
	orphan fused
	echo 1 >$PARAMETERS/own || failure "the group cannot be had"
	release_late || failure "$(log_since | grep 'rude: wrong')"
	sleep 2
	expect_equal "the state while another has the group" "$(get $TESTDEV state)" orphaned
	echo 0 >$PARAMETERS/own
	given_back
}

# Detached under another type, a group's devices take the path of that type.
case_given_back_under_identity() {
	type=$(group_type $TESTDEV)
	bad_unmaps=$(stat_of $TESTDEV bad_unmaps)
	orphan strict
	set_group_type $TESTDEV identity
	sleep 0.1
	release_late || failure "$(log_since | grep 'rude: wrong')"
	until_true 10 state_is idle || failure "the state is $(get $TESTDEV state)"
	put $TESTDEV policy none || failure "none was refused: $(cat /tmp/put)"
	rude many || failure "identity's path afterwards: $(log_since | grep 'rude: wrong')"
	unbind $TESTDEV
	set_group_type $TESTDEV "$type"
}

# The module holds one reference to a device, however often drivers bind while the group is orphaned.
case_references_of_a_device() {
	bad_unmaps=$(stat_of $TESTDEV bad_unmaps)
	held=
	for binds in 0 3; do
		orphan fused
		for _ in $(seq $binds); do
			rude api || failure "$(log_since | grep 'rude: wrong')"
			unbind $TESTDEV
		done
		release_late || failure "$(log_since | grep 'rude: wrong')"
		given_back
		[ -z "$held" ] || expect_equal "references of the device" "$(cat $PARAMETERS/holders)" "$held"
		held=$(cat $PARAMETERS/holders)
	done
}

# A late unmap of mappings that were removed with their driver does not affect the next driver's mappings. Those are in
# a new domain, without the old tables. Also in a group that was attached before.
case_late_unmaps_in_a_new_domain() {
	for round in 1 2; do
		put $TESTDEV policy strict || failure "the policy was refused: $(cat /tmp/put)"
		rude crowd || failure "$(log_since | grep 'rude: wrong')"
		unbind $TESTDEV
		expect_equal "$round: the state" "$(get $TESTDEV state)" orphaned
		new_domain
		rude keep || failure "$(log_since | grep 'rude: wrong')"
		expect_equal "$round: mapped before" "$(cat $PARAMETERS/kept)" 1
		release_late || failure "$(log_since | grep 'rude: wrong')"
		expect_equal "$round: mapped after" "$(cat $PARAMETERS/kept)" 1
		unbind $TESTDEV
		until_true 10 state_is idle || failure "the state is $(get $TESTDEV state)"
		expect_balance $TESTDEV
	done
}

# A blocked device that becomes trusted is served while the others work, and gets the kernel's own path back.
case_closed_is_opened_at_work() {
	joins=0000:0b:00.0
	works=0000:0a:00.0
	unbind $joins
	take fused $works
	trust $joins 1
	echo api >$PARAMETERS/mode
	if echo $joins >$RUDE/bind 2>/dev/null; then failure "it could map"; fi
	trust $joins 0
	log_mark
	echo $joins >$RUDE/bind || failure "$(log_since | grep 'rude: wrong')"
	expect_silence
	unbind $joins $works
	expect_balance $works
	put $works policy none || failure "none was refused: $(cat /tmp/put)"
	echo kernel >$PARAMETERS/mode
	echo $joins >$RUDE/bind || failure "the kernel's own path: $(log_since | grep 'rude: wrong')"
	unbind $joins
}

# If a device of a group is on the kernel's own path, even without mappings, no other device is attached; a device whose
# probe failed there does not count.
case_beside_one_on_the_kernels_path() {
	one=0000:0a:00.0
	other=0000:0b:00.0
	unbind $one $other
	echo late >$PARAMETERS/mode
	echo $other >$RUDE/bind || failure "$(log_since | grep 'rude: wrong')"
	unbind $other
	put $one policy strict || failure "the policy was refused: $(cat /tmp/put)"
	echo fail >$PARAMETERS/mode
	if echo $other >$RUDE/bind 2>/dev/null; then failure "the probe did not fail"; fi
	echo kernel >$PARAMETERS/mode
	echo $other >$RUDE/bind || failure "$(log_since | grep 'rude: wrong')"
	expect_equal "the state of the first" "$(get $other state)" failed
	release_late || failure "$(log_since | grep 'rude: wrong')"
	log_mark
	bind $one
	expect_log "$one: xsmmu: not attached, the device stays on the kernel's own path: another device of its IOMMU group uses the kernel's own path"
	expect_equal "the level" "$(get $one level)" none
	unbind $one $other
	echo late >$PARAMETERS/mode
	put $one policy none
	echo $other >$RUDE/bind || failure "$(log_since | grep 'rude: wrong')"
	unbind $other
	put $one policy strict || failure "the policy was refused: $(cat /tmp/put)"
	echo fail >$PARAMETERS/mode
	if echo $other >$RUDE/bind 2>/dev/null; then failure "the probe did not fail"; fi
	release_late || failure "$(log_since | grep 'rude: wrong')"
	log_mark
	bind $one
	expect_silence
	expect_equal "the level after a failed probe of the other" "$(get $one level)" strict
	unbind $one
	put $one policy none
}

# A single page that the kernel's own path has mapped, the last page below 4 GiB, prevents an attach.
case_one_page_of_the_kernels_path() {
	rude one || failure "$(log_since | grep 'rude: wrong')"
	unbind $TESTDEV
	put $TESTDEV policy strict || failure "the policy was refused: $(cat /tmp/put)"
	rude kernel || failure "$(log_since | grep 'rude: wrong')"
	expect_equal "the state" "$(get $TESTDEV state)" failed
	unbind $TESTDEV
	release_late || failure "$(log_since | grep 'rude: wrong')"
	rude api || failure "$(log_since | grep 'rude: wrong')"
	expect_equal "the state" "$(get $TESTDEV state)" active
}

# A mapping of 4 KiB prevents an attach, too, if CPU pages are larger than IOMMU pages; any driver of the device shows
# this.
case_a_part_of_a_page_of_the_kernels_path() {
	rude one || failure "$(log_since | grep 'rude: wrong')"
	unbind $TESTDEV
	take strict $TESTDEV
	expect_equal "the state" "$(get $TESTDEV state)" failed
	unbind $TESTDEV
	release_late || failure "$(log_since | grep 'rude: wrong')"
	bind $TESTDEV
	expect_equal "the state" "$(get $TESTDEV state)" attached
}

# For a free with a wrong handle the module warns, and frees nothing.
case_bad_unmap_free() {
	echo 1 >/proc/sys/kernel/printk
	for policy in $POLICIES; do
		put $TESTDEV policy "$policy"
		before=$(stat_of $TESTDEV bad_unmaps)
		log_mark
		rude free || failure "$policy: $(log_since | grep 'rude: wrong')"
		expect_equal "$policy: bad unmaps" "$(stat_of $TESTDEV bad_unmaps)" $((before + 2))
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
}

# The module does not see drivers of devices outside the PCI bus: a group with such a device is left alone.
case_a_stranger_in_the_group() {
	# The core of 6.1 takes every member for a probed device, and crashes on this device.
	case $(uname -r) in 6.1.*) return ;; esac
	echo $TESTDEV >$PARAMETERS/stranger || failure "there is no stranger"
	put $TESTDEV policy strict || failure "the policy was refused: $(cat /tmp/put)"
	log_mark
	rude kernel || failure "$(log_since | grep 'rude: wrong')"
	expect_log "not attached, the device stays on the kernel's own path: its IOMMU group has a device that is not a PCI device"
	unbind $TESTDEV
	echo 0 >$PARAMETERS/stranger
	log_mark
	rude api || failure "$(log_since | grep 'rude: wrong')"
	expect_silence
}

# A driver's thread was about to map when its group was detached: the thread gets no memory and does no harm.
case_a_map_comes_behind_the_give_back() {
	bad_unmaps=$(stat_of $TESTDEV bad_unmaps)
	for policy in $POLICIES; do
		put $TESTDEV policy "$policy" || failure "$policy was refused: $(cat /tmp/put)"
		log_mark
		rude keep || failure "$(log_since | grep 'rude: wrong')"
		echo 1 >$PARAMETERS/overtaken || failure "$policy: there are no operations"
		unbind $TESTDEV
		echo 1 >$PARAMETERS/overtaken || failure "$policy: $(log_since | grep 'rude: wrong')"
		given_back
	done
}

# The thread had already found its group at the detach: the thread uses nothing that it finds through its device.
case_a_map_has_begun_before_the_give_back() {
	bad_unmaps=$(stat_of $TESTDEV bad_unmaps)
	for policy in $POLICIES; do
		put $TESTDEV policy "$policy" || failure "$policy was refused: $(cat /tmp/put)"
		log_mark
		rude keep || failure "$(log_since | grep 'rude: wrong')"
		echo xs_engine_alloc_iova >$PARAMETERS/outrun || failure "$policy: $(log_since | grep 'rude: wrong')"
		unbind $TESTDEV
		given_back
	done
}

tardy_is() {
	[ "$(cat $PARAMETERS/tardy)" = "$1" ]
}

# A detach waits for a running map of a driver's thread, of any kind; then the map has failed, or is left behind and
# unreachable.
case_a_map_is_under_way_when_its_driver_goes() {
	# The tables of 7.2 are not mapped by an operation of the domain.
	case $(uname -r) in 7.*) return ;; esac
	bad_unmaps=$(stat_of $TESTDEV bad_unmaps)
	echo $TESTDEV >$PARAMETERS/slow || failure "there is no slow domain"
	for kind in single list contiguous scattered registers; do
		put $TESTDEV policy fused || failure "the policy was refused: $(cat /tmp/put)"
		rude keep || failure "$(log_since | grep 'rude: wrong')"
		echo $kind >$PARAMETERS/tardy || failure "$kind: there is no thread"
		until_true 5 tardy_is inside || failure "$kind: the thread does not map"
		unbind $TESTDEV
		# A map of several steps fails at the next step.
		case $kind in
		list | scattered) wanted=refused ;;
		*) wanted=mapped ;;
		esac
		expect_equal "$kind: the map, when the driver has gone" "$(cat $PARAMETERS/tardy)" $wanted
		if [ $wanted = mapped ]; then
			expect_equal "$kind: the state" "$(get $TESTDEV state)" orphaned
			release_late || failure "$kind: it could not be released"
		else
			echo $(($(cat /tmp/map_failures.$TESTDEV 2>/dev/null || echo 0) + 1)) >/tmp/map_failures.$TESTDEV
		fi
		given_back
	done
	echo 0 >$PARAMETERS/slow
}

# If the IOMMU caches absent entries or must be told of maps (FLUSHES_MAPS), each map is flushed, a map of many parts
# once; elsewhere no map is flushed.
case_maps_are_flushed_in_caching_mode() {
	put $TESTDEV policy strict || failure "the policy was refused: $(cat /tmp/put)"
	before=$(stat_of $TESTDEV map_flushes)
	rude late || failure "$(log_since | grep 'rude: wrong')"
	expect_equal "flushes of 15 maps" $(($(stat_of $TESTDEV map_flushes) - before)) $((15 * FLUSHES_MAPS))
	release_late || failure "$(log_since | grep 'rude: wrong')"
}

# two_bind_at_once: while another task holds the module's lock, the first driver of a group waits for the lock, then the
# second.
two_bind_at_once() {
	put $one policy fused || failure "the policy was refused: $(cat /tmp/put)"
	# So the next attach checks for mappings of the kernel's own path, and takes long.
	rude kernel || failure "$(log_since | grep 'rude: wrong')"
	unbind $TESTDEV
	put $TESTDEV policy strict || failure "the policy was refused: $(cat /tmp/put)"
	log_mark
	rude api &
	sleep 0.02
	bind $one &
	sleep 0.005
	echo $other >$RUDE/bind &
	wait
	expect_silence
	expect_equal "$1: the level" "$(get $one level)" held
	unbind $one $other $TESTDEV
	put $one policy none || failure "none was refused: $(cat /tmp/put)"
	put $TESTDEV policy none || failure "none was refused: $(cat /tmp/put)"
}

# Earlier drivers of the group's devices on the kernel's own path do not prevent an attach, whether removed or failed in
# their probe.
case_two_bind_at_once_after_the_kernels_path() {
	one=0000:0a:00.0
	other=0000:0b:00.0
	unbind $one $other
	echo kernel >$PARAMETERS/mode
	echo $other >$RUDE/bind || failure "$(log_since | grep 'rude: wrong')"
	unbind $other
	two_bind_at_once "a driver that has gone"
	echo fail >$PARAMETERS/mode
	if echo $other >$RUDE/bind 2>/dev/null; then failure "the probe did not fail"; fi
	two_bind_at_once "a probe that has failed"
}
