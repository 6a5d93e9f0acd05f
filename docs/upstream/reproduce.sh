# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash # sourced by the guest's init, after lab/guest/lib.sh
# The guest's side of reproduce.py.

TRACING=/sys/kernel/tracing
DEVICE=0000:00:03.0

report() {
	emit "{\"event\":\"report\",\"text\":$(json_string "$*")}"
}

# report_lines: each line of standard input, blanks joined.
report_lines() {
	while read -r line; do
		report "$line"
	done
}

# step NAME: run a step, and report the lines that the module has logged.
step() {
	echo "$1" >/sys/bus/pci/devices/$DEVICE/upstream || fail "$1 failed"
	dmesg | sed -n "s/.*0: \($1: .*\)/\1/p" >/tmp/log
	report_lines </tmp/log
}

# Reports the order of the invalidation and the free of the page table during a map of 2 MiB.
reproduce_tables() {
	device_bind $DEVICE xsmmu_upstream
	faults_are expected
	step small
	echo 'p:map iommu_map' >$TRACING/kprobe_events
	echo 'r:mapped iommu_map' >>$TRACING/kprobe_events
	echo 'p:invalidate qi_submit_sync' >>$TRACING/kprobe_events
	for event in kprobes kmem/mm_page_free; do
		echo 1 >$TRACING/events/$event/enable
	done
	step large
	echo 0 >$TRACING/tracing_on
	sed -n '/ map: /,/ mapped: /p' $TRACING/trace >/tmp/trace
	report_lines </tmp/trace
	report "$(awk '/ invalidate: / { done = 1 } / mm_page_free: / { if (done) after++; else before++ }
		END { printf "page tables freed before the invalidation: %d, after it: %d", before, after }' /tmp/trace)"
	faults_are unexpected
}

# Reports whether an unmapped page is still in the IOTLB.
reproduce_range() {
	device_bind $DEVICE xsmmu_upstream
	faults_are expected
	# The kernel may warn of the range, and a warning on the console would end the run.
	echo 1 >/proc/sys/kernel/printk
	step range
	echo 7 >/proc/sys/kernel/printk
	dmesg | grep -c 'WARNING: .*qi_flush_piotlb' >/tmp/warned
	report "warnings of qi_flush_piotlb(): $(cat /tmp/warned)"
	faults_are unexpected
}

# Reports whether the padding of a scatter list maps the memory behind the previous segment.
reproduce_padding() {
	device_bind $DEVICE xsmmu_upstream
	faults_are expected
	step padding
	faults_are unexpected
}

# Reports the effect of an unmap of a page in the middle of a large entry on the mapped memory.
reproduce_middle() {
	device_bind $DEVICE xsmmu_upstream
	faults_are expected
	step middle
	faults_are unexpected
}
