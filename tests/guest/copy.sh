# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Copies of small buffers: which buffers are copied, for which drivers copies pay, and the copies' fate when a driver
# goes.

COPIED=/sys/bus/pci/drivers/xsmmu_bounce_test
COPIED_PARAMETERS=/sys/module/xsmmu_bounce_test/parameters
MIB=1048576

# copied MODE [LIMIT]: bind the bounce test driver in MODE; the caller checks the result.
copied() {
	echo "$1" >$COPIED_PARAMETERS/mode || return
	echo "${2:-4096}" >$COPIED_PARAMETERS/limit
	echo $TESTDEV >$COPIED/bind
}

said() {
	log_since | grep 'copied: wrong'
}

copies_of() {
	stat_of "$1" copied_maps
}

# Under the policy `copy`, and under other policies with copies, with several limits.
case_every_kind_of_copy() {
	for choice in copy:4096 strict:4096 fused:256 lazy:1514 fands:4096 xsmmu:2048 fused:4096; do
		put $TESTDEV policy ${choice%:*} || failure "$choice was refused: $(cat /tmp/put)"
		put $TESTDEV copy_bytes ${choice#*:} || failure "$choice was refused: $(cat /tmp/put)"
		before=$(copies_of $TESTDEV)
		log_mark
		copied checks ${choice#*:} 2>/dev/null || failure "$choice: $(said)"
		expect_silence
		[ "$(copies_of $TESTDEV)" -gt "$before" ] || failure "$choice: nothing was copied"
		expect_equal "$choice: copies since the attach" "$(used_of $TESTDEV copied_maps)" $(($(copies_of $TESTDEV) - before))
		[ "$(stat_of $TESTDEV pool_bytes)" -ge $((2 * MIB)) ] || failure "$choice: the pool has $(stat_of $TESTDEV pool_bytes) bytes"
		unbind $TESTDEV
		expect_balance $TESTDEV
		expect_equal "$choice: the pool's memory after its driver" "$(stat_of $TESTDEV pool_bytes)" 0
	done
	put $TESTDEV policy strict || failure "strict was refused: $(cat /tmp/put)"
	rude api 2>/dev/null || failure "$(log_since | grep 'rude: wrong')"
	expect_equal "the memory of a pool that is none" "$(stat_of $TESTDEV pool_bytes)" 0
}

# An unmodified driver, and the DMA API test driver.
case_what_is_large_is_mapped() {
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	expect_equal "the copy size under copy" "$(get $TESTDEV copy_bytes)" 4096
	put $TESTDEV copy_bytes 0 || failure "0 was refused: $(cat /tmp/put)"
	log_mark
	rude api 2>/dev/null || failure "$(log_since | grep 'rude: wrong')"
	expect_silence
	expect_equal "copies since the attach" "$(used_of $TESTDEV copied_maps)" 0
	[ "$(used_of $TESTDEV uncopied_maps)" -gt 0 ] || failure "nothing was mapped: $(get $TESTDEV used)"
}

# A driver without a DMA mask, which needed no syncs on the kernel's own path before.
case_syncs_are_not_skipped() {
	rude kernel 2>/dev/null || failure "$(log_since | grep 'rude: wrong')"
	unbind $TESTDEV
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	log_mark
	copied plain 2>/dev/null || failure "$(said)"
	expect_silence
}

case_the_pool_has_a_limit() {
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	put $TESTDEV pool_mib 3 || failure "3 MiB were refused: $(cat /tmp/put)"
	missed=$(stat_of $TESTDEV copy_misses)
	log_mark
	copied fill 2>/dev/null || failure "$(said)"
	expect_silence
	[ "$(stat_of $TESTDEV copy_misses)" -ge $((missed + 500)) ] || failure "$(($(stat_of $TESTDEV copy_misses) - missed)) misses"
	expect_equal "the pool's memory" "$(stat_of $TESTDEV pool_bytes)" $((2 * MIB))
	unbind $TESTDEV
	expect_balance $TESTDEV
	put $TESTDEV pool_mib 64 || failure "64 MiB were refused: $(cat /tmp/put)"
}

pool_has() {
	[ "$(stat_of $TESTDEV pool_bytes)" = "$1" ]
}

# Idle chunks are freed, except one of each kind.
case_the_pool_shrinks() {
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	log_mark
	copied many 2>/dev/null || failure "$(said)"
	[ "$(stat_of $TESTDEV pool_bytes)" -ge $((4 * MIB)) ] || failure "the pool has $(stat_of $TESTDEV pool_bytes) bytes"
	until_true 30 pool_has $((2 * MIB)) || failure "the pool has $(stat_of $TESTDEV pool_bytes) bytes still"
	# A pool at its limit is not above it.
	put $TESTDEV pool_mib 2 || failure "2 MiB were refused: $(cat /tmp/put)"
	sleep 12
	expect_equal "the pool's memory, at its limit" "$(stat_of $TESTDEV pool_bytes)" $((2 * MIB))
	unbind $TESTDEV
	expect_balance $TESTDEV
	# No worker touches a pool that is gone.
	sleep 12
	put $TESTDEV pool_mib 64 || failure "64 MiB were refused: $(cat /tmp/put)"
}

pool_has_at_most() {
	[ "$(stat_of $TESTDEV pool_bytes)" -le "$1" ]
}

# The pool has chunks of all kinds, all idle.
case_a_lower_limit_frees() {
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	copied checks 2>/dev/null || failure "$(said)"
	[ "$(stat_of $TESTDEV pool_bytes)" -ge $((8 * MIB)) ] || failure "the pool has $(stat_of $TESTDEV pool_bytes) bytes"
	put $TESTDEV pool_mib 2 || failure "2 MiB were refused: $(cat /tmp/put)"
	until_true 30 pool_has_at_most $((2 * MIB)) || failure "the pool has $(stat_of $TESTDEV pool_bytes) bytes still"
}

case_copying_is_chosen_before_a_driver_binds() {
	refused $DATA copy_bytes 256 'No data available' "$DATA: xsmmu: refused: choose a policy before copy_bytes"
	accepted $DATA policy fused
	expect_equal "the copy size under fused" "$(get $DATA copy_bytes)" 0
	expect_equal "can_copy without a driver" "$(get $DATA can_copy)" 1
	refused $DATA copy_bytes 4097 'Numerical result out of range' 'refused: copy_bytes "4097": must be a whole number from 0 to 4096'
	refused $DATA pool_mib 1 'Numerical result out of range' 'refused: pool_mib "1": must be a whole number from 2 to 256'
	refused $DATA pool_mib 257 'Numerical result out of range' 'refused: pool_mib "257": must be a whole number from 2 to 256'
	bind $DATA
	expect_equal "can_copy of a driver that was bound without" "$(get $DATA can_copy)" 0
	disk_start $DATA
	refused $DATA copy_bytes 256 'Device or resource busy' 'refused: copying can begin only while no driver is bound: unbind the drivers'
	refused $DATA policy copy 'Device or resource busy' 'refused: copying can begin only while no driver is bound: unbind the drivers'
	accepted $DATA policy strict
	work_on $DATA
	expect_equal "copies" "$(copies_of $DATA)" 0
	unbind $DATA
	accepted $DATA policy copy
	accepted $DATA copy_bytes 0
	bind $DATA
	refused $DATA policy copy 'Device or resource busy' 'refused: copying can begin only while no driver is bound: unbind the drivers'
	unbind $DATA
	accepted $DATA policy copy
	bind $DATA
	disk_start $DATA
	small_work $DATA
	[ "$(copies_of $DATA)" -gt 0 ] || failure "nothing was copied"
	# From here on every choice is possible under traffic.
	for choice in fused:0 copy:4096 strict:0 fused:256 lazy:4096 copy:512; do
		accepted $DATA policy ${choice%:*}
		accepted $DATA copy_bytes ${choice#*:}
		expect_equal "can_copy under $choice" "$(get $DATA can_copy)" 1
		work_on $DATA
	done
	accepted $DATA policy copy
	expect_equal "the copy size, chosen anew" "$(get $DATA copy_bytes)" 4096
	accepted $DATA policy fused
	before=$(copies_of $DATA)
	work_on $DATA
	expect_equal "copies under fused" $(($(copies_of $DATA) - before)) 0
}

case_copying_by_rule() {
	rmmod xsmmu
	insmod /modules/xsmmu.ko "rules=*=fused,copy_bytes:5000" 2>/dev/null && give_up "a wrong value was accepted"
	insmod /modules/xsmmu.ko "rules=driver:nvme=fused,copy_bytes:4096,pool_mib:8;*=copy" || give_up "insmod failed"
	bind $DATA
	disk_start $DATA
	small_work $DATA
	expect_equal "the policy" "$(policy_of $DATA)" fused
	expect_equal "the level" "$(get $DATA level)" held
	expect_equal "the pool's limit" "$(get $DATA pool_mib)" 8
	[ "$(copies_of $DATA)" -gt 0 ] || failure "nothing was copied"
	bind $E1000E
	nic_start $E1000E
	work_on $E1000E
	expect_equal "the level" "$(get $E1000E level)" strict
	[ "$(copies_of $E1000E)" -gt 0 ] || failure "nothing was copied"
	unbind $DATA $E1000E
	expect_balance $DATA
	expect_balance $E1000E
	rmmod xsmmu
	insmod /modules/xsmmu.ko
}

# Parts of pages, written and read back past the page cache; or packets.
small_work() {
	work_on "$1"
	[ "$1" = "$DATA" ] || return 0
	dd if=/dev/urandom of=/tmp/pattern bs=512 count=100 2>/dev/null
	dd if=/tmp/pattern of="$(disk_of "$1")" bs=512 oflag=direct 2>/tmp/dd || failure "$1: writing failed: $(tail -n 1 /tmp/dd)"
	dd if="$(disk_of "$1")" of=/tmp/back bs=512 count=100 iflag=direct 2>/tmp/dd || failure "$1: reading failed: $(tail -n 1 /tmp/dd)"
	cmp -s /tmp/pattern /tmp/back || failure "$1: the data read back differs from the data written"
}

case_copies_of_real_drivers() {
	for device in $E1000E $IGB $DATA; do
		for choice in copy:4096 copy:256 fused:256 fused:2048; do
			put $device policy ${choice%:*} || failure "$choice was refused: $(cat /tmp/put)"
			put $device copy_bytes ${choice#*:} || failure "$choice was refused: $(cat /tmp/put)"
			bind $device
			start $device
			before=$(copies_of $device)
			small_work $device
			small_work $device
			# Disks are read by the page, and packets here have 1,400 bytes.
			[ "$(copies_of $device)" -gt "$before" ] || [ ${choice#*:} = 256 ] || [ "$device:$choice" = "$DATA:fused:2048" ] ||
				failure "$device: $choice: nothing was copied"
			unbind $device
			expect_balance $device
		done
	done
}

KEPT=12

# A driver leaves copies behind: the log names them, they work after the driver's removal, also with another driver in
# another domain; then everything is freed.
case_copies_outlive_their_driver() {
	for next in none same new; do
		put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
		copied keep || failure "$(said)"
		expect_equal "live_pages" "$(stat_of $TESTDEV live_pages)" $KEPT
		log_mark
		unbind $TESTDEV
		expect_equal "the state" "$(get $TESTDEV state)" orphaned
		expect_equal "stale kernel mappings named" "$(log_since | grep -c 'IOVA 0x[0-9a-f]*: a copied buffer of 1[01][0-9] bytes is still mapped: a driver did not unmap the buffer')" 8
		expect_equal "lines that say so" "$(log_since | grep -c "orphaned: $KEPT copied buffers are still in use")" 1
		[ $next != new ] || new_domain
		if [ $next != none ]; then
			log_mark
			copied checks 2>/dev/null || failure "$next: $(said)"
			expect_silence
			expect_equal "live_pages beside a new driver's" "$(stat_of $TESTDEV live_pages)" $KEPT
		fi
		echo 1 >$COPIED_PARAMETERS/release || failure "$next: $(said)"
		unbind $TESTDEV
		until_true 10 state_is idle || failure "$next: the state is $(get $TESTDEV state)"
		expect_balance $TESTDEV
	done
}

# A driver's thread that maps after the driver's removal gets an error, rather than a copy that the device cannot reach.
case_a_late_copy() {
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	log_mark
	copied keep || failure "$(said)"
	unbind $TESTDEV
	expect_equal "the state" "$(get $TESTDEV state)" orphaned
	echo 1 >$COPIED_PARAMETERS/late || failure "$(said)"
	echo 1 >$COPIED_PARAMETERS/release || failure "$(said)"
	until_true 10 state_is idle || failure "the state is $(get $TESTDEV state)"
	expect_equal "maps that failed" "$(stat_of $TESTDEV map_failures)" 1
	# Unloading the module removes the count.
	put $TESTDEV policy none || failure "none was refused: $(cat /tmp/put)"
	rmmod xsmmu
	insmod /modules/xsmmu.ko
}

fire() {
	echo 1 >$COPIED_PARAMETERS/fire
}

# The device writes to writable copies, to no read-only copy, and to no copy after their driver's removal. The device
# cannot be told to read, so the test looks into the page table for read access.
case_what_is_read_is_not_written() {
	echo 1 >/proc/sys/kernel/printk
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	echo "0x$(cat "$(device_dir $TESTDEV)/iommu/intel-iommu/address")" >$COPIED_PARAMETERS/registers
	log_mark
	copied keep || failure "$(said)"
	echo 0 >$COPIED_PARAMETERS/registers
	fire 2>/tmp/fire || failure "the device: $(cat /tmp/fire)"
	unbind $TESTDEV
	expect_equal "the state" "$(get $TESTDEV state)" orphaned
	fire 2>/tmp/fire && failure "the device reaches copies that its driver has left"
	grep -q 'Bad address' /tmp/fire || failure "the device, after its driver: $(cat /tmp/fire)"
	echo 1 >$COPIED_PARAMETERS/release || failure "$(said)"
	until_true 10 state_is idle || failure "the state is $(get $TESTDEV state)"
}

# Each poll maps more buffers than a chunk has bounce buffers, and unmaps all: the pool grows until large enough.
case_bursts_are_copied() {
	take copy $TESTDEV
	for _ in 1 2 3; do
		before=$(stat_of $TESTDEV copied_maps)
		missed=$(stat_of $TESTDEV copy_misses)
		echo 'ring=1024 rounds=4 bytes=4000 sends=1' >/sys/kernel/debug/xsmmu_lab/$TESTDEV/micro || failure "micro failed"
		copied=$(($(stat_of $TESTDEV copied_maps) - before))
	done
	expect_equal "misses in the end" $(($(stat_of $TESTDEV copy_misses) - missed)) 0
	[ $copied -ge 4096 ] || failure "$copied buffers were copied"
}

# A sync longer than any copy is ignored and counted. A warning on the console ends the guest.
case_a_sync_of_too_much() {
	echo 1 >/proc/sys/kernel/printk
	before=$(stat_of $TESTDEV bad_unmaps)
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	log_mark
	copied size 2>/dev/null || failure "$(said)"
	expect_equal "bad_unmaps" "$(stat_of $TESTDEV bad_unmaps)" $((before + 1))
}

# A rule wants copies for an attached group.
rule_too_late() {
	joins=0000:0b:00.0
	works=0000:0a:00.0
	unbind $joins $works
	rmmod xsmmu
	insmod /modules/xsmmu.ko "rules=driver:xsmmu_bounce_test=strict,copy_bytes:4096;*=fused" || give_up "insmod failed"
	bind $works
	echo checks >$COPIED_PARAMETERS/mode
	echo 4096 >$COPIED_PARAMETERS/limit
	echo $joins >$COPIED/bind 2>/dev/null
	expect_equal "the policy" "$(policy_of $works)" strict
	expect_equal "the copy size" "$(get $works copy_bytes)" 0
}

# A rule for copies comes too late for a group that is attached without copies.
case_a_rule_copies_too_late() {
	rule_too_late
	expect_equal "copies" "$(copies_of $works)" 0
	for bytes in 512 4096; do
		refused $works copy_bytes $bytes 'Device or resource busy' 'refused: copying can begin only while no driver is bound: unbind the drivers'
	done
	refused $works policy copy 'Device or resource busy' 'refused: copying can begin only while no driver is bound: unbind the drivers'
	accepted $works max_window_us 500
	unbind $joins $works
	# All drivers that were bound without copies are gone now.
	echo $joins >$COPIED/bind 2>/dev/null || failure "alone: $(said)"
	expect_equal "the copy size, later" "$(get $joins copy_bytes)" 4096
	[ "$(copies_of $joins)" -gt 0 ] || failure "nothing was copied"
	unbind $joins
	# The policy `copy` itself is treated alike.
	rmmod xsmmu
	insmod /modules/xsmmu.ko "rules=driver:xsmmu_bounce_test=copy;*=fused" || give_up "insmod failed"
	bind $works
	echo $joins >$COPIED/bind 2>/dev/null
	expect_equal "the policy" "$(policy_of $works)" copy
	refused $works policy copy 'Device or resource busy' 'refused: copying can begin only while no driver is bound: unbind the drivers'
	unbind $joins $works
	rmmod xsmmu
	insmod /modules/xsmmu.ko
}

# A choice is remembered, whatever is in force: beside another choice, and when the devices return.
case_what_is_chosen_is_not_what_is_in_force() {
	rule_too_late
	accepted $works max_window_us 500
	unbind $joins $works
	expect_equal "the copy size, tuned" "$(get $works copy_bytes)" 4096
	for device in $joins $works; do
		pull $device
	done
	plug_back $joins $works
	expect_equal "the copy size, plugged again" "$(get $works copy_bytes)" 4096
	expect_equal "the window, plugged again" "$(get $works max_window_us)" 500
	# The policy in force is chosen again with its defaults, which copy nothing.
	rule_too_late
	accepted $works policy strict
	unbind $joins $works
	expect_equal "the copy size, chosen again" "$(get $works copy_bytes)" 0
	rmmod xsmmu
	insmod /modules/xsmmu.ko
}

# The device writes to a chunk whose memory now holds another kind of bounce buffers.
case_what_has_gone_is_not_written() {
	echo 1 >/proc/sys/kernel/printk
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	put $TESTDEV pool_mib 2 || failure "2 MiB were refused: $(cat /tmp/put)"
	log_mark
	copied stale 2>/dev/null || failure "$(said)"
}

# Beside a buffer the device finds no earlier content.
case_chunks_are_empty() {
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	log_mark
	copied fresh 2>/dev/null || failure "$(said)"
}

# Drivers that share parts of pages with their devices, which are never copied on the kernel's own path; strict gives
# the expected result.
case_pages_that_are_shared_in_parts() {
	for choice in strict:flip strict:unsynced strict:prime strict:svm copy:flip copy:unsynced copy:prime copy:svm \
		strict:polls copy:polls; do
		put $TESTDEV policy ${choice%:*} || failure "$choice was refused: $(cat /tmp/put)"
		log_mark
		copied ${choice#*:} 2>/dev/null || failure "$choice: $(said)"
		unbind $TESTDEV
	done
}

# A driver that writes into its buffer between its sync and its unmap. A buffer that must keep its offset and is not
# aligned is mapped.
case_a_driver_that_aligns() {
	for choice in strict:align1:mapped strict:align2:mapped strict:align_row:mapped copy:align1:copied copy:align2:copied \
		copy:align_begin:copied copy:align_end:copied copy:align_row:mapped copy:align_page:copied copy:align_few:copied \
		copy:align_large:mapped; do
		mode=${choice#*:}
		put $TESTDEV policy ${choice%%:*} || failure "$choice was refused: $(cat /tmp/put)"
		log_mark
		copied ${mode%:*} 2>/dev/null || failure "$choice: $(said)"
		log_since | grep -q "align: .*, ${mode#*:}, at" || failure "$choice: $(log_since | grep 'align: ')"
		unbind $TESTDEV
	done
}
