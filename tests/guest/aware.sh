# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# A batch-aware driver: the promises of include/xsmmu/dma.h, and the debug mode's reports of misuse.

# The lab's module and the deferred test driver.
# shellcheck disable=SC2034 # all_off reads it
CALLERS=2
AWARE=/sys/bus/pci/drivers/xsmmu_deferred_test

# aware MODE: bind the driver in MODE; the caller checks the result.
aware() {
	echo "$1" >/sys/module/xsmmu_deferred_test/parameters/mode || return
	echo $TESTDEV >$AWARE/bind
}

case_aware_on_the_kernels_path() {
	log_mark
	aware kernel 2>/dev/null || failure "$(log_since | grep 'aware: wrong')"
	unbind $TESTDEV
}

# A device without translation has no DMA operations, and here (swiotlb=force) its buffers bounce: an unmap without a
# flush is the ordinary unmap, which copies back before it frees the slot.
case_aware_on_passthrough() {
	set_group_type $TESTDEV identity
	for mode in kernel bounce; do
		log_mark
		aware $mode 2>/dev/null || failure "$mode: $(log_since | grep 'aware: wrong')"
		unbind $TESTDEV
	done
	set_group_type $TESTDEV DMA-FQ
}

case_aware() {
	echo Y >/sys/module/xsmmu/parameters/debug
	for policy in $POLICIES; do
		[ "$policy" = lazy ] && waits=N || waits=Y
		echo $waits >/sys/module/xsmmu_deferred_test/parameters/waits
		put $TESTDEV policy "$policy"
		log_mark
		aware api 2>/dev/null || failure "$policy: $(log_since | grep 'aware: wrong')"
		[ "$policy" = lazy ] && level=lazy || level=strict
		expect_equal "$policy: level" "$(get $TESTDEV level)" $level
		expect_silence
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
}

# Unmaps without a flush, single and as a list, find the copies of copied buffers; none is a bad unmap.
case_aware_copies() {
	put $TESTDEV policy fused || failure "fused was refused: $(cat /tmp/put)"
	put $TESTDEV copy_bytes 4096 || failure "4096 was refused: $(cat /tmp/put)"
	log_mark
	aware copies 2>/dev/null || failure "$(log_since | grep 'aware: wrong')"
	expect_silence
}

# Strict until the driver declares itself batch-aware, and strict again after the driver's removal.
case_auto_of_an_aware_driver() {
	echo Y >/sys/module/xsmmu_deferred_test/parameters/waits
	put $TESTDEV policy auto || failure "auto was refused: $(cat /tmp/put)"
	expect_equal "auto before" "$(get $TESTDEV auto_policy | sed 's/:.*//')" "strict strict"
	expect_equal "batch_aware before" "$(get $TESTDEV batch_aware)" 0
	log_mark
	aware api 2>/dev/null || failure "$(log_since | grep 'aware: wrong')"
	expect_equal "batch_aware" "$(get $TESTDEV batch_aware)" 1
	[ "$(used_of $TESTDEV deferred_pages)" -gt 0 ] || failure "nothing was deferred: $(get $TESTDEV used)"
	expect_equal "auto under the driver" "$(get $TESTDEV auto_policy)" "fused strict: all drivers are batch-aware: fused is then strict, at a lower cost"
	expect_equal "level" "$(get $TESTDEV level)" strict
	expect_log "$TESTDEV: xsmmu: auto: fused, level strict: all drivers are batch-aware"
	unbind $TESTDEV
	expect_equal "auto afterwards" "$(get $TESTDEV auto_policy | sed 's/:.*//')" "strict strict"
	expect_equal "batch_aware afterwards" "$(get $TESTDEV batch_aware)" 0
}

case_level_is_not_the_drivers_after_it_left() {
	put $TESTDEV policy fused
	echo api >/sys/module/xsmmu_dma_api_test/parameters/mode
	echo $TESTDEV >/sys/bus/pci/drivers/xsmmu_dma_api_test/bind
	expect_equal "level" "$(get $TESTDEV level)" held
	expect_equal "batch_aware" "$(get $TESTDEV batch_aware)" 0
}

case_memory_freed_before_its_flush() {
	echo Y >/sys/module/xsmmu/parameters/debug
	for policy in xsmmu fused fands; do
		put $TESTDEV policy $policy
		log_mark
		aware early || failure "the probe failed"
		expect_log "misuse: memory was freed before its flush"
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
}

case_a_forgotten_flush() {
	echo Y >/sys/module/xsmmu/parameters/debug
	put $TESTDEV policy fused
	log_mark
	aware forget || failure "the probe failed"
	expect_log "misuse: a deferred unmap was not flushed within a second"
}

# The debug mode finds the first error on any IOMMU, and the second at a later map or unmap without a flush.
case_a_forgotten_flush_of_maps() {
	echo Y >/sys/module/xsmmu/parameters/debug
	put $TESTDEV policy fused
	log_mark
	aware unflushed || failure "the probe failed"
	expect_log "misuse: a deferred unmap of an unflushed map"
	unbind $TESTDEV
	log_mark
	aware unrung || failure "the probe failed"
	expect_log "misuse: an unflushed map was not flushed within a second"
}

