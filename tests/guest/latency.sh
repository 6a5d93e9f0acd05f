# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# How long interrupts are off and calls take, compared with the kernel's own path: in instructions, as counted by this
# guest.

RUNS=/sys/kernel/debug/xsmmu_lab/$TESTDEV

# took PHASE: duration of that phase of the last `latency` run.
took() {
	sed "s/.*\"$1\":{[^}]*\"ns\":\([0-9]*\).*/\1/" "$RUNS/latency"
}

# registration POLICY SEGMENTS: map and unmap SEGMENTS times 2 MiB; sets `map` and `unmap` to the durations.
registration() {
	set_group_type $TESTDEV "$([ "$1" = none ] && echo DMA || echo DMA-FQ)"
	take "$1" $TESTDEV
	echo "segment_kib=2048 segments=$2 rounds=3" >"$RUNS/latency" || give_up "$1: $(dmesg | tail -n 1)"
	map=$(took map)
	unmap=$(took unmap)
	unbind $TESTDEV
	[ "$1" = none ] || expect_balance $TESTDEV
	put $TESTDEV policy none
}

# Registrations of 1 GiB and of 64 GiB take at most twice as long as in the kernel's own strict mode.
case_registrations() {
	for segments in 512 32768; do
		registration none $segments
		kernels_map=$map kernels_unmap=$unmap
		for policy in $POLICIES; do
			registration "$policy" $segments
			expect "$policy, $segments segments: map took $map, the kernel's $kernels_map" [ "$map" -le $((2 * kernels_map)) ]
			expect "$policy, $segments segments: unmap took $unmap, the kernel's $kernels_unmap" [ "$unmap" -le $((2 * kernels_unmap)) ]
		done
	done
}

WATCHER=0000:0b:00.0
WATCH=/sys/kernel/debug/xsmmu_lab/$WATCHER/watch

# watched COMMAND...: sets `irqs_off` to the longest time with interrupts off. When a CPU halts, QEMU's clock jumps to
# the next timer, sometimes further; so the CPU is kept busy, and only instructions move the clock.
watched() {
	while :; do :; done &
	busy=$!
	echo "on=1 off_us=${off_us:-0}" >$WATCH || give_up "cannot watch: $(dmesg | tail -n 1)"
	"$@"
	echo on=0 >$WATCH
	kill $busy
	wait $busy
	irqs_off=$(sed 's/.*"irqs_off_ns":\([0-9]*\).*/\1/' $WATCH)
}

# An attach, with the check for mappings of the kernel's own path at a group's first, disables interrupts no longer than
# a timer tick does.
case_attach() {
	echo $WATCHER >/sys/bus/pci/drivers/xsmmu_lab/bind || give_up "no watcher"
	off_us=100
	watched true
	expect "the watch sees 100 us, it saw $irqs_off ns" [ "$irqs_off" -ge 80000 ]
	off_us=0
	for policy in $POLICIES; do
		put $DATA policy "$policy"
		watched bind $DATA
		expect "$policy: interrupts were off for $irqs_off" [ "$irqs_off" -le 20000 ]
		disk_start $DATA
		work_on $DATA
		unbind $DATA
	done
	unbind $WATCHER
}
