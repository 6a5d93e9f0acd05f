# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash
# What the debug kernel's checkers have seen of all cases before. Warnings end a guest by themselves; these are asked.

# The checkers switch themselves off when they run out of memory, or at their first report.
case_checkers_are_on() {
	expect_equal "debugging of the DMA API" "$(cat /sys/kernel/debug/dma-api/disabled)" N
	expect_equal "lockdep" "$(sed -n 's/^ *debug_locks: *//p' /proc/lockdep_stats)" 1
	[ -w /sys/kernel/debug/kmemleak ] || failure "kmemleak is off"
}

case_dma_api() {
	expect_equal "errors of the DMA API" "$(cat /sys/kernel/debug/dma-api/error_count)" 0
}

# Twice: what is only in a register at the first look is not leaked.
case_no_memory_leaked() {
	for _ in 1 2; do
		sleep 6
		echo scan >/sys/kernel/debug/kmemleak
	done
	cat /sys/kernel/debug/kmemleak >/tmp/leaks
	[ -s /tmp/leaks ] && failure "leaked: $(head -n 40 /tmp/leaks)"
}
