# SPDX-License-Identifier: GPL-2.0-only
"""Checks of `xsmmu doctor` for an IOMMU group and for each device."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from xsmmu import exposure, iommu, module, use
from xsmmu.digits import duration
from xsmmu.finding import Finding
from xsmmu.machine import Device, Group, is_address, text

_ATS: Final = 0x000F
_ATS_ENABLED: Final = 1 << 15
"""ID of the ATS capability, and the enable bit in its control register."""
_TYPES: Final = ("DMA", "DMA-FQ")
"""Types of groups that can be attached."""
_EXTENDED: Final = 0x100
_CONFIG_BYTES: Final = 4096
"""Offset of the extended capabilities in configuration space, and its size."""


def _of_group(level: str, check: str, group: Group, reason: str, remedy: str | None = None) -> Finding:
    return Finding(level, check, f"group {group.number}", reason, remedy)


def _labels(devices: Sequence[Device]) -> str:
    return ", ".join(f"{each.label}{f' [{each.driver}]' if each.driver else ''}" for each in devices)


def working(group: Group) -> list[Device]:
    """Devices of the group with DMA of their own."""
    return [each for each in group.members if not each.is_bridge]


def _bound(group: Group) -> list[Device]:
    return [each for each in working(group) if each.driver]


def _says(group: Group, name: str) -> str | None:
    """Content of a module file of the group; None if missing or not readable by this user."""
    offered = next((folder for each in group.members if (folder := each.module_folder)), None)
    return text(offered / name) if offered else None


def _number(group: Group, name: str) -> int:
    """Number in a module file of the group; 0 if not readable."""
    device = next((each for each in group.members if each.module_folder), None)
    return module.number(device, name) if device and _says(group, name) is not None else 0


def _count(group: Group, name: str) -> int:
    return _number(group, f"stats/{name}")


def _chosen(group: Group) -> str:
    """Policy of the group, chosen by the user, by a rule or by auto."""
    device = next((each for each in group.members if each.module_folder), None)
    return module.choice(device).policy if device else "none"


def _is_taken(group: Group) -> bool:
    return _says(group, "state") in module.TAKEN


def _choose_auto(device: Device, group: Group) -> str:
    """Command that selects auto; two alternatives if drivers must be unbound."""
    change = f"xsmmu set {device.address} auto"
    if _is_taken(group) or not _bound(group):
        return change
    return f"{change} --rebind; if the device is in use: {change} --persist, for the next boot"


def check_type(group: Group) -> Iterator[Finding]:
    """Only translated groups can be attached."""
    if group.type in _TYPES:
        return
    file = group.folder / "type"
    if group.type == "identity":
        reason = f"the group is passthrough (type identity): {_labels(working(group))} reach all memory"
        yield _of_group("blocks", "group-type", group, reason, _out_of_passthrough(group))
    elif group.type == "unknown":
        reason = f"the group's type cannot be read ({file}), but must be DMA or DMA-FQ"
        yield _of_group("note", "group-type", group, reason)
    else:
        reason = f"the group's type is {group.type}, but must be DMA or DMA-FQ"
        yield _of_group("blocks", "group-type", group, reason, f"unbind the group's drivers, then echo DMA-FQ > {file}")


def _out_of_passthrough(group: Group) -> str:
    """Remedy for a passthrough group. Asking for devices in use would open disks, so only `set --rebind` asks."""
    by_hand = f"echo DMA-FQ > {group.folder / 'type'}"
    if not working(group):
        return by_hand
    change = f"xsmmu set {working(group)[0].address} POLICY"
    if not _bound(group):
        return f"{change} --rebind; or by hand: {by_hand}"
    return f"{change} --rebind; if a device is in use: boot with iommu.passthrough=0, and {change} --persist"


def check_members(group: Group) -> Iterator[Finding]:
    """A group is attached and detached as a whole."""
    others = [name for name in group.entries if not is_address(name)]
    if others:
        reason = f"the group has devices on other buses than PCI ({', '.join(others)}), so it is not attached"
        yield _of_group("blocks", "not-pci", group, reason)
    devices, bound = working(group), _bound(group)
    if len(devices) < 2:
        return
    reason = f"{len(devices)} devices share the group, its policy and its level: {_labels(devices)}"
    remedy = "none in software; a slot behind another root port may have a group of its own"
    yield _of_group("note", "shared-group", group, reason, remedy)
    if len(bound) > 1 and not _is_taken(group):
        reason = f"drivers of {len(bound)} devices are bound, and all must be unbound to attach the group"
        change = f"xsmmu set {bound[0].address} POLICY"
        remedy = f"{change} --rebind, while the devices are not needed; if a device is in use: {change} --persist, "
        remedy += "for the next boot"
        yield _of_group("risk", "bound-drivers", group, reason, remedy)


def _declined(group: Group, why: str) -> Finding:
    """A declined group; a risk if the kernel's own path is lazy for an untrusted device."""
    reason = f"the module declines the group: {why}"
    # Linux accepts DMA-FQ for such a group, and keeps the type if an untrusted device joins later.
    if "untrusted" not in why or group.type != "DMA-FQ":
        return _of_group("note", "declined", group, reason)
    reason += "; but the group's type is DMA-FQ, which is lazy: untrusted devices reach memory after its unmap"
    remedy = f"unbind the group's drivers, echo DMA > {group.folder / 'type'}, and bind the drivers again"
    return _of_group("risk", "declined", group, reason, remedy)