# A hundred maps share one flush if maps need flushes, or a few if their IOVAs are not adjacent; else no flush.
case_maps_without_a_flush() {
	echo N >/sys/module/xsmmu/parameters/debug
	for policy in $POLICIES; do
		put $TESTDEV policy "$policy"
		log_mark
		aware maps 2>/dev/null || failure "$policy: $(log_since | grep 'aware: wrong')"
		expect_silence
		unbind $TESTDEV
		map_flushes=$(stat_of $TESTDEV map_flushes)
		aware maps 2>/dev/null
		map_flushes=$(($(stat_of $TESTDEV map_flushes) - map_flushes))
		unbind $TESTDEV
		case $FLUSHES_MAPS in
		1) [ "$map_flushes" -ge 1 ] && [ "$map_flushes" -le 8 ] ;;
		*) [ "$map_flushes" = 0 ] ;;
		esac || failure "$policy: 100 maps had $map_flushes flushes"
		expect_balance $TESTDEV
	done
}

# A map-side flush covers each page: of an ordinary map, of the pages of a block, of maps that the driver flushes. The
# flush of virtio-iommu sends all requests, whatever its range.
case_maps_are_flushed_to_the_last_page() {
	[ "$FLUSHES_MAPS $MAPS_ARE_SEEN" = "1 0" ] || return 0
	echo N >/sys/module/xsmmu/parameters/debug
	echo $TESTDEV >$PARAMETERS/slow || failure "there is no domain that watches"
	echo 0 >$PARAMETERS/unflushed
	for policy in $POLICIES; do
		[ "$policy" = lazy ] && waits=N || waits=Y
		echo $waits >/sys/module/xsmmu_deferred_test/parameters/waits
		put $TESTDEV policy "$policy" || failure "$policy was refused: $(cat /tmp/put)"
		log_mark
		rude api 2>/dev/null || failure "$policy: $(log_since | grep 'rude: wrong')"
		expect_equal "$policy: pages of ordinary maps without a flush" "$(cat $PARAMETERS/unflushed)" 0
		unbind $TESTDEV
		for mode in maps block; do
			aware $mode 2>/dev/null || failure "$policy, $mode: $(log_since | grep 'aware: wrong')"
			unbind $TESTDEV
			expect_equal "$policy, $mode: pages without a flush" "$(cat $PARAMETERS/unflushed)" 0
		done
		expect_balance $TESTDEV
	done
	echo 0 >$PARAMETERS/slow
}

# A batch-aware driver's maps: 256 at once, a refill, a packet. Few flushes if each map would need a flush, else none.
case_maps_together_are_few_commands() {
	echo Y >/sys/module/xsmmu_lab/parameters/batch_aware
	runs=/sys/kernel/debug/xsmmu_lab/$TESTDEV
	for policy in $POLICIES; do
		take "$policy" $TESTDEV
		count_from $TESTDEV
		maps=$(stat_of $TESTDEV maps)
		map_flushes=$(stat_of $TESTDEV map_flushes)
		echo 'ring=256 rounds=4' >$runs/micro || failure "micro failed under $policy"
		echo 'packets=512 descriptors=8 recycle=0 release=blocks' >$runs/receive || failure "receive failed under $policy"
		echo 'packets=256 release=poll' >$runs/transmit || failure "transmit failed under $policy"
		counted $TESTDEV "maps together under $policy"
		maps=$(($(stat_of $TESTDEV maps) - maps))
		map_flushes=$(($(stat_of $TESTDEV map_flushes) - map_flushes))
		case $FLUSHES_MAPS in
		1) [ "$map_flushes" -gt 0 ] && [ $((map_flushes * 4)) -lt "$maps" ] ;;
		*) [ "$map_flushes" = 0 ] ;;
		esac || failure "$policy: $maps maps had $map_flushes flushes"
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
	echo N >/sys/module/xsmmu_lab/parameters/batch_aware
}

# traced_pages EVENT: the sum over all lines of the recording.
traced_pages() {
	sed -n "s/.* $1: device=$TESTDEV .* pages=\([0-9]*\)$/\1/p" /sys/kernel/tracing/trace | awk '{total += $1} END{print total + 0}'
}

# The tracepoints report each page that a batch-aware driver maps and unmaps, also in blocks and lists.
case_an_aware_driver_is_traced() {
	echo 20000 >/sys/kernel/tracing/buffer_size_kb
	echo N >/sys/module/xsmmu/parameters/debug
	echo Y >/sys/module/xsmmu_deferred_test/parameters/waits
	for policy in strict fused; do
		put $TESTDEV policy $policy
		mapped=$(stat_of $TESTDEV mapped_pages)
		unmapped=$(stat_of $TESTDEV unmapped_pages)
		echo >/sys/kernel/tracing/trace
		echo 1 >/sys/kernel/tracing/events/xsmmu/enable
		log_mark
		aware api 2>/dev/null || failure "$policy: $(log_since | grep 'aware: wrong')"
		unbind $TESTDEV
		echo 0 >/sys/kernel/tracing/events/xsmmu/enable
		expect_equal "$policy: pages of maps traced" "$(traced_pages map)" $(($(stat_of $TESTDEV mapped_pages) - mapped))
		expect_equal "$policy: pages of unmaps traced" "$(traced_pages unmap)" $(($(stat_of $TESTDEV unmapped_pages) - unmapped))
		expect_balance $TESTDEV
	done
}
