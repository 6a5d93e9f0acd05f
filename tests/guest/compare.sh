# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; $console is the lab's
# `xsmmu compare` as an operator runs the command: iperf3 on a network card in use, and the state afterwards.

export PYTHONPATH=/opt LANG=C.UTF-8
COMPARED=/tmp/compared

xsmmu() {
	python3 -m xsmmu "$@"
}

# typed COMMAND: prints the command as an operator types it, and its output, on the console.
typed() {
	echo "# $1" >"$console"
	eval "$1" >/tmp/typed 2>&1
	typed_status=$?
	cat /tmp/typed >"$console"
	return $typed_status
}

# The state that a comparison must not change.
as_it_was() {
	echo "$(basename "$(readlink "$(device_dir $E1000E)/driver")") $(group_type $E1000E) $(policy_of $E1000E)" \
		"$(get $E1000E max_window_us) $(ip -4 addr show dev eth1 | sed -n 's/.*inet \([^ ]*\).*/\1/p')"
}

ranking() {
	sed -n 's/^   "policy": "\(.*\)",/\1/p' $COMPARED/result.json | tr '\n' ' '
}

# On e1000e, because receiving separates the policies' costs more than on igb.
case_compare_ranks_as_the_lab_does() {
	bind $IGB
	until_true 20 has_link $IGB
	take xsmmu $E1000E
	put $E1000E max_window_us 500
	nic_start $E1000E
	expect_equal "e1000e's interface" "$(link_of $E1000E)" eth1
	ip netns exec peer0 iperf3 -s >/tmp/server 2>&1 &
	server=$!
	until_true 30 iperf_listens 0
	before=$(as_it_was)
	log_mark
	expect "xsmmu compare failed" typed "xsmmu compare eth1 --runs 3 --output-folder $COMPARED \
--after 'ip addr add 10.0.0.1/24 dev eth1 && ip link set eth1 up && sleep 3' \
--json-path end.sum_received.bits_per_second -- iperf3 -J -c 10.0.0.2 -R -P 4 -t 1 -w 256K"
	# The module shows that copying needs a rebind, so no device is refused.
	expect_silence
	expect_equal "driver, type, policy, tunable and address" "$(as_it_was)" "$before"
	# `fused` and `copy` cost the same here.
	case $(ranking) in
	'fused copy kernel-lazy kernel-strict ' | 'copy fused kernel-lazy kernel-strict ') ;;
	*) failure "the ranking is '$(ranking)'" ;;
	esac
	kill $server
}
