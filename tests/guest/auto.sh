# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# The choices of `auto`: a case for each line of its table (kmod/policy/auto.c) that this machine can reach, and the effects of
# a choice.

# auto_is BDF BEGINNING: checks the beginning of auto's choice, in force or not: policy, level and reason.
auto_is() {
	case "$(get $1 auto_policy)" in
	"$2"*) ;;
	*) failure "$1: auto says '$(get $1 auto_policy)', not '$2'" ;;
	esac
}

# in_force BDF POLICY: auto is selected and has chosen POLICY.
in_force() {
	expect_equal "$1: the chosen policy" "$(policy_of $1)" auto
	expect_equal "$1: the policy of auto" "$(get $1 auto_policy | sed 's/ .*//')" $2
}

# auto_works BDF POLICY LEVEL: after an attach.
auto_works() {
	put $1 policy auto || failure "$1: auto was refused: $(cat /tmp/put)"
	bind $1
	start $1
	work_on $1
	in_force $1 $2
	expect_equal "$1: the level under auto" "$(get $1 level)" $3
	unbind $1
	expect_balance $1
	put $1 policy none || failure "$1: none was refused: $(cat /tmp/put)"
}

# --- by IOMMU, type and device -----------------------------------------------------------------------------------

# auto_of_a_nic TYPE POLICY LEVEL REASON MORE: MORE is appended to the reason if the IOMMU needs map-side flushes.
auto_of_a_nic() {
	set_group_type $E1000E $1
	# A change from DMA to DMA-FQ attaches nothing: the module evaluates again when a policy is chosen.
	put $E1000E policy none || failure "$E1000E: none was refused: $(cat /tmp/put)"
	case $FLUSHES_MAPS in
	1) auto_is $E1000E "$2 $3: $4$5" ;;
	*) expect_equal "the reason" "$(get $E1000E auto_policy)" "$2 $3: $4" ;;
	esac
	auto_works $E1000E $2 $3
	all_off
}

case_auto_of_a_nic_that_the_kernel_makes_lazy() {
	auto_of_a_nic DMA-FQ fused held "an Ethernet NIC: its polls flush deferred unmaps" \
		"; each map sends a command in any case, so deferring saves only half of the commands"
}

case_auto_of_a_nic_that_the_kernel_makes_strict() {
	auto_of_a_nic DMA strict strict "the kernel's own path is strict (type DMA)" \
		"; each map sends a command in any case, so deferring could save only half of the commands"
}

case_auto_of_a_disk() {
	auto_is $DATA "strict strict: storage"
	auto_works $DATA strict strict
	# The type of the kernel's own path has no influence.
	set_group_type $DATA DMA-FQ
	auto_is $DATA "strict strict: storage"
}

case_auto_of_another_device() {
	auto_is $TESTDEV "strict strict: a device that is neither storage nor an Ethernet NIC"
}

# A group that does not translate yet is evaluated again when its driver binds.
case_auto_before_the_type_is_changed() {
	set_group_type $E1000E identity
	auto_is $E1000E "strict strict: the group does not translate"
	put $E1000E policy auto || failure "auto was refused: $(cat /tmp/put)"
	in_force $E1000E strict
	set_group_type $E1000E DMA-FQ
	bind $E1000E
	in_force $E1000E fused
	expect_equal "the level" "$(get $E1000E level)" held
	nic_start $E1000E
	ping_peer $E1000E 5
}

# --- groups ------------------------------------------------------------------------------------------------------

# With a NIC, a disk and another device the strictest choice counts, whichever device is asked.
case_auto_of_a_group() {
	for member in 0000:09:00.0 0000:0a:00.0 0000:0b:00.0; do
		unbind $member
		auto_is $member "strict strict: storage"
	done
}

# A device of another kind that joins later changes the choice, until the device leaves.
case_auto_when_a_disk_joins() {
	nic=0000:09:00.0
	disk=0000:0a:00.0
	unbind $nic $disk 0000:0b:00.0
	pull $disk
	auto_is $nic "strict strict: a device that is neither"
	put $nic policy auto || failure "auto was refused: $(cat /tmp/put)"
	auto_is $nic "strict strict: a device that is neither"
	plug_back $disk
	auto_is $nic "strict strict: storage"
	put $nic policy none || failure "none was refused: $(cat /tmp/put)"
}

# --- effects of a choice ------------------------------------------------------------------------------------------

case_auto_in_the_menu() {
	put $E1000E policy auto || failure "auto was refused: $(cat /tmp/put)"
	expect_equal "the menu" "$(get $E1000E policy)" "none [auto] copy $POLICIES"
	expect_equal "the level without a driver" "$(get $E1000E level)" none
	expect_equal "the state" "$(get $E1000E state)" idle
	put $E1000E policy fused || failure "fused was refused: $(cat /tmp/put)"
	expect_equal "the menu" "$(get $E1000E policy)" "none auto copy strict lazy fands xsmmu [fused] strict-identity fused-identity"
	mode_is 400 auto_policy
	refused $E1000E policy automatic 'Invalid argument' 'unknown policy "automatic"'
	refused $E1000E policy 'auto fused' 'Invalid argument' 'unknown policy "auto fused"'
	put $E1000E policy none
}

