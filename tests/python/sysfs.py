# SPDX-License-Identifier: GPL-2.0-only
"""A made-up sysfs tree for the operator's tool."""

from __future__ import annotations

import shutil
from pathlib import Path

IGB, NVME0, NVME1 = "0000:01:00.0", "0000:05:00.0", "0000:06:00.0"
VMD, BELOW_VMD = "0000:00:0e.0", "10000:e1:00.0"
"""A controller that makes its own PCI domain, and a device in that domain."""
STATS = {
    "maps": 2400,
    "unmaps": 2400,
    "live_pages": 7,
    "held_pages": 3,
    "stuck_pages": 0,
    "map_failures": 0,
    "map_flushes": 0,
    "flush_unmap": 100,
    "flush_poll": 20,
    "copied_maps": 5,
    "copied_unmaps": 5,
    "copied_bytes": 640,
    "copy_misses": 1,
    "pool_bytes": 2 << 20,
    "inv_page": 100,
    "inv_domain": 20,
    "inv_global": 0,
    "mapped_pages": 2400,
    "unmapped_pages": 2400,
    "deferred_pages": 2300,
    "bad_unmaps": 0,
    "torn_pages": 0,
}
USED = {
    "mapped_pages": 2400,
    "direct_pages": 0,
    "direct_misses": 0,
    "direct_large": 0,
    "copied_maps": 5,
    "uncopied_maps": 2400,
    "copy_misses": 1,
    "deferred_pages": 2300,
    "immediate_pages": 100,
}
DEFAULTS = {
    "max_window_us": "1000",
    "batch_pages": "1024",
    "range_commands_max": "4",
    "copy_bytes": "0",
    "pool_mib": "64",
}
MENU = ("none", "auto", "copy", "strict", "lazy", "fands", "xsmmu", "fused")


def defaults_of(policy: str) -> dict[str, str]:
    """The default tunables of a policy."""
    return DEFAULTS | {"copy_bytes": "4096" if policy == "copy" else "0"}


def used_text(**counts: int) -> str:
    """The module's file `used`, with some other counts."""
    return "\n".join(f"{name} {count}" for name, count in (USED | counts).items())


def load_anew(folder: Path) -> None:
    """Replace the module's files of a device by new files with the same content, as after a reload."""
    # The old files stay, so that no inode is reused.
    old = folder.rename(folder.with_name(f"old-{folder.stat().st_ino}"))
    shutil.copytree(old, folder)


def make_device(
    sysfs: Path,
    device: str,
    group: int | None,
    policy: str | None,
    driver: str | None = None,
    *,
    interface: str | None = None,
    disk: str | None = None,
    kind: str = "DMA-FQ",
    state: str = "active",
) -> Path:
    """A device as the kernel shows it, with the module's files if `policy` is given; returns the module's folder."""
    base = sysfs / "bus/pci/devices" / device
    base.mkdir(parents=True)
    for name, text in {"class": "0x010802" if disk else "0x020000", "vendor": "0x8086", "device": "0x10c9"}.items():
        (base / name).write_text(f"{text}\n")
    (base / "driver_override").write_text("(null)\n")
    folder = base / "xsmmu"
    if policy is not None:
        (sysfs / "module/xsmmu").mkdir(parents=True, exist_ok=True)
        (sysfs / "module/xsmmu/version").write_text("0.1.0\n")
        (sysfs / "module/xsmmu/initstate").write_text("live\n")
        (folder / "stats").mkdir(parents=True)
        text = " ".join(f"[{name}]" if name == policy else name for name in MENU)
        level = "none" if policy == "none" else "held"
        files = {"policy": text, "tables": "[kernel] direct", "level": level, "state": state, "max_window_us": "1000"}
        files |= {"batch_pages": "1024", "range_commands_max": "4", "copy_bytes": "0", "pool_mib": "64"}
        files["auto_policy"] = (
            "strict strict: storage" if disk else "fused held: an Ethernet NIC: its polls flush deferred unmaps"
        )
        rows = {name: defaults_of(name).items() for name in MENU[2:]}
        files["defaults"] = "\n".join(f"{name},{','.join(map(':'.join, row))}" for name, row in rows.items())
        files["can_copy"] = "0" if driver and policy not in ("none", "copy") else "1"
        files |= {"declined": "", "no_direct": "", "batch_aware": "0", "blocked": "0"}
        files["used"] = used_text() if state not in ("off", "idle", "failed") else ""
        files |= {"exposure_ns": "1024 10\n2048 3\nmax 1999"}
        for name, content in files.items():
            (folder / name).write_text(content + "\n")
        for name, value in STATS.items():
            (folder / "stats" / name).write_text(f"{value}\n")
    if group is not None:
        members = sysfs / f"kernel/iommu_groups/{group}/devices"
        members.mkdir(parents=True, exist_ok=True)
        (members / device).symlink_to(base)
        (members.parent / "type").write_text(kind + "\n")
        (base / "iommu_group").symlink_to(members.parent)
    if driver:
        make_driver(sysfs, driver)
        (base / "driver").symlink_to(sysfs / "bus/pci/drivers" / driver)
    if interface:
        (base / "net" / interface).mkdir(parents=True)
        _link(sysfs, "net", base / "net" / interface)
    if disk:
        (base / "nvme/nvme0" / disk).mkdir(parents=True)
        (base / "nvme/nvme0" / disk / "size").write_text("1\n")
        _link(sysfs, "block", base / "nvme/nvme0" / disk)
        _link(sysfs, "nvme", base / "nvme/nvme0")
    return folder


