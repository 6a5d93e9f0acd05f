# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # parameters are several words; settings come from elsewhere
# The ring workloads of the lab's module: every kind of driver, their refusals, and nothing left behind, however a run
# ends.

# The lab's module and the batch-aware driver.
# shellcheck disable=SC2034 # all_off reads it
CALLERS=2
RUNS=/sys/kernel/debug/xsmmu_lab/$TESTDEV
# Small, so that a case is quick; even so a whole ring is used up many times.
SMALL='packets=512 descriptors=4 hold=64 cache=64'

# kind Y|N: the kind of drivers that bind from now on.
kind() {
	echo "$1" >/sys/module/xsmmu_lab/parameters/batch_aware
}

# ring WORKLOAD PARAMETERS: the run must succeed.
ring() {
	if { echo "$2" >"$RUNS/$1"; } 2>/tmp/ring; then
		read -r result <"$RUNS/$1"
		case $result in
		*'"measured":{"packets":'[1-9]*) ;;
		*) failure "$1 $2: the result is '$result'" ;;
		esac
	else
		failure "$1 $2: $(cat /tmp/ring): $(dmesg | tail -n 1)"
	fi
}

# ring_without_memory WORKLOAD PARAMETERS NUMBER...: the run must fail when its NUMBER-th allocation or mapping fails.
ring_without_memory() {
	workload=$1
	parameters=$2
	shift 2
	for number in "$@"; do
		if { echo "$parameters fail=$number" >"$RUNS/$workload"; } 2>/tmp/ring; then
			failure "$workload $parameters fail=$number did not fail"
		fi
		read -r result </tmp/ring
		case $result in
		*'Cannot allocate memory'*) ;;
		*) failure "$workload $parameters fail=$number: the error is '$result'" ;;
		esac
	done
}

# ring_refused WORKLOAD PARAMETERS ERROR PATTERN: the write fails with the errno whose text is ERROR, one log line
# matches PATTERN, and there is no result.
ring_refused() {
	log_mark
	if { echo "$2" >"$RUNS/$1"; } 2>/tmp/ring; then
		failure "$1 $2 was accepted, and is to be refused"
		return
	fi
	grep -q "$3" /tmp/ring || failure "$1 $2: the error is '$(cat /tmp/ring)', not '$3'"
	log_since | grep "xsmmu_lab .*$1: " >/tmp/said
	expect_equal "$1 $2: lines in the log" "$(grep -c . /tmp/said)" 1
	grep -qE "$4" /tmp/said || failure "$1 $2: the log says '$(cat /tmp/said)', not '$4'"
	! cat "$RUNS/$1" >/dev/null 2>&1 || failure "$1 $2: there is a result"
}

# field WORKLOAD NAME: a number of the measured section of the last run.
field() {
	sed "s/.*\"measured\":{.*\"$2\":\([0-9]*\).*/\1/" "$RUNS/$1"
}

left() {
	unbind $TESTDEV
	expect_balance $TESTDEV
}

case_ring_parameters_refused() {
	kind N
	take fused $TESTDEV
	ring_refused receive 'mtu=67' 'Numerical result out of range' 'mtu=67 is out of range, expected 68 to 9000'
	ring_refused receive 'hold=1 hold=2' 'Invalid argument' 'hold is given twice'
	ring_refused receive 'pages=64' 'Invalid argument' 'unknown parameter pages'
	ring_refused receive 'release=never' 'Invalid argument' 'release=never is unknown, expected one of page descriptor pending blocks whole'
	ring_refused receive 'release=pending' 'Invalid argument' 'release=pending is for a batch-aware driver'
	ring_refused transmit 'completions=129' 'Numerical result out of range' 'completions=129 is out of range, expected 1 to 128'
	ring_refused transmit 'release=poll' 'Invalid argument' 'release=poll is for a batch-aware driver'
	ring_refused storage 'batch=33' 'Numerical result out of range' 'batch=33 is out of range, expected 1 to 32'
	ring_refused storage 'depth=8 batch=9' 'Numerical result out of range' 'batch=9 is more than depth=8'
	ring_refused storage 'pages=32 segment=3' 'Numerical result out of range' 'segment=3 is out of range'
	ring_refused storage 'pages=32 segment=64' 'Numerical result out of range' 'a power of two that divides pages=32'
	ring_refused storage 'release=batch' 'Invalid argument' 'release=batch is for a batch-aware driver'
	left
	kind Y
	take fused $TESTDEV
	ring_refused receive 'release=whole threshold=63' 'Numerical result out of range' 'threshold=63 is less than a descriptor'
	ring_refused receive 'release=descriptor' 'Invalid argument' 'release=descriptor cannot recycle'
	left
	kind N
}

