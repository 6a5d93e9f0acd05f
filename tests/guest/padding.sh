# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# A device writes to a scatter list with padding between its segments, and to the padding (lab/module/attack.c, list=1).

# found NAME: a counter of the attack.
found() {
	sed "s/.*\"$1\":\([0-9]*\).*/\1/" /tmp/attack
}

ROUNDS=2

# fire_at_list POLICY PAGES: rounds with lists of PAGES segments.
fire_at_list() {
	requests=$(stat_of $TESTDEV inv_page)
	{ echo "list=1 pages=$2 rounds=$ROUNDS gaps=16 window_us=20000 syncs=0" >/sys/kernel/debug/xsmmu_lab/$TESTDEV/attack &&
		cat /sys/kernel/debug/xsmmu_lab/$TESTDEV/attack >/tmp/attack; } 2>/dev/null || {
		failure "$1: the attack failed: $(dmesg | grep 'attack: ' | tail -n 1)"
		return
	}
	[ "$(found attempts_padding)" -gt 100 ] || failure "$1: the padding was not attacked"
	expect_equal "$1, $2 segments: writes that landed in the padding of a mapped list" "$(found landed_padding_mapped)" 0
	expect_equal "$1, $2 segments: writes that landed in the padding after the unmap" "$(found landed_padding)" 0
	# One for all maps, and one for each removal. The driver refuses a removal of a range with padding.
	! is_virtio_iommu || expect_equal "$1, $2 segments: requests" \
		$(($(stat_of $TESTDEV inv_page) - requests)) $((ROUNDS * (1 + $2)))
	case $1 in
	strict | copy) expect_equal "$1, $2 segments: writes that landed after the unmap" "$(found landed)" 0 ;;
	esac
}

# With as many pages as a block has, and with more: the two are mapped and removed in different ways. The host checks
# the mappings left in the device.
case_padding_is_out_of_reach() {
	faults_are expected
	for policy in $POLICIES copy; do
		take $policy $TESTDEV
		fire_at_list $policy 4
		fire_at_list $policy 6
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
	faults_are unexpected
}
