# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Sources of a policy beside the operator's write: rules, remembered choices, and the floor under all of them.

# load_with PARAMETER...: loads the module again.
load_with() {
	if [ -e /sys/module/xsmmu ]; then
		rmmod xsmmu || give_up "rmmod was refused"
	fi
	insmod /modules/xsmmu.ko "$@" 2>/tmp/insmod
}

# load_refused PATTERN PARAMETER...
load_refused() {
	load_pattern=$1
	shift
	log_mark
	if load_with "$@"; then
		failure "loaded with $*"
	else
		# insmod may try twice.
		expect_equal "lines of the log other than '$load_pattern'" "$(log_since | grep 'xsmmu: ' | grep -vcE "$load_pattern")" 0
		log_since | grep -qE "$load_pattern" || failure "the log does not say '$load_pattern'"
	fi
	[ ! -e /sys/module/xsmmu ] || failure "the module is loaded"
}

load_plain() {
	load_with || give_up "insmod failed"
}

# A build that takes this kernel for a newer kernel than supported. insmod may try twice.
case_a_kernel_that_is_too_new() {
	rmmod xsmmu || give_up "rmmod was refused"
	log_mark
	if insmod /modules/newer.ko 2>/tmp/insmod; then
		failure "the module was loaded"
	fi
	grep -q 'not supported' /tmp/insmod || failure "the error is '$(cat /tmp/insmod)', not 'not supported'"
	log_since | grep -q "xsmmu: refused: kernel $(uname -r) is newer than 5.3, .*: install a later xsmmu, or load with any_kernel=1" ||
		failure "the log does not say so: $(log_since | grep xsmmu:)"
	[ ! -e /sys/module/xsmmu ] || give_up "the module is loaded"
	log_mark
	insmod /modules/newer.ko any_kernel=1 || failure "it was refused with any_kernel=1"
	expect_log 'kernel .* is newer than 5\.3, .* any_kernel is set: no level is certain'
	take fused $E1000E
	expect_equal "the state" "$(get $E1000E state)" attached
	unbind $E1000E
	load_plain
}

# expect_policy BDF POLICY
expect_policy() {
	expect_equal "the policy of $1" "$(policy_of "$1")" "$2"
}

case_bad_rules() {
	load_refused 'refused: rules: missing = and policy: "class:02"' rules=class:02
	load_refused 'refused: rules: unknown policy: "turbo"' "rules=class:01=strict;class:02=turbo"
	load_refused 'refused: rules: invalid match, must be an address, class:, vendor:device, driver: or \*: "eth0"' rules=eth0=strict
	load_refused 'refused: rules: invalid match, .*: "class:0"' rules=class:0=strict
	load_refused 'refused: rules: invalid match, .*: "class:zz"' rules=class:zz=strict
	load_refused 'refused: rules: invalid match, .*: "driver:"' rules=driver:=strict
	load_refused 'refused: rules: invalid match, .*: "00:20.0"' rules=00:20.0=strict
	load_refused 'refused: rules: invalid match, .*: "8086:10d3:1"' rules=8086:10d3:1=strict
	load_refused 'refused: rules: invalid match, .*: "01:00.0"' rules=01:00.0/8086=strict
	load_refused 'refused: rules: unknown tunable, or value out of range; write NAME:NUMBER, with a colon: "max_window_us"' rules=*=fused,max_window_us:0
	load_refused 'refused: rules: unknown tunable, or value out of range; write NAME:NUMBER, with a colon: "fast"' rules=*=fused,fast
	load_refused 'refused: rules: unknown tunable, .*, with a colon: "copy_bytes=256"' rules=*=fused,copy_bytes=256
	load_refused 'refused: rules: none has no tunables: "batch_pages:7"' rules=*=none,batch_pages:7
	load_refused 'refused: unknown policy "turbo"; valid are none, auto, .* and fused' policy=turbo
	load_refused 'refused: unknown min_level "high"' min_level=high
	load_refused 'refused: rules: level is below min_level: "lazy"' rules=*=lazy min_level=bounded
	load_plain
}

# The first matching rule decides; a rule about a driver when the driver binds.
case_rules() {
	load_with "rules=$DISK0=fused,max_window_us:500;class:0200=xsmmu;8086:10d3=lazy;driver:nvme=fands,batch_pages:99;*=strict" ||
		give_up "insmod failed"
	expect_policy $DISK0 fused
	expect_policy $DISK1 fused
	expect_equal "its window" "$(get $DISK0 max_window_us)" 500
	expect_policy $E1000E xsmmu
	expect_policy $DATA none
	expect_policy $TESTDEV none
	bind $DATA
	start $DATA
	work_on $DATA
	expect_policy $DATA fands
	expect_equal "its threshold" "$(get $DATA batch_pages)" 99
	expect_equal "its state" "$(get $DATA state)" active
	unbind $DATA
	bind $E1000E
	nic_start $E1000E
	ping_peer $E1000E 5
	expect_equal "the state" "$(get $E1000E state)" active
	unbind $E1000E
	load_with "rules=${E1000E#*:}=lazy" policy=fused || give_up "insmod failed"
	expect_policy $E1000E lazy
	expect_policy $DATA strict
	log_mark
	load_with "rules=$E1000E/8086:10c9=fused;$E1000E/8086:10d3=lazy" || give_up "insmod failed"
	expect_log "$E1000E: xsmmu: passed over: the rule for this address is for 8086:10c9, and this device is 8086:10d3"
	expect_policy $E1000E lazy
	load_with rules=$E1000E=none policy=fused || give_up "insmod failed"
	expect_policy $E1000E none
	bind $E1000E
	expect_equal "the state" "$(get $E1000E state)" off
	unbind $E1000E
	load_plain
}