# The log names the reason once per device, and again only for another reason.
case_auto_says_why() {
	plug_again $E1000E
	log_mark
	put $E1000E policy auto || failure "auto was refused: $(cat /tmp/put)"
	expect_log "$E1000E: xsmmu: auto: fused, level held: an Ethernet NIC"
	put $E1000E policy strict
	log_mark
	put $E1000E policy auto
	bind $E1000E
	expect_silence
	unbind $E1000E
	set_group_type $E1000E DMA
	log_mark
	bind $E1000E
	expect_log "$E1000E: xsmmu: auto: strict, level strict: the kernel's own path is strict"
}

# From any policy to auto and back, while packets arrive.
case_auto_and_others() {
	take fused $E1000E
	nic_start $E1000E
	for other in $POLICIES; do
		put $E1000E policy auto || failure "auto after $other was refused: $(cat /tmp/put)"
		in_force $E1000E fused
		expect_equal "the level of auto" "$(get $E1000E level)" held
		ping_peer $E1000E 3
		put $E1000E policy $other || failure "$other after auto was refused: $(cat /tmp/put)"
		expect_equal "the policy" "$(policy_of $E1000E)" $other
		ping_peer $E1000E 3
	done
	put $E1000E policy auto
	refused $E1000E policy none 'busy' 'refused: a driver is bound'
}

# A choice of auto has default tunables; other tunables require a named policy.
case_auto_has_no_tunables() {
	put $E1000E policy auto || failure "auto was refused: $(cat /tmp/put)"
	for file in max_window_us batch_pages range_commands_max copy_bytes pool_mib; do
		refused $E1000E $file 5 'No data available' "refused: auto has its policy's defaults: choose a policy by its name before $file"
	done
	accepted $E1000E tables kernel
	in_force $E1000E fused
	put $E1000E policy xsmmu
	accepted $E1000E max_window_us 777
	put $E1000E policy auto
	expect_equal "the window after auto was chosen" "$(get $E1000E max_window_us)" 1000
	put $E1000E policy none
}

case_auto_outlives_the_device() {
	put $E1000E policy auto || failure "auto was refused: $(cat /tmp/put)"
	plug_again $E1000E
	in_force $E1000E fused
	put $E1000E policy none
	plug_again $E1000E
	expect_policy $E1000E none
}

# --- devices that are not trusted --------------------------------------------------------------------------------

case_auto_of_an_untrusted_device() {
	for device in $IGB 0000:00:04.0; do
		auto_is $device "none none: untrusted (external-facing) device"
		put $device policy auto && failure "$device: auto was accepted"
	done
}

# --- rules and the floor: the module is loaded again ----------------------------------------------------------------

case_auto_by_rules() {
	load_refused 'refused: rules: auto has no tunables: "max_window_us:5"' rules=*=auto,max_window_us:5
	load_refused 'refused: rules: auto has no tunables: "fast"' rules=*=auto,tables:direct,fast
	load_refused 'refused: rules: unknown policy: "autos"' rules=*=autos
	load_refused 'refused: unknown policy "Auto"' policy=Auto
	for words in "rules=*=auto" policy=auto; do
		load_with "$words" || give_up "insmod failed"
		in_force $E1000E fused
		in_force $DATA strict
		expect_policy $IGB none
		bind $E1000E
		in_force $E1000E fused
		expect_equal "the level" "$(get $E1000E level)" held
		unbind $E1000E
	done
	# The operator's choice and a stronger rule go above the floor; nothing goes below.
	put $E1000E policy lazy || failure "lazy was refused: $(cat /tmp/put)"
	bind $E1000E
	expect_policy $E1000E lazy
	unbind $E1000E
	load_with "rules=$E1000E=none;class:06=none;$DISK0=auto,tables:direct;$DISK1=fused;class:02=auto" policy=lazy || give_up "insmod failed"
	expect_policy $E1000E none
	in_force $DISK1 strict
	expect_equal "the tables" "$(policy_of $DISK1 && sed 's/.*\[\(.*\)\].*/\1/' "$(xs $DISK1 tables)")" "$(printf 'auto\ndirect')"
	expect_policy $DATA strict
	load_plain
}

case_auto_above_the_floor() {
	load_with min_level=strict || give_up "insmod failed"
	auto_is $E1000E "strict strict: min_level is strict"
	put $E1000E policy auto || failure "auto was refused: $(cat /tmp/put)"
	in_force $E1000E strict
	put $E1000E policy none
	# A lower floor does not weaken auto's choice.
	load_with min_level=none || give_up "insmod failed"
	auto_is $E1000E "fused held: "
	load_plain
}
