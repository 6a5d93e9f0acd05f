#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Removes the lab's files: results in the checkout, and in the cache folder only the lab's own folders.
set -eu

project=$(cd "$(dirname "$0")/.." && pwd)
cache=${XSMMU_CACHE:-${HOME:?}/.cache/xsmmu}

for made in "$project"/results "$cache"/root-* "$cache"/venv-* "$cache"/debs "$cache"/installed "$cache"/setup-*; do
	[ -e "$made" ] || continue
	echo "removing $made"
	# Packages hold read-only folders, which an ordinary user cannot empty.
	find "$made" -type d ! -perm -u+w -exec chmod u+w {} +
	rm -rf "$made"
done
rm -f "$cache"/*.lock
