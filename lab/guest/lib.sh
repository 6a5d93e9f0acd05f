# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=dash
# shellcheck disable=SC1091,SC2154 # variables of the architecture: $console, $marker_file and $marker_register
# Functions for all plans and workloads: results, markers, clock, statistics, devices and policies.

. /lab/arch.sh

# line_of FILE: sets `line` to the first line of a file, or to nothing if the file cannot be read. The shell itself
# reads, because in an emulated guest a process takes longer than most other work here.
line_of() {
	line=
	read -r line <"$1" || :
}

# --- results -----------------------------------------------------------------------------------------------------

results_port() {
	grep -lx xsmmu.result /sys/class/virtio-ports/*/name 2>/dev/null
}

# Opens the results port as descriptor 3. A device whose IOMMU appears late is probed again, in the background.
results_open() {
	until_true 10 results_port >/dev/null || fail "no results port"
	port=$(results_port)
	port=${port%/name}
	exec 3>"/dev/${port##*/}"
}

# emit JSON: one record, one line.
emit() {
	printf '%s\n' "$1" >&3
}

# Until the port exists, results are dropped and errors go to the console.
exec 3>/dev/null

# json_string TEXT: TEXT as a JSON string, control characters dropped.
json_string() {
	printf '"%s"' "$(printf '%s' "$1" | tr '\n\t' '  ' | tr -d '\000-\037' | sed 's/[\\"]/\\&/g')"
}

# fail TEXT: report TEXT and stop the guest; the host ends the run with TEXT.
fail() {
	echo "xsmmu-lab: $*" >"$console"
	emit "{\"event\":\"error\",\"message\":$(json_string "$*")}"
	sleep 5
	poweroff -f
}

# faults_are expected|unexpected: logs, in the kernel's log, whether IOMMU faults from here on are part of the test. The
# line has level error like the faults, so a console that shows faults shows the line.
faults_are() {
	echo "<3>xsmmu-lab: faults are $1" >/dev/kmsg
}

# --- markers and clock -------------------------------------------------------------------------------------------

marker=0

# Cuts the host's count of invalidations: writes to the second serial port's scratch register. /lab/bytes has each byte
# at the offset of its value.
mark() {
	marker=$((marker + 1))
	dd if=/lab/bytes skip=$((marker & 255)) of="$marker_file" seek="$marker_register" bs=1 count=1 conv=notrunc 2>/dev/null
}

# Sets now_ns to guest time and idle_ns to the time all CPUs were idle. Interrupts taken while idle count as busy.
clock() {
	clock_file=/sys/kernel/debug/xsmmu_lab/clock
	[ -r $clock_file ] || {
		clock_file=/tmp/clock
		clock_by_timers >$clock_file
	}
	read -r now_ns idle_ns <$clock_file || fail "the clock cannot be read"
}

# Prints the same two numbers without the lab's module.
clock_by_timers() {
	awk -v idle="$(awk '/^cpu /{printf "%.0f", ($5 + $6) * 1e7}' /proc/stat)" '
		/^now at /{now = $3}
		/\.idle_sleeptime|\.iowait_sleeptime/{precise += $3; found = 1}
		END{printf "%.0f %.0f\n", now, found ? precise : idle}' /proc/timer_list
}

# --- the module's statistics -------------------------------------------------------------------------------------

# stats_json BDF: the statistics, level, state and histogram of a device, or null where the module is absent.
stats_json() {
	folder=/sys/bus/pci/devices/$1/xsmmu
	if [ ! -d "$folder" ]; then
		printf null
		return
	fi
	clock
	printf '{"now_ns":%s' "$now_ns"
	for name in policy tables level state max_window_us; do
		read -r value <"$folder/$name" && printf ',"%s":"%s"' "$name" "$value"
	done
	printf ',"stats":{'
	separator=
	for file in "$folder"/stats/*; do
		read -r value <"$file" || value=null
		printf '%s"%s":%s' "$separator" "${file##*/}" "$value"
		separator=,
	done
	printf '},"exposure_ns":['
	separator=
	while read -r bound count; do
		printf '%s["%s",%s]' "$separator" "$bound" "$count"
		separator=,
	done <"$folder/exposure_ns"
	printf ']}'
}

# snapshot: the statistics of the session's IOMMU group, which all of its devices show.
snapshot() {
	stats_json "${session_bdfs%% *}"
}

# --- waiting -----------------------------------------------------------------------------------------------------

# until_true SECONDS COMMAND...: wait until the command succeeds.
until_true() {
	until_left=$(($1 * 10))
	shift
	until "$@"; do
		until_left=$((until_left - 1))
		[ $until_left -gt 0 ] || return 1
		sleep 0.1
	done
}

# Waits until deferred work is done: longer than any policy's bound. Idle time costs nothing here.
settle() {
	sleep 0.2
}

# --- devices and policies ----------------------------------------------------------------------------------------

session_bdfs=
session_driver=
session_policy=

