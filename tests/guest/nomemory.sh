# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# No memory, at each point of each path: the n-th allocation or map of the module fails, for each n, until a run from the
# take-over to the give-back has nothing left to fail. The module is a build for tests that has the parameter fail_nth.

# shellcheck disable=SC2034 # all_off reads it
CALLERS=2
AWARE=/sys/bus/pci/drivers/xsmmu_aware

case_each_failure() {
	echo sweep >/sys/module/xsmmu_aware/parameters/mode
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
			expect_equal "$policy, $n: synced" "$(stat_of $TESTDEV synced_pages)" "$(stat_of $TESTDEV deferred_pages)"
			expect_equal "$policy, $n: references" "$(references)" 2
		done
		log_since | grep -E 'still mapped|removed at give-back|bug' && failure "$policy: something is left"
		# A map in place cannot fail: of a block only the first and the driver's own can.
		if [ "${TABLES:-kernel}" = direct ]; then points=30 maps=6; else points=40 maps=8; fi
		[ $n -gt $points ] && [ $n -lt 1000 ] || failure "$policy: the last failure was the $n-th"
		# Else each of the eight single maps has failed once, at least.
		failed=$(stat_of $TESTDEV map_failures)
		[ "$failed" -ge $maps ] || failure "$policy: only $failed maps have failed"
		echo "$policy: $n points, $failed maps have failed" >/dev/kmsg
		put $TESTDEV policy none || failure "policy none was refused: $(cat /tmp/put)"
		set_group_type $TESTDEV DMA-FQ
	done
}

# What an untrusted device maps beside its copies.
case_each_failure_of_an_untrusted_device() {
	parameters=/sys/module/xsmmu_copied/parameters
	trust $TESTDEV 1
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	log_mark
	echo keep >$parameters/mode
	echo $TESTDEV >/sys/bus/pci/drivers/xsmmu_copied/bind || failure "the probe failed"
	live=$(stat_of $TESTDEV live_pages)
	failed_before=$(stat_of $TESTDEV map_failures)
	n=0
	left=0
	while [ "$left" = 0 ] && [ $n -lt 100 ]; do
		n=$((n + 1))
		echo $n >$FAIL
		echo 1 >$parameters/scarce || failure "$n: $(log_since | grep 'copied: wrong')"
		left=$(cat $FAIL)
		echo 0 >$FAIL
		expect_equal "$n: live" "$(stat_of $TESTDEV live_pages)" "$live"
	done
	# Four pages, and three mappings to be remembered.
	[ $n -gt 7 ] && [ $n -lt 100 ] || failure "the last failure was the $n-th"
	failed=$(cat $parameters/failed_maps)
	[ "$failed" -ge 7 ] || failure "only $failed maps have failed"
	expect_equal "map_failures" $(($(stat_of $TESTDEV map_failures) - failed_before)) "$failed"
	echo "$n points, $failed maps have failed" >/dev/kmsg
	echo 1 >$parameters/release || failure "$(log_since | grep 'copied: wrong')"
	unbind $TESTDEV
	expect_equal "live, in the end" "$(stat_of $TESTDEV live_pages)" 0
	put $TESTDEV policy none || failure "policy none was refused: $(cat /tmp/put)"
	trust $TESTDEV 0
}

# Nor has one that has found its group, when that is given back, and has no memory then.
case_no_memory_behind_the_give_back() {
	trust $TESTDEV 1
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	log_mark
	rude keep || failure "$(log_since | grep 'rude: wrong')"
	echo 1 >$FAIL
	echo bounce_map >/sys/module/xsmmu_rude/parameters/outrun || failure "$(log_since | grep 'rude: wrong')"
	expect_equal "failures left" "$(cat $FAIL)" 0
	unbind $TESTDEV
	expect_equal "live, in the end" "$(stat_of $TESTDEV live_pages)" 0
	put $TESTDEV policy none || failure "policy none was refused: $(cat /tmp/put)"
	trust $TESTDEV 0
}
