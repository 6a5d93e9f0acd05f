# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; variables of the lab
# Refusals of `xsmmu set --rebind`, for uses of a device that only a kernel can show.

export PYTHONPATH=/opt LANG=C.UTF-8

# refused BDF PATTERN: a dry run of a rebind is refused with a message.
refused() {
	python3 -m xsmmu set "$1" fused --rebind --dry-run >/tmp/said 2>&1 && failure "$1 is not refused ($2)"
	grep -q "$2" /tmp/said || failure "$1: it says '$(cat /tmp/said)', not '$2'"
}

accepted() {
	python3 -m xsmmu set "$1" fused --rebind --dry-run >/tmp/said 2>&1 || failure "$1 is refused: $(cat /tmp/said)"
}

# session CLIENT PORT SERVER: the environment that sshd gives a shell.
session() {
	export SSH_CONNECTION="$1 $2 $3 22"
}

# connection INTERFACE LOCAL REMOTE PORT: to port 22, in the background.
connection() {
	python3 /opt/essential_network.py connected "$1" "$2" 22 "$3" "$4" >/tmp/connected 2>&1 &
	connection=$!
	until_true 60 grep -q connected /tmp/connected || failure "no connection: $(cat /tmp/connected)"
}

nics_up() {
	bind $E1000E
	bind $IGB
	nic_start $E1000E
	nic_start $IGB
	one=$(link_of $E1000E)
	two=$(link_of $IGB)
}

case_a_session_of_the_link() {
	nics_up
	for each in $one $two; do
		echo 0 >"/proc/sys/net/ipv6/conf/$each/disable_ipv6"
		# The first matching route belongs to the first interface.
		ip -6 route replace fe80::/64 dev "$each" metric 256
	done
	session "fe80::7%$one" 50000 "fe80::1%$one"
	refused $E1000E "this SSH session, from fe80::7, uses $one"
	accepted $IGB
	session "fe80::7%$two" 50000 "fe80::1%$two"
	refused $IGB "this SSH session, from fe80::7, uses $two"
	accepted $E1000E
	unset SSH_CONNECTION
}

# Both interfaces have a route to the client; the socket names the routing domain.
case_a_session_of_a_vrf() {
	nics_up
	ip link add mgmt type vrf table 10
	ip link set mgmt up
	ip link set $two master mgmt
	ip route add 198.51.100.0/24 dev $one
	ip route add 198.51.100.0/24 dev $two table 10
	session 198.51.100.7 50000 10.0.1.1
	refused $IGB "from 198.51.100.7, may use $two"
	connection mgmt 10.0.1.1 198.51.100.7 50000
	refused $IGB "from 198.51.100.7, uses $two"
	accepted $E1000E
	kill $connection
	ip link del mgmt
	ip route del 198.51.100.0/24 dev $one
	unset SSH_CONNECTION
}

case_a_session_by_rules() {
	nics_up
	ip route add default dev $one
	ip route add default dev $two table 100
	ip rule add to 198.51.100.0/24 lookup 100
	session 198.51.100.7 50000 10.0.0.9
	refused $IGB "from 198.51.100.7, uses $two"
	refused $E1000E "the only default route uses $one"
	ip rule del to 198.51.100.0/24 lookup 100
	accepted $IGB
	ip rule add fwmark 5 lookup 100
	refused $IGB "from 198.51.100.7, may use $two"
	ip rule del fwmark 5 lookup 100
	# The interface has the address that the client uses.
	session 198.51.100.7 50000 10.0.1.1
	refused $IGB "from 198.51.100.7, may use $two"
	ip route del default dev $one
	unset SSH_CONNECTION
}

case_a_session_by_open_vswitch() {
	nics_up
	expect "no datapath" python3 /opt/essential_network.py datapath ovs-system br-ex $two
	ip addr del 10.0.1.1/24 dev $two
	ip addr add 10.0.1.1/24 dev br-ex
	ip link set br-ex up
	session 10.0.1.2 50000 10.0.1.1
	refused $IGB "from 10.0.1.2, uses br-ex"
	accepted $E1000E
	unset SSH_CONNECTION
	expect "the datapath does not go" python3 /opt/essential_network.py remove ovs-system
}

case_a_disk_of_another_namespace() {
	bind $DATA
	disk_start $DATA
	disk=$(disk_of $DATA)
	accepted $DATA
	mke2fs "$disk" >/tmp/made 2>&1 || failure "no file system: $(cat /tmp/made)"
	mkdir -p /tmp/mounted
	unshare -m sh -c "mount --make-rprivate / 2>/dev/null; mount -t ext4 $disk /tmp/mounted && exec sleep 3600" &
	other=$!
	until_true 30 grep -qs "$disk" /proc/$other/mounts || failure "it is not mounted"
	grep -q "$disk" /proc/mounts && failure "it is mounted here"
	refused $DATA "${disk##*/} is in use: the kernel refuses an exclusive open of $disk"
	kill $other
	wait $other 2>/dev/null
	until_true 30 accepted_now
	# An open file of a program is no claim.
	sleep 3600 9<"$disk" &
	refused $DATA "${disk##*/} is open in .* ($!)"
	kill $!
	wait $! 2>/dev/null
	accepted $DATA
}

# The kernel unmounts a file system some time after the last process of its namespace.
accepted_now() {
	dd if="$disk" of=/dev/null bs=4k count=1 2>/dev/null && python3 -m xsmmu set $DATA fused --rebind --dry-run >/dev/null 2>&1
}

# given DRIVER PATTERN: DRIVER owns the NIC, and the message says that programs own the NIC.
given() {
	echo "$1" >"$(device_dir $IGB)/driver_override"
	echo $IGB >"/sys/bus/pci/drivers/$1/bind" || failure "$1 does not bind"
	refused $IGB "is bound to $1, which gives the device to programs ($2)"
	unbind $IGB
	echo >"$(device_dir $IGB)/driver_override"
}

case_drivers_of_programs() {
	given vfio-pci 'vfio[0-9]*'
	given uio_pci_generic uio0
}