device_unbind() {
	[ -e "/sys/bus/pci/devices/$1/driver" ] || return 0
	echo "$1" >"/sys/bus/pci/devices/$1/driver/unbind" || fail "$1: unbind failed"
}

device_bind() {
	echo "$1" >"/sys/bus/pci/drivers/$2/bind" || fail "$1: bind to $2 failed"
}

# Static 1:1 tables of the lab's module (lab/module/identity.h).
identity_file=/sys/kernel/debug/xsmmu_lab/identity

# identity_set BDF 4k|2m|1g|none: choose a static 1:1 table for the group of a device without a driver.
identity_set() {
	[ -e $identity_file ] || [ "$2" != none ] || return 0
	echo "$1 $2" >$identity_file || fail "$1: the 1:1 table $2 was refused"
}

# iommu_pages: prints the pages of all page tables of IOMMUs, by the kernel's count, or null on 6.1, which has no count.
iommu_pages() {
	echo 1 >/proc/sys/vm/stat_refresh
	awk '/^nr_iommu_pages /{found = $2} END{print found == "" ? "null" : found}' /proc/vmstat
}

# identity_emit BDF PAGES: report the 1:1 table of a device's group; before it was made, iommu_pages printed PAGES.
identity_emit() {
	group=$(readlink "/sys/bus/pci/devices/$1/iommu_group")
	table=$(sed -n "s/^${group##*/} //p" $identity_file)
	case $table in
	*'"state":"mapped"'*) ;;
	*) fail "$1: there is no 1:1 table: $table" ;;
	esac
	pages=$(iommu_pages)
	[ "$pages" = null ] || pages=$((pages - $2))
	emit "{\"event\":\"identity\",\"policy\":\"$session_policy\",\"devices\":\"$session_bdfs\",\"table\":$table,\"table_pages_by_kernel\":$pages}"
}

# policy_set POLICY BDF...: kernel modes through the group's type, static 1:1 tables through the lab's module, other
# policies through the module, with direct tables if the name ends in -direct, and with copies of buffers of up to 256
# bytes if -copy comes before. No driver may be bound.
policy_set() {
	policy=${1%-direct}
	tables=kernel
	[ "$policy" = "$1" ] || tables=direct
	copied=
	[ "$policy" = "${policy%-copy}" ] || copied=256
	policy=${policy%-copy}
	shift
	case $policy in
	passthrough) types=identity ;;
	kernel-strict) types=DMA ;;
	# A change from DMA-FQ to DMA makes a new domain, without tables of earlier drivers.
	identity-*) types='DMA-FQ DMA' ;;
	*) types=DMA-FQ ;;
	esac
	for bdf in "$@"; do
		device=/sys/bus/pci/devices/$bdf
		[ -e "$device/iommu_group" ] || fail "$bdf is not behind an IOMMU"
		[ ! -d "$device/xsmmu" ] || echo none >"$device/xsmmu/policy" || fail "$bdf: policy none refused"
		identity_set "$bdf" none
	done
	for type in $types; do
		for bdf in "$@"; do
			file=/sys/bus/pci/devices/$bdf/iommu_group/type
			line_of "$file"
			[ "$line" = "$type" ] || echo "$type" >"$file" || fail "$bdf: group type $type refused"
			line_of "$file"
			[ "$line" = "$type" ] || fail "$bdf: group type is $line, not $type"
		done
	done
	case $policy in
	passthrough | kernel-*) return ;;
	identity-*)
		for bdf in "$@"; do
			identity_set "$bdf" "${policy#identity-}"
		done
		return
		;;
	esac
	for bdf in "$@"; do
		file=/sys/bus/pci/devices/$bdf/xsmmu/policy
		[ -e "$file" ] || fail "$bdf: the xsmmu module offers no policy"
		echo "$policy" >"$file" || fail "$bdf: policy $policy refused"
		line_of "$file"
		case $line in
		*"[$policy]"*) ;;
		*) fail "$bdf: policy is $line, not $policy" ;;
		esac
		echo "$tables" >"${file%/*}/tables" || fail "$bdf: tables $tables refused"
		[ -z "$copied" ] || echo "$copied" >"${file%/*}/copy_bytes" || fail "$bdf: copy_bytes $copied refused"
	done
}

# without_probes COMMAND...: run a command that loads drivers, without probing. The plan binds drivers to devices under
# test. At all other times probing is on, because a hotplugged device would get no driver: pci_bus_add_device() of 7.2
# heeds the switch.
without_probes() {
	echo 0 >/sys/bus/pci/drivers_autoprobe
	"$@"
	probes_status=$?
	echo 1 >/sys/bus/pci/drivers_autoprobe
	return $probes_status
}

