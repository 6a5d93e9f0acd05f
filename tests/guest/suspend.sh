# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash disable=SC2086,SC2154 # addresses are single words; they and the settings come from elsewhere
# A machine that suspends as far as the kernel's own test goes, without the module: any failure is the kernel's.

# The second case uses the disk of the first.
all_off() {
	:
}

case_work_without_the_module() {
	rmmod xsmmu || give_up "rmmod was refused"
	bind $DATA
	disk_start $DATA
	read_disk $DATA 1
}

case_suspend_without_the_module() {
	echo devices >/sys/power/pm_test
	echo 1 >/sys/module/suspend/parameters/pm_test_delay 2>/dev/null
	echo mem >/sys/power/state || failure "suspend failed"
	echo none >/sys/power/pm_test
	read_disk $DATA 1
	unbind $DATA
	insmod /modules/xsmmu.ko || give_up "insmod failed"
}
