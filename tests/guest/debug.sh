# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash
# Results of the debug kernel's checkers over all cases before. Warnings end a guest at once; these checkers must be
# asked.

# The checkers disable themselves when out of memory, or after their first report.
case_checkers_are_on() {
	expect_equal "debugging of the DMA API" "$(cat /sys/kernel/debug/dma-api/disabled)" N
	expect_equal "lockdep" "$(sed -n 's/^ *debug_locks: *//p' /proc/lockdep_stats)" 1
	[ -w /sys/kernel/debug/kmemleak ] || failure "kmemleak is off"
}

case_dma_api() {
	expect_equal "errors of the DMA API" "$(cat /sys/kernel/debug/dma-api/error_count)" 0
}

# Twice: memory that is only in a register at the first scan is not leaked.
case_no_memory_leaked() {
	for _ in 1 2; do
		sleep 6
		echo scan >/sys/kernel/debug/kmemleak
	done
	cat /sys/kernel/debug/kmemleak >/tmp/leaks
	[ -s /tmp/leaks ] && failure "leaked: $(head -n 40 /tmp/leaks)"
}