case_ring_unmodified() {
	kind N
	bind $TESTDEV
	for workload in receive transmit; do
		ring $workload packets=512
	done
	ring storage requests=256
	unbind $TESTDEV
	for policy in $POLICIES; do
		take $policy $TESTDEV
		ring receive "$SMALL"
		ring transmit packets=512
		ring storage requests=256
		left
	done
}

# The module's debug mode reports memory that is freed before its flush, and a forgotten flush.
case_ring_batch_aware() {
	kind Y
	echo Y >/sys/module/xsmmu/parameters/debug
	log_mark
	for policy in $POLICIES; do
		take $policy $TESTDEV
		for release in page pending blocks whole; do
			ring receive "$SMALL release=$release"
			ring receive "$SMALL release=$release recycle=0"
		done
		ring receive "$SMALL release=descriptor recycle=0"
		for release in page packet poll; do
			ring transmit "packets=512 release=$release"
		done
		for batch in 1 5 32; do
			ring storage "requests=256 release=batch batch=$batch"
		done
		left
	done
	expect_silence
	echo N >/sys/module/xsmmu/parameters/debug
	kind N
}

case_ring_counts() {
	kind Y
	take fused $TESTDEV
	# 60 packets per descriptor of 64 pages; no page is recycled.
	ring receive "packets=6400 descriptors=4 hold=0 recycle=0 release=descriptor"
	expect_equal "packets" "$(field receive packets)" 6400
	expect_equal "bytes" "$(field receive bytes)" $((6400 * 4096))
	expect_equal "flushes" "$(field receive flushes)" $(($(field receive pages_unmapped) / 64))
	expect "106 or 107 descriptors" test "$(($(field receive flushes) * 60 / 6400))" -le 1
	# No page is kept for longer than a poll, so the cache serves nearly all requests.
	ring receive "packets=6400 descriptors=4 hold=0 cache=256 release=blocks"
	expect "few pages are mapped" test "$(field receive pages_mapped)" -lt 64
	expect "most are reused" test "$(field receive cache_reused)" -gt 6400
	# The stack keeps more pages than the cache holds.
	ring receive "packets=6400 descriptors=4 hold=4096 cache=64 release=blocks"
	expect "pages left" test "$(field receive pages_unmapped)" -gt 1000
	# At most `threshold` unmaps wait for a flush.
	ring receive "packets=640 descriptors=4 recycle=0 release=pending threshold=1"
	expect_equal "flushes" "$(field receive flushes)" "$(field receive pages_unmapped)"
	ring storage "requests=256 pages=8 batch=8 depth=8 release=batch"
	expect_equal "flushes" "$(field storage flushes)" 32
	expect_equal "pages" "$(field storage pages_unmapped)" 2048
	left
	kind N
}

case_ring_shapes() {
	kind Y
	take fused $TESTDEV
	for mtu in 68 1500 9000; do
		ring receive "$SMALL mtu=$mtu release=blocks"
	done
	ring receive "$SMALL queues=3 release=blocks"
	expect_equal "packets of 3 queues" "$(field receive packets)" 1536
	ring receive "$SMALL budget=1 release=pending copy=0"
	ring receive "packets=1024 descriptors=4 cache=0 release=pending"
	ring transmit "packets=256 completions=1 release=poll threshold=0 copy=0"
	ring storage "requests=64 pages=256 depth=61 release=batch batch=7"
	ring storage "requests=64 pages=32 segment=32 release=batch"
	left
	kind N
}

# The n-th allocation or mapping fails, for all n of the setup of a descriptor and for some beyond.
case_ring_failures() {
	kind Y
	take fused $TESTDEV
	ring receive "$SMALL release=blocks"
	before=$(used_kib)
	for release in 'page recycle=1' 'pending recycle=1' 'blocks recycle=1' 'whole recycle=1' 'descriptor recycle=0'; do
		ring_without_memory receive "$SMALL release=$release" 1 2 3 64 65 66 67 128 129 260 300 400 701
	done
	ring_without_memory transmit 'packets=256 release=poll' 1 2 3 4 5 6 7 8 9 10 20 30 40 50 3000
	ring_without_memory storage 'requests=64 release=batch' 1 2 32 33 300
	ring_refused receive 'fail=1' 'Cannot allocate memory' 'no memory, or no mapping'
	after=$(used_kib)
	[ $((after - before)) -lt 512 ] || failure "$((after - before)) KiB are gone after runs that failed"
	left
	kind N
}

case_ring_unbind_while_it_runs() {
	kind Y
	for workload in receive transmit storage; do
		take fused $TESTDEV
		amount=packets
		[ $workload != storage ] || amount=requests
		(
			if { echo "$amount=10000000" >"$RUNS/$workload"; } 2>/tmp/ring; then
				echo ended >/tmp/ring
			fi
		) &
		sleep 0.5
		left
		wait
		grep -q 'No such device' /tmp/ring || failure "$workload: the error is '$(cat /tmp/ring)'"
	done
	kind N
}
