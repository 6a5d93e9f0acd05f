# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Static 1:1 tables of the lab's module: what they let a device reach, refusals, and nothing left behind. Functions of
# the topic rude leave memory mapped.

RUNS=/sys/kernel/debug/xsmmu_lab/$TESTDEV
SHARED='0000:0a:00.0 0000:0b:00.0'
LEAVES='4k 2m 1g'

# choose_table BDF WORD: quietly; the shell's error message goes to /tmp/put.
choose_table() {
	{ echo "$1 $2" >$identity_file; } 2>/tmp/put
}

# table_of BDF: prints the line of the device's group.
table_of() {
	group=$(readlink "$(device_dir "$1")/iommu_group")
	sed -n "s/^${group##*/} //p" $identity_file
}

# expect_table BDF STATE
expect_table() {
	case $(table_of "$1") in
	*"\"state\":\"$2\""*) ;;
	*) failure "$1: the table is '$(table_of "$1")', not $2" ;;
	esac
}

# table_refused BDF WORD ERROR
table_refused() {
	log_mark
	if choose_table "$1" "$2"; then
		failure "$1 $2 was accepted, and is to be refused"
		return
	fi
	grep -q "$3" /tmp/put || failure "$1 $2: the error is '$(cat /tmp/put)', not '$3'"
	expect_equal "$1 $2: lines in the log" "$(log_since | grep -c 'xsmmu_lab: identity: ')" 1
}

# no_table BDF REASON: the driver binds, and the device stays on the kernel's own path.
no_table() {
	log_mark
	bind "$1"
	log_since | grep 'xsmmu_lab: no 1:1 table' >/tmp/said
	grep -q "$2" /tmp/said || failure "$1: the log says '$(cat /tmp/said)', not '$2'"
	expect_table "$1" failed
}

# attacked: what the test device reaches, as its file says.
attacked() {
	faults_are expected
	echo 'rounds=2 window_us=2000' >"$RUNS/attack" && cat "$RUNS/attack"
	faults_are unexpected
}

# expect_reach yes|no: whether the device reaches pages that were never mapped.
expect_reach() {
	case $1/$(attacked) in
	yes/*'"control_never_mapped_refused":false'* | no/*'"control_never_mapped_refused":true'*) ;;
	*) failure "the device's reach is not '$1': $(cat "$RUNS/attack")" ;;
	esac
}

number_of() {
	table_of $TESTDEV | sed "s/.*\"$1\":\([0-9]*\).*/\1/"
}

# fresh_domain BDF: the group has type DMA and a new domain, without the empty tables that some drivers keep.
fresh_domain() {
	set_group_type $1 DMA-FQ
	set_group_type $1 DMA
}

# The device reaches all memory while the table exists, and only what is mapped before and after, in the same domain.
case_identity_reach() {
	fresh_domain $TESTDEV
	all_pages=$(iommu_pages)
	bind $TESTDEV
	expect_reach no
	unbind $TESTDEV
	for leaf in $LEAVES; do
		choose_table $TESTDEV $leaf || failure "$leaf was refused: $(cat /tmp/put)"
		expect_table $TESTDEV idle
		bind $TESTDEV
		expect_table $TESTDEV mapped
		expect_reach yes
		[ "$(number_of $leaf)" -gt 0 ] || failure "$leaf: no such leaves: $(table_of $TESTDEV)"
		echo 'ring=64 rounds=4' >"$RUNS/micro" || failure "$leaf: micro failed"
		unbind $TESTDEV
		expect_table $TESTDEV idle
		choose_table $TESTDEV none || failure "none was refused: $(cat /tmp/put)"
		expect_equal "$leaf: the line of the group" "$(table_of $TESTDEV)" ""
		bind $TESTDEV
		expect_reach no
		unbind $TESTDEV
		fresh_domain $TESTDEV
		expect_equal "$leaf: pages of all tables" "$(iommu_pages)" "$all_pages"
	done
}

case_identity_refused() {
	table_refused $TESTDEV 64k 'Invalid argument'
	table_refused 0000:00:1e.7 4k 'No such device'
	bind $TESTDEV
	table_refused $TESTDEV 1g 'busy'
	unbind $TESTDEV
	choose_table $TESTDEV 1g || failure "1g was refused: $(cat /tmp/put)"
	bind $TESTDEV
	table_refused $TESTDEV none 'busy'
	expect_table $TESTDEV mapped
	unbind $TESTDEV
	choose_table $TESTDEV none || failure "none was refused: $(cat /tmp/put)"
}

