# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Short recordings on the kernel's own path, in lazy mode, for tests and figures of replays. Functions of record.sh are
# needed.

# keep NAME: end the recording; the host gets it.
keep() {
	record_end
	expect_equal "lost events" "$(said lost)" 0
	emit "{\"event\":\"heard\",\"name\":\"$1\",\"recording\":\"$(base64 $RECORDING | tr -d '\n')\"}"
}

# stream BDF OPTION...: TCP by iperf3, to the peer or (-R) from it.
stream() {
	stream_wire=$(wire_of $1)
	shift
	ip netns exec peer$stream_wire iperf3 -s -1 >/tmp/server 2>&1 &
	stream_server=$!
	until_true 30 ip netns exec peer$stream_wire grep -qs ':1451 0*:0000 0A' /proc/net/tcp /proc/net/tcp6 ||
		failure "iperf3's server does not listen: $(cat /tmp/server)"
	iperf3 -c 10.0.$stream_wire.2 -w 400K -J "$@" >/tmp/iperf 2>&1 || failure "iperf3 failed: $(grep -m 1 '"error"' /tmp/iperf)"
	until_true 10 gone $stream_server || failure "iperf3's server does not end"
}

gone() {
	! kill -0 "$1" 2>/dev/null
}

# fio_on BDF OPTION...: a job on the device's disk, past the page cache.
fio_on() {
	fio_disk=$(disk_of $1)
	shift
	fio --name=job --filename=$fio_disk --thread --ioengine=libaio --direct=1 --output-format=json --eta=never "$@" >/tmp/fio 2>&1 ||
		failure "fio failed: $(grep -iE 'error|err=' /tmp/fio | head -n 3)"
}

# Small parts of a second: after the last byte iperf3 spins up to its next report (-i).
case_recording_of_a_nic() {
	record_start $IGB
	bind $IGB
	nic_start $IGB
	stream $IGB -n 2M -i 0.1
	stream $IGB -n 2M -i 0.1 -R
	unbind $IGB
	keep igb-iperf3-kernel
}

case_recording_of_small_packets() {
	record_start $E1000E
	bind $E1000E
	nic_start $E1000E
	ping_peer $E1000E 200
	unbind $E1000E
	keep e1000e-ping-kernel
}

case_recording_of_a_disk() {
	record_start $DATA
	bind $DATA
	disk_start $DATA
	fio_on $DATA --rw=randrw --bsrange=4k-64k --iodepth=16 --size=16M --number_ios=1000
	unbind $DATA
	keep nvme-fio-kernel
}
