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

xsmmu_lab_down() { :; }

micro() {
	echo "ring=$arg_ring rounds=$arg_rounds" >"$testdev/micro" && cat "$testdev/micro"
}

exposure() {
	echo "rounds=$arg_rounds window_us=$arg_window_us napi=$arg_napi" >"$testdev/exposure" && cat "$testdev/exposure"
}

# The arguments of these are the module's parameters.
ring_receive() {
	echo "$arg_all" >"$testdev/receive" && cat "$testdev/receive"
}

ring_transmit() {
	echo "$arg_all" >"$testdev/transmit" && cat "$testdev/transmit"
}

ring_storage() {
	echo "$arg_all" >"$testdev/storage" && cat "$testdev/storage"
}
