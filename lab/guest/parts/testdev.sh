# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash
# shellcheck disable=SC2154 # arg_* come from run, session_* from session_open
# Workloads of the lab's own module on QEMU's iommu-testdev.

xsmmu_lab_kind() {
	[ "$1" = batch-aware ] && aware=Y || aware=N
	echo "$aware" >/sys/module/xsmmu_lab/parameters/batch_aware
}

xsmmu_lab_up() {
	testdev=/sys/kernel/debug/xsmmu_lab/$session_bdfs
	[ -d "$testdev" ] || fail "$testdev is missing"
}

xsmmu_lab_down() {
	[ -z "$beside" ] || device_unbind "$beside"
	beside=
}

micro() {
	echo "$arg_all" >"$testdev/micro" && cat "$testdev/micro"
}

# Arguments for the disk beside the attacker are removed; the others go to the module.
attack() {
	attack_words=
	for word in $arg_all; do
		case $word in
		block=* | depth=* | bytes=*) ;;
		*) attack_words="$attack_words $word" ;;
		esac
	done
	echo "$attack_words" >"$testdev/attack" && cat "$testdev/attack"
}

latency() {
	echo "$arg_all" >"$testdev/latency" && cat "$testdev/latency"
}

# The arguments of these workloads are the module's parameters.
ring_receive() {
	echo "$arg_all" >"$testdev/receive" && cat "$testdev/receive"
}

ring_transmit() {
	echo "$arg_all" >"$testdev/transmit" && cat "$testdev/transmit"
}

ring_storage() {
	echo "$arg_all" >"$testdev/storage" && cat "$testdev/storage"
}

# A disk in another IOMMU group that works meanwhile, under the same policy. Its unmodified driver stays bound until the
# session ends, because attaching and detaching a group flush the IOMMU.
beside=

beside_inv() {
	for name in page domain global; do
		cat "/sys/bus/pci/devices/$beside/xsmmu/stats/inv_$name" 2>/dev/null || echo 0
	done
}

attack_beside_disk_prepare() {
	[ -z "$beside" ] || return 0
	beside=0000:02:00.0
	grouped $beside nvme
	policy_set "$session_policy" $beside
	nvme_kind unmodified
	device_bind $beside nvme
	nvme_up $beside
}

attack_beside_disk() {
	# shellcheck disable=SC2046
	set -- $(beside_inv)
	nvme_verify >/tmp/traffic || return 1
	: >/tmp/busy
	while [ -e /tmp/busy ]; do
		nvme_verify >/tmp/traffic.new || break
		mv /tmp/traffic.new /tmp/traffic
	done &
	attack >/tmp/attack || return 1
	rm /tmp/busy
	wait
	[ ! -e /tmp/traffic.new ] || return 1
	settle
	# shellcheck disable=SC2046
	set -- "$@" $(beside_inv)
	printf '{"attack":%s,"traffic":%s,' "$(cat /tmp/attack)" "$(cat /tmp/traffic)"
	printf '"beside":{"page":%d,"domain":%d,"global":%d}}' $(($4 - $1)) $(($5 - $2)) $(($6 - $3))
}

# under_attack FUNCTION: a lab device in the session's IOMMU group attacks the session driver's unmapped buffers while
# that driver works. The lab device's driver is of the session's kind.
neighbour=0000:0b:00.0

under_attack() {
	xsmmu_lab_kind "$session_kind"
	device_bind $neighbour xsmmu_lab
	testdev=/sys/kernel/debug/xsmmu_lab/$neighbour
	# Attacking reused memory is safe only where no write may land.
	case $session_kind/${session_policy%-direct} in
	batch-aware/lazy) later=0 ;;
	batch-aware/* | */strict | */kernel-strict) later=1 ;;
	*) later=0 ;;
	esac
	echo "on=1 later=$later" >"$testdev/neighbour" || return 1
	"$@" >/tmp/traffic || return 1
	echo on=0 >"$testdev/neighbour" || return 1
	printf '{"attack":%s,"traffic":%s}' "$(cat "$testdev/neighbour")" "$(cat /tmp/traffic)"
	device_unbind $neighbour
}

attacked_disk() { under_attack nvme_verify; }

# Data from the session's disk, read through the page cache, is verified and then attacked.
attacked_page_cache() {
	xsmmu_lab_kind "$session_kind"
	device_bind $neighbour xsmmu_lab
	testdev=/sys/kernel/debug/xsmmu_lab/$neighbour
	for disk in $nvme_disks; do
		printf %s "$disk" >/sys/module/xsmmu_lab/parameters/disk
		echo "rounds=$arg_rounds pages=$arg_pages delay_us=$arg_delay_us" >"$testdev/page-cache" || return 1
	done
	printf '{"attack":%s}' "$(cat "$testdev/page-cache")"
	device_unbind $neighbour
}

attacked_nic_prepare() { iperf_server; }
attacked_nic() { under_attack iperf -n "$arg_bytes" -i 0.1 -R; }
