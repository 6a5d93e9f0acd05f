# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2034,SC2086,SC2154 # variables for other scripts; addresses are single words; variables of the lab
# Functions for every guest test, in addition to the lab's own lib.sh: cases, expectations, the kernel log, devices and
# traffic.
#
# A case is a function named case_*; the host runs the cases in the order of their script and reports each case
# separately. A case continues after a failed expectation, so that the report is complete; `give_up` ends a guest that
# cannot continue.

# --- cases -------------------------------------------------------------------------------------------------------

failures=

# failure TEXT: the running case has failed.
failure() {
	failures="$failures${failures:+,}$(json_string "$*")"
	echo "FAILED: $*" >/dev/kmsg
}

read -r console_level _ </proc/sys/kernel/printk

# run_case NAME: run case_NAME and report the result. `all_off` then removes and checks what the case leaves: bound
# drivers, policies, group types. A case may write 1 to /proc/sys/kernel/printk to keep warnings off the console, where
# they end the guest.
run_case() {
	failures=
	echo "case $1" >/dev/kmsg
	emit "{\"event\":\"begin\",\"case\":\"$1\"}"
	clock
	case_started=$now_ns
	"case_$1"
	all_off
	echo "$console_level" >/proc/sys/kernel/printk
	[ "${TABLES:-kernel}" = kernel ] || expect_no_surprise
	# The host checks the mappings in the device, so deferred work of the kernel's own path must be done.
	[ "$MAPS_ARE_SEEN" = 0 ] || settle
	mark
	clock
	emit "{\"event\":\"case\",\"case\":\"$1\",\"marker\":$marker,\"failures\":[$failures],\"guest_ms\":$(((now_ns - case_started) / 1000000))}"
}

# The page tables match the module's knowledge throughout the case.
expect_no_surprise() {
	dmesg | awk '/\] case / {said = ""} /direct tables (are off|cannot be used)/ {said = $0} END {print said}' >/tmp/surprise
	expect_equal "the end of direct tables" "$(cat /tmp/surprise)" ""
}

give_up() {
	failure "$@"
	emit "{\"event\":\"case\",\"case\":\"\",\"failures\":[$failures]}"
	fail "$@"
}

# expect TEXT COMMAND...: the command must succeed.
expect() {
	expect_text=$1
	shift
	"$@" || failure "$expect_text"
}

# expect_equal TEXT FOUND WANTED
expect_equal() {
	[ "$2" = "$3" ] || failure "$1 is '$2', not '$3'"
}

# --- the kernel log ----------------------------------------------------------------------------------------------

log_marks=0

# From here on, `log_since` returns new kernel messages.
log_mark() {
	log_marks=$((log_marks + 1))
	echo "log mark $log_marks" >/dev/kmsg
}

log_since() {
	dmesg | sed "1,/log mark $log_marks\$/d"
}

# expect_log PATTERN: the log has exactly one line of xsmmu since the mark, which matches.
expect_log() {
	log_since | grep 'xsmmu: ' >/tmp/said
	if [ "$(grep -c . /tmp/said)" != 1 ]; then
		failure "one log line was expected ($1), found: $(cat /tmp/said)"
	elif ! grep -qE "$1" /tmp/said; then
		failure "the log says '$(cat /tmp/said)', not '$1'"
	fi
}

expect_silence() {
	said=$(log_since | grep -E 'xsmmu: ')
	[ -z "$said" ] || failure "the module said: $said"
}

# --- files of the module -----------------------------------------------------------------------------------------

# The shell itself reads frequently read files: in an emulated guest a process takes longer than most other work here.
PCI=/sys/bus/pci/devices

device_dir() {
	echo "$PCI/$1"
}

xs() {
	echo "$PCI/$1/xsmmu/$2"
}

get() {
	while IFS= read -r get_line || [ -n "$get_line" ]; do
		echo "$get_line"
	done <"$PCI/$1/xsmmu/$2"
}

stat_of() {
	read -r stat <"$PCI/$1/xsmmu/stats/$2" && echo "$stat"
}

# True if the guest's IOMMU is a virtio-iommu.
is_virtio_iommu() {
	[ -n "$(find /sys/bus/virtio/drivers/virtio_iommu/ -name 'virtio*' 2>/dev/null)" ]
}

# used_of BDF NAME: a number of the file `used`, which is empty without an attached group.
used_of() {
	sed -n "s/^$2 //p" "$PCI/$1/xsmmu/used"
}

# stats_of BDF NAME...: sets a variable of each name.
stats_of() {
	stats_folder=$PCI/$1/xsmmu/stats
	shift
	for each_stat in "$@"; do
		read -r "${each_stat?}" <"$stats_folder/$each_stat" || failure "$stats_folder/$each_stat cannot be read"
	done
}

