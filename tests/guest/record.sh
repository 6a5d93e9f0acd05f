# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Recordings by xsmmu-record: all calls are there, compared with the module's and the kernel's own counts.

RECORDING=/tmp/recording

# record_start DEVICE [OPTION...]: begin to record; returns when recording has begun.
record_start() {
	rm -f $RECORDING
	xsmmu-record -O $RECORDING "$@" >/tmp/recorded 2>/tmp/record-errors &
	recorder=$!
	until_true 60 grep -q '"event":"recording"' /tmp/recorded ||
		give_up "the recording does not begin: $(cat /tmp/recorded /tmp/record-errors)"
}

# record_end: end the recording; its summary is then in /tmp/recorded, and is logged.
record_end() {
	kill -INT $recorder
	wait $recorder || failure "the recorder ended with $?: $(cat /tmp/record-errors)"
	[ -s $RECORDING ] || failure "there is no recording"
	tail -n 1 /tmp/recorded | tr -d '\n' | fold -w 900 | sed 's/^/record: /' >/dev/kmsg
	echo "record: $(wc -c <$RECORDING) bytes" >/dev/kmsg
}

# said NAME: a number of the summary.
said() {
	tail -n 1 /tmp/recorded | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"
}

# expect_equal_counts: nothing was lost, and the totals equal those of the check.
expect_equal_counts() {
	for each in lost nested late; do
		expect_equal "$each events" "$(said $each)" 0
	done
	tail -n 1 /tmp/recorded | grep -q '"equal":true' ||
		failure "the totals differ: $(tail -n 1 /tmp/recorded | sed 's/.*"check"://')"
}

case_nic_by_tracepoints() {
	new_domain
	record_start --check $E1000E
	bind $E1000E
	nic_start $E1000E
	ping_peer $E1000E 20
	unbind $E1000E
	sleep 0.3
	record_end
	expect_equal_counts
	[ "$(said map)" -gt 20 ] || failure "there are only $(said map) maps"
}
