# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Recordings by xsmmu-record: all calls are there, compared with the module's and the kernel's own counts.

RECORDING=/tmp/recording

# record_start DEVICE [OPTION...]: begin to record; returns when recording has begun.
record_start() {
	rm -f $RECORDING /tmp/recorded
	xsmmu-record -O $RECORDING "$@" >/tmp/recorded 2>/tmp/record-errors &
	recorder=$!
	until_true 60 grep -q '"event":"recording"' /tmp/recorded ||
		give_up "the recording does not begin: $(cat /tmp/recorded /tmp/record-errors)"
}

record_stop() {
	kill -INT $recorder
	wait $recorder || failure "the recorder ended with $?: $(cat /tmp/record-errors)"
	[ -s $RECORDING ] || failure "there is no recording"
}

record_log() {
	sed 's/^/record: said /' /tmp/record-errors >/dev/kmsg
	tail -n 1 /tmp/recorded | tr -d '\n' | fold -w 900 | sed 's/^/record: /' >/dev/kmsg
	echo "record: $(wc -c <$RECORDING) bytes" >/dev/kmsg
}

# record_end: end the recording; its summary is then in /tmp/recorded and is logged, its events are in /tmp/events.
record_end() {
	record_stop
	xsmmu-record --print $RECORDING >/tmp/events || failure "the recording cannot be read"
	record_log
}

# said NAME: a number of the summary; 0 if the name is not there.
said() {
	said_number=$(tail -n 1 /tmp/recorded | sed -n "s/.*\"$1\":\[*\([0-9]*\).*/\1/p")
	echo "${said_number:-0}"
}

# counted_by_check NAME: the second number of a pair.
counted_by_check() {
	tail -n 1 /tmp/recorded | sed -n "s/.*\"$1\":\[[0-9]*,\([0-9]*\)\].*/\1/p"
}

# expect_nothing_lost: an event is late if an interrupt's events come between its time and its place in the ring.
expect_nothing_lost() {
	for each in lost nested; do
		expect_equal "$each events" "$(said $each)" 0
	done
	[ $(($(said late) * 100)) -le "$(said events)" ] || failure "$(said late) of $(said events) events were late"
}

# expect_equal_counts: nothing was lost, and the totals equal those of the check.
expect_equal_counts() {
	expect_nothing_lost
	tail -n 1 /tmp/recorded | grep -q '"equal":true' ||
		failure "the totals differ: $(tail -n 1 /tmp/recorded | sed 's/.*"check"://')"
}

# pages_of EVENTS KIND: the pages at which events of these kinds begin, in order.
pages_of() {
	awk -v kinds=" $2 " 'index(kinds, " " $4 " ") && $10 != "failed" {print substr($5, 3)}' "$1" |
		sed 's/...$//' | sort
}

# traced NAME: the same pages from the kernel's tracepoint.
traced() {
	sed -n "s/.* $1: IOMMU: iova=0x0*\([0-9a-f]*\)... - .*/\1/p" /tmp/trace | sort
}

# The kernel's own events name each address.
case_nic_one_by_one() {
	tracing=/sys/kernel/tracing
	new_domain
	echo 20000 >$tracing/buffer_size_kb
	echo 1 >$tracing/events/iommu/map/enable
	echo 1 >$tracing/events/iommu/unmap/enable
	record_start --check $E1000E
	echo >$tracing/trace
	bind $E1000E
	nic_start $E1000E
	ping_peer $E1000E 20
	unbind $E1000E
	sleep 0.3
	cat $tracing/trace >/tmp/trace
	record_end
	echo 0 >$tracing/events/iommu/enable
	expect_equal_counts
	[ "$(said map)" -gt 20 ] || failure "there are only $(said map) maps"
	[ "$(said poll)" -gt 20 ] || failure "there are only $(said poll) polls"
	pages_of /tmp/events "map alloc" >/tmp/ours
	traced map >/tmp/theirs
	# Coherent memory in several places is mapped by several calls; the totals of pages are compared above.
	diff /tmp/ours /tmp/theirs | grep '^-[0-9a-f]' >/tmp/only && failure "maps that the kernel does not name: $(head -n 3 /tmp/only)"
	[ $(($(wc -l </tmp/theirs) - $(wc -l </tmp/ours))) -le 2 ] ||
		failure "maps that were not recorded: $(diff /tmp/ours /tmp/theirs | head -n 5)"
	pages_of /tmp/events "unmap free" >/tmp/ours
	traced unmap >/tmp/theirs
	cmp -s /tmp/ours /tmp/theirs || failure "the unmaps differ: $(diff /tmp/ours /tmp/theirs | head -n 5)"
	grep -q 'page=0x0+' /tmp/events && grep ' map .*page=0x0+' /tmp/events >/tmp/unknown &&
		failure "maps without an identity of their page: $(head -n 2 /tmp/unknown)"
	rm -f /tmp/trace
}

