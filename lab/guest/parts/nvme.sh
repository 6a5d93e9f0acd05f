# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash
# shellcheck disable=SC2154 # arg_* come from run, session_* from session_open
# Storage workloads: fio on the block devices of the session's NVMe controllers.

# Huge pages for the buffers of measured runs.
nvme_init() {
	echo 16 >/proc/sys/vm/nr_hugepages
	[ "$(cat /proc/sys/vm/nr_hugepages)" = 16 ] || fail "no huge pages"
	# An idle guest's clock jumps from timer to timer while a busy host reads the disk: 30 s pass quickly.
	for timeout in io_timeout admin_timeout; do
		echo 3600 >/sys/module/nvme_core/parameters/$timeout || fail "nvme: no $timeout"
	done
}

nvme_kind() { stock_or_patched nvme "$1"; }

# nvme_up [BDF...]: wait for the disks of these controllers, or of the session's.
nvme_up() {
	# shellcheck disable=SC2086
	[ $# -gt 0 ] || set -- $session_bdfs
	nvme_disks=
	for bdf in "$@"; do
		until_true 20 nvme_disk "$bdf" >/dev/null || fail "$bdf: no disk"
		disk=$(nvme_disk "$bdf")
		# With one CPU a disk has one queue and by default gets a scheduler, which completes requests singly.
		# With several queues, as on most machines, the default is no scheduler, and requests are completed in
		# batches.
		echo none >"/sys/block/${disk##*/}/queue/scheduler" || fail "$disk: no way without a scheduler"
		nvme_disks="$nvme_disks $disk"
	done
}

nvme_down() { :; }

nvme_disk() {
	for link in /sys/block/nvme*; do
		case $(readlink -f "$link" 2>/dev/null) in
		*"/$1/"*)
			[ -b "/dev/${link##*/}" ] && echo "/dev/${link##*/}"
			return
			;;
		esac
	done
	return 1
}

# fio_all OPTION...: a job per disk of the session, all at once; prints fio's JSON.
fio_all() {
	jobs=
	for disk in $nvme_disks; do
		jobs="$jobs --name=${disk##*/} --filename=$disk"
	done
	# shellcheck disable=SC2086
	fio --output-format=json --eta=never --thread --ioengine=libaio --direct=1 --invalidate=0 "$@" $jobs
}

# Buffers in huge pages: the scattering of ordinary memory differs from run to run, and mapping scattered memory costs
# up to twice as much. Requests are submitted and reaped `batch` at a time; with single requests, the number complete at
# an interrupt would depend on the host. (With polled I/O the spinning time would, too.)
nvme_randread() {
	fio_all --iomem=shmhuge --rw=randread --norandommap --gtod_reduce=1 --bs="$arg_block" --iodepth="$arg_depth" --iodepth_batch="$arg_batch" --iodepth_batch_complete_min="$arg_batch" --number_ios="$arg_ios"
}

# Writes and reads back with checksums, on a disk that keeps its data; the buffers are ordinary, scattered memory.
nvme_verify() {
	fio_all --rw=randwrite --bs="$arg_block" --iodepth="$arg_depth" --size="$arg_bytes" --verify=crc32c --verify_fatal=1 --do_verify=1
}