# stock_or_patched MODULE KIND: load this kind of a driver. A patched driver is loaded after xsmmu, to find its symbols.
stock_or_patched() {
	line_of "/tmp/$1.kind" 2>/dev/null
	[ "${line:-unmodified}" != "$2" ] || return 0
	folder=/modules
	[ "$2" = unmodified ] || folder=/modules/patched
	rmmod "$1" || fail "cannot unload $1"
	without_probes insmod "$folder/$1.ko" || fail "cannot load the $2 $1"
	echo "$2" >"/tmp/$1.kind"
}

# grouped BDF DRIVER: binds once, because some devices are found to be behind an IOMMU only at their first driver.
grouped() {
	[ -e "/sys/bus/pci/devices/$1/iommu_group" ] && return
	device_bind "$1" "$2"
	device_unbind "$1"
}

# session_open POLICY DRIVER KIND BDF...: put devices under a policy and bind their driver, which is unmodified or
# batch-aware.
session_open() {
	session_policy=$1
	session_driver=$2
	session_kind=$3
	shift 3
	session_bdfs=$*
	for bdf in "$@"; do
		grouped "$bdf" "$session_driver"
	done
	emit "{\"event\":\"session\",\"driver\":\"$session_driver\",\"policy\":\"$session_policy\"}"
	for bdf in "$@"; do
		[ -e "/sys/bus/pci/devices/$bdf/iommu_group" ] || fail "$bdf is not behind an IOMMU"
		[ "/sys/bus/pci/devices/$bdf/iommu_group" -ef "/sys/bus/pci/devices/$1/iommu_group" ] ||
			fail "$* must be one IOMMU group, and are several"
	done
	policy_set "$session_policy" "$@"
	if type "${session_driver}_kind" >/dev/null 2>&1; then
		"${session_driver}_kind" "$session_kind"
	elif [ "$session_kind" != unmodified ]; then
		fail "there is no $session_kind $session_driver"
	fi
	pages_before=
	case $session_policy in
	identity-*) pages_before=$(iommu_pages) ;;
	esac
	for bdf in "$@"; do
		device_bind "$bdf" "$session_driver"
		# Check that the driver got the requested type: the kernel falls back to DMA if no flush queue is
		# possible.
		line_of "/sys/bus/pci/devices/$bdf/iommu_group/type"
		[ "$line" = "$type" ] || fail "$bdf: group type became $line, from $type"
	done
	case $session_policy in
	identity-*) identity_emit "$1" "$pages_before" ;;
	esac
	"${session_driver}_up"
}

# Unbind, so that the next session's devices have the IOMMU to themselves.
session_close() {
	"${session_driver}_down"
	for bdf in $session_bdfs; do
		device_unbind "$bdf"
	done
	settle
	mark
	emit "{\"event\":\"closed\",\"policy\":\"$session_policy\",\"marker\":$marker,\"left\":$(snapshot)}"
	session_bdfs=
}

# --- runs --------------------------------------------------------------------------------------------------------

# arguments KEY=VALUE...: sets $arg_KEY for the workload, and $arg_all to all arguments.
arguments() {
	# shellcheck disable=SC2034 # for workloads
	arg_all=$*
	for pair in "$@"; do
		eval "arg_${pair%%=*}=\${pair#*=}"
	done
}

# work FUNCTION: run a workload; its output, one JSON object, goes to /tmp/output. FUNCTION_prepare runs before, if
# defined.
prepare() {
	if type "$1_prepare" >/dev/null 2>&1; then
		"$1_prepare" || fail "$1: cannot prepare"
	fi
}

work() {
	"$1" >/tmp/output 2>/tmp/errors || fail "$1: $(tail -n 5 /tmp/errors; tail -n 5 /tmp/output)"
}

# warm ID FUNCTION KEY=VALUE...: do the work of a run once, unmeasured; a workload may do less if $warming is set.
# shellcheck disable=SC2034 # for workloads
warm() {
	run_id=$1
	workload=$2
	shift 2
	arguments "$@"
	emit "{\"event\":\"warm\",\"id\":$run_id}"
	warming=1
	prepare "$workload"
	work "$workload"
	warming=
}

# run ID FUNCTION KEY=VALUE...: one measured run. The clock is read inside of the markers, and the run's timers fire
# before the second marker; so counters and trace cover the same work, and the time includes no waiting.
run() {
	run_id=$1
	workload=$2
	shift 2
	arguments "$@"
	emit "{\"event\":\"start\",\"id\":$run_id}"
	prepare "$workload"
	settle
	before=$(snapshot)
	mark
	first=$marker
	clock
	started_ns=$now_ns
	started_idle_ns=$idle_ns
	work "$workload"
	clock
	elapsed_ns=$((now_ns - started_ns))
	waited_ns=$((idle_ns - started_idle_ns))
	settle
	mark
	after=$(snapshot)
	emit "{\"event\":\"run\",\"id\":$run_id,\"markers\":[$first,$marker],\"elapsed_ns\":$elapsed_ns,\"idle_ns\":$waited_ns,\"before\":$before,\"after\":$after,\"output\":$(tr -d '\n\t' </tmp/output)}"
}
