# SPDX-License-Identifier: GPL-2.0-only
"""The module's files of a device: policy, state and statistics."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from xsmmu import machine
from xsmmu.errors import UserError, unknown_name
from xsmmu.machine import Device

S = TypeVar("S")
T = TypeVar("T")

TUNABLES: Final = {
    "max_window_us": (1, 10_000_000),
    "batch_pages": (1, 1024),
    "range_commands_max": (1, 32),
    "copy_bytes": (0, 4096),
    "pool_mib": (2, 256),
}
"""Smallest and largest value of each tunable."""
TABLES: Final = ("kernel", "direct")
KINDS: Final = ("page", "domain", "global")
TAKEN: Final = ("attached", "active", "torn", "orphaned", "stuck")
"""States in which the module serves the group's DMA."""


AUTO: Final = "auto"
"""Word in the policy file that lets the module choose a policy."""


@dataclass(frozen=True)
class Auto:
    """Policy that `auto` has chosen or would choose, with the module's reason."""

    policy: str
    level: str
    reason: str


@dataclass(frozen=True)
class Choice:
    """Policy and state of a group, readable for everybody."""

    policy: str
    """Policy, chosen by a user, a rule or auto."""
    level: str
    state: str
    tables: str
    tunables: Mapping[str, int]
    auto: Auto | None = None
    """Set if auto chose the policy."""

    @property
    def bound_ns(self) -> int | None:
        """Bound of the exposure; see bound_ns()."""
        return bound_ns(self.state, self.level, self.tunables)

    @property
    def asked(self) -> str:
        """Word that was written to the policy file."""
        return AUTO if self.auto else self.policy


@dataclass(frozen=True)
class Sample:
    """A reading of an IOMMU group; all devices of a group share policy and statistics."""

    time_ns: int
    """Monotonic clock."""
    devices: tuple[str, ...]
    policy: str
    level: str
    state: str
    stats: Mapping[str, int]
    tables: str = "kernel"
    tunables: Mapping[str, int] | None = None
    folders: frozenset[int] = frozenset()
    """Inodes of the module's folders of the group's devices."""
    kernel: tuple[str, str] = ("none", "none")
    """Name and level of the kernel's own path of the group."""

    @property
    def bound_ns(self) -> int | None:
        """Bound of the exposure; see bound_ns()."""
        return bound_ns(self.state, self.level, self.tunables or {})

    @property
    def path(self) -> tuple[str, str]:
        """Present path of the group's DMA, and its level; the kernel's own path while the group is not attached."""
        return (self.policy, self.level) if self.state in TAKEN else self.kernel


def path(device: Device, now: Choice) -> tuple[str, str]:
    """Present path of a device's DMA, and its level; the kernel's own path while the group is not attached."""
    return (now.policy, now.level) if now.state in TAKEN else _kernel_path(device)


def _kernel_path(device: Device) -> tuple[str, str]:
    group = device.group
    return group.kernel_path if group else ("none", "none")


def bound_ns(state: str, level: str, tunables: Mapping[str, int]) -> int | None:
    """Bound of the exposure of unmapped pages, in nanoseconds.

    None without a timer: at level strict the unmap or a batch-aware driver's flush ends exposure, at level none nothing
    does, and the kernel's own path is not the module's.
    """
    window_us = tunables.get("max_window_us")
    if state not in TAKEN or level in ("none", "strict") or window_us is None:
        return None
    return window_us * 1000


def began_anew(first: Sample, last: Sample) -> bool:
    """Whether the statistics restarted at zero: the module was reloaded, or all devices of the group are new."""
    # read() reads the inodes last, so a sample may mix earlier counts with later inodes.
    fewer = any(last.stats.get(name, 0) < first.stats.get(name, 0) for name in ("maps", "copied_maps"))
    return fewer or not first.folders & last.folders


def is_loaded() -> bool:
    """Whether the module is loaded."""
    return (machine.sysfs() / "module/xsmmu").is_dir()


def is_live() -> bool:
    """Whether the module is loaded, and not in the middle of loading or unloading."""
    return machine.text(machine.sysfs() / "module/xsmmu/initstate") == "live"


def version() -> str | None:
    """Version of the loaded module."""
    return machine.text(machine.sysfs() / "module/xsmmu/version")


def folder(device: Device) -> Path:
    """The module's folder of a device; the error says why there is no folder."""
    found = device.module_folder
    if found:
        return found
    if not device.folder.exists():
        raise gone(device)
    if not is_loaded():
        raise UserError("the module xsmmu is not loaded: run modprobe xsmmu", code="no-module")
    if not device.group:
        raise UserError(f"{device.label} is not behind an IOMMU: see xsmmu doctor {device.address}", code="no-iommu")
    raise UserError(f"the module offers no policy for {device.label}: see dmesg | grep xsmmu", code="not-offered")


