# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# A machine whose IOMMU works in a mode that no lab run has covered.

case_scalable_mode() {
	for policy in $POLICIES; do
		refused $E1000E policy "$policy" 'Operation not supported' "$E1000E: xsmmu: refused: its IOMMU is in scalable mode, which was not tried: boot with intel_iommu=on,sm_off"
	done
	log_mark
	rmmod xsmmu || give_up "rmmod was refused"
	insmod /modules/xsmmu.ko "rules=*=fused" || give_up "insmod failed"
	bind $DATA
	disk_start $DATA
	work_on $DATA
	expect_equal "the state" "$(get $DATA state)" off
}
