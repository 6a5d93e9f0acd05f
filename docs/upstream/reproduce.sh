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

# step NAME: run a step, report what the module has logged of it.
step() {
	echo "$1" >/sys/bus/pci/devices/$DEVICE/upstream || fail "$1 failed"
	dmesg | sed -n "s/.*0: \($1: .*\)/\1/p" >/tmp/log
	report_lines </tmp/log
}

# Which came first while 2 MiB were mapped: the page table that was freed, or the invalidation?
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

# Is a page that was unmapped still in the IOTLB?
reproduce_range() {
	device_bind $DEVICE xsmmu_upstream
	faults_are expected
	# The kernel may warn of the range. On the console that would end the run.
	echo 1 >/proc/sys/kernel/printk
	step range
	echo 7 >/proc/sys/kernel/printk
	dmesg | grep -c 'WARNING: .*qi_flush_piotlb' >/tmp/warned
	report "warnings of qi_flush_piotlb(): $(cat /tmp/warned)"
	faults_are unexpected
}

# Does the padding of a scatter list reach the memory behind the segment before?
reproduce_padding() {
	device_bind $DEVICE xsmmu_upstream
	faults_are expected
	step padding
	faults_are unexpected
}

# What becomes of memory that is mapped by a large entry when a page in the middle is unmapped?
reproduce_middle() {
	device_bind $DEVICE xsmmu_upstream
	faults_are expected
	step middle
	faults_are unexpected
}
