# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Booted with iommu.strict=1: nothing below strict is chosen, unless the operator says so at load.

case_strict_kernel() {
	for policy in lazy fands xsmmu fused; do
		refused $E1000E policy $policy 'Operation not permitted' "refused: $policy is .*, and min_level is strict"
	done
	accepted $E1000E policy strict
	put $E1000E policy none
	put $E1000E policy auto || failure "auto was refused: $(cat /tmp/put)"
	expect_equal "what auto chooses" "$(get $E1000E auto_policy)" "strict strict: min_level is strict"
	put $E1000E policy none
	rmmod xsmmu || give_up "rmmod was refused"
	insmod /modules/xsmmu.ko min_level=none || give_up "insmod failed"
	accepted $E1000E policy lazy
	put $E1000E policy none
}
