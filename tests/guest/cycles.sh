# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Repeated life cycles: policy, bind, traffic, unbind, no policy, the kernel's own path. Checks for leftovers.

# cycle BDF POLICY: one cycle; with policy none on the kernel's own path, for comparison.
cycle() {
	put "$1" policy "$2" || failure "policy $2 was refused: $(cat /tmp/put)"
	bind "$1"
	start "$1"
	light_work "$1"
	[ "$2" = none ] || expect_equal "the state under $2" "$(get "$1" state)" active
	unbind "$1"
	expect_balance "$1"
	put "$1" policy none || failure "policy none was refused: $(cat /tmp/put)"
	bind "$1"
	unbind "$1"
}

light_work() {
	case $1 in
	"$DATA" | "$DISK0" | "$DISK1") read_disk "$1" 1 ;;
	*) ping_peer "$1" 3 ;;
	esac
}

# The value of a counter of pages or objects in the kernel.
of_kernel() {
	awk -v name="$1" '$1 == name {print $2}' /proc/vmstat
}

# Objects in use in the slabs of IOVAs and IOMMU page tables, and of the common sizes.
iova_objects() {
	awk '$1 == "iommu_iova" || $1 == "iova_magazine" {used += $2} END{print used + 0}' /proc/slabinfo
}

# say_left COUNT: print progress now and then, or the host takes a long test for a hang.
say_left() {
	[ $(($1 % 10)) != 0 ] || echo "$1 cycles left" >/dev/kmsg
}

# turns BDF COUNT POLICY...: COUNT cycles, alternating the policies.
turns() {
	turns_device=$1
	turns_left=$2
	shift 2
	while [ "$turns_left" -gt 0 ]; do
		for policy in "$@"; do
			cycle "$turns_device" "$policy"
			turns_left=$((turns_left - 1))
			say_left "$turns_left"
			[ "$turns_left" -gt 0 ] || break
		done
		[ -z "$failures" ] || return
	done
}

# leaves_nothing BDF COUNT: after a warm-up, COUNT cycles under the module's policies must use no more memory than ten
# times the memory of a tenth of COUNT cycles under policy none, with a tolerance of 256 KiB for the kernel's per-CPU
# and slab caches. (An engine with its space takes megabytes, which any COUNT finds; a page leaked per cycle is found
# from 64 cycles on.)
leaves_nothing() {
	turns "$1" 8 copy $POLICIES
	turns "$1" 2 none
	none_before=$(used_kib)
	turns "$1" "$(($2 / 10))" none
	ours_before=$(used_kib)
	iova_before=$(iova_objects)
	turns "$1" "$2" copy $POLICIES
	ours_after=$(used_kib)
	iova_after=$(iova_objects)
	none_grew=$(((ours_before - none_before) * 10))
	ours_grew=$((ours_after - ours_before))
	echo "$1: $2 cycles grew the kernel by $ours_grew KiB; under policy none by $none_grew KiB" >/dev/kmsg
	[ $ours_grew -le $(((none_grew > 0 ? none_grew : 0) + 256)) ] ||
		failure "$2 cycles grew the kernel by $ours_grew KiB; under policy none by $none_grew KiB"
	[ "$iova_after" -le "$((iova_before + 128))" ] || failure "IOVA objects grew from $iova_before to $iova_after"
	all_off
	expect "rmmod" rmmod xsmmu
	bind "$1"
	start "$1"
	work_on "$1"
	unbind "$1"
	expect "insmod" insmod /modules/xsmmu.ko
}

case_cycles_igb() {
	leaves_nothing "$IGB" "$CYCLES"
}

case_cycles_nvme() {
	leaves_nothing "$DATA" "$CYCLES"
}

# Loading and unloading, with a cycle in between.
case_cycles_of_the_module() {
	module_left=$((CYCLES / 5))
	used_before=$(used_kib)
	while [ $module_left -gt 0 ] && [ -z "$failures" ]; do
		cycle "$DATA" fused
		expect "rmmod" rmmod xsmmu
		expect "insmod" insmod /modules/xsmmu.ko
		module_left=$((module_left - 1))
		say_left $module_left
	done
	used_after=$(used_kib)
	[ "$used_after" -le $((used_before + 256)) ] || failure "loading and unloading grew the kernel by $((used_after - used_before)) KiB"
}
