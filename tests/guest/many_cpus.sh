# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2046,SC2086 # addresses are single words, lists of interrupts are to be split
# shellcheck disable=SC2153,SC2154 # settings and results of the helpers come from elsewhere
# A NIC and a disk with a queue for each CPU work on all CPUs at once, while policies and tunables change and CPUs come
# and go. Settings: CPUS; ROUNDS of ROUND_S seconds; and the settings of the loads.

# --- queues ------------------------------------------------------------------------------------------------------

# rx_interrupts, io_interrupts: the interrupt numbers of the queues of the NIC and of the disk, in order. For up to four
# CPUs igb has an interrupt per direction.
rx_interrupts() {
	grep -E " $(link_of $IGB)-(TxRx|rx)-[0-9]+\$" /proc/interrupts | cut -d: -f1
}

io_interrupts() {
	io_disk=$(disk_of $DATA)
	io_disk=${io_disk##*/}
	grep -E " ${io_disk%n1}q[1-9][0-9]*\$" /proc/interrupts | cut -d: -f1
}

# counts INTERRUPT...: the count of each interrupt, a line per interrupt.
counts() {
	for each in "$@"; do
		awk -v line="$each:" -v cpus=$CPUS '$1 == line {sum = 0; for (i = 2; i <= cpus + 1; i++) sum += $i; print sum}' \
			/proc/interrupts
	done
}

# spread: one of the NIC's queues interrupts each online CPU; all other CPUs get packets of that queue. (The disk's
# driver spreads the disk's queues, which return by themselves.)
spread() {
	spread_cpu=0
	for each in $(rx_interrupts); do
		echo $spread_cpu >"/proc/irq/$each/smp_affinity_list" 2>/dev/null
		printf '%x\n' $(((1 << CPUS) - 1 - (1 << spread_cpu))) \
			>"/sys/class/net/$(link_of $IGB)/queues/rx-$spread_cpu/rps_cpus"
		spread_cpu=$((spread_cpu + 1))
	done
}

# targets INTERRUPT...: the number of CPUs that handle them.
targets() {
	for each in "$@"; do
		cat "/proc/irq/$each/effective_affinity_list"
	done | sort -u | wc -l
}

both_up() {
	take fused $IGB
	take fused $DATA
	nic_start $IGB
	disk_start $DATA
	spread
}

both_down() {
	unbind $IGB $DATA
	for device in $IGB $DATA; do
		expect_clean $device
		expect_equal "$device: bad unmaps" "$(stat_of $device bad_unmaps)" 0
	done
}

case_many_cpus_have_queues() {
	log_mark
	both_up
	expect_equal "CPUs" "$(nproc)" $CPUS
	link=$(link_of $IGB)
	disk=$(disk_of $DATA)
	expect_equal "queues that receive" "$(find /sys/class/net/$link/queues -name 'rx-*' | wc -l)" $CPUS
	expect_equal "queues that send" "$(find /sys/class/net/$link/queues -name 'tx-*' | wc -l)" $CPUS
	expect_equal "queues of the disk" "$(find /sys/block/${disk##*/}/mq -mindepth 1 -maxdepth 1 | wc -l)" $CPUS
	expect_equal "CPUs that the NIC interrupts" "$(targets $(rx_interrupts))" $CPUS
	expect_equal "CPUs that the disk interrupts" "$(targets $(io_interrupts))" $CPUS
	work_on $IGB
	work_on $DATA
	both_down
}

# --- changes -----------------------------------------------------------------------------------------------------

# In this cycle each policy follows each other policy once.
CHANGES='fused fused-identity strict-identity fused-identity fands fused-identity lazy fused-identity xsmmu fused-identity
strict fused-identity fused strict-identity fands strict-identity lazy strict-identity xsmmu strict-identity strict
strict-identity fused fands lazy fands xsmmu fands strict fands fused lazy xsmmu lazy strict lazy fused xsmmu strict xsmmu
fused strict'
ALL_CHANGES=42

# nth NUMBER WORD...: sets `chosen` to a word by number, modulo their count.
nth() {
	nth_number=$1
	shift
	shift $((nth_number % $#))
	chosen=$1
}

# change_device BDF NUMBER: without a separate process, which would wait for its turn among the loads.
change_device() {
	change_dir=$(device_dir $1)/xsmmu
	nth $2 $CHANGES
	echo $chosen >$change_dir/policy || failure "policy $chosen was refused"
	read -r change_read <$change_dir/policy
	case $change_read in
	*"[$chosen]"*) ;;
	*) failure "the policy is '$change_read', not $chosen" ;;
	esac
	nth $2 10 10000 50 1000 200 5000 875
	echo $chosen >$change_dir/max_window_us || failure "max_window_us $chosen was refused"
	nth $2 1 1024 2 64 63 256 500 16 1023
	echo $chosen >$change_dir/batch_pages || failure "batch_pages $chosen was refused"
	echo $(($2 * 5 % 32 + 1)) >$change_dir/range_commands_max || failure "range_commands_max was refused"
}

# change: the next change of both devices, which have different policies.
change() {
	change_device $IGB $changes
	change_device $DATA $((changes + 7))
	changes=$((changes + 1))
}

# no_fair_server: 6.12's scheduler may count its server for low priorities as a task of a CPU that goes offline, and
# then warns that the CPU was not vacated.
no_fair_server() {
	for each in /sys/kernel/debug/sched/fair_server/cpu*; do
		[ ! -e $each ] || echo 0 >$each/runtime
	done
}

# cpus_come_and_go: all CPUs but the first, in turn, while /tmp/at_work exists.
cpus_come_and_go() {
	while [ -e /tmp/at_work ]; do
		going=$(($(wc -l </tmp/cpus_gone) % (CPUS - 1) + 1))
		echo 0 >/sys/devices/system/cpu/cpu$going/online || echo "CPU $going does not go" >>/tmp/cpus_failed
		sleep 0.3
		echo 1 >/sys/devices/system/cpu/cpu$going/online || echo "CPU $going does not come back" >>/tmp/cpus_failed
		spread
		echo $going >>/tmp/cpus_gone
		sleep 0.3
	done
}

# --- work --------------------------------------------------------------------------------------------------------

# Nothing is unflushed while the devices are idle.
expect_all_flushed() {
	settle
	for device in $IGB $DATA; do
		expect_equal "$device: held_pages at rest" "$(stat_of $device held_pages)" 0
	done
}

# worked FILE INTERRUPT...: the number of interrupts that came a hundred times or more since `counts` wrote FILE.
worked() {
	worked_since=$1
	shift
	counts "$@" | paste - $worked_since | awk '$1 - $2 >= 100 {worked++} END {print worked + 0}'
}

# handed_on: the number of CPUs that got packets from other CPUs.
handed_on() {
	while read -r _ _ _ _ _ _ _ _ _ rps _; do
		[ $((0x$rps)) = 0 ] || echo $rps
	done </proc/net/softnet_stat | wc -l
}

# A hash decides the queue and the CPU of a stream, so some may get none.
expect_all_worked() {
	expect_equal "queues of the disk that worked" "$(worked /tmp/io_before $(io_interrupts))" $CPUS
	nic_worked=$(worked /tmp/rx_before $(rx_interrupts))
	[ $nic_worked -ge $((CPUS / 2)) ] || failure "only $nic_worked of the NIC's queues worked"
	[ "$(handed_on)" -ge $((CPUS / 2)) ] || failure "packets were handed on to $(handed_on) CPUs only"
}

# work_and_change: both devices work for ROUND_S seconds during all changes.
work_and_change() {
	iperf_start $IGB $ROUND_S
	net_load=$load
	fio_start $DATA $ROUND_S
	disk_load=$load
	touch /tmp/at_work
	cpus_come_and_go &
	goer=$!
	while kill -0 $net_load 2>/dev/null && kill -0 $disk_load 2>/dev/null; do
		change
		sleep 0.3
	done
	rm /tmp/at_work
	wait $goer
	load=$net_load
	iperf_end
	load=$disk_load
	fio_end
	expect_no_timeouts
	expect_checksums
	expect_all_flushed
	[ ! -e /tmp/cpus_failed ] || failure "$(cat /tmp/cpus_failed)"
	rounds=$((rounds + 1))
	echo "$rounds rounds: $changes changes, $(wc -l </tmp/cpus_gone) CPUs gone and back" >/dev/kmsg
}

# enough: ROUNDS are done, all policies have followed each other, and all CPUs were offline. A slow host takes more
# rounds, up to a limit.
enough() {
	[ -z "$failures" ] || return 0
	gone=$(wc -l </tmp/cpus_gone)
	[ $rounds -ge $ROUNDS ] && [ $changes -gt $ALL_CHANGES ] && [ "$gone" -ge $((CPUS - 1)) ] && return 0
	[ $rounds -ge $((10 * ROUNDS)) ] || return 1
	failure "$rounds rounds: only $changes changes, $gone CPUs gone"
	return 0
}

# Caches grow in the first round; later rounds must not grow.
case_many_cpus_at_work() {
	log_mark
	memory_mark
	memory_first=$memory_before
	both_up
	no_fair_server
	counts $(rx_interrupts) >/tmp/rx_before
	counts $(io_interrupts) >/tmp/io_before
	: >/tmp/cpus_gone
	rounds=0
	changes=0
	work_and_change
	memory_mark
	until enough; do
		work_and_change
	done
	expect_no_memory_lost 4096
	expect_all_worked
	work_on $IGB
	work_on $DATA
	both_down
	memory_before=$memory_first
	expect_no_memory_lost 8192
}
