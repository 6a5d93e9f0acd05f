# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Direct page tables: which groups may have them, how they start and stop, and which events end them.

IN_PLACE='kernel [direct]'
BY_DRIVER='[kernel] direct'

tables_are() {
	expect_equal "$1: the tables$3" "$(get $1 tables)" "$2"
}

case_tables_are_chosen() {
	tables_are $DATA "$BY_DRIVER"
	refused $DATA tables direct 'No data available' "$DATA: xsmmu: refused: choose a policy before tables"
	accepted $DATA policy fused
	refused $DATA tables indirect 'Invalid argument' "$DATA: xsmmu: refused: unknown tables \"indirect\""
	accepted $DATA tables direct
	tables_are $DATA "$IN_PLACE"
	# The setting survives another policy, the device's driver, and a re-plug of the device.
	accepted $DATA policy strict
	tables_are $DATA "$IN_PLACE" " under another policy"
	bind $DATA
	disk_start $DATA
	work_on $DATA
	tables_are $DATA "$IN_PLACE" " at work"
	unbind $DATA
	expect_balance $DATA
	pull $DATA
	plug_back $DATA
	tables_are $DATA "$IN_PLACE" " after a re-plug"
	accepted $DATA tables kernel
	tables_are $DATA "$BY_DRIVER"
	expect_no_surprise
}

case_tables_by_rule() {
	unbind $DATA
	rmmod xsmmu
	insmod /modules/xsmmu.ko "rules=driver:nvme=fused,tables:indirect" 2>/dev/null && give_up "a wrong word was accepted"
	insmod /modules/xsmmu.ko "rules=driver:nvme=fused,tables:direct,max_window_us:500;*=strict,tables:kernel" ||
		give_up "insmod failed"
	bind $DATA
	disk_start $DATA
	work_on $DATA
	tables_are $DATA "$IN_PLACE"
	expect_equal "the window" "$(get $DATA max_window_us)" 500
	tables_are $E1000E "$BY_DRIVER"
	unbind $DATA
	expect_balance $DATA
	rmmod xsmmu
	insmod /modules/xsmmu.ko
}

# used_tables TEXT MAPPED DIRECT MISSES LARGE: pages that the group has mapped since its attach, and by which path.
used_tables() {
	expect_equal "$1: the use" "$(sed -n '1,4s/.* //p' "$(xs $TESTDEV used)" | tr '\n' ' ')" "$2 $3 $4 $5 "
}

# The IOMMU's driver maps the first page of each block, and mappings that are larger than a block; `used` says so, and
# which path all other pages take.
case_tables_used() {
	put $TESTDEV policy fused || failure "fused was refused: $(cat /tmp/put)"
	expect_equal "the use without a driver" "$(get $TESTDEV used)" ""
	log_mark
	rude row || failure "$(log_since | grep 'rude: wrong')"
	used_tables "the driver's tables" 129 0 0 0
	unbind $TESTDEV
	put $TESTDEV tables direct || failure "direct was refused: $(cat /tmp/put)"
	rude row || failure "$(log_since | grep 'rude: wrong')"
	used_tables "direct tables" 129 126 3 0
	for tables in kernel direct direct; do
		put $TESTDEV tables $tables || failure "$tables was refused: $(cat /tmp/put)"
		used_tables "$tables again" 129 126 3 0
	done
	unbind $TESTDEV
	rude ranges || failure "$(log_since | grep 'rude: wrong')"
	echo 1 >$PARAMETERS/large || failure "$(log_since | grep 'rude: wrong')"
	large=$(used_of $TESTDEV mapped_pages)
	[ "$large" -gt 1000 ] || failure "$large pages are not large"
	used_tables "large mappings" "$large" 0 0 "$large"
	tables_are $TESTDEV "$IN_PLACE" " of large mappings"
	put $TESTDEV tables kernel || failure "kernel was refused: $(cat /tmp/put)"
	echo 1 >$PARAMETERS/large || failure "$(log_since | grep 'rude: wrong')"
	used_tables "large mappings of the driver's tables" $((2 * large)) 0 0 "$large"
	expect_no_surprise
}

# While a disk works, with a check of each entry.
case_tables_change_at_work() {
	echo 1 >/sys/module/xsmmu/parameters/debug
	for policy in $POLICIES; do
		take $policy $DATA
		disk_start $DATA
		for tables in direct kernel direct direct; do
			accepted $DATA tables $tables
			work_on $DATA
		done
		tables_are $DATA "$IN_PLACE" " under $policy"
		unbind $DATA
		expect_balance $DATA
		put $DATA tables kernel
	done
	echo 0 >/sys/module/xsmmu/parameters/debug
	expect_no_surprise
}

# All kinds of mappings, and adjacent pages; the entries contain only bits that the IOMMU's driver writes.
case_tables_of_a_driver() {
	echo 1 >/sys/module/xsmmu/parameters/debug
	for policy in $POLICIES; do
		put $TESTDEV policy "$policy" || failure "$policy was refused: $(cat /tmp/put)"
		put $TESTDEV tables direct || failure "direct was refused: $(cat /tmp/put)"
		log_mark
		rude api || failure "$policy: $(log_since | grep 'rude: wrong')"
		tables_are $TESTDEV "$IN_PLACE" " under $policy"
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
	echo 0 >/sys/module/xsmmu/parameters/debug
	expect_no_surprise
}

