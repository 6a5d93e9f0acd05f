# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# The instructions that recording adds to iperf3 and fio. Functions of record.sh and recordings.sh are needed.

# busy COMMAND...: sets busy_ns to the time in which the CPU was not idle. A guest that counts instructions has one a ns.
busy() {
	clock
	busy_from=$now_ns
	busy_idle=$idle_ns
	"$@"
	clock
	busy_ns=$((now_ns - busy_from - idle_ns + busy_idle))
}

bytes_moved() {
	awk '/"sum_received"/ {sum = 1} sum && /"bytes"/ {gsub(/[^0-9]/, ""); print; exit}' /tmp/iperf
}

requests() {
	awk '/"total_ios"/ {gsub(/[^0-9]/, ""); sum += $0} END {print sum}' /tmp/fio
}

# compare_cost NAME BDF DONE COMMAND...: the same work without and with a recording; DONE prints how much was done. The
# end of the recording, at which the last events are packed, counts without what the end of an empty recording takes.
compare_cost() {
	cost_name=$1
	cost_device=$2
	cost_done=$3
	shift 3
	"$@"
	busy "$@"
	cost_without="[$busy_ns,$($cost_done)]"
	record_start $cost_device
	busy record_stop
	cost_ns=-$busy_ns
	record_start $cost_device
	busy "$@"
	cost_ns=$((cost_ns + busy_ns))
	cost_work=$($cost_done)
	busy record_stop
	cost_ns=$((cost_ns + busy_ns))
	record_log
	expect_equal "lost events" "$(said lost)" 0
	emit "{\"event\":\"heard\",\"cost\":\"$cost_name\",\"without\":$cost_without,\"with\":[$cost_ns,$cost_work],\"events\":$(said events),\"bytes\":$(wc -c <$RECORDING)}"
}

case_cost_of_iperf3() {
	bind $IGB
	nic_start $IGB
	compare_cost "iperf3, igb sends" $IGB bytes_moved stream $IGB -t 2 -i 0
	compare_cost "iperf3, igb receives" $IGB bytes_moved stream $IGB -t 2 -i 0 -R
	unbind $IGB
}

# Requests of several pages have lists of other lengths in each run, by the place of the buffers in memory.
case_cost_of_fio() {
	bind $DATA
	disk_start $DATA
	compare_cost "fio, nvme, random reads of 4 KiB" $DATA requests \
		fio_on $DATA --rw=randread --norandommap --iodepth=32 --bs=4k --io_size=160M
	unbind $DATA
}
