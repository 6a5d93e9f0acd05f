# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Devices that the lab does not measure, with their stock drivers: data is verified under each policy while policies
# change, and drivers are removed under load.

AHCI=0000:00:10.0
XHCI=0000:00:11.0
SDHCI=0000:00:12.0
VMXNET3=0000:00:13.0
VIRTIO_BLK=0000:00:14.0
VIRTIO_NET=0000:00:15.0

driver_of() {
	case $1 in
	"$AHCI") echo ahci ;;
	"$XHCI") echo xhci_hcd ;;
	"$SDHCI") echo sdhci-pci ;;
	"$VMXNET3") echo vmxnet3 ;;
	*) echo virtio-pci ;;
	esac
}

# `ends` does so for these devices.
all_off() {
	:
}

# ends BDF: the device is restored and leaves nothing behind.
ends() {
	expect_balance "$1"
	put "$1" policy none || failure "$1: policy none was refused: $(cat /tmp/put)"
	expect_equal "the module's reference count" "$(references)" 0
}

# changes BDF: to each other policy and back, under load.
changes() {
	for other in $POLICIES $policy; do
		sleep 0.2
		put "$1" policy "$other" || failure "$1: a change to $other was refused: $(cat /tmp/put)"
	done
}

works() {
	expect_equal "$1: the state under $policy" "$(get "$1" state)" active
	has_level "$1" || failure "$1: no level under $policy"
}

# --- disks -------------------------------------------------------------------------------------------------------

# disks_of BDF: all disks of the device.
disks_of() {
	for each_disk in /sys/block/*; do
		case $(readlink -f "$each_disk") in
		*"/$1/"*) echo "/dev/${each_disk##*/}" ;;
		esac
	done
}

has_disks() {
	[ "$(disks_of "$1" | grep -c .)" = "$2" ]
}

# verify DISK: write known data past the page cache and read it back. Fails if the disk fails or is gone.
verify() {
	back=/tmp/back.${1##*/}
	[ -b "$1" ] || return
	dd if=/tmp/pattern of="$1" bs=64k oflag=direct conv=notrunc 2>/dev/null || return
	dd if="$1" of="$back" bs=64k count=16 iflag=direct 2>/dev/null || return
	# A disk that disappears meanwhile has no blocks left; reading such a disk is no error.
	[ "$(wc -c <"$back")" = 1048576 ] || return
	cmp /tmp/pattern "$back" >/tmp/cmp 2>&1 || echo "$1, $policy: $(cat /tmp/cmp)" >>/tmp/differs
}

# load_begin DISK...: runs until load_end.
load_begin() {
	: >/tmp/busy
	for each in "$@"; do
		while [ -e /tmp/busy ] && verify "$each"; do echo "$each" >>/tmp/verified; done &
	done
}

load_end() {
	sleep 0.3
	rm /tmp/busy
	wait
}

# works_as_disks BDF COUNT
works_as_disks() {
	unbind "$1"
	dd if=/dev/urandom of=/tmp/pattern bs=1M count=1 2>/dev/null
	rm -f /tmp/differs
	for policy in $POLICIES; do
		take "$policy" "$1"
		until_true 30 has_disks "$1" "$2" || failure "$1: its disks under $policy: $(disks_of "$1")"
		disks=$(disks_of "$1")
		for disk in $disks; do
			verify "$disk" || failure "$disk: I/O failed under $policy"
		done
		works "$1"
		rm -f /tmp/verified
		load_begin $disks
		changes "$1"
		load_end
		for disk in $disks; do
			expect "$disk: verified while $policy changed" grep -q "$disk" /tmp/verified
		done
		load_begin $disks
		sleep 0.3
		unbind "$1"
		load_end
		ends "$1"
	done
	expect "data that differs: $(cat /tmp/differs 2>/dev/null)" [ ! -e /tmp/differs ]
}

# By device class, without a bound driver.
case_auto_by_class() {
	for device in $AHCI $VIRTIO_BLK; do
		expect_equal "$device: auto" "$(get $device auto_policy)" "strict strict: storage: a disk could change data after the data was verified"
	done
	for device in $XHCI $SDHCI; do
		expect_equal "$device: auto" "$(get $device auto_policy | sed 's/, .*\| nor .*//')" "strict strict: a device that is neither storage"
	done
	for device in $VMXNET3 $VIRTIO_NET; do
		expect_equal "$device: auto" "$(get $device auto_policy)" "fused held: an Ethernet NIC: its polls flush deferred unmaps"
	done
}

case_ahci() { works_as_disks $AHCI 1; }
# One disk by usb-storage, one by UAS.
case_xhci() { works_as_disks $XHCI 2; }
case_sdhci() { works_as_disks $SDHCI 1; }
case_virtio_blk() { works_as_disks $VIRTIO_BLK 1; }

# --- NICs --------------------------------------------------------------------------------------------------------

link_of() {
	ls "$(device_dir "$1")/net" 2>/dev/null || ls "$(device_dir "$1")"/virtio*/net
}

# Packets have known data and a checksum.
works_as_nic() {
	unbind "$1"
	for policy in $POLICIES; do
		take "$policy" "$1"
		nic_start "$1"
		ping_peer "$1" 20
		works "$1"
		ping -i 0.01 -s 1400 10.0.0.2 >/tmp/flood 2>&1 &
		flood=$!
		changes "$1"
		kill -INT $flood
		wait $flood
		expect "$1: packets while $policy changed: $(tail -n 2 /tmp/flood)" grep -qE '[1-9][0-9]* (packets )?received' /tmp/flood
		ping -i 0.01 -s 1400 10.0.0.2 >/dev/null 2>&1 &
		flood=$!
		sleep 0.3
		unbind "$1"
		kill -INT $flood 2>/dev/null
		wait $flood
		ends "$1"
	done
}

case_vmxnet3() { works_as_nic $VMXNET3; }
case_virtio_net() { works_as_nic $VIRTIO_NET; }
