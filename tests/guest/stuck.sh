# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# Removals that fail: IOVA and memory stay out of use, level and state say so, and a later attempt succeeds. With
# virtio-iommu its own driver fails; with others a build of the module for tests, which has the parameter refuse.

STUCK=/sys/bus/pci/drivers/xsmmu_stuck
PAGE=/sys/module/xsmmu_stuck/parameters
REFUSE=/sys/module/xsmmu/parameters/refuse

# refuse on|off: fail removals.
refuse() {
	if [ -e $REFUSE ]; then
		if [ "$1" = on ]; then echo 1000000 >$REFUSE; else echo 0 >$REFUSE; fi
	else
		echo "$1" >$PAGE/requests || failure "requests $1: $(log_since | grep 'stuck: wrong')"
	fi
}

# stick POLICY: unmap and flush a page that stays mapped.
stick() {
	put $TESTDEV policy $1 || failure "$1 was refused: $(cat /tmp/put)"
	log_mark
	echo $TESTDEV >$STUCK/bind || failure "$1: the driver does not bind"
	level=$(get $TESTDEV level)
	echo 4096 >$PAGE/map || failure "$1: the map failed"
	refuse on
	echo 1 >$PAGE/unmap || failure "$1: the unmap failed"
	until_true 5 is_stuck 1 || failure "$1: $(stat_of $TESTDEV stuck_pages) pages are stuck"
}

is_stuck() {
	[ "$(stat_of $TESTDEV stuck_pages)" = $1 ]
}

# expect_said TEXT: the log contains TEXT, beside other lines.
expect_said() {
	log_since | grep -q "$1" || failure "the log does not say: $1"
}

expect_stuck() {
	expect_equal "$1: the state" "$(get $TESTDEV state)" stuck
	expect_equal "$1: the level" "$(get $TESTDEV level)" none
	expect_said "could not remove 1 pages at IOVA 0x"
}

# For an unmodified driver the engine holds the memory, unless the policy released it before the flush.
expect_held() {
	case $1 in
	lazy | fands) ;;
	*) expect_equal "$1: references of the page" "$(cat $PAGE/held)" 1 ;;
	esac
}

case_stuck_until_it_is_removed() {
	for policy in $POLICIES; do
		stick $policy
		expect_stuck $policy
		expect_held $policy
		refuse off
		until_true 10 is_stuck 0 || failure "$policy: it is stuck still"
		expect_equal "$policy: the level" "$(get $TESTDEV level)" "$level"
		expect_equal "$policy: references of the page" "$(cat $PAGE/held)" 0
		expect_said "that could not be removed are removed now"
		unbind $TESTDEV
		until_true 5 state_is idle || failure "$policy: the state is $(get $TESTDEV state)"
		expect_balance $TESTDEV
	done
}

# With virtio-iommu no other map or unmap works meanwhile. Elsewhere later maps and unmaps work.
case_stuck_iova_is_not_handed_out() {
	[ -e $REFUSE ] || return 0
	for policy in $POLICIES; do
		stick $policy
		# The retrying work is refused; the unmaps below are not.
		for _ in 1 2 3 4; do
			echo 0 >$REFUSE
			is_stuck 0 && break
			echo 1 >$PAGE/others || failure "$policy: $(log_since | grep 'stuck: wrong')"
			echo 1000000 >$REFUSE
		done
		refuse off
		until_true 10 is_stuck 0 || failure "$policy: it is stuck still"
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
}

# The driver goes: the kernel's own path would hand the IOVA out, so the group stays attached, and the next driver gets
# no memory.
stick_and_go() {
	stick $1
	unbind $TESTDEV
	expect_equal "$1: the state" "$(get $TESTDEV state)" stuck
	expect_said "for a new domain write identity to /sys/kernel/iommu_groups/"
	put $TESTDEV policy none && failure "$1: it was given back"
	sleep 2
	expect_equal "$1: the state" "$(get $TESTDEV state)" stuck
	expect_held $1
}

