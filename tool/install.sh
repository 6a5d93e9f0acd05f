#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Installs for packages and for `make install`: install.sh tool|source|module|uninstall DESTDIR PREFIX.
#   tool       the command, its man pages and completion, and what applies rules at boot
#   source     the module's source, for DKMS
#   module     xsmmu.ko and xsmmu_bench.ko, as `make modules` has built them, for the kernel KERNEL (by default the one that
#              runs)
#   uninstall  what tool and module put there, but for rules that were changed
set -eu
umask 022 # all may use what is installed, whatever root's is

cd "$(dirname "$0")/.."
part=$1 destdir=$2 prefix=$3
python=${PYTHON:-python3}

# copy FILE...: to the folder $into
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
*) fail "PREFIX '$prefix' has to be the absolute path of a folder, as /usr/local" ;;
esac
case $prefix in
*[!A-Za-z0-9/._+~-]* | */ | *//* | */../*)
	fail "PREFIX '$prefix' has to be as the system writes it, of letters, digits and / . _ + ~ -, without / at its end"
	;;
esac

tool() {
	"$python" -c 'import click, rich' 2>/dev/null ||
		fail "$python lacks click or rich: install them (on Debian python3-click and python3-rich), or name another in PYTHON"
	into=$prefix/share/xsmmu/xsmmu
	rm -rf "$destdir$into" # an earlier version's
	copy tool/xsmmu/*.py tool/xsmmu/schemas
	find "$destdir$into" -name __pycache__ -prune -exec rm -r {} + # of a checkout that was run
	copy_as tool/bin/xsmmu "$prefix/bin/xsmmu" 755
	# The one that has what the tool needs; /usr/bin/python3 may not.
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
	# From here on what is installed describes itself.
	export PYTHONPATH="$destdir$prefix/share/xsmmu" PYTHONDONTWRITEBYTECODE=1
	"$python" tool/manpages.py "$destdir$prefix/share/man" tool/xsmmu.conf.5
	for page in levels tool use; do
		copy_as docs/$page.md "$prefix/share/doc/xsmmu/$page.md"
	done
	completion bash "$prefix/share/bash-completion/completions/xsmmu"
	# /usr/share has a folder for what packages bring, /usr/local/share one for what the site has.
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
	[ -e xsmmu.ko ] || fail "there is no xsmmu.ko: run make modules first"
	for each in $modules; do
		copy_as "$each" "/lib/modules/$kernel/updates/$each"
	done
	[ -n "$destdir" ] || depmod "$kernel"
}

uninstall() {
	# Of a package what is outside PREFIX would go, too.
	[ -e "$destdir$prefix/share/xsmmu" ] || [ -e "$destdir$prefix/bin/xsmmu" ] ||
		fail "there is no xsmmu below $destdir$prefix: name the PREFIX that it was installed with"
	! grep -qsx /usr/bin/xsmmu "$destdir/var/lib/dpkg/info/xsmmu.list" ||
		fail "xsmmu is installed as a package, which has some of the same files: apt remove xsmmu xsmmu-dkms first"
	[ -n "$destdir" ] || systemctl disable --now xsmmu.service xsmmu-metrics.timer 2>/dev/null || :
	# What is to go is what would be installed.
	made=$(mktemp -d)
	trap 'rm -r "$made"' EXIT
	trap 'exit 1' HUP INT TERM
	sh tool/install.sh tool "$made" "$prefix"
	if ! cmp -s tool/xsmmu.conf "$destdir/etc/xsmmu.conf"; then
		rm "$made/etc/xsmmu.conf"
		[ ! -e "$destdir/etc/xsmmu.conf" ] || echo "$destdir/etc/xsmmu.conf stays: it was changed"
	fi
	(cd "$made" && find . -type f) | while read -r file; do
		rm -f "$destdir/$file"
	done
	rm -rf "$destdir$prefix/share/doc/xsmmu"
	DPKG_ROOT=$destdir sh tool/debian/xsmmu.postrm remove
	for each in $modules; do
		rm -f "$destdir/lib/modules/$kernel/updates/$each"
	done
	if [ -z "$destdir" ]; then
		[ ! -e "/lib/modules/$kernel" ] || depmod "$kernel"
		systemctl daemon-reload 2>/dev/null || :
		echo "the initramfs may have the module and its rules still: update-initramfs -u, or dracut --force; then reboot"
	fi
	rm -rf "$destdir$prefix/share/xsmmu" # last, so that one that was stopped can be tried again
}

case $part in
tool) tool ;;
source) module_source ;;
module) module ;;
uninstall) uninstall ;;
esac
