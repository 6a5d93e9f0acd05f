# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# A machine with its IOMMU off.

case_one_clear_warning() {
	dmesg | grep 'xsmmu: ' | grep -v 'taint' >/tmp/said
	expect_equal "the number of log lines" "$(grep -c . /tmp/said)" 1
	grep -q 'xsmmu: no PCI device is behind an IOMMU: enable the IOMMU in the firmware and on the kernel command line (on Intel: intel_iommu=on)$' /tmp/said ||
		failure "the log says: $(cat /tmp/said)"
	for device in /sys/bus/pci/devices/*; do
		[ ! -e "$device/xsmmu" ] || failure "$device has an xsmmu folder"
	done
	bind $DATA
	disk_start $DATA
	work_on $DATA
	rmmod xsmmu || failure "rmmod was refused"
	work_on $DATA
}
