# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2034,SC2086,SC2154 # variables for devices.sh; single words; variables from elsewhere
# Devices with a TLB (ATS): a disk and a NIC for which the kernel has enabled ATS, with the cases of devices.sh. Checks
# that each unmap sends a device TLB command after each command for the IOMMU's own caches.

ATS_DISK=0000:0c:00.0
ATS_NIC=0000:0d:00.0

tables_of_this_guest=$TABLES

case_ats_is_on() {
	for device in $ATS_DISK $ATS_NIC; do
		expect_equal "$device: ATS" "$(ats_of $device)" on
	done
	for device in $IGB $DATA; do
		expect_equal "$device: ATS" "$(ats_of $device)" none
	done
}

case_ats_disk() { works_as_disks $ATS_DISK 1; }
case_ats_nic() { works_as_nic $ATS_NIC; }

# each_way COMMAND...: under each policy, with kernel tables and with direct tables.
each_way() {
	for TABLES in ${ATS_TABLES:-kernel direct}; do
		for policy in $POLICIES copy; do
			"$@"
		done
	done
	TABLES=$tables_of_this_guest
}

commands_of_disk() {
	take $policy $ATS_DISK
	until_true 30 has_disks $ATS_DISK 1 || failure "no disk under $policy"
	disk=$(disks_of $ATS_DISK)
	settle
	count_from $ATS_DISK
	verify $disk || failure "$disk: I/O failed under $policy"
	dd if=$disk of=/dev/null bs=20k count=64 iflag=direct 2>/tmp/dd || failure "$(tail -n 1 /tmp/dd)"
	counted $ATS_DISK "a disk with ATS under $policy, $TABLES"
	works $ATS_DISK
	unbind $ATS_DISK
	ends $ATS_DISK
}

case_ats_commands_of_a_disk() {
	unbind $ATS_DISK
	dd if=/dev/urandom of=/tmp/pattern bs=1M count=1 2>/dev/null
	rm -f /tmp/differs
	each_way commands_of_disk
	expect "data that differs: $(cat /tmp/differs 2>/dev/null)" [ ! -e /tmp/differs ]
}

commands_of_nic() {
	take $policy $ATS_NIC
	nic_start $ATS_NIC
	count_from $ATS_NIC
	ping_peer $ATS_NIC 10
	counted $ATS_NIC "a NIC with ATS under $policy, $TABLES"
	works $ATS_NIC
	unbind $ATS_NIC
	ends $ATS_NIC
}

case_ats_commands_of_a_nic() {
	unbind $ATS_NIC
	each_way commands_of_nic
}
