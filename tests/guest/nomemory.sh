# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Failing allocations at each point of each path: the n-th allocation or map of the module fails, for each n, until a
# run from attach to detach has no n-th. The module is a build for tests with the parameter fail_nth.

AWARE=/sys/bus/pci/drivers/xsmmu_deferred_test

# Each case checks what it leaves. The statistics keep the maps that the cases made fail.
all_off() {
	:
}

case_each_failure() {
	echo sweep >/sys/module/xsmmu_deferred_test/parameters/mode
	for policy in strict fands fused; do
		put $TESTDEV policy "$policy"
		n=0
		left=0
		log_mark
		while [ "$left" = 0 ] && [ $n -lt 1000 ]; do
			n=$((n + 1))
			echo $n >$FAIL
			echo $TESTDEV >$AWARE/bind || failure "$policy, $n: the probe failed"
			left=$(cat $FAIL)
			echo 0 >$FAIL
			unbind $TESTDEV
			expect_equal "$policy, $n: live" "$(stat_of $TESTDEV live_pages)" 0
			expect_equal "$policy, $n: held" "$(stat_of $TESTDEV held_pages)" 0
			expect_equal "$policy, $n: flushed" "$(stat_of $TESTDEV flushed_pages)" "$(stat_of $TESTDEV deferred_pages)"
			expect_equal "$policy, $n: references" "$(references)" 2
		done
		log_since | grep -E 'still mapped|bug:' && failure "$policy: something is left"
		# A map in place cannot fail: in a block only the first map and the driver's own allocation can.
		if [ "${TABLES:-kernel}" = direct ]; then points=30 maps=6; else points=40 maps=8; fi
		[ $n -gt $points ] && [ $n -lt 1000 ] || failure "$policy: the last failure was the $n-th"
		# In other cases each of the eight single maps has failed at least once.
		failed=$(stat_of $TESTDEV map_failures)
		[ "$failed" -ge $maps ] || failure "$policy: only $failed maps have failed"
		echo "$policy: $n points, $failed maps have failed" >/dev/kmsg
		put $TESTDEV policy none || failure "policy none was refused: $(cat /tmp/put)"
		set_group_type $TESTDEV DMA-FQ
	done
}

COPIED=/sys/module/xsmmu_bounce_test/parameters

# Copies of all directions, until they are released.
keep() {
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	log_mark
	echo keep >$COPIED/mode
	echo $TESTDEV >/sys/bus/pci/drivers/xsmmu_bounce_test/bind || failure "the probe failed"
}

release_kept() {
	echo 1 >$COPIED/release || failure "$(log_since | grep 'copied: wrong')"
}

# traced EVENT: the number of the device's events.
traced() {
	grep -c " $1: device=$TESTDEV " /sys/kernel/tracing/trace
}

# expect_grown WHAT MOST: growth of the kernel's memory since $used.
expect_grown() {
	grown=$(($(used_kib) - used))
	echo "$1: $grown KiB" >/dev/kmsg
	[ $grown -le "$2" ] || failure "$1: $grown KiB are lost"
}

# Maps of buffers that are too large to copy, and of registers. Nothing of them remains, and each traced map has its
# unmap.
case_each_failure_beside_copies() {
	keep
	live=$(stat_of $TESTDEV live_pages)
	echo 20000 >/sys/kernel/tracing/buffer_size_kb
	for _ in $(seq 100); do
		echo 1 >$COPIED/scarce
	done
	used=$(used_kib)
	failed_before=$(stat_of $TESTDEV map_failures)
	n=0
	left=0
	while [ "$left" = 0 ] && [ $n -lt 100 ]; do
		n=$((n + 1))
		echo >/sys/kernel/tracing/trace
		echo 1 >/sys/kernel/tracing/events/xsmmu/enable
		echo $n >$FAIL
		echo 1 >$COPIED/scarce || failure "$n: $(log_since | grep 'copied: wrong')"
		left=$(cat $FAIL)
		echo 0 >/sys/kernel/tracing/events/xsmmu/enable
		expect_equal "$n: maps traced" "$(traced map)" "$(traced unmap)"
		expect_equal "$n: live" "$(stat_of $TESTDEV live_pages)" "$live"
		# Often enough to reveal a leak of a page per turn.
		for _ in $(seq 100); do
			echo $n >$FAIL
			echo 1 >$COPIED/scarce
		done
		echo 0 >$FAIL
	done
	expect_grown "each failure, 100 times" 1000
	# Each of seven maps.
	[ $n -gt 7 ] && [ $n -lt 100 ] || failure "the last failure was the $n-th"
	failed=$(cat $COPIED/failed_maps)
	[ "$failed" -ge 7 ] || failure "only $failed maps have failed"
	expect_equal "map_failures" $(($(stat_of $TESTDEV map_failures) - failed_before)) "$failed"
	echo "$n points, $failed maps have failed" >/dev/kmsg
	release_kept
	unbind $TESTDEV
	expect_equal "live, in the end" "$(stat_of $TESTDEV live_pages)" 0
	put $TESTDEV policy none || failure "policy none was refused: $(cat /tmp/put)"
}

has_failed() {
	[ "$(cat $FAIL)" = 0 ]
}

# A chunk that cannot be allocated or mapped leaves nothing: neither on a request, nor when a driver binds beside copies
# of an earlier driver.
case_each_failure_of_a_pool() {
	keep
	used=$(used_kib)
	had=$(stat_of $TESTDEV pool_bytes)
	# A kind per turn. The first failure hits the map that lacks a bounce buffer, the next hits the new chunk.
	n=1
	while [ $n -lt 8 ]; do
		n=$((n + 1))
		echo $n >$FAIL
		echo $n >$COPIED/small
		until_true 2 has_failed
		echo 0 >$FAIL
		# After a failure the pool makes no request for a second.
		sleep 1.2
	done
	has=$(stat_of $TESTDEV pool_bytes)
	[ $has -gt $had ] && [ $has -lt $((had + 7 * 2097152)) ] || failure "the pool had $had bytes, and has $has"
	expect_grown "each failure of a chunk" $(((has - had) / 1024 + 1000))
	unbind $TESTDEV
	n=0
	left=0
	while [ "$left" = 0 ] && [ $n -lt 20 ]; do
		n=$((n + 1))
		expect_equal "$n: the state" "$(get $TESTDEV state)" orphaned
		echo $n >$FAIL
		bind $TESTDEV
		left=$(cat $FAIL)
		echo 0 >$FAIL
		[ "$left" = 0 ] && reached=0 || reached=12
		expect_equal "$n: copies that the device reaches" "$(cat $COPIED/reached)" $reached
		log_mark
		unbind $TESTDEV
		[ "$left" != 0 ] || expect_silence
	done
	# VT-d's driver up to 6.12 has page-table pages freed before a chunk is mapped, which needs memory, too.
	case $(uname -r) in 6.*) points=2 ;; *) points=1 ;; esac
	chunks=$((has / 2097152))
	expect_equal "the points of a return" $n $((chunks * points + 1))
	log_mark
	release_kept
	until_true 10 state_is idle || failure "the state is $(get $TESTDEV state)"
	put $TESTDEV policy none || failure "policy none was refused: $(cat /tmp/put)"
}
