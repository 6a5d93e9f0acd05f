# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Booted with words that make the kernel's own path strict: no policy below strict is chosen, unless the operator lowers
# the floor at load.

floor_is() {
	expect_equal "the floor in force" "$(cat /sys/module/xsmmu/parameters/min_level)" "$1"
}

case_strict_kernel() {
	floor_is strict
	for policy in lazy fands xsmmu fused fused-identity; do
		refused $E1000E policy $policy 'Operation not permitted' "refused: $policy is .*, and min_level is strict"
	done
	accepted $E1000E policy strict
	put $E1000E policy none
	put $E1000E policy auto || failure "auto was refused: $(cat /tmp/put)"
	expect_equal "the choice of auto" "$(get $E1000E auto_policy)" "strict strict: min_level is strict"
	put $E1000E policy none
	rmmod xsmmu || give_up "rmmod was refused"
	insmod /modules/xsmmu.ko min_level=none || give_up "insmod failed"
	floor_is none
	accepted $E1000E policy lazy
	put $E1000E policy none
}