has_level() {
	case $(get "$1" level) in
	'' | none) return 1 ;;
	esac
}

# put BDF FILE VALUE: write, quietly; the shell's error message goes to /tmp/put. With a policy, the guest's settings of
# tables and copy size are written, too.
put() {
	{ echo "$3" >"$PCI/$1/xsmmu/$2"; } 2>/tmp/put || return
	[ "$2" = policy ] && [ "$3" != none ] || return 0
	[ -z "$TABLES" ] || { echo "$TABLES" >"$(xs "$1" tables)"; } 2>/tmp/put ||
		failure "$1: tables $TABLES was refused: $(cat /tmp/put)"
	[ -z "$COPY" ] || { echo "$COPY" >"$(xs "$1" copy_bytes)"; } 2>/tmp/put ||
		failure "$1: copy_bytes $COPY was refused: $(cat /tmp/put)"
}

# refused BDF FILE VALUE ERROR PATTERN: the write fails with the errno whose text is ERROR, one log line matches
# PATTERN, and the file reads as before.
refused() {
	refused_before=$(get "$1" "$2")
	log_mark
	if put "$1" "$2" "$3"; then
		failure "$2 '$3' was accepted, and is to be refused"
	else
		grep -q "$4" /tmp/put || failure "$2 '$3': the error is '$(cat /tmp/put)', not '$4'"
		expect_log "$5"
	fi
	expect_equal "$2 after refusing '$3'" "$(get "$1" "$2")" "$refused_before"
}

accepted() {
	log_mark
	put "$1" "$2" "$3" || failure "$2 '$3' was refused: $(cat /tmp/put)"
	expect_silence
}

policy_of() {
	read -r chosen_policy <"$PCI/$1/xsmmu/policy" || return
	chosen_policy=${chosen_policy#*\[}
	echo "${chosen_policy%%\]*}"
}

group_type() {
	read -r type <"$PCI/$1/iommu_group/type" && echo "$type"
}

# set_group_type BDF TYPE
set_group_type() {
	set_type=
	read -r set_type <"$PCI/$1/iommu_group/type"
	[ "$set_type" = "$2" ] || echo "$2" >"$PCI/$1/iommu_group/type" ||
		failure "$1: group type $2 was refused"
}

# new_domain: the mappings of the kernel's own path go with the old domain.
new_domain() {
	type=$(group_type $TESTDEV)
	set_group_type $TESTDEV identity
	set_group_type $TESTDEV "$type"
}

# references: the module's reference count; CALLERS modules that call it count CALLERS times.
references() {
	read -r reference_count </sys/module/xsmmu/refcnt && echo "$reference_count"
}

# expect_balance BDF: nothing is mapped, held or unflushed, and all counters agree. The number of failed maps equals the
# number of injected failures, in /tmp/map_failures.BDF if there were any.
expect_balance() {
	stats_of "$1" live_pages held_pages flushed_pages deferred_pages unmapped_pages mapped_pages copied_unmaps copied_maps \
		map_failures
	made_to_fail=0
	[ ! -e "/tmp/map_failures.$1" ] || read -r made_to_fail <"/tmp/map_failures.$1"
	expect_equal "$1: live_pages" "$live_pages" 0
	expect_equal "$1: held_pages" "$held_pages" 0
	expect_equal "$1: flushed_pages" "$flushed_pages" "$deferred_pages"
	expect_equal "$1: unmapped_pages" "$unmapped_pages" "$mapped_pages"
	expect_equal "$1: copied_unmaps" "$copied_unmaps" "$copied_maps"
	expect_equal "$1: map_failures" "$map_failures" "$made_to_fail"
}

# --- memory --------------------------------------------------------------------------------------------------------

# Kilobytes that the kernel itself uses and cannot reclaim at once: caches have been dropped, and the CPUs' free pages
# (`count` in zoneinfo) count as free.
used_kib() {
	sync
	sleep 0.2
	echo 3 >/proc/sys/vm/drop_caches
	awk '$1 == "count:" {free += $2 * 4} /^(MemFree|Cached|Buffers|AnonPages):/{free += $2} /^MemTotal:/{total = $2}
		END{print total - free}' /proc/meminfo /proc/zoneinfo
}

# --- devices -----------------------------------------------------------------------------------------------------

E1000E=0000:00:02.0
TESTDEV=0000:00:03.0
IGB=0000:01:00.0
DATA=0000:02:00.0
DISK0=0000:05:00.0
DISK1=0000:06:00.0
POLICIES='strict lazy fands xsmmu fused strict-identity fused-identity'
# Only in a build of the module for tests: the n-th allocation or map of the module fails.
FAIL=/sys/module/xsmmu/parameters/fail_nth

driver_of() {
	case $1 in
	"$E1000E") echo e1000e ;;
	"$TESTDEV") echo xsmmu_lab ;;
	"$IGB") echo igb ;;
	*) echo nvme ;;
	esac
}