# If a step fails, the device is confined, as ever on the kernel's own path, or attached by xsmmu.
case_identity_fails_closed() {
	choose_table $TESTDEV 2m || failure "2m was refused: $(cat /tmp/put)"
	put $TESTDEV policy strict || failure "strict was refused: $(cat /tmp/put)"
	no_table $TESTDEV "not on the kernel's own path"
	expect_reach no
	expect_equal "xsmmu's state" "$(get $TESTDEV state)" active
	unbind $TESTDEV
	put $TESTDEV policy none || failure "none was refused: $(cat /tmp/put)"
	set_group_type $TESTDEV identity
	no_table $TESTDEV 'does not translate'
	unbind $TESTDEV
	set_group_type $TESTDEV DMA
	choose_table $TESTDEV none || failure "none was refused: $(cat /tmp/put)"
	rude late || failure "the probe failed: $(log_since | grep 'rude: wrong')"
	unbind $TESTDEV
	choose_table $TESTDEV 2m || failure "2m was refused: $(cat /tmp/put)"
	no_table $TESTDEV 'left memory mapped'
	expect_reach no
	unbind $TESTDEV
	release_late || failure "$(log_since | grep 'rude: wrong')"
	bind $TESTDEV
	expect_table $TESTDEV mapped
	unbind $TESTDEV
	choose_table $TESTDEV none || failure "none was refused: $(cat /tmp/put)"
}

# reserve ADDRESS: of a page that counts as reserved, or 0.
reserve() {
	echo "$1" >/sys/module/xsmmu_lab/parameters/identity_reserved
}

# Smaller leaves replace those that a reserved region lies in. In memory a region must have been mapped by the kernel.
case_identity_reserved() {
	fresh_domain $TESTDEV
	choose_table $TESTDEV 1g || failure "1g was refused: $(cat /tmp/put)"
	# Behind the first memory, in a hole.
	reserve 0xa0000
	before=$(iommu_pages)
	bind $TESTDEV
	expect_table $TESTDEV mapped
	expect_equal "leaves of 1 GiB" "$(number_of 1g)" 0
	expect_equal "leaves of 2 MiB" "$(number_of 2m)" 511
	[ "$(number_of 4k)" -ge 256 ] || failure "leaves of 4 KiB: $(table_of $TESTDEV)"
	[ "$before" = null ] || expect_equal "pages of tables" $(($(iommu_pages) - before)) "$(number_of table_pages)"
	expect_reach yes
	unbind $TESTDEV
	reserve 0x10000000
	no_table $TESTDEV 'a reserved region is in memory'
	expect_reach no
	unbind $TESTDEV
	reserve 0
	choose_table $TESTDEV none || failure "none was refused: $(cat /tmp/put)"
}

# A real driver works; the table, the group's type and the module stay until the driver is gone.
case_identity_real_driver() {
	set_group_type $DATA DMA
	for leaf in $LEAVES; do
		choose_table $DATA $leaf || failure "$leaf was refused: $(cat /tmp/put)"
		bind $DATA
		disk_start $DATA
		write_disk $DATA 1
		if { echo DMA-FQ >"$PCI/$DATA/iommu_group/type" && echo identity >"$PCI/$DATA/iommu_group/type"; } 2>/dev/null; then
			failure "$leaf: the group's type was changed"
		fi
		! rmmod xsmmu_lab 2>/dev/null || failure "$leaf: the module was unloaded"
		write_disk $DATA 1
		expect_table $DATA mapped
		unbind $DATA
		choose_table $DATA none || failure "none was refused: $(cat /tmp/put)"
	done
}

# The drivers of a group share a table, until the last is gone. 6.1 does not change the type of such a group.
case_identity_shared_group() {
	set -- $SHARED
	choose_table $1 1g || failure "1g was refused: $(cat /tmp/put)"
	bind $1
	echo $2 >/sys/bus/pci/drivers/xsmmu_lab/bind || failure "$2: its driver does not bind"
	expect_table $1 mapped
	unbind $1
	expect_table $1 mapped
	RUNS=/sys/kernel/debug/xsmmu_lab/$2
	expect_reach yes
	unbind $2
	expect_table $1 idle
	choose_table $2 none || failure "none was refused: $(cat /tmp/put)"
	echo $2 >/sys/bus/pci/drivers/xsmmu_lab/bind || failure "$2: its driver does not bind"
	expect_reach no
	unbind $2
	RUNS=/sys/kernel/debug/xsmmu_lab/$TESTDEV
}
