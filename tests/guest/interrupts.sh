# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# If the IOMMU translates interrupts, the kernel maps the MSI page in the same domain: no map of a driver may cover the
# page.

# fill TEXT: the NIC's driver maps everything free below 4 GiB; exactly two maps fail, when nothing is free.
fill() {
	failed=$(($(stat_of $E1000E map_failures) + 2))
	log_mark
	echo $E1000E >$RUDE/bind || failure "$1: $(log_since | grep 'rude: ')"
	expect_equal "$1: maps that failed" "$(stat_of $E1000E map_failures)" $failed
	echo $failed >/tmp/map_failures.$E1000E
	if log_since | grep -q 'WARNING'; then failure "$1: $(log_since | grep 'WARNING')"; fi
	unbind $E1000E
	expect_balance $E1000E
}

# fill_under POLICY TABLES TEXT
fill_under() {
	put $E1000E policy $1 || failure "$1 was refused: $(cat /tmp/put)"
	put $E1000E tables $2 || return 0
	fill "$1 with $2 tables, $3"
}

# new_domain_of BDF: without a policy.
new_domain_of() {
	put "$1" policy none || failure "$1: policy none was refused: $(cat /tmp/put)"
	set_group_type "$1" identity
	set_group_type "$1" "${GROUP_TYPE:-DMA-FQ}"
}

# The kernel's own path mapped the page earlier, below the reserved range; or maps the page beside the module.
case_interrupts_are_beside_all_maps() {
	echo xsmmu_dma_api_test >"$(device_dir $E1000E)/driver_override"
	for policy in strict fused; do
		for tables in kernel direct; do
			new_domain_of $E1000E
			echo ahead >$PARAMETERS/mode
			log_mark
			echo $E1000E >$RUDE/bind || failure "$(log_since | grep 'rude: wrong')"
			unbind $E1000E
			echo whole >$PARAMETERS/mode
			fill_under $policy $tables "mapped before"
			new_domain_of $E1000E
			fill_under $policy $tables "mapped behind it"
		done
	done
	echo >"$(device_dir $E1000E)/driver_override"
	new_domain_of $E1000E
	take strict $E1000E
	nic_start $E1000E
	ping_peer $E1000E 10
}