# expect_given_back PREFIX: the group is back on the kernel's own path, and the page has no other reference.
expect_given_back() {
	until_true 10 state_is idle || failure "$1the state is $(get $TESTDEV state)"
	expect_equal "$1references of the page" "$(cat $PAGE/held)" 0
	expect_balance $TESTDEV
}

is_released() {
	[ "$(cat $PAGE/held)" = 0 ]
}

case_stuck_when_the_driver_goes() {
	for policy in strict fused; do
		stick_and_go $policy
		echo $TESTDEV >$STUCK/bind || failure "$policy: the driver does not bind"
		expect_said "could not remove pages from this domain"
		# The pages are removed under the driver, whose maps still fail, or when it has gone.
		if [ $policy = strict ]; then
			sleep 1
			refuse off
			until_true 5 is_released || failure "$policy: the page is still held"
		fi
		unbind $TESTDEV
		refuse off
		expect_given_back "$policy: "
	done
}

# A new domain lacks the stuck page, whatever its driver could not remove. With virtio-iommu nothing works meanwhile.
case_stuck_until_the_group_has_another_domain() {
	[ -e $REFUSE ] || return 0
	stick_and_go strict
	set_group_type $TESTDEV identity
	until_true 10 state_is idle || failure "the state is $(get $TESTDEV state)"
	expect_equal "references of the page" "$(cat $PAGE/held)" 0
	refuse off
}

# VFIO holds the group for a while, in another domain; afterwards the group's own domain returns.
case_stuck_while_somebody_else_has_the_group() {
	stick_and_go strict
	echo 1 >$PAGE/own || failure "the group cannot be taken"
	sleep 2
	expect_equal "the state while the group is taken" "$(get $TESTDEV state)" stuck
	echo 0 >$PAGE/own
	sleep 2
	expect_equal "the state" "$(get $TESTDEV state)" stuck
	expect_held strict
	refuse off
	expect_given_back ""
}

# keep_and_go POLICY BYTES: the driver goes, and its mappings stay and cannot be removed.
keep_and_go() {
	put $TESTDEV policy $1 || failure "$1 was refused: $(cat /tmp/put)"
	log_mark
	echo $TESTDEV >$STUCK/bind || failure "$1: the driver does not bind"
	copies=$(stat_of $TESTDEV copied_maps)
	echo $2 >$PAGE/map || failure "$1: the map failed"
	if [ $1 = copy ]; then
		until_true 10 is_copied || failure "nothing was copied"
	fi
	refuse on
	unbind $TESTDEV
	expect_equal "$1: the state" "$(get $TESTDEV state)" stuck
	expect_said "for a new domain write identity to /sys/kernel/iommu_groups/"
	sleep 2
	expect_equal "$1: the state" "$(get $TESTDEV state)" stuck
}

# The first buffer is mapped, as the pool has no memory yet.
is_copied() {
	[ "$(stat_of $TESTDEV copied_maps)" -gt $copies ] && return
	echo 1 >$PAGE/unmap
	sleep 0.2
	echo 256 >$PAGE/map
	return 1
}

case_stuck_while_it_is_mapped() {
	for policy in strict fused; do
		keep_and_go $policy 4096
		# The next driver gets no memory, and a failed try leaks none.
		echo $TESTDEV >$STUCK/bind || failure "$policy: the driver does not bind"
		failed=$(($(stat_of $TESTDEV map_failures) + 1))
		echo 1 >$PAGE/memory && failure "$policy: memory was allocated"
		expect_equal "$policy: maps that failed" "$(stat_of $TESTDEV map_failures)" $failed
		echo $failed >/tmp/map_failures.$TESTDEV
		expect_equal "$policy: pages that are stuck" "$(stat_of $TESTDEV stuck_pages)" 0
		unbind $TESTDEV
		# The memory still belongs to the driver.
		refuse off
		until_true 10 state_is orphaned || failure "$policy: the state is $(get $TESTDEV state)"
		echo 1 >$PAGE/unmap
		expect_given_back "$policy: "
	done
}