def gone(device: Device) -> UserError:
    """Error for a device that has disappeared."""
    return UserError(f"{device.address} has disappeared: xsmmu status lists the devices", code="device-gone")


def unless_gone(look: Callable[[S], T], at: S) -> T | None:
    """Result of `look` for a device or group that the user has not named; None if `at` or its files disappear."""
    try:
        return look(at)
    except FileNotFoundError:
        return None
    except UserError as error:
        if error.code not in ("device-gone", "not-offered", "no-module"):
            raise
        return None


def of_group(look: Callable[[Device], T], devices: Iterable[Device]) -> T | None:
    """Result of `look` for the group's first device that does not disappear; None if all disappear."""
    seen = (unless_gone(look, each) for each in devices)
    return next((each for each in seen if each is not None), None)


def chosen(menu: str) -> str:
    """Word in brackets of `[none] strict lazy ...`."""
    found = re.search(r"\[([^\]]+)\]", menu)
    return found[1] if found else menu.strip()


def offered(device: Device) -> list[str]:
    """Words that the policy file accepts: `none` first, `auto` if supported, and policies."""
    return re.findall(r"[\w-]+", _read(device, "policy"))


def policies(device: Device) -> list[str]:
    """Policies that the module offers."""
    return [name for name in offered(device) if name not in ("none", AUTO)]


def auto(device: Device) -> Auto | None:
    """Choice of auto; None for an older module, or without permission."""
    if not os.access(folder(device) / "auto_policy", os.R_OK):
        return None
    words, _, reason = _read(device, "auto_policy").partition(": ")
    policy, _, level = words.partition(" ")
    return Auto(policy, level, reason)


def declined(device: Device) -> str | None:
    """Reason why the module declines the group; None for an accepted group, or for an older module."""
    return _read(device, "declined") or None if (folder(device) / "declined").exists() else None


def no_direct(device: Device) -> str | None:
    """Reason why direct tables are chosen and off in the attached group; None without a reason, or an older module."""
    return _read(device, "no_direct") or None if (folder(device) / "no_direct").exists() else None


def batch_aware(device: Device) -> bool | None:
    """Whether all drivers of the attached group are batch-aware; None for an older module."""
    return _read(device, "batch_aware") == "1" if (folder(device) / "batch_aware").exists() else None


def blocked(device: Device) -> bool | None:
    """Whether all maps of the device fail, because its group is attached without it; None for an older module."""
    return _read(device, "blocked") == "1" if (folder(device) / "blocked").exists() else None


def used(device: Device) -> dict[str, int] | None:
    """Use of the group's choices since its attach; None without an attach, an older module, or without permission."""
    if not os.access(folder(device) / "used", os.R_OK):
        return None
    rows = [line.partition(" ") for line in _read(device, "used").splitlines()]
    return {name: _whole(device, "used", count) for name, _, count in rows} or None


def menu() -> list[str] | None:
    """Words that the policy file of any device accepts; None if there is no such file."""
    device = next((each for each in machine.devices() if each.module_folder), None)
    return offered(device) if device else None


def defaults(device: Device) -> dict[str, dict[str, int]]:
    """Default tunables by policy; empty for an older module."""
    if not (folder(device) / "defaults").exists():
        return {}
    rows = [line.split(",") for line in _read(device, "defaults").splitlines()]
    pairs = {row[0]: [word.partition(":") for word in row[1:]] for row in rows}
    return {
        policy: {name: _whole(device, "defaults", value) for name, _, value in words} for policy, words in pairs.items()
    }


def can_copy(device: Device) -> bool:
    """Whether copying can be enabled while the group's drivers are bound."""
    return (folder(device) / "can_copy").exists() and _read(device, "can_copy") == "1"


def choice(device: Device) -> Choice:
    """Present policy and state of a device."""
    place = folder(device)
    asked = chosen(_read(device, "policy"))
    by_auto = auto(device) if asked == AUTO else None
    return Choice(
        by_auto.policy if by_auto else asked,
        _read(device, "level"),
        _read(device, "state"),
        chosen(_read(device, "tables")) if (place / "tables").exists() else "kernel",
        {name: number(device, name) for name in TUNABLES if (place / name).exists()},
        by_auto,
    )