# A flush covers known blocks, and a block that the IOMMU's driver mapped and removes.
case_tables_known_in_part() {
	for policy in lazy xsmmu fused; do
		put $TESTDEV policy "$policy" || failure "$policy was refused: $(cat /tmp/put)"
		put $TESTDEV tables direct || failure "direct was refused: $(cat /tmp/put)"
		log_mark
		rude row || failure "$policy: $(log_since | grep 'rude: wrong')"
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
	expect_no_surprise
}

# The IOMMU's driver reports once that an entry is absent: the driver does all later work, and the operator may try
# again.
case_tables_surprise() {
	echo $TESTDEV >$PARAMETERS/slow || failure "there is no domain that lies"
	for policy in $POLICIES; do
		put $TESTDEV policy "$policy" || failure "$policy was refused: $(cat /tmp/put)"
		put $TESTDEV tables direct || failure "direct was refused: $(cat /tmp/put)"
		# For a single page, or for the last of many.
		for blind in 1 2; do
			log_mark
			echo $blind >$PARAMETERS/blind
			rude api || failure "$policy: $(log_since | grep 'rude: wrong')"
			expect_equal "$policy, $blind: the times that it lies" "$(cat $PARAMETERS/blind)" 0
			expect_log "direct tables are off: its driver does not see what was written"
			tables_are $TESTDEV "$BY_DRIVER" " under $policy"
			expect_equal "the reason" "$(get $TESTDEV no_direct)" "its driver does not see what was written"
			put $TESTDEV tables direct || failure "direct was refused: $(cat /tmp/put)"
			tables_are $TESTDEV "$IN_PLACE" " under $policy, tried again"
			expect_equal "the reason" "$(get $TESTDEV no_direct)" ""
			unbind $TESTDEV
			expect_balance $TESTDEV
		done
	done
	expect_equal "a map between a hidden entry and the next flush" "$(cat $PARAMETERS/late_map)" N
	# From then on the IOMMU's driver also unmaps its own maps.
	expect_equal "an unmap in place after that" "$(cat $PARAMETERS/bypassed)" N
	echo 0 >$PARAMETERS/slow
}

# The second page of a driver is the first in place, and the IOMMU's driver hides it: no page is in place, `used` counts
# direct tables only up to that page, and `no_direct` has the reason until the operator gives up direct tables.
case_tables_surprise_in_a_row() {
	echo $TESTDEV >$PARAMETERS/slow || failure "there is no domain that lies"
	put $TESTDEV policy fused || failure "the policy was refused: $(cat /tmp/put)"
	put $TESTDEV tables direct || failure "direct was refused: $(cat /tmp/put)"
	log_mark
	echo 1 >$PARAMETERS/blind
	rude row || failure "$(log_since | grep 'rude: wrong')"
	expect_log "direct tables are off: its driver does not see what was written"
	used_tables "a hidden entry" 129 0 1 0
	expect_equal "the reason" "$(get $TESTDEV no_direct)" "its driver does not see what was written"
	put $TESTDEV tables kernel || failure "kernel was refused: $(cat /tmp/put)"
	expect_equal "the reason under the driver's tables" "$(get $TESTDEV no_direct)" ""
	used_tables "the driver's tables" 129 0 1 0
	unbind $TESTDEV
	echo 0 >$PARAMETERS/slow
}

# The first entry of a block, which the IOMMU's driver writes, is not the requested entry: the module learns nothing
# from it.
case_tables_of_a_strange_driver() {
	echo $TESTDEV >$PARAMETERS/slow || failure "there is no domain that is strange"
	put $TESTDEV policy strict || failure "the policy was refused: $(cat /tmp/put)"
	for strange in "1 an entry has unknown bits" "2 an entry is not where it should be"; do
		# Only drivers with their own operation can misbehave so.
		echo ${strange%% *} 2>/dev/null >$PARAMETERS/strange || continue
		put $TESTDEV tables direct || failure "direct was refused: $(cat /tmp/put)"
		log_mark
		rude row || failure "$strange: $(log_since | grep 'rude: wrong')"
		expect_equal "the times that it is" "$(cat $PARAMETERS/strange)" 0
		expect_log "direct tables are off: ${strange#* }"
		tables_are $TESTDEV "$BY_DRIVER"
		expect_equal "the reason" "$(get $TESTDEV no_direct)" "${strange#* }"
		unbind $TESTDEV
		expect_equal "the reason without a driver" "$(get $TESTDEV no_direct)" ""
		expect_balance $TESTDEV
	done
	echo 0 >$PARAMETERS/slow
}

# Mappings left by a driver keep their IOVAs, in shared blocks, when the group gets a new domain with entries elsewhere.
# The policy keeps pages of a block for reuse.
case_tables_of_a_new_domain() {
	put $TESTDEV policy lazy || failure "the policy was refused: $(cat /tmp/put)"
	put $TESTDEV tables direct || failure "direct was refused: $(cat /tmp/put)"
	for round in 1 2; do
		rude late || failure "$(log_since | grep 'rude: wrong')"
		unbind $TESTDEV
		expect_equal "$round: the state" "$(get $TESTDEV state)" orphaned
		new_domain
		log_mark
		rude api || failure "$round: $(log_since | grep 'rude: wrong')"
		tables_are $TESTDEV "$IN_PLACE" " in a new domain"
		release_late || failure "$(log_since | grep 'rude: wrong')"
		unbind $TESTDEV
		until_true 10 state_is idle || failure "the state is $(get $TESTDEV state)"
		expect_balance $TESTDEV
	done
	expect_no_surprise
}
