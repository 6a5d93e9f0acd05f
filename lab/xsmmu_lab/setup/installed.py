# SPDX-License-Identifier: GPL-2.0-only
"""Disks of Debian machines as an installer leaves them, with the dependencies of DKMS and the operator's tool.

Unlike a private root such a machine is configured: maintainer scripts ran, an initramfs was made. At boot the machine
runs the script `script` of a second disk, if present, and powers off.
"""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from xsmmu.errors import UserError
from xsmmu_lab.arch import AMD64
from xsmmu_lab.setup import host, kernels
from xsmmu_lab.setup.boot import DISK_LABEL
from xsmmu_lab.setup.root import PACKAGING, ensure

SUITES = ("trixie", "bookworm")
"""Debian 13 and 12."""

WITH_BACKPORTS = "trixie-backports"
"""Debian 13 with a kernel of its backports."""
_BACKPORTED = "7.2"
"""This kernel, by its name in lab/kernels.toml."""

LABEL = "debian"
"""The label by which the kernel finds the root file system."""

_PACKAGES = (
    *("apt", "systemd-sysv", "udev", "kmod", "initramfs-tools", "zstd", "iproute2", "iputils-ping"),
    *("linux-image-amd64", "linux-headers-amd64", "dkms", "python3", "python3-click", "python3-rich"),
    # `xsmmu trace` reads recordings by them.
    *("python3-numpy", "python3-zstandard"),
)
_DISK_MIB = 3072
_BUILD_BYTES = 8 << 30
_UNIT = f"""\
[Unit]
Description=What is tried on this machine
ConditionPathExists=/dev/disk/by-label/{DISK_LABEL}
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mount LABEL={DISK_LABEL} /mnt; sh /mnt/script; systemctl poweroff'
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0

[Install]
WantedBy=default.target
"""
_HOOKS = (
    'cp unit "$1/etc/systemd/system/tried.service"',
    'systemctl --root="$1" --quiet enable tried.service',
    # Nothing waits for an absent network or terminal.
    'systemctl --root="$1" --quiet mask serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer',
    f'echo "LABEL={LABEL} / ext4 errors=remount-ro 0 1" >"$1/etc/fstab"',
    'echo debian >"$1/etc/hostname"',
)


@dataclass(frozen=True)
class Installed:
    """A machine's disk, and the files on it that a boot loader would load."""

    disk: Path
    vmlinuz: Path
    initrd: Path


def machine(suite: str, console: Console) -> Installed:
    """The disk of a machine with a suite; made if missing. The disk is shared: boot a copy."""
    cache = host.cache_dir()
    packages = _packages(suite, console)
    identity = hashlib.sha256(repr((packages, _UNIT, _HOOKS, _DISK_MIB)).encode()).hexdigest()[:12]
    folder = cache / "installed" / f"{suite}-{identity}"
    with host.locked(cache / "installed.lock", console, "installing Debian"):
        if not folder.exists():
            host.need_space(cache, _BUILD_BYTES, f"the disk of a {suite} machine")
            folder.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="setup-", dir=folder.parent) as work, console.status(suite):
                _install(suite, packages, Path(work), console)
                Path(work, "made").rename(folder)
    return Installed(folder / "disk", folder / "vmlinuz", folder / "initrd.img")


def _packages(suite: str, console: Console) -> tuple[str, ...]:
    if suite in SUITES:
        return _PACKAGES
    release = kernels.ensure(ensure(host.cache_dir(), console), _BACKPORTED, console).release
    # apt takes what a kernel needs from its suite, too, if the suite is named.
    kernel = {name: f"{name.replace(AMD64.name, release)}/{suite}" for name in _PACKAGES if name.startswith("linux-")}
    return tuple(kernel.get(name, name) for name in _PACKAGES)


def _install(suite: str, packages: Sequence[str], work: Path, console: Console) -> None:
    made, archive = work / "made", work / "archive.tar"
    made.mkdir()
    main, security = host.debian_mirrors()
    stable = suite.partition("-")[0]
    pockets = dict.fromkeys((stable, f"{stable}-updates", suite))
    sources = "".join(f"deb {main} {each} main\n" for each in pockets) + f"deb {security} {stable}-security main\n"
    (work / "sources.list").write_text(sources)
    (work / "apt.conf").write_text(host.apt_acquire_options())
    (work / "unit").write_text(_UNIT)
    copies = [f'cp -L "$1/{name}" {shlex.quote(str(made))}/' for name in ("vmlinuz", "initrd.img")]
    hooks = [f"--customize-hook=cd {shlex.quote(str(work))} && {hook}" for hook in (*_HOOKS, *copies)]
    options = ["--variant=minbase", f"--aptopt={work / 'apt.conf'}", f"--include={','.join(packages)}", *hooks]
    argv = ["mmdebstrap", *options, stable, str(archive), str(work / "sources.list")]
    installed = host.run(argv, env=host.system_env({"TMPDIR": str(work)}))
    if installed.returncode != 0:
        raise host.download_error(f"installing {suite}", (installed.stdout + installed.stderr).splitlines())
    root = ensure(host.cache_dir(), console, PACKAGING)
    # mke2fs runs in the root and cannot see the archive, so a link in the root leads to the archive.
    inside = root.path / "tmp" / f"{work.name}.tar"
    disk = inside.with_suffix(".disk")
    inside.hardlink_to(archive)
    try:
        make = ["mke2fs", "-q", "-F", "-t", "ext4", "-L", LABEL, "-d", root.inside(inside), root.inside(disk)]
        formatted = root.run([*make, f"{_DISK_MIB}M"], proc=True)
        if formatted.returncode != 0:
            raise UserError("mke2fs failed", formatted.stderr.splitlines())
        disk.rename(made / "disk")
    finally:
        inside.unlink()
        disk.unlink(missing_ok=True)