case_stuck_when_it_is_unmapped_late() {
	for policy in strict fused; do
		keep_and_go $policy 4096
		echo 1 >$PAGE/unmap
		sleep 2
		expect_equal "$policy: the state" "$(get $TESTDEV state)" stuck
		expect_equal "$policy: pages that are stuck" "$(stat_of $TESTDEV stuck_pages)" 1
		expect_equal "$policy: references of the page" "$(cat $PAGE/held)" 1
		refuse off
		expect_given_back "$policy: "
	done
}

# The memory of copies, while a copy is in use and afterwards; a worker checks idle memory every ten seconds.
case_stuck_memory_of_copies() {
	keep_and_go copy 256
	echo 1 >$PAGE/unmap
	sleep 12
	expect_equal "the state" "$(get $TESTDEV state)" stuck
	expect_equal "pages that are stuck" "$(stat_of $TESTDEV stuck_pages)" 512
	refuse off
	until_true 10 state_is idle || failure "the state is $(get $TESTDEV state)"
}

case_stuck_memory_of_no_copies() {
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	log_mark
	echo $TESTDEV >$STUCK/bind || failure "the driver does not bind"
	copies=$(stat_of $TESTDEV copied_maps)
	echo 256 >$PAGE/map || failure "the map failed"
	until_true 10 is_copied || failure "nothing was copied"
	echo 1 >$PAGE/unmap
	refuse on
	unbind $TESTDEV
	expect_equal "the state" "$(get $TESTDEV state)" stuck
	refuse off
	until_true 10 state_is idle || failure "the state is $(get $TESTDEV state)"
}

# A new chunk is half mapped and cannot be unmapped: the device may access the chunk.
case_stuck_memory_for_copies() {
	[ -e $REFUSE ] && return 0
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	echo $TESTDEV >$STUCK/bind || failure "the driver does not bind"
	# The buffer, and half of the memory.
	echo later2 >$PAGE/requests || failure "requests: $(log_since | grep 'stuck: wrong')"
	echo 256 >$PAGE/map || failure "the map failed"
	until_true 10 is_stuck 512 || failure "$(stat_of $TESTDEV stuck_pages) pages are stuck"
	expect_equal "the level" "$(get $TESTDEV level)" none
	refuse off
	until_true 10 is_stuck 0 || failure "it is stuck still"
	echo 1 >$PAGE/unmap
}

# The chunk is mapped again for the next driver, by halves: the group stays out of a domain with a half.
case_stuck_when_the_next_driver_comes() {
	[ -e $REFUSE ] && return 0
	put $TESTDEV policy copy || failure "copy was refused: $(cat /tmp/put)"
	log_mark
	echo $TESTDEV >$STUCK/bind || failure "the driver does not bind"
	copies=$(stat_of $TESTDEV copied_maps)
	echo 256 >$PAGE/map || failure "the map failed"
	until_true 10 is_copied || failure "nothing was copied"
	unbind $TESTDEV
	expect_equal "the state" "$(get $TESTDEV state)" orphaned
	echo later >$PAGE/requests || failure "requests: $(log_since | grep 'stuck: wrong')"
	echo $TESTDEV >$STUCK/bind || failure "the driver does not bind"
	expect_equal "the level" "$(get $TESTDEV level)" none
	unbind $TESTDEV
	expect_equal "the state" "$(get $TESTDEV state)" stuck
	echo 1 >$PAGE/unmap
	sleep 2
	expect_equal "the state" "$(get $TESTDEV state)" stuck
	refuse off
	until_true 15 state_is idle || failure "the state is $(get $TESTDEV state)"
}

# Memory of an allocation, which the module itself would free. The engine cannot hold so many pages.
case_stuck_memory_of_the_module() {
	put $TESTDEV policy strict || failure "strict was refused: $(cat /tmp/put)"
	log_mark
	echo $TESTDEV >$STUCK/bind || failure "the driver does not bind"
	echo 1 >$PAGE/memory || failure "the allocation failed"
	refuse on
	echo 0 >$PAGE/memory
	expect_equal "pages that are stuck" "$(stat_of $TESTDEV stuck_pages)" 512
	expect_equal "references of the allocation" "$(cat $PAGE/memory)" 1
	refuse off
	until_true 10 is_stuck 0 || failure "it is stuck still"
}

