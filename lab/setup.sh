#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Sets up the host, and prints the Python interpreter to run everything else with.
#
# The host needs mmdebstrap and Python 3.11 with venv; as root on Debian missing ones are installed. Python packages go
# to a folder below the cache, named by a hash of pyproject.toml. An existing folder costs nothing.
set -eu

project=$(cd "$(dirname "$0")/.." && pwd)
cache=${XSMMU_CACHE:-${HOME:?}/.cache/xsmmu}

fail() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

say() {
	printf '%s\n' "$*" >&2
}

# Debian's own Python first: a Python in PATH may be a shim without venv.
find_python() {
	for candidate in /usr/bin/python3 python3; do
		if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
			python=$candidate
			return 0
		fi
	done
	return 1
}

missing_packages() {
	command -v mmdebstrap >/dev/null || printf 'mmdebstrap '
	find_python || printf 'python3 python3-venv '
}

set_up_host() {
	missing=$(missing_packages)
	[ -n "$missing" ] || return 0
	install="apt-get install --no-install-recommends -y ${missing% }"
	[ "$(id -u)" -eq 0 ] || fail "missing on this host: ${missing% }; install with: sudo $install"
	command -v apt-get >/dev/null ||
		fail "missing on this host: ${missing% }; install them with its package manager (they are named as in Debian)"
	say "installing on this host: ${missing% }"
	# shellcheck disable=SC2086 # the words of $install are its arguments
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive $install; } >&2 ||
		fail "installing ${missing% } failed (see above): check the network and the disk, then run the same command again"
	missing=$(missing_packages)
	[ -z "$missing" ] || fail "this host's packages are too old: Python 3.11 (Debian 12) or later is needed"
}

dependencies() {
	"$python" - "$project/pyproject.toml" <<-'EOF'
		import sys, tomllib
		project = tomllib.load(open(sys.argv[1], "rb"))["project"]
		print("\n".join(project["dependencies"] + project["optional-dependencies"]["dev"]))
	EOF
}

make_venv() {
	find_python || fail "Python 3.11 or later with venv is needed"
	say "setting up Python packages in $venv"
	dependencies >"$venv.txt"
	"$python" -m venv --clear "$venv" >&2 || fail "cannot make $venv: is the disk full?"
	quiet=-q
	[ ! -t 2 ] || quiet=
	# shellcheck disable=SC2086 # an empty $quiet is no argument
	"$venv/bin/python" -m pip install $quiet --disable-pip-version-check -r "$venv.txt" >&2 ||
		fail "installing Python packages failed (see above): check the network and the disk, then run the same command again"
	rm -f "$venv.txt"
	touch "$venv/ready"
}

set_up_host
mkdir -p "$cache" || fail "cannot create the cache folder $cache: name another one in XSMMU_CACHE"
key=$(sha256sum "$project/pyproject.toml" | cut -c 1-12)
venv=$cache/venv-$key
usable() {
	[ -e "$venv/ready" ] && "$venv/bin/python" -c '' 2>/dev/null
}
if ! usable; then
	# Another run may hold the lock; a killed run leaves no `ready`, and the next run starts afresh.
	exec 9>"$cache/venv.lock"
	flock -n 9 || {
		say "waiting: another run is setting up Python packages"
		flock 9
	}
	usable || make_venv
	exec 9>&-
fi
printf '%s\n' "$venv/bin/python"