def move(sysfs: Path, device: str, address: str) -> None:
    """Move a device below VMD, where it has another address."""
    domain = sysfs / "bus/pci/devices" / VMD / f"pci{address[:-5]}/{address[:-7]}00.0"
    domain.mkdir(parents=True, exist_ok=True)
    old = sysfs / "bus/pci/devices" / device
    place = domain / address
    old.rename(place)
    for link in [*sysfs.glob("class/*/*"), *sysfs.glob("kernel/iommu_groups/*/devices/*")]:
        target = link.readlink()
        if target.is_relative_to(old):
            link.unlink()
            name = address if link.name == device else link.name
            (link.parent / name).symlink_to(place / target.relative_to(old))
    (sysfs / "bus/pci/devices" / address).symlink_to(place)


def make_driver(sysfs: Path, driver: str, module: str | None = None) -> None:
    """A driver that can be bound and unbound, in a module of the same or another name."""
    folder = sysfs / "bus/pci/drivers" / driver
    if folder.exists():
        return
    folder.mkdir(parents=True)
    for name in ("bind", "unbind"):
        (folder / name).touch()
    place = sysfs / "module" / (module or driver)
    place.mkdir(parents=True)
    (place / "initstate").write_text("live\n")
    (folder / "module").symlink_to(place)


def _link(sysfs: Path, kind: str, target: Path) -> None:
    folder = sysfs / "class" / kind
    folder.mkdir(parents=True, exist_ok=True)
    (folder / target.name).symlink_to(target)


class Machine:
    """Other files of the tool: the kernel's, the IOMMU's, and the modules' places.

    Trees below one folder, named as tool/xsmmu/machine.py's ROOTS.
    """

    RELEASE = "6.12.118+deb13-amd64"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sysfs = folder / "sysfs"
        self.config = "\n".join(
            f"CONFIG_{name}=y"
            for name in ("PCI", "INTEL_IOMMU", "IOMMU_DMA", "TRACEPOINTS", "INTEL_IOMMU_SCALABLE_MODE_DEFAULT_ON")
        )
        self.write("proc/sys/kernel/osrelease", self.RELEASE)
        self.write("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.118-1 (2026-11-01)")
        self.write("proc/sys/kernel/arch", "x86_64")
        self.write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n")
        self.cmdline("intel_iommu=on")
        self.write(f"boot/config-{self.RELEASE}", self.config)
        self.write("sysfs/kernel/security/lockdown", "[none] integrity confidentiality")
        self.write("sysfs/class/iommu/dmar0/intel-iommu/cap", "d2008c222f0606")
        self.write("sysfs/class/iommu/dmar0/intel-iommu/ecap", "f00f4a")

    def cmdline(self, *words: str) -> None:
        """The kernel's command line."""
        self.write("proc/cmdline", " ".join(("BOOT_IMAGE=/vmlinuz", "quiet", *words)))

    def link_iommu(self, *devices: str) -> None:
        """Put devices behind the only IOMMU unit."""
        for device in devices:
            (self.sysfs / "bus/pci/devices" / device / "iommu").symlink_to(self.sysfs / "class/iommu/dmar0")

    def write(self, name: str, content: str) -> None:
        """Write a file as the kernel does: with a newline."""
        self.write_bytes(name, f"{content}\n".encode())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a file."""
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(content)

    def remove(self, name: str) -> None:
        """Remove a file or folder, if it exists."""
        path = self.folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
