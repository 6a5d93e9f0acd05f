#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# /sbin/init of a machine that booted from its own disk: reports the initramfs's results, and tries disk and NIC.
# shellcheck source=boot_lib.sh
. /sbin/boot_lib.sh

begin
dd if=/dev/urandom of=/tmp/data bs=1M count=8 2>/dev/null
write_and_read /tmp/data /data
network
devices
end
