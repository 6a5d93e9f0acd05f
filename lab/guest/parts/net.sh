# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash
# shellcheck disable=SC2154 # arg_* come from run, session_* from session_open
# Network workloads. Each NIC under test has a peer on its own wire: a virtio NIC, not behind the IOMMU, in the
# namespace peer0 or peer1. Addresses and neighbours are static, so the wire is silent between runs.

# busybox's shell prefers its own applet, which does not support namespaces.
ip() {
	/usr/bin/ip "$@"
}

net_init() {
	for number in 0 1; do
		for link in /sys/class/net/*; do
			line_of "$link/address"
			if [ "$line" = "52:54:00:00:01:0$number" ]; then
				ip netns add "peer$number"
				ip link set "${link##*/}" netns "peer$number" name peer
				ip -n "peer$number" link set lo up
				ip -n "peer$number" addr add "10.0.$number.2/24" dev peer
			fi
		done
		[ -e "/run/netns/peer$number" ] || fail "no peer for NIC $number"
	done
	ip link set lo up
}

has_carrier() {
	line_of "/sys/class/net/$1/carrier" 2>/dev/null
	[ "$line" = 1 ]
}

# nic_up NUMBER: bring up the session's NIC on wire NUMBER.
nic_up() {
	net_number=$1
	for net_link in "/sys/bus/pci/devices/$session_bdfs/net"/*; do
		line_of "$net_link/address"
	done
	[ -n "$line" ] || fail "$session_bdfs: no network link"
	net_link=${net_link##*/}
	net_mac=$line
	ip -batch - <<-END || fail "$net_link does not come up"
		link set $net_link up
		addr add 10.0.$net_number.1/24 dev $net_link
		neigh replace 10.0.$net_number.2 lladdr 52:54:00:00:01:0$net_number dev $net_link
	END
	until_true 20 has_carrier "$net_link" || fail "$net_link: no carrier"
	# The peer comes up last and goes down first: packets to a NIC that is down would stay in the NIC's queue.
	ip -n "peer$net_number" -batch - <<-END || fail "peer$net_number does not come up"
		link set peer up
		neigh replace 10.0.$net_number.1 lladdr $net_mac dev peer
	END
}

nic_down() {
	ip -n "peer$net_number" link set peer down
	sleep 0.1
	ip link set "$net_link" down
}

e1000e_kind() { stock_or_patched e1000e "$1"; }
e1000e_up() { nic_up 0; }
e1000e_down() { nic_down; }
igb_kind() { stock_or_patched igb "$1"; }
igb_up() { nic_up 1; }
igb_down() { nic_down; }

# iperf_listens NUMBER: the peer on wire NUMBER has port 5201 in state LISTEN.
iperf_listens() {
	ip netns exec "peer$1" grep -qs ':1451 0*:0000 0A' /proc/net/tcp /proc/net/tcp6
}

# A server for one test: the server ends with the test, so no state carries over.
iperf_server() {
	ip netns exec "peer$net_number" iperf3 -s -1 >/tmp/server 2>&1 &
	net_server=$!
	until_true 30 iperf_listens "$net_number"
}

# iperf OPTION...: one test with fixed buffers, because self-tuning buffers make a policy differ from itself by several
# per cent. A test by bytes (-n) spins after the last byte, up to the next report (-i).
iperf() {
	iperf3 -c "10.0.$net_number.2" -P "$arg_streams" -w "$arg_buffer" -J "$@" || return 1
	# Not `wait`: another shell may have started the server.
	while kill -0 "$net_server" 2>/dev/null; do
		# This time is measured.
		sleep 0.001
	done
}

# iperf_test OPTION...: by time, to measure; by 16 MiB to warm up.
iperf_test() {
	if [ -n "$warming" ]; then
		iperf -n 16M -i 0.1 "$@"
	else
		iperf -t "$arg_seconds" -i 0 "$@"
	fi
}

# The device under test receives.
net_rx_prepare() { iperf_server; }
net_rx() { iperf_test -R; }

# The device under test sends.
net_tx_prepare() { iperf_server; }
net_tx() { iperf_test; }

# counter NAME: sets `line` to a counter of the NIC.
counter() {
	line_of "/sys/class/net/$net_link/statistics/$1"
}

# pktgen LINK MAC FROM TO SHARED [BYTES]: send `packets` packets from a link, each of 60 bytes (64 with the checksum) or
# of BYTES. SHARED + 1 successive packets share a buffer.
pktgen() {
	folder=/proc/net/pktgen
	echo rem_device_all >$folder/kpktgend_0 &&
		echo "add_device $1" >$folder/kpktgend_0 || return 1
	for setting in "count $arg_packets" "clone_skb $5" "pkt_size ${6:-60}" 'delay 0' "dst_mac $2" "src_min $3" "src_max $3" "dst $4"; do
		echo "$setting" >"$folder/$1" || return 1
	done
	echo start >$folder/pgctrl
	sent_us=$(sed -n 's/^Result: OK: \([0-9]*\).*/\1/p' "$folder/$1")
	[ -n "$sent_us" ] || cat "$folder/$1" >&2
	[ -n "$sent_us" ]
}

# The device under test sends small packets; the same buffer is sent repeatedly, so mapping dominates.
pps_tx() {
	counter tx_packets
	sent=$line
	pktgen "$net_link" "52:54:00:00:01:0$net_number" "10.0.$net_number.1" "198.18.0.1" 1000000 || return 1
	sleep 0.05
	counter tx_packets
	printf '{"packets":%d,"sent_us":%d}' $((line - sent)) "$sent_us"
}

# The device under test receives small packets for another host, so the stack drops them early.
pps_rx() {
	counter rx_packets
	received=$line
	ip netns exec "peer$net_number" sh -c ". /lab/lib.sh; . /lab/parts/net.sh; arg_packets=$arg_packets; pktgen peer $net_mac 10.0.$net_number.2 198.18.0.1 0 && echo \$sent_us >/tmp/sent_us" || return 1
	sleep 0.05
	counter rx_packets
	packets=$((line - received))
	line_of /tmp/sent_us
	printf '{"packets":%d,"sent_us":%d}' $packets "$line"
}

net_pps() {
	"pps_$arg_direction"
}

# The device under test receives, while the module's statistics are read repeatedly.
net_window_prepare() { iperf_server; }
net_window() {
	snapshot >/tmp/samples
	iperf_test -R >/tmp/iperf &
	test=$!
	while sleep "$arg_interval_s"; do
		kill -0 $test 2>/dev/null || break
		printf ',' >>/tmp/samples
		snapshot >>/tmp/samples
	done
	wait $test || return 1
	printf '{"samples":[%s]}' "$(cat /tmp/samples)"
}