def read(device: Device) -> Sample:
    """A reading of all files of a device."""
    now = choice(device)
    try:
        files = sorted((folder(device) / "stats").iterdir())
    except FileNotFoundError:
        raise gone(device) from None
    stats = {path.name: number(device, f"stats/{path.name}") for path in files}
    folders = _folders(device)
    names = tuple(sorted({*folders, device.address}))
    return Sample(
        *(time.monotonic_ns(), names, now.policy, now.level, now.state, stats, now.tables, now.tunables),
        folders=frozenset(folders.values()),
        kernel=_kernel_path(device),
    )


def _folders(device: Device) -> dict[str, int]:
    """Inodes of the module's folders of a device's group, by address."""
    found, group = {}, device.group
    for each in group.members if group else [device]:
        with contextlib.suppress(FileNotFoundError):
            found[each.address] = (each.folder / "xsmmu").stat().st_ino
    return found


def from_record(record: Mapping[str, object], names: tuple[str, ...]) -> Sample:
    """A reading sent by a guest of the lab."""
    stats = record["stats"]
    assert isinstance(stats, dict)
    return Sample(
        int(str(record["now_ns"])),
        names,
        chosen(str(record["policy"])),
        str(record["level"]),
        str(record["state"]),
        stats,
    )


def exposure_ns(device: Device) -> list[tuple[int, int]]:
    """Histogram of exposure: largest ns of a bucket, and number of pages."""
    rows = [line.split() for line in _read(device, "exposure_ns").splitlines()]
    return [
        (int(row[0]), _whole(device, "exposure_ns", row[1])) for row in rows if len(row) == 2 and row[0].isdecimal()
    ]


def counts_are_readable(device: Device) -> bool:
    """Whether this user may read statistics; only root may, because statistics reveal other users' traffic."""
    return os.access(folder(device) / "stats/unmapped_pages", os.R_OK)


def exposure_max_ns(device: Device) -> int | None:
    """Longest exposure of an unmapped page."""
    kind, _, longest = _read(device, "exposure_ns").rpartition("\n")[2].partition(" ")
    return _whole(device, "exposure_ns", longest) if kind == "max" else None


def groups(wanted: tuple[Device, ...] = ()) -> dict[Device, Sample]:
    """Reading by device, a device for each group: of the given devices, or of all groups with a policy."""
    found: dict[tuple[str, ...], tuple[Device, Sample]] = {}
    for device in wanted or tuple(each for each in machine.devices() if each.module_folder):
        sample = read(device) if wanted else unless_gone(read, device)
        if sample and (wanted or sample.policy != "none"):
            found.setdefault(sample.devices, (device, sample))
    if not found:
        if not is_loaded():
            raise UserError("the module xsmmu is not loaded: run modprobe xsmmu", code="no-module")
        raise UserError("no device has a policy: choose a policy with xsmmu set", code="no-policy")
    return dict(found.values())


def number(device: Device, name: str) -> int:
    """Number in a file of the module."""
    return _whole(device, name, _read(device, name))


def _whole(device: Device, name: str, word: str) -> int:
    if re.fullmatch(r"-?[0-9]{1,20}", word):
        return int(word)
    raise UserError(
        f"{device.address}: the module's file {name} has '{machine.shown(word[:40])}' instead of a number: reload "
        "the module (modprobe -r xsmmu && modprobe xsmmu), and report the output of dmesg | grep xsmmu"
    )


def _read(device: Device, name: str) -> str:
    try:
        return (folder(device) / name).read_text().strip()
    except FileNotFoundError:
        raise gone(device) from None
    except PermissionError:
        raise UserError(f"{device.address}: only root may read {name}: try sudo", code="no-permission") from None
    except OSError as error:
        if error.errno in (errno.ENODEV, errno.ENXIO):
            raise gone(device) from None
        raise UserError(f"{device.address}: cannot read {name}: {error.strerror}: see the kernel log (dmesg)") from None


def write(device: Device, name: str, value: str) -> None:
    """Write a file of the module; on refusal the module logs the reason."""
    if name == "policy" and value not in offered(device):
        raise unknown_name("policy", value, offered(device))
    try:
        machine.put(folder(device) / name, value)
    except FileNotFoundError:
        raise gone(device) from None
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM) and not _may_write(device, name):
            raise UserError(f"{device.address}: only root may write {name}: try sudo", code="no-permission") from None
        if error.errno in (errno.ENODEV, errno.ENXIO):
            raise gone(device) from None
        raise UserError(
            f"{device.address}: the module refused {name} {value} ({error.strerror}): see the kernel log (dmesg)",
            code="busy" if error.errno == errno.EBUSY else "refused",
        ) from None


def _may_write(device: Device, name: str) -> bool:
    return os.access(folder(device) / name, os.W_OK)