# The virtio-iommu driver recovers when its queue is flushed: nothing is stuck, and nothing is mapped in the device, for
# mappings of any size.
case_stuck_for_a_moment() {
	[ -e $REFUSE ] && return 0
	for policy in $POLICIES; do
		put $TESTDEV policy $policy || failure "$policy was refused: $(cat /tmp/put)"
		log_mark
		echo $TESTDEV >$STUCK/bind || failure "$policy: the driver does not bind"
		for pages in 1 65 256 1000; do
			echo $((pages * 4096)) >$PAGE/map || failure "$policy: the map failed"
			refuse_once
			echo 1 >$PAGE/unmap || failure "$policy: the unmap failed"
			expect_recovered "$policy, $pages pages"
		done
		unbind $TESTDEV
		expect_balance $TESTDEV
	done
}

refuse_once() {
	echo once >$PAGE/requests || failure "requests: $(log_since | grep 'stuck: wrong')"
}

# expect_recovered WHAT
expect_recovered() {
	until_true 5 has_recovered || failure "$1: $(cat $PAGE/refused) refused, $(cat $PAGE/flushed) flushed"
	expect_equal "$1: pages that are stuck" "$(stat_of $TESTDEV stuck_pages)" 0
	echo off >$PAGE/requests
	expect_equal "$1: pages that the device reaches" "$(cat $PAGE/reached)" 0
}

# The same for pages that are removed when the group leaves its domain, and for many single pages in a flush afterwards.
case_stuck_for_a_moment_when_the_driver_goes() {
	[ -e $REFUSE ] && return 0
	put $TESTDEV policy lazy || failure "lazy was refused: $(cat /tmp/put)"
	log_mark
	echo $TESTDEV >$STUCK/bind || failure "the driver does not bind"
	echo $((1000 * 4096)) >$PAGE/map || failure "the map failed"
	refuse_once
	unbind $TESTDEV
	expect_equal "the state" "$(get $TESTDEV state)" orphaned
	expect_recovered "the driver goes"
	echo $TESTDEV >$STUCK/bind || failure "the driver does not bind"
	refuse_once
	echo 1 >$PAGE/others || failure "$(log_since | grep 'stuck: wrong')"
	expect_recovered "many pages"
	echo 1 >$PAGE/unmap
	unbind $TESTDEV
	until_true 10 state_is idle || failure "the state is $(get $TESTDEV state)"
}

has_recovered() {
	[ "$(cat $PAGE/refused)" -gt 0 ] && [ "$(cat $PAGE/flushed)" -gt 0 ]
}

# An allocation of 2 MiB is mapped in two steps. The second step fails, and the first cannot be undone. This is the last
# case, because the statistics keep the failed map.
case_stuck_half_of_an_allocation() {
	[ -e $REFUSE ] && return 0
	put $TESTDEV policy strict || failure "strict was refused: $(cat /tmp/put)"
	log_mark
	echo $TESTDEV >$STUCK/bind || failure "the driver does not bind"
	echo later >$PAGE/requests || failure "requests: $(log_since | grep 'stuck: wrong')"
	failed=$(($(stat_of $TESTDEV map_failures) + 1))
	echo 1 >$PAGE/alloc || failure "$(log_since | grep 'stuck: wrong')"
	expect_equal "pages that are stuck" "$(stat_of $TESTDEV stuck_pages)" 512
	expect_equal "the state" "$(get $TESTDEV state)" stuck
	expect_equal "references of the memory" "$(cat $PAGE/mapped)" 1
	expect_said "2097152 bytes of memory are lost"
	refuse off
	until_true 10 is_stuck 0 || failure "it is stuck still"
	unbind $TESTDEV
	echo $failed >/tmp/map_failures.$TESTDEV
}