def check_state(group: Group) -> Iterator[Finding]:
    """State of the group in the module."""
    if not module.is_loaded() or not working(group):
        return
    live = module.is_live()
    # The module's folder disappears before the device does, and while the module is loaded or unloaded.
    others = [each for each in working(group) if not each.module_folder and each.folder.exists()]
    if live and others and module.is_live():
        reason = f"the module is loaded, but offers no policy for {_labels(others)}"
        yield _of_group("blocks", "not-offered", group, reason, "see dmesg | grep xsmmu")
    declined = _says(group, "declined")
    if declined:
        yield _declined(group, declined)
    state = _says(group, "state")
    if state == "failed":
        chosen = _chosen(group)
        reason = f"policy {chosen} is chosen, but the attachment failed, so drivers use the kernel's own path"
        remedy = "remove the cause (see dmesg | grep xsmmu), then unbind and bind the group's drivers again"
        yield _of_group("blocks", "failed", group, reason, remedy)
    if state == "orphaned":
        pages = _count(group, "live_pages")
        reason = (
            f"no driver is bound, but {pages:,} pages of an earlier driver are still in use, so the group is not "
            "detached"
        )
        yield _of_group("risk", "orphaned", group, reason, "end the use of the pages (see dmesg | grep xsmmu)")
    if state == "stuck":
        pages = _count(group, "stuck_pages")
        reason = f"the IOMMU driver could not remove {pages:,} unmapped pages, so devices may access the pages and"
        reason += " the level is none"
        remedy = (
            "free memory, and see dmesg | grep xsmmu; if pages stay: unbind the drivers, then write identity, then "
            "DMA-FQ to"
        )
        remedy += f" {group.folder / 'type'}"
        yield _of_group("risk", "stuck", group, reason, remedy)
    bad_unmaps = _count(group, "bad_unmaps")
    if bad_unmaps:
        reason = f"{bad_unmaps:,} unmaps that matched no mapping: a bug of the driver; the named pages are removed"
        yield _of_group("risk", "bad_unmaps", group, reason, "report dmesg | grep xsmmu with the driver's name")
    torn = _count(group, "torn_pages")
    if torn:
        reason = (
            f"devices still reach {torn:,} pages of buffers that a driver has unmapped with a wrong size or address"
        )
        yield _of_group("risk", "torn", group, reason, "unbind the driver to remove the pages, and report the driver")


def check_exposure(group: Group) -> Iterator[Finding]:
    """Longest exposure of an unmapped page, beside the bound."""
    device = next((each for each in group.members if each.module_folder), None)
    if not device or not module.counts_are_readable(device):
        return
    now, longest_ns = module.choice(device), module.exposure_max_ns(device)
    if now.bound_ns is None or longest_ns is None:
        return
    bound = f"the bound of {now.policy} is {now.bound_ns // 1000:,} us (max_window_us)"
    if not exposure.is_late(longest_ns, now.bound_ns):
        reason = f"unmapped pages stayed reachable for {duration(longest_ns)} at most; {bound}"
        yield _of_group("ok", "exposure", group, reason)
        return
    reason = (
        f"an unmapped page stayed reachable for {duration(longest_ns)}, and {bound}; likely causes: {exposure.causes()}"
    )
    remedy = (
        f"watch for more such pages: xsmmu watch {device.address}; to exclude them: xsmmu set {device.address} "
        "strict, which waits for no timer"
    )
    yield _of_group("risk", "exposure", group, reason, remedy)


def check_auto(group: Group) -> Iterator[Finding]:
    """The choice of auto for the group, with the module's reason; only the module knows the rule."""
    device = next((each for each in working(group) if each.module_folder), None)
    found = module.auto(device) if device else None
    # A group that cannot be attached has no choice.
    if _says(group, "declined"):
        return
    if not found or not device or group.type not in _TYPES or not all(map(is_address, group.entries)):
        return
    now = module.choice(device)
    verb = "has chosen" if now.auto else "would choose"
    reason = f"auto {verb} {found.policy}, level {found.level}: {found.reason}"
    is_so = now.policy == found.policy
    remedy = None if is_so else f"to use this choice: {_choose_auto(device, group)}"
    yield _of_group("ok" if is_so else "note", "auto", group, reason, remedy)