# Some devices are found to be behind an IOMMU only at their first driver, and have no files before.
all_grouped() {
	for each in $E1000E $TESTDEV $IGB $DATA $DISK0 $DISK1; do
		grouped "$each" "$(driver_of "$each")"
	done
	grouped 0000:0a:00.0 nvme
	grouped 0000:0b:00.0 xsmmu_lab
}

has_driver() {
	[ -e "$PCI/$1/driver" ]
}

# pull BDF: removes the device from the kernel's view.
pull() {
	echo 1 >"$PCI/$1/remove"
	[ ! -e "$PCI/$1" ] || failure "$1 is still there"
}

# plug_back BDF...: the kernel finds pulled devices again and binds their drivers, 7.2 in the background. The devices
# have no driver when this returns.
plug_back() {
	echo 1 >/sys/bus/pci/rescan
	for each_back in "$@"; do
		until_true 20 has_driver "$each_back" || failure "$each_back has no driver after a rescan"
	done
	unbind "$@"
}

# take POLICY BDF...: choose a policy for devices of a group and bind their drivers.
take() {
	take_policy=$1
	shift
	for each in "$@"; do
		put "$each" policy "$take_policy" || failure "$each: policy $take_policy was refused: $(cat /tmp/put)"
	done
	for each in "$@"; do
		bind "$each"
	done
}

bind() {
	echo "$1" >"/sys/bus/pci/drivers/$(driver_of "$1")/bind" || failure "$1: its driver does not bind"
}

unbind() {
	for each in "$@"; do
		[ ! -e "$PCI/$each/driver" ] || echo "$each" >"$PCI/$each/driver/unbind" ||
			failure "$each: its driver does not unbind"
	done
}

# config_word BDF OFFSET: four bytes of the device's configuration space, as a number.
config_word() {
	echo $((0x$(dd if="$(device_dir "$1")/config" bs=1 skip="$2" count=4 2>/dev/null | hexdump -e '1/4 "%08x"')))
}

# ats_of BDF: prints whether the device's TLB (ATS) is on: on, off or none.
ats_of() {
	[ "$(wc -c <"$(device_dir "$1")/config")" = 4096 ] || { echo none && return; }
	ats_at=256
	while [ $ats_at -ge 256 ]; do
		ats_head=$(config_word "$1" $ats_at)
		if [ $((ats_head & 0xffff)) = 15 ]; then
			[ $(($(config_word "$1" $((ats_at + 4))) >> 31 & 1)) = 1 ] && echo on || echo off
			return
		fi
		ats_at=$((ats_head >> 20 & 0xfff))
	done
	echo none
}

# all_off: no driver, no policy, nothing left behind; and the groups translate, with type GROUP_TYPE if set.
all_off() {
	for each in $E1000E $TESTDEV $IGB $DATA $DISK0 $DISK1; do
		unbind "$each"
	done
	[ -e /sys/module/xsmmu ] || return
	for each in $E1000E $TESTDEV $IGB $DATA $DISK0 $DISK1; do
		[ -e "$PCI/$each/xsmmu/policy" ] || continue
		expect_balance "$each"
		put "$each" policy none || failure "$each: policy none was refused: $(cat /tmp/put)"
		set_group_type "$each" "${GROUP_TYPE:-DMA-FQ}"
	done
	expect_equal "the module's reference count" "$(references)" "${CALLERS:-0}"
}

# --- traffic -----------------------------------------------------------------------------------------------------

wire_of() {
	[ "$1" = "$IGB" ] && echo 1 || echo 0
}

link_of() {
	ls "$(device_dir "$1")/net"
}

has_link() {
	[ -n "$(link_of "$1" 2>/dev/null)" ]
}

# nic_start BDF: bring the link up, ready for the peer. A plugged-in device may still be in its probe.
nic_start() {
	wire=$(wire_of "$1")
	until_true 20 has_link "$1" || failure "$1: no link"
	link=$(link_of "$1")
	ip link set "$link" up
	ip addr add "10.0.$wire.1/24" dev "$link" 2>/dev/null
	until_true 20 has_carrier "$link" || failure "$link: no carrier"
	ip -n "peer$wire" link set peer up
	ip neigh replace "10.0.$wire.2" lladdr "52:54:00:00:01:0$wire" dev "$link"
	ip -n "peer$wire" neigh replace "10.0.$wire.1" lladdr "$(cat "/sys/class/net/$link/address")" dev peer
}

