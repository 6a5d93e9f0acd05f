# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# The tracepoints xsmmu:map, xsmmu:unmap and xsmmu:flush.

EVENTS=/sys/kernel/tracing/events/xsmmu

# traced EVENT: the event's lines in the last recording.
traced() {
	grep " $1: device=\| $1: group=" /tmp/trace
}

# record COMMAND...: with all three events on; the lines go to /tmp/trace.
record() {
	echo 20000 >/sys/kernel/tracing/buffer_size_kb
	echo >/sys/kernel/tracing/trace
	echo 1 >$EVENTS/enable
	"$@"
	echo 0 >$EVENTS/enable
	cat /sys/kernel/tracing/trace >/tmp/trace
}

case_tracepoints_are_there() {
	for event in map unmap flush; do
		expect "event $event" test -e $EVENTS/$event/format
		expect "format of $event" grep -q "^name: $event$" $EVENTS/$event/format
	done
	for field in device iova pages; do
		expect "map has $field" grep -q "field:.* $field;" $EVENTS/map/format
		expect "unmap has $field" grep -q "field:.* $field;" $EVENTS/unmap/format
	done
	for field in group cause pages ranges page_commands domain_commands oldest_ns; do
		expect "flush has $field" grep -q "field:.* $field;" $EVENTS/flush/format
	done
}

# sum FIELD: over all flush lines.
sum() {
	traced flush | sed "s/.* $1=\([0-9]*\).*/\1/" | awk '{total += $1} END{print total + 0}'
}

# all_of_a_life BDF: from bind to unbind.
all_of_a_life() {
	bind "$1"
	start "$1"
	work_on "$1"
	pool_bytes=$(stat_of "$1" pool_bytes)
	unbind "$1"
}

# With the current policy. Every mapped page was unmapped, every deferred page was flushed, and the counters agree.
life_of() {
	set -- "$1" "$(policy_of "$1")"
	for name in maps unmaps copied_maps copied_unmaps flushed_pages inv_page inv_domain; do
		eval "before_$name=$(stat_of "$1" $name)"
	done
	before_direct=$(($(stat_of "$1" unmapped_pages) - $(stat_of "$1" deferred_pages)))
	record all_of_a_life "$1"
	expect_equal "$2: maps traced" "$(traced map | grep -c "device=$1 ")" $(($(stat_of "$1" maps) + $(stat_of "$1" copied_maps) - before_maps - before_copied_maps))
	expect_equal "$2: unmaps traced" "$(traced unmap | grep -c "device=$1 ")" $(($(stat_of "$1" unmaps) + $(stat_of "$1" copied_unmaps) - before_unmaps - before_copied_unmaps))
	direct=$(($(stat_of "$1" unmapped_pages) - $(stat_of "$1" deferred_pages) - before_direct))
	expect_equal "$2: pages of flushes" "$(sum pages)" $(($(stat_of "$1" flushed_pages) - before_flushed_pages + direct))
	# Each chunk of the pool has two commands of its own: page-table pages in its way are freed when it is added (VT-d's
	# driver up to 6.12), and the chunk is removed at the end.
	expect_equal "$2: page commands of flushes" "$(sum page_commands)" \
		$(($(stat_of "$1" inv_page) - before_inv_page - 2 * pool_bytes / 2097152))
	expect_equal "$2: domain commands of flushes" "$(sum domain_commands)" $(($(stat_of "$1" inv_domain) - before_inv_domain))
	group=$(basename "$(readlink "$(device_dir "$1")/iommu_group")")
	! traced flush | grep -qv " group=$group " || failure "$2: a flush of another group"
	! traced flush | grep -qvE ' cause=(unmap|block|poll|full|time|explicit|drain) ' || failure "$2: a flush without a cause"
	# Addresses that are mapped and not unmapped at the end: none.
	traced map | sed 's/.*\(iova=.*\)/\1/' | sort >/tmp/maps
	traced unmap | sed 's/.*\(iova=.*\)/\1/' | sort >/tmp/unmaps
	cmp -s /tmp/maps /tmp/unmaps || failure "$2: maps and unmaps differ: $(diff /tmp/maps /tmp/unmaps | head -n 5)"
	all_off
}

case_a_life_traced() {
	for policy in $POLICIES; do
		put $E1000E policy "$policy"
		life_of $E1000E
	done
	put $DATA policy fused
	life_of $DATA
	put $E1000E policy copy
	copied=$(stat_of $E1000E copied_maps)
	life_of $E1000E
	[ "$(stat_of $E1000E copied_maps)" -gt "$copied" ] || failure "nothing was copied"
}

# Long enough to use up the buffers of the first ring (slab memory, which cannot be held).
long_life() {
	bind "$1"
	nic_start "$1"
	ping_peer "$1" 300
	unbind "$1"
}

case_causes() {
	put $E1000E policy xsmmu
	record long_life $E1000E
	expect "flushes at the end of polls" grep -q ' flush: .*cause=poll ' /tmp/trace
	unbind $E1000E
	put $E1000E policy strict
	record all_of_a_life $E1000E
	expect "flushes in unmaps" grep -q ' flush: .*cause=unmap ' /tmp/trace
	expect "an exposure of 0 in strict" test -z "$(traced flush | grep -v ' oldest_ns=0$')"
	put $DATA policy lazy
	record all_of_a_life $DATA
	expect "flushes by time" grep -q ' flush: .*cause=time ' /tmp/trace
	oldest=$(traced flush | grep ' cause=time ' | sed 's/.*oldest_ns=//' | sort -n | tail -n 1)
	# The timer fires early, so that the bound holds.
	[ "$oldest" -ge 5000000 ] && [ "$oldest" -le 10000000 ] || failure "the oldest unmap that was flushed by time waited for $oldest ns, not for 10 ms at most"
}

# A policy with a shorter bound is chosen while a timer is pending.
case_bound_after_a_change() {
	put $DATA policy lazy
	put $DATA max_window_us 10000000
	# More than the pages of a read, so that only the time flushes.
	put $DATA batch_pages 1024
	bind $DATA
	disk_start $DATA
	read_disk $DATA 1
	put $DATA max_window_us 1000
	record read_disk $DATA 1
	oldest=$(traced flush | sed 's/.*oldest_ns=//' | sort -n | tail -n 1)
	[ -n "$oldest" ] || failure "no flush was recorded after the bound was set to 1 ms"
	[ "${oldest:-0}" -le 3000000 ] || failure "an unmap waited for $oldest ns after the bound was set to 1 ms"
}