# The module counts pages; both ends are idle.
case_nic_under_a_policy() {
	take fused $IGB
	nic_start $IGB
	ping_peer $IGB 5
	sleep 0.2
	record_start $IGB
	ping_peer $IGB 30
	sleep 0.3
	record_end
	expect_equal_counts
	tail -n 1 /tmp/recorded | grep -q '"by":"module"' || failure "the module's counts were not used"
	[ "$(said map)" -ge 30 ] || failure "there are only $(said map) maps"
}

# expect_whole_lists: each list is followed by its entries.
expect_whole_lists() {
	listed=$(awk '$4 == "map_list" {sub("span=", "", $8); sum += $8} END {print sum + 0}' /tmp/events)
	expect_equal "the entries of lists" "$(said entry)" "$listed"
	awk '$4 == "map_list" {want = $6} $4 == "entry" {want -= $6} want < 0 {bad = 1}
		$4 == "map_list" && $6 == 0 {bad = 1} END {exit bad || want}' /tmp/events ||
		failure "the bytes of entries differ from their list's"
}

# Kernels before 6.17 map requests as scatter lists, later ones in two steps.
case_disk_lists() {
	new_domain
	bind $DATA
	disk_start $DATA
	sleep 0.3
	record_start --check $DATA
	write_disk $DATA 2
	read_disk $DATA 4
	sleep 0.3
	record_end
	expect_equal_counts
	expect_whole_lists
	[ $(($(said map_list) + $(said iova_link))) -gt 20 ] || failure "there are no lists: $(cat /tmp/recorded)"
	unbind $DATA
}

case_disk_under_a_policy() {
	take strict $DATA
	disk_start $DATA
	read_disk $DATA 1
	sleep 0.3
	record_start $DATA
	write_disk $DATA 2
	read_disk $DATA 2
	sleep 0.3
	record_end
	expect_equal_counts
	expect_whole_lists
}

# read_small BDF COUNT: single pages.
read_small() {
	dd if="$(disk_of "$1")" of=/dev/null bs=4k count="$2" iflag=direct 2>/tmp/dd || failure "$1: $(tail -n 1 /tmp/dd)"
}

# A stopped recorder cannot empty its ring: what is lost is counted, to the call.
case_full_ring() {
	new_domain
	bind $DATA
	disk_start $DATA
	sleep 0.3
	record_start --check --ring-kib 64 $DATA
	kill -STOP $recorder
	read_small $DATA 2000
	kill -CONT $recorder
	sleep 0.3
	read_small $DATA 10
	sleep 0.3
	record_end
	[ "$(said lost)" -gt 500 ] || failure "only $(said lost) events were lost"
	written=$(awk '!/^#/ && $4 == "lost" {sum += $6} END {print sum + 0}' /tmp/events)
	expect_equal "the lost events in the file" "$written" "$(said lost)"
	# Each call is an event here, and has one event of the kernel's.
	if [ "$(said iova_link)" = 0 ]; then
		calls=$(($(said iommu_maps) + $(counted_by_check unmaps)))
		expect_equal "recorded and lost events" $(($(said events) + $(said lost))) $calls
	fi
	awk '!/^#/ && $1 < last {bad = 1} !/^#/ {last = $1} END {exit bad}' /tmp/events || failure "time goes back"
	unbind $DATA
}

case_limited_overhead() {
	new_domain
	bind $DATA
	disk_start $DATA
	record_start --max-overhead 0.5 $DATA
	started=$(cut -d ' ' -f 1 /proc/uptime)
	until_true 60 enough_time "$started" 5
	record_end
	tail -n 1 /tmp/recorded | sed -n 's/.*"seconds":\([0-9.]*\),"covered_seconds":\([0-9.]*\),"slices":\([0-9]*\).*/\1 \2 \3/p' >/tmp/covered
	awk '$2 < 0.9 * $1 && $3 > 2 {good = 1} END {exit !good}' /tmp/covered || failure "not sampled: $(cat /tmp/covered)"
	[ "$(grep -c ' lost ' /tmp/events)" -gt 1 ] || failure "the file does not name the gaps"
	unbind $DATA
}

# enough_time SINCE SECONDS: works until the time is over.
enough_time() {
	read_small $DATA 200
	awk -v since="$1" -v seconds="$2" '{exit $1 - since < seconds}' /proc/uptime
}

case_removed_while_recorded() {
	new_domain
	bind $IGB
	nic_start $IGB
	record_start $IGB
	ping_peer $IGB 3
	pull $IGB
	sleep 1.2
	record_end
	expect_equal "removals" "$(said removed)" 1
	grep -q "$IGB was removed" /tmp/record-errors || failure "no word of the removal: $(cat /tmp/record-errors)"
	plug_back $IGB
}

# refuses PATTERN WORD...: the recorder ends at once, with one line that matches.
refuses() {
	refused_pattern=$1
	shift
	if xsmmu-record "$@" >/tmp/recorded 2>/tmp/record-errors; then
		failure "xsmmu-record $* was accepted"
	fi
	grep -qE "^xsmmu-record: $refused_pattern" /tmp/record-errors || failure "xsmmu-record $* says $(cat /tmp/record-errors)"
	expect_equal "lines of xsmmu-record $*" "$(wc -l </tmp/record-errors)" 1
}

