# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Recordings of devices under the module's policies, with the module's counts, and their replay, here and on the host.
# Functions of record.sh are needed.

# hear POLICY BDF WORK: bind, work and unbind while the device is recorded; the host gets the recording and the counts.
hear() {
	put $2 policy "$1" || failure "$2: policy $1 was refused: $(cat /tmp/put)"
	record_start $2
	heard_before=$(stats_json $2)
	bind $2
	"$3" $2
	unbind $2
	settle
	heard_after=$(stats_json $2)
	record_end
	expect_nothing_lost
	xsmmu-replay $RECORDING --policy "$1" >/tmp/replayed || failure "no replay here: $(tail -n 1 /tmp/replayed)"
	emit "{\"event\":\"heard\",\"work\":\"$3\",\"driver\":\"$(driver_of $2)\",\"policy\":\"$1\",\"before\":$heard_before,\"after\":$heard_after,\"replayed\":$(cat /tmp/replayed),\"recording\":\"$(base64 $RECORDING | tr -d '\n')\"}"
	put $2 policy none || failure "$2: policy none was refused: $(cat /tmp/put)"
}

# hear_all BDF WORK: under each policy without identity placement.
hear_all() {
	for each_policy in strict lazy fands xsmmu fused; do
		hear $each_policy $1 $2
	done
}

ping_both() {
	nic_start $1
	ping_peer $1 60
}

# The peer's packets for an address that nobody has. With a large MTU, e1000e receives into pages.
receive() {
	until_true 20 has_link $1 || failure "$1: no link"
	ip link set "$(link_of $1)" mtu 4000
	nic_start $1
	peer=peer$(wire_of $1)
	other=10.0.$(wire_of $1).9
	ip -n $peer neigh replace $other lladdr "$(cat "/sys/class/net/$link/address")" dev peer
	read -r received <"/sys/class/net/$link/statistics/rx_packets"
	ip netns exec $peer ping -c 600 -i 0.01 -W 1 -s 1400 $other >/tmp/ping 2>&1
	read -r received_now <"/sys/class/net/$link/statistics/rx_packets"
	[ $((received_now - received)) -ge 600 ] || failure "$1: only $((received_now - received)) packets arrived"
}

read_and_write() {
	disk_start $1
	write_disk $1 2
	read_disk $1 4
	read_small $1 500
}

case_replay_of_a_nic() {
	hear lazy $E1000E ping_both
}

case_replay_of_e1000e() {
	hear_all $E1000E ping_both
}

case_replay_of_igb() {
	hear_all $IGB ping_both
}

case_replay_of_received_pages() {
	hear_all $E1000E receive
}

case_replay_of_a_disk() {
	hear_all $DATA read_and_write
}