# passed_over BDF POLICY COUNT: since the mark, COUNT lines say that the device keeps its group on the kernel's own
# path.
passed_over() {
	expect_equal "$1: lines that say so" "$(log_since | grep -cE "$1: xsmmu: $2 is chosen for IOMMU group [0-9]+ and passed over: untrusted \(external-facing\) device: leave")" $3
}

# The log says once why a rule, or the default, does not apply to an untrusted device, however often a driver binds.
case_rules_of_an_untrusted_device() {
	for words in "rules=$IGB=strict strict" "rules=driver:igb=copy copy" "rules=*=auto auto" "policy=fused fused"; do
		log_mark
		load_with "${words% *}" || give_up "insmod failed"
		for _ in 1 2; do
			bind $IGB
			expect_equal "$words: the state" "$(get $IGB state)" off
			unbind $IGB
		done
		expect_policy $IGB none
		passed_over $IGB ${words#* } 1
	done
	load_plain
}

case_rules_beside_an_untrusted_device() {
	trusted=0000:0a:00.0
	untrusted=0000:0b:00.0
	unbind $untrusted
	trust $untrusted 1
	log_mark
	load_with "rules=*=strict" || give_up "insmod failed"
	expect_policy $trusted none
	for choice in policy=fused policy=strict; do
		put $trusted ${choice%=*} ${choice#*=} && failure "$choice was accepted"
		expect_policy $trusted none
	done
	bind $trusted
	expect_equal "the state" "$(get $trusted state)" off
	passed_over $untrusted strict 1
	unbind $trusted
	trust $untrusted 0
	bind $trusted
	expect_equal "the level" "$(get $trusted level)" strict
	unbind $trusted
	put $trusted policy none
	load_plain
}

# In an attached group with a rule's policy, a device that becomes untrusted is blocked: no change waits for the device.
case_a_rules_choice_at_work_beside_an_untrusted_device() {
	trusted=0000:0a:00.0
	untrusted=0000:0b:00.0
	unbind $trusted
	unbind $untrusted
	load_with "rules=*=strict" || give_up "insmod failed"
	bind $trusted
	expect_equal "the level" "$(get $trusted level)" strict
	trust $untrusted 1
	put $trusted policy fused || failure "fused was refused: $(cat /tmp/put)"
	expect_equal "the level" "$(get $trusted level)" held
	unbind $trusted
	put $trusted policy none || failure "none was refused"
	trust $untrusted 0
	load_plain
}

# The rule of a device that is blocked does not change the policy of its attached group.
case_a_rule_of_a_blocked_device() {
	works=0000:0a:00.0
	joins=0000:0b:00.0
	unbind $works $joins
	load_with "rules=$works=fused;driver:xsmmu_dma_api_test=strict" || give_up "insmod failed"
	bind $works
	trust $joins 1
	echo api >$PARAMETERS/mode
	if echo $joins >$RUDE/bind 2>/dev/null; then failure "it could map"; fi
	expect_policy $works fused
	expect_equal "the level" "$(get $works level)" held
	trust $joins 0
	# A device that can join raises the level.
	echo $joins >$RUDE/bind || failure "$(log_since | grep 'rude: wrong')"
	expect_policy $works strict
	unbind $joins $works
	load_plain
}

# The operator's choice is skipped while a device of the group is untrusted, and applies again afterwards.
case_a_choice_beside_an_untrusted_device() {
	trusted=0000:0a:00.0
	untrusted=0000:0b:00.0
	unbind $trusted
	unbind $untrusted
	put $trusted policy fused || failure "fused was refused"
	trust $untrusted 1
	for choice in policy=fused policy=strict max_window_us=777 tables=direct; do
		put $trusted ${choice%=*} ${choice#*=} && failure "$choice was accepted"
	done
	log_mark
	bind $trusted
	expect_equal "the state" "$(get $trusted state)" off
	passed_over $untrusted fused 1
	put $trusted max_window_us 777 && failure "a window was accepted without a policy"
	log_since | grep -q "out of range" && failure "the log blames the number"
	unbind $trusted
	trust $untrusted 0
	bind $trusted
	expect_equal "the level" "$(get $trusted level)" held
	unbind $trusted
	put $trusted policy none || failure "none was refused"
}

plug_again() {
	pull $1
	plug_back $1
	[ -e "$(xs $1 policy)" ] || failure "$1 has no folder after a rescan"
}

# The operator's choice is remembered with its tunables, whatever the rules say; a rule's choice follows the rule.
case_a_choice_outlives_the_device() {
	load_with rules=class:02=lazy || give_up "insmod failed"
	plug_again $E1000E
	expect_policy $E1000E lazy
	put $E1000E policy fused
	put $E1000E max_window_us 777
	plug_again $E1000E
	expect_policy $E1000E fused
	expect_equal "the window" "$(get $E1000E max_window_us)" 777
	bind $E1000E
	nic_start $E1000E
	ping_peer $E1000E 5
	expect_equal "the state" "$(get $E1000E state)" active
	unbind $E1000E
	put $E1000E policy none
	plug_again $E1000E
	expect_policy $E1000E none
	load_plain
}

# Choosing a policy again resets changed tunables to their defaults.
case_chosen_again() {
	put $E1000E policy fused || failure "fused was refused: $(cat /tmp/put)"
	for file in max_window_us batch_pages range_commands_max copy_bytes pool_mib; do
		default=$(get $E1000E $file)
		put $E1000E $file $((default + 2)) || put $E1000E $file $((default - 2)) || failure "$file cannot be changed: $(cat /tmp/put)"
		put $E1000E policy fused || failure "fused was refused: $(cat /tmp/put)"
		expect_equal "$file, when fused is chosen again" "$(get $E1000E $file)" "$default"
		sed -n 's/^fused,/,/p' "$(xs $E1000E defaults)" | grep -q ",$file:$default\(,\|$\)" ||
			failure "the defaults of $file are not $default: $(get $E1000E defaults)"
	done
}

case_floor() {
	load_with min_level=held || give_up "insmod failed"
	for policy in lazy fands; do
		refused $E1000E policy $policy 'Operation not permitted' "refused: $policy is .*, and min_level is held"
	done
	for policy in xsmmu fused strict none; do
		accepted $E1000E policy $policy
	done
	load_plain
}

# Rules skip a group with a driver that was bound before the module was loaded, until the driver is gone.
case_rules_under_bound_drivers() {
	one=0000:0a:00.0
	other=0000:0b:00.0
	rmmod xsmmu || give_up "rmmod was refused"
	unbind $one $other
	echo kernel >/sys/module/xsmmu_dma_api_test/parameters/mode
	echo $other >/sys/bus/pci/drivers/xsmmu_dma_api_test/bind || failure "$(log_since | grep 'rude: wrong')"
	insmod /modules/xsmmu.ko "rules=*=strict" || give_up "insmod failed"
	bind $one
	expect_equal "the level beside a driver on the kernel's own path" "$(get $one level)" none
	expect_equal "the module's reference count" "$(references)" 0
	unbind $one $other
	bind $one
	expect_equal "the level afterwards" "$(get $one level)" strict
	unbind $one
	load_plain
}

# A rule does not choose under a bound driver.
case_rule_under_its_driver() {
	rmmod xsmmu || give_up "rmmod was refused"
	echo kernel >/sys/module/xsmmu_dma_api_test/parameters/mode
	echo $TESTDEV >/sys/bus/pci/drivers/xsmmu_dma_api_test/bind || failure "$(log_since | grep 'rude: wrong')"
	insmod /modules/xsmmu.ko "rules=*=strict" || give_up "insmod failed"
	expect_equal "the policy under a driver" "$(policy_of $TESTDEV)" none
	expect_equal "the state" "$(get $TESTDEV state)" off
	unbind $TESTDEV
	load_plain
}

# If rules differ for the devices of a group, the highest level counts, whichever device comes first.
case_rules_that_differ() {
	load_with "rules=$DISK0=fused;$DISK1=lazy" || give_up "insmod failed"
	expect_policy $DISK0 fused
	load_with "rules=$DISK0=lazy;$DISK1=fused" || give_up "insmod failed"
	expect_policy $DISK0 fused
	load_with "rules=$DISK0=fused;$DISK1=none" || give_up "insmod failed"
	expect_policy $DISK0 fused
	load_plain
}

# Each of the two capabilities is needed.
case_each_capability() {
	for capability in sys_admin sys_rawio; do
		if /usr/bin/setpriv --bounding-set=-$capability sh -c "echo strict >$(xs $E1000E policy)" 2>/tmp/put; then
			failure "the policy was changed without $capability"
		fi
		grep -q 'Permission denied' /tmp/put || failure "$capability: the error is '$(cat /tmp/put)'"
	done
	expect_equal "the policy" "$(policy_of $E1000E)" none
}

# Of the choices for the devices of a group, some of which were absent, the last choice counts, whichever device comes
# first.
case_the_last_choice_counts() {
	one=0000:0a:00.0
	other=0000:0b:00.0
	unbind $one $other
	put $one policy lazy
	pull $one
	put $other policy strict
	pull $other
	plug_back $one $other
	expect_policy $one strict
	put $one policy none
	load_plain
}