case_bad_input() {
	refuses "$IGB is named twice" -O $RECORDING $IGB $IGB
	refuses 'there is no PCI device 0000:7f:00.0' -O $RECORDING 0000:7f:00.0
	refuses "there is no PCI device ../$IGB" -O $RECORDING "../$IGB"
	rm -f $RECORDING /tmp/recorded
	: >$RECORDING
	refuses '.*exists' -O $RECORDING --seconds 1 $IGB
	rm $RECORDING
	refuses '.*No such file' -O /nowhere/recording --seconds 1 $IGB
	/usr/bin/setpriv --reuid 1000 --regid 1000 --clear-groups xsmmu-record -O /tmp/other --seconds 1 $IGB >/tmp/recorded 2>/tmp/record-errors &&
		failure "an ordinary user can record"
	grep -q 'record as root' /tmp/record-errors || failure "an ordinary user is told $(cat /tmp/record-errors)"
}

case_full_disk() {
	mkdir -p /tmp/small
	mount -t tmpfs -o size=64k tmpfs /tmp/small
	dd if=/dev/urandom of=/tmp/small/filler bs=1k count=56 2>/dev/null
	new_domain
	bind $DATA
	disk_start $DATA
	xsmmu-record -O /tmp/small/recording $DATA >/tmp/recorded 2>/tmp/record-errors &
	recorder=$!
	until_true 60 grep -q '"event":"recording"' /tmp/recorded
	until_true 30 is_over_after_reads || failure "the recorder goes on with a full disk"
	wait $recorder && failure "the recorder succeeds with a full disk"
	grep -q 'No space left' /tmp/record-errors || failure "the recorder says $(cat /tmp/record-errors)"
	umount /tmp/small
	unbind $DATA
}

is_over_after_reads() {
	read_small $DATA 500
	! kill -0 $recorder 2>/dev/null
}

# cost_of NAME: instructions of a page in the micro-benchmark, times ten.
cost_of() {
	sed -n "s/.*\"$1_instructions_per_page\":\([0-9]*\)\.\([0-9]\).*/\1\2/p" /tmp/micro
}

# micro_cost: sets map_cost and unmap_cost.
micro_cost() {
	echo 'ring=256 rounds=16' >/sys/kernel/debug/xsmmu_lab/$TESTDEV/micro || failure "micro failed"
	cat /sys/kernel/debug/xsmmu_lab/$TESTDEV/micro >/tmp/micro
	map_cost=$(cost_of map)
	unmap_cost=$(cost_of unmap)
}

# A map, an unmap, and the mean of both, which is at most GOAL. Only a guest with -icount counts instructions.
# The recorder, which would read the ring meanwhile on the same CPU, is stopped; the signal that says so would end the
# benchmark.
case_cost() {
	new_domain
	bind $TESTDEV
	micro_cost
	micro_cost
	map_before=$map_cost
	unmap_before=$unmap_cost
	record_start $TESTDEV
	sleep 0.5
	kill -STOP $recorder
	sleep 0.1
	micro_cost
	kill -CONT $recorder
	sleep 0.3
	record_end
	map_added=$(((map_cost - map_before) / 10))
	unmap_added=$(((unmap_cost - unmap_before) / 10))
	added=$(((map_cost - map_before + unmap_cost - unmap_before) / 20))
	emit "{\"event\":\"heard\",\"kernel\":\"$(uname -r)\",\"map\":$map_added,\"unmap\":$unmap_added,\"mean\":$added}"
	[ $added -gt 0 ] && [ $added -le $GOAL ] || failure "recording costs $added instructions an event"
	expect_equal "maps" "$(said map)" "$(said unmap)"
	unbind $TESTDEV
}

# Without BPF the kernel's text of tracepoints is read; unmaps of lists are lost events there.
case_tracepoints() {
	new_domain
	record_start --tracepoints $E1000E
	bind $E1000E
	nic_start $E1000E
	ping_peer $E1000E 10
	unbind $E1000E
	sleep 0.3
	record_end
	[ "$(said map)" -gt 10 ] || failure "there are only $(said map) maps"
	expect_equal "maps" "$(said map)" "$(said unmap)"
	expect_equal "lost events" "$(said lost)" 0
	grep -q '"method":"tracepoints"' /tmp/events || failure "the header does not name the method"
	grep -q 'BPF: .* tracepoints are recorded, without' /tmp/record-errors || failure "nothing is said: $(cat /tmp/record-errors)"
	grep ' map ' /tmp/events | grep -q 'page=0x0+' && failure "pages have no identity"
	ls -d /sys/kernel/tracing/instances/xsmmu-record-* 2>/dev/null && failure "the instance is left"
	bind $DATA
	disk_start $DATA
	record_start --tracepoints $DATA
	read_disk $DATA 1
	record_end
	expect_whole_lists
	unbind $DATA
}
