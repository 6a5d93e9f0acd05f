# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# A driver that uses the DMA API in every way there is, and in some that there should not be (see tests/guest/driver).

RUDE=/sys/bus/pci/drivers/xsmmu_rude

# rude MODE: bind it; what it makes of it is the caller's to judge.
rude() {
	echo "$1" >/sys/module/xsmmu_rude/parameters/mode
	echo $TESTDEV >$RUDE/bind
}

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
	all_off
}

# What a failed probe leaves to be freed is freed after the driver is gone, still on our path.
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
	unbind $TESTDEV
	all_off
}

# A driver that leaves mappings behind is named, and the kernel's path finds none of them.
case_leaked_mappings() {
	for policy in $POLICIES; do
		put $TESTDEV policy "$policy"
		rude leak || failure "the probe failed"
		expect_equal "live_pages" "$(stat_of $TESTDEV live_pages)" 20
		log_mark
		unbind $TESTDEV
		expect_equal "$policy: leftovers named" "$(log_since | grep -c 'IOVA 0x[0-9a-f]* is still mapped, [0-9]* pages: a driver did not unmap it')" 8
		log_since | grep -q '20 pages removed at give-back, 20 expected' || failure "$policy: their number is missing"
		expect_equal "$policy: live_pages" "$(stat_of $TESTDEV live_pages)" 0
	done
	put $TESTDEV policy none
	log_mark
	rude kernel 2>/dev/null || failure "the kernel's own path afterwards: $(log_since | grep 'rude: wrong')"
	unbind $TESTDEV
}

# An unmap of what is not mapped so is warned of, counted, and changes nothing. A warning on the console ends the guest.
case_strays() {
	read -r console_level others </proc/sys/kernel/printk
	echo "1 $others" >/proc/sys/kernel/printk
	warned=no
	for policy in $POLICIES; do
		put $TESTDEV policy "$policy"
		before=$(stat_of $TESTDEV strays)
		log_mark
		rude stray || failure "$policy: $(log_since | grep 'rude: wrong')"
		expect_equal "$policy: strays" "$(stat_of $TESTDEV strays)" $((before + 4))
		expect_equal "$policy: live_pages" "$(stat_of $TESTDEV live_pages)" 0
		log_since | grep -q 'xsmmu: an unmap of what is not mapped so' && warned=$warned.yes
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
	echo "$console_level $others" >/proc/sys/kernel/printk
	expect_equal "warned of, once" $warned no.yes
	all_off
}

# Page-table pages of the IOMMU; nothing where this kernel does not count them.
tables() {
	sed -n 's/^nr_iommu_pages //p' /proc/vmstat
}

tables_are_at_most() {
	[ "$(tables)" -le "$1" ]
}

# What many mappings at once leave behind is given back: of 48 leaves' two tables each, those of 16 may stay. Tables of
# the generic kind (7.2) stay.
case_empty_page_tables() {
	put $TESTDEV policy fused
	before=$(tables)
	log_mark
	rude many || failure "$(log_since | grep 'rude: wrong')"
	case $(uname -r) in
	6.12*) until_true 10 tables_are_at_most $((before + 40)) || failure "$(tables) page-table pages, and $before before" ;;
	esac
	rude_again=$(stat_of $TESTDEV unmaps)
	unbind $TESTDEV
	rude many || failure "again: $(log_since | grep 'rude: wrong')"
	expect_equal "unmaps" "$(stat_of $TESTDEV unmaps)" $((rude_again + 49152))
	unbind $TESTDEV
	expect_silence
	expect_balance $TESTDEV
	all_off
}