def check_storage(group: Group) -> Iterator[Finding]:
    """A level below strict does not protect against a malicious disk."""
    disks = [each for each in group.members if each.is_storage]
    level = _says(group, "level")
    if not disks or not _is_taken(group) or level == "strict":
        return
    chosen, window_us = _chosen(group), _number(group, "max_window_us")
    longest_ns = module.exposure_max_ns(disks[0]) if module.counts_are_readable(disks[0]) else None
    measured = "" if longest_ns is None else f" (measured since the module was loaded: {duration(longest_ns)} at most)"
    reason = (
        f"{_labels(disks)} under {chosen} (level {level}): a malicious disk can return good data, and change the "
        f"data after verification for up to {window_us:,} us{measured}"
    )
    remedy = f"if the disk is not trusted: xsmmu set {disks[0].address} strict"
    yield _of_group("risk", "storage-level", group, reason, remedy)


def check_use(group: Group) -> Iterator[Finding]:
    """Whether direct tables, copying and batch awareness are used where they are chosen."""
    device = next((each for each in group.members if each.module_folder), None)
    found = use.of(device, module.choice(device)) if device else None
    if found:
        yield from use.findings(found, f"group {group.number}")


CHECKS: Final[tuple[Callable[[Group], Iterator[Finding]], ...]] = (
    check_type,
    check_members,
    check_state,
    check_use,
    check_exposure,
    check_auto,
    check_storage,
)


def has_ats(device: Device) -> bool | None:
    """Whether ATS is enabled in configuration space; None if not readable."""
    try:
        space = (device.folder / "config").read_bytes()
    except OSError:
        return None
    # Root reads the whole space: 256 bytes of a conventional device, which cannot have ATS, or 4,096 bytes.
    if len(space) < _CONFIG_BYTES:
        return False if len(space) >= _EXTENDED else None
    at, seen = _EXTENDED, set()
    while at >= _EXTENDED and at not in seen and at + 8 <= len(space):
        seen.add(at)
        (head,) = struct.unpack_from("<I", space, at)
        if head & 0xFFFF == _ATS:
            return bool(struct.unpack_from("<H", space, at + 6)[0] & _ATS_ENABLED)
        at = head >> 20
    return False


def check_parts(device: Device) -> Iterator[Finding]:
    """Device features that the module was not tested with or handles specially."""
    if has_ats(device):
        reason = (
            f"{device.label}: ATS is on, so the device has a TLB of its own, and a level holds only if the device "
            "obeys invalidations; tested only with QEMU's devices, which cache nothing"
        )
        remedy = "if the device is not trusted: add pci=noats to the kernel's command line and reboot"
        yield Finding("risk", "ats", device.address, reason, remedy)
    # The module knows whether the kernel trusts the device; sysfs only gives a hint.
    offered = device.module_folder
    is_known = offered is not None and (offered / "declined").exists()
    if text(device.folder / "removable") == "removable" and not is_known:
        reason = (
            f"{device.label}: the firmware marks its port as external, so the kernel probably does not trust the "
            "device (sysfs does not say), and the module then declines its IOMMU group"
        )
        remedy = "leave the group to the kernel's own path, which is strict for untrusted devices"
        yield Finding("note", "untrusted", device.address, reason, remedy)
    if (device.folder / "p2pmem").is_dir():
        reason = (
            f"{device.label}: scatter lists with its peer-to-peer memory (p2pmem) cannot be mapped under the module"
        )
        yield Finding(
            "risk", "p2p", device.address, reason, "if P2P is in use, leave both groups to the kernel's own path"
        )


def check_iommu_of(device: Device) -> Iterator[Finding]:
    """Whether the device has an IOMMU that the module supports."""
    if device.group is None:
        reason = f"{device.label} is behind no IOMMU"
        remedy = "try another slot, which may be behind an IOMMU" if iommu.has_groups() else "see the finding no-iommu"
        yield Finding("blocks", "device-no-iommu", device.address, reason, remedy)
    unit = (device.folder / "iommu").resolve()
    if unit.exists() and iommu.kind(unit) not in iommu.ACCEPTED:
        reason = (
            f"{device.label}: the IOMMU is {iommu.kind(unit)}, but the module supports only {', '.join(iommu.ACCEPTED)}"
        )
        yield Finding("blocks", "device-iommu-kind", device.address, reason)


def check_blocked(device: Device) -> Iterator[Finding]:
    """A device that the module cannot attach has no DMA while its group is attached."""
    if not device.module_folder or not module.blocked(device):
        return
    reason = f"all maps of {device.label} fail: its group is attached, but the module cannot attach this device"
    remedy = (
        "unbind all drivers of the group and bind them again, and the kernel's own path serves the group; "
        "dmesg | grep xsmmu has the reason"
    )
    yield Finding("blocks", "blocked", device.address, reason, remedy)


DEVICE_CHECKS: Final[tuple[Callable[[Device], Iterator[Finding]], ...]] = (check_iommu_of, check_blocked, check_parts)