# ping_peer BDF COUNT: all answers must arrive.
ping_peer() {
	ping -c "$2" -i 0.05 -W 5 -s 1400 "10.0.$(wire_of "$1").2" >/tmp/ping 2>&1 ||
		failure "$1: ping failed: $(tail -n 2 /tmp/ping)"
	grep -q ' 0% packet loss' /tmp/ping || failure "$1: packets were lost: $(tail -n 15 /tmp/ping)"
}

# A disk without its controller may still exist under an earlier name while it is held open.
disk_of() {
	for each_disk in /sys/block/nvme*; do
		case $(readlink -f "$each_disk") in
		*"/$1/"*)
			if [ -b "/dev/${each_disk##*/}" ]; then
				echo "/dev/${each_disk##*/}"
				return
			fi
			;;
		esac
	done
	return 1
}

# disk_start BDF: wait for the block device.
disk_start() {
	until_true 30 disk_of "$1" >/dev/null || failure "$1: no disk; there are: $(cd /sys/block && echo nvme*)"
}

# read_disk BDF MIB: read past the page cache.
read_disk() {
	dd if="$(disk_of "$1")" of=/dev/null bs=256k count=$(($2 * 4)) iflag=direct 2>/tmp/dd ||
		failure "$1: reading failed: $(tail -n 1 /tmp/dd)"
}

# write_disk BDF MIB: write known data past the page cache, and read it back.
write_disk() {
	dd if=/dev/urandom of=/tmp/pattern bs=1M count="$2" 2>/dev/null
	dd if=/tmp/pattern of="$(disk_of "$1")" bs=64k oflag=direct 2>/tmp/dd || failure "$1: writing failed: $(tail -n 1 /tmp/dd)"
	dd if="$(disk_of "$1")" of=/tmp/back bs=64k count=$(($2 * 16)) iflag=direct 2>/tmp/dd ||
		failure "$1: reading back failed: $(tail -n 1 /tmp/dd)"
	cmp -s /tmp/pattern /tmp/back || failure "$1: the data read back differs from the data written"
	rm -f /tmp/pattern /tmp/back
}

# start BDF, work_on BDF: bring a device up; do a little work with checked data.
start() {
	case $(driver_of "$1") in
	nvme) disk_start "$1" ;;
	*) nic_start "$1" ;;
	esac
}

work_on() {
	case $1 in
	"$DATA") write_disk "$1" 1 ;;
	"$DISK0" | "$DISK1") read_disk "$1" 2 ;;
	*) ping_peer "$1" 10 ;;
	esac
}

# --- the driver of the DMA API test, and its device -----------------------------------------------------------------

RUDE=/sys/bus/pci/drivers/xsmmu_dma_api_test
PARAMETERS=/sys/module/xsmmu_dma_api_test/parameters

# trust BDF 1|0: marks the device as trusted, or as untrusted (external-facing).
trust() {
	echo "$1=$2" >$PARAMETERS/untrusted
}

# rude MODE: bind the DMA API test driver in MODE; the caller checks the result.
rude() {
	echo "$1" >$PARAMETERS/mode || return
	echo $TESTDEV >$RUDE/bind
}

# Frees the driver's late mappings.
release_late() {
	echo 1 >$PARAMETERS/release
}

state_is() {
	[ "$(get $TESTDEV state)" = "$1" ]
}

# count_from BDF: until `counted`, only the device's group uses the IOMMU.
count_from() {
	settle
	count_page=$(stat_of $1 inv_page)
	count_domain=$(stat_of $1 inv_domain)
	count_global=$(stat_of $1 inv_global)
	count_maps=$(stat_of $1 map_flushes)
	mark
	count_first=$marker
}

# counted BDF TEXT [DOMAIN]: the host compares the counts; the module does not count DOMAIN domain-selective commands. A
# device with a TLB gets a command after each command of an unmap.
counted() {
	settle
	mark
	counted_page=$(($(stat_of $1 inv_page) - count_page))
	counted_domain=$(($(stat_of $1 inv_domain) - count_domain + ${3:-0}))
	counted_device=0
	if [ "$(ats_of "$1")" = on ]; then
		counted_device=$((counted_page + counted_domain - $(stat_of $1 map_flushes) + count_maps))
	fi
	emit "{\"event\":\"counted\",\"what\":$(json_string "$2"),\"markers\":[$count_first,$marker],\"counts\":{\"page\":$counted_page,\"domain\":$counted_domain,\"global\":$(($(stat_of $1 inv_global) - count_global)),\"device\":$counted_device}}"
}
