#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Installs for packages and for `make install`: install.sh tool|source|trace|module|uninstall DESTDIR PREFIX.
#   tool       the command, man pages, completion, and the files that apply rules at boot
#   source     the module's source, for DKMS
#   trace      the programs that record, replay and predict, from `make -C trace/record`, `trace/replay` and `model`
#   module     xsmmu.ko and xsmmu_bench.ko from `make modules`, for kernel KERNEL (by default the running kernel)
#   uninstall  removes the files of tool and module, except changed rules
set -eu
umask 022 # installed files are for all users, even if root's umask is stricter

cd "$(dirname "$0")/.."
part=$1 destdir=$2 prefix=$3
python=${PYTHON:-python3}

# copy FILE...: copies to the folder $into
into=
copy() {
	mkdir -p "$destdir$into"
	cp -R "$@" "$destdir$into/"
	chmod -R u=rwX,go=rX "$destdir$into"
}

# copy_as FILE NAME [MODE]
copy_as() {
	install -D -m "${3:-644}" "$1" "$destdir$2"
}

fail() {
	echo "error: $*" >&2
	exit 1
}

case $prefix in
/*[!/]*) ;;
*) fail "PREFIX '$prefix' is no absolute path of a folder: name a folder such as /usr/local" ;;
esac
case $prefix in
*[!A-Za-z0-9/._+~-]* | */ | *//* | */../*)
	fail "PREFIX '$prefix' is no canonical path: use letters, digits and / . _ + ~ -, without / at the end"
	;;
esac

tool() {
	"$python" -c 'import click, rich' 2>/dev/null ||
		fail "$python lacks click or rich: install both (on Debian python3-click and python3-rich), or name another Python in PYTHON"
	into=$prefix/share/xsmmu/xsmmu
	rm -rf "$destdir$into" # files of an earlier version
	copy tool/xsmmu/*.py tool/xsmmu/native.json tool/xsmmu/schemas
	into=$prefix/share/xsmmu/model
	rm -rf "$destdir$into"
	copy model/*.toml model/machines model/drivers model/workloads model/virtual
	rm "$destdir$into/validation.toml" 2>/dev/null || : # of the checkout
	into=$prefix/share/xsmmu/xsmmu
	find "$destdir$into" -name __pycache__ -prune -exec rm -r {} + # left in a checkout by runs
	copy_as tool/bin/xsmmu "$prefix/bin/xsmmu" 755
	# The Python that has click and rich; /usr/bin/python3 may lack both.
	{
		"$python" -c 'import sys; print(f"#!{sys.executable}")'
		sed 1d tool/bin/xsmmu
	} >"$destdir$prefix/bin/xsmmu"
	[ -e "$destdir/etc/xsmmu.conf" ] || copy_as tool/xsmmu.conf /etc/xsmmu.conf
	copy_as tool/boot/udev.rules "$prefix/lib/udev/rules.d/70-xsmmu.rules"
	copy_as tool/boot/dracut.conf /usr/lib/dracut/dracut.conf.d/xsmmu.conf
	copy_as tool/boot/initramfs-hook /usr/share/initramfs-tools/hooks/xsmmu 755
	copy_as tool/boot/modprobe.conf "$prefix/share/doc/xsmmu/examples/modprobe.conf"
	for unit in tool/systemd/*; do
		copy_as "$unit" "$prefix/lib/systemd/system/${unit##*/}"
		sed -i "s|/usr/bin/xsmmu|$prefix/bin/xsmmu|" "$destdir$prefix/lib/systemd/system/${unit##*/}"
	done
	# From here on the installed tool makes its own man pages and completion.
	export PYTHONPATH="$destdir$prefix/share/xsmmu" PYTHONDONTWRITEBYTECODE=1
	"$python" tool/manpages.py "$destdir$prefix/share/man" tool/xsmmu.conf.5
	for page in levels record replay tool trace use; do
		copy_as docs/$page.md "$prefix/share/doc/xsmmu/$page.md"
	done
	completion bash "$prefix/share/bash-completion/completions/xsmmu"
	# zsh reads vendor-completions below /usr/share, and site-functions below /usr/local/share.
	zsh=site-functions
	[ "$prefix" != /usr ] || zsh=vendor-completions
	completion zsh "$prefix/share/zsh/$zsh/_xsmmu"
	completion fish "$prefix/share/fish/vendor_completions.d/xsmmu.fish"
}

completion() {
	mkdir -p "$destdir${2%/*}"
	_XSMMU_COMPLETE=$1_source "$python" tool/bin/xsmmu >"$destdir$2"
}

module_source() {
	into=$prefix/src/xsmmu-$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' dkms.conf)
	copy Kbuild dkms.conf core kmod include LICENSES
}

kernel=${KERNEL:-$(uname -r)}
modules='xsmmu.ko xsmmu_bench.ko'

module() {
	[ -e xsmmu.ko ] || fail "xsmmu.ko does not exist: run make modules first"
	for each in $modules; do
		copy_as "$each" "/lib/modules/$kernel/updates/$each"
	done
	[ -n "$destdir" ] || depmod "$kernel"
}

trace() {
	for each in trace/record/xsmmu-record trace/replay/xsmmu-replay trace/replay/xsmmu-replay-lines model/xsmmu-model; do
		[ ! -e "$each" ] || copy_as "$each" "$prefix/libexec/xsmmu/${each##*/}" 755
	done
}

uninstall() {
	# With a wrong PREFIX, files outside PREFIX would be taken from a package or from another installation.
	[ -e "$destdir$prefix/share/xsmmu" ] || [ -e "$destdir$prefix/bin/xsmmu" ] ||
		fail "xsmmu is not installed below $destdir$prefix: name the PREFIX of the installation"
	! grep -qsx /usr/bin/xsmmu "$destdir/var/lib/dpkg/info/xsmmu.list" ||
		fail "xsmmu is installed as a package with some of the same files: apt remove xsmmu xsmmu-dkms first"
	[ -n "$destdir" ] || systemctl disable --now xsmmu.service xsmmu-metrics.timer 2>/dev/null || :
	# Removes the files that `tool` would install.
	made=$(mktemp -d)
	trap 'rm -r "$made"' EXIT
	trap 'exit 1' HUP INT TERM
	sh tool/install.sh tool "$made" "$prefix"
	if ! cmp -s tool/xsmmu.conf "$destdir/etc/xsmmu.conf"; then
		rm "$made/etc/xsmmu.conf"
		[ ! -e "$destdir/etc/xsmmu.conf" ] || echo "$destdir/etc/xsmmu.conf was changed, so it stays"
	fi
	(cd "$made" && find . -type f) | while read -r file; do
		rm -f "$destdir/$file"
	done
	rm -rf "$destdir$prefix/share/doc/xsmmu" "$destdir$prefix/libexec/xsmmu"
	DPKG_ROOT=$destdir sh tool/debian/xsmmu.postrm remove
	for each in $modules; do
		rm -f "$destdir/lib/modules/$kernel/updates/$each"
	done
	if [ -z "$destdir" ]; then
		[ ! -e "/lib/modules/$kernel" ] || depmod "$kernel"
		systemctl daemon-reload 2>/dev/null || :
		echo "the initramfs may still contain the module and its rules: update-initramfs -u, or dracut --force; then reboot"
	fi
	rm -rf "$destdir$prefix/share/xsmmu" # last, so that an interrupted uninstall can be repeated
}

case $part in
tool) tool ;;
source) module_source ;;
trace) trace ;;
module) module ;;
uninstall) uninstall ;;
esac
