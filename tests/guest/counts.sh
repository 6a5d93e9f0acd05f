# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# The module's counts of invalidation commands equal the commands that the IOMMU received, kind by kind.

# Flushes of five pages begin at any page: an unaligned range may take more than one command.
case_commands_of_a_disk() {
	for policy in $POLICIES copy; do
		take "$policy" $DATA
		disk_start $DATA
		count_from $DATA
		at_once=$(stat_of $DATA flush_unmap)
		maps=$(stat_of $DATA maps)
		map_flushes=$(stat_of $DATA map_flushes)
		work_on $DATA
		dd if="$(disk_of $DATA)" of=/dev/null bs=20k count=64 iflag=direct 2>/tmp/dd || failure "$(tail -n 1 /tmp/dd)"
		counted $DATA "a disk under $policy"
		# Its lists have no holes; some IOMMUs cannot defer holes.
		case $policy in
		lazy | fands) expect_equal "$policy: unmaps that were not deferred" "$(stat_of $DATA flush_unmap)" "$at_once" ;;
		esac
		# A list is one map.
		map_flushes=$(($(stat_of $DATA map_flushes) - map_flushes))
		[ "$policy" = copy ] || [ "$map_flushes" = 0 ] ||
			expect_equal "$policy: flushes of maps" "$map_flushes" $(($(stat_of $DATA maps) - maps))
		unbind $DATA
		expect_balance $DATA
	done
}

case_commands_of_a_nic() {
	for policy in $POLICIES copy; do
		take "$policy" $E1000E
		nic_start $E1000E
		count_from $E1000E
		ping_peer $E1000E 10
		counted $E1000E "a NIC under $policy"
		unbind $E1000E
		expect_balance $E1000E
	done
}

# More blocks than a range holds.
case_commands_of_many_pages() {
	for policy in $POLICIES copy; do
		take "$policy" $TESTDEV
		for ring in 64 1024; do
			count_from $TESTDEV
			echo "ring=$ring rounds=4" >/sys/kernel/debug/xsmmu_lab/$TESTDEV/micro || failure "micro failed under $policy"
			counted $TESTDEV "a ring of $ring under $policy"
		done
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
}

# More pages than the largest command of some IOMMUs covers, and as many as take several commands of another IOMMU.
case_commands_of_ranges() {
	for policy in $POLICIES; do
		put $TESTDEV policy "$policy" || failure "$policy was refused: $(cat /tmp/put)"
		log_mark
		rude ranges
		count_from $TESTDEV
		echo 1 >$PARAMETERS/ranges || failure "$policy: $(log_since | grep 'rude: wrong')"
		counted $TESTDEV "ranges under $policy"
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
}

# VT-d's driver up to 6.12 frees a page-table page before the invalidation, by this function.
FREES_EARLY=$(sed -n 's/^[0-9a-f]* . \(dma_pte_free_level[^ ]*\)$/\1/p' /proc/kallsyms | head -n 1)

# early_frees_from, early_frees: count the calls of the function.
early_frees_from() {
	[ -n "$FREES_EARLY" ] || return 0
	echo "p:xs_frees_early $FREES_EARLY" >/sys/kernel/tracing/kprobe_events || failure "there is no probe of $FREES_EARLY"
	echo 1 >/sys/kernel/tracing/events/kprobes/xs_frees_early/enable
}

early_frees() {
	[ -n "$FREES_EARLY" ] || return 0
	expect_equal "$1: page-table pages that the driver has freed before it invalidated" \
		"$(awk '$1 == "xs_frees_early" { print $2 }' /sys/kernel/tracing/kprobe_profile)" 0
	echo 0 >/sys/kernel/tracing/events/kprobes/xs_frees_early/enable
	echo >/sys/kernel/tracing/kprobe_events
}

# small_maps_were_there HOW_MANY POLICY: earlier maps left empty page tables, and the next engine maps over them.
small_maps_were_there() {
	put $TESTDEV policy fused || failure "fused was refused: $(cat /tmp/put)"
	log_mark
	rude "$1" || failure "$(log_since | grep 'rude: wrong')"
	unbind $TESTDEV
	put $TESTDEV policy "$2" || failure "$2 was refused: $(cat /tmp/put)"
	rude ranges
}

# The commands for page-table pages replaced by large entries are not counted.
case_commands_of_large_maps_over_small_ones() {
	for policy in $POLICIES; do
		small_maps_were_there some "$policy"
		early_frees_from
		count_from $TESTDEV
		echo 1 >$PARAMETERS/large || failure "$policy: $(log_since | grep 'rude: wrong')"
		counted $TESTDEV "large maps under $policy"
		early_frees "$policy"
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
}

# The memory of copies has large entries, and exclusive IOVAs while the engine exists. Drivers other than VT-d's up to
# 6.12 keep the order and are not asked to free empty tables, because their commands for that are not counted.
case_commands_of_copies_over_small_maps() {
	[ -n "$FREES_EARLY" ] && [ -e "$(device_dir $TESTDEV)/iommu/intel-iommu" ] || return 0
	small_maps_were_there most copy
	early_frees_from
	count_from $TESTDEV
	echo 1 >$PARAMETERS/chunk || failure "$(log_since | grep 'rude: wrong')"
	counted $TESTDEV "a chunk"
	early_frees copy
}

# If a removal needs memory and fails, the removal is repeated: the host checks the mappings left in the device.
case_removals_that_failed() {
	is_virtio_iommu || return 0
	for policy in $POLICIES; do
		put $TESTDEV policy $policy
		log_mark
		count_from $TESTDEV
		rude unrecorded || failure "$policy: $(log_since | grep 'rude: wrong')"
		counted $TESTDEV "removals that failed under $policy"
		expect_silence
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	log_mark
	count_from $TESTDEV
	rude unrecorded_chunk || failure "a chunk: $(log_since | grep 'rude: wrong')"
	unbind $TESTDEV
	put $TESTDEV policy none || failure "none was refused: $(cat /tmp/put)"
	counted $TESTDEV "a chunk whose removal failed"
	expect_silence
}

# A leaving driver's mappings are removed, as are the chunks of copies.
case_commands_of_a_driver_that_leaves_mappings() {
	for policy in $POLICIES copy; do
		put $TESTDEV policy "$policy" || failure "$policy was refused: $(cat /tmp/put)"
		rude late || failure "$policy: $(log_since | grep 'rude: wrong')"
		count_from $TESTDEV
		unbind $TESTDEV
		counted $TESTDEV "stale kernel mappings under $policy"
		release_late || failure "$policy: $(log_since | grep 'rude: wrong')"
		until_true 10 state_is idle || failure "the state is $(get $TESTDEV state)"
		expect_balance $TESTDEV
	done
}

# An attach invalidates the domain once, since the IOMMU may cache translations of the kernel's own path. virtio-iommu
# caches none.
case_commands_of_an_attach() {
	put $TESTDEV policy strict || failure "strict was refused: $(cat /tmp/put)"
	count_from $TESTDEV
	bind $TESTDEV
	counted $TESTDEV "an attach" $((1 - MAPS_ARE_SEEN))
}
