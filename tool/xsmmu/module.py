# SPDX-License-Identifier: GPL-2.0-only
"""The module's files of a device: what is chosen and in force, and its statistics; and how to write one of them."""

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
"""Each with the least and the largest value that the module takes."""
TABLES: Final = ("kernel", "direct")
KINDS: Final = ("page", "domain", "global")
TAKEN: Final = ("attached", "active", "torn", "orphaned", "stuck")
"""The states in which the group's DMA goes by the module."""


AUTO: Final = "auto"
"""The module chooses the policy; it may be asked for as one, and is none."""


@dataclass(frozen=True)
class Auto:
    """What `auto` has chosen for a group, or would choose, by the module's own word."""

    policy: str
    level: str
    reason: str


@dataclass(frozen=True)
class Choice:
    """What is chosen for a group, and what has come of it; anybody may read it."""

    policy: str
    """The policy itself, by whomever it was chosen."""
    level: str
    state: str
    tables: str
    tunables: Mapping[str, int]
    auto: Auto | None = None
    """If the policy was chosen by that."""

    @property
    def bound_ns(self) -> int | None:
        """How long an unmapped page may stay reachable: see bound_ns()."""
        return bound_ns(self.state, self.level, self.tunables)

    @property
    def asked(self) -> str:
        """What was written to have it."""
        return AUTO if self.auto else self.policy


@dataclass(frozen=True)
class Sample:
    """One reading of one IOMMU group; all devices of a group share policy and statistics."""

    time_ns: int
    """By the monotonic clock."""
    devices: tuple[str, ...]
    policy: str
    level: str
    state: str
    stats: Mapping[str, int]
    tables: str = "kernel"
    tunables: Mapping[str, int] | None = None
    folders: frozenset[int] = frozenset()
    """The inodes of the module's folders of the group's devices."""
    kernel: tuple[str, str] = ("none", "none")
    """The kernel's own path of the group, and its level."""

    @property
    def bound_ns(self) -> int | None:
        """How long an unmapped page may stay reachable: see bound_ns()."""
        return bound_ns(self.state, self.level, self.tunables or {})

    @property
    def path(self) -> tuple[str, str]:
        """The path of the group's DMA now, and its level: the kernel's own one until the group is attached."""
        return (self.policy, self.level) if self.state in TAKEN else self.kernel


def path(device: Device, now: Choice) -> tuple[str, str]:
    """The path that a device's DMA takes now, and its level: the kernel's own one until the group is attached."""
    return (now.policy, now.level) if now.state in TAKEN else _kernel_path(device)


def _kernel_path(device: Device) -> tuple[str, str]:
    group = device.group
    return group.kernel_path if group else ("none", "none")


def bound_ns(state: str, level: str, tunables: Mapping[str, int]) -> int | None:
    """How long an unmapped page may stay reachable, by what is in force.

    None where no timer ends that: at level strict the unmap does, or a batch-aware driver's own flush; at level none
    nothing does; and the kernel's own path is not the module's.
    """
    window_us = tunables.get("max_window_us")
    if state not in TAKEN or level in ("none", "strict") or window_us is None:
        return None
    return window_us * 1000


def began_anew(first: Sample, last: Sample) -> bool:
    """Whether the statistics began at zero since: the module was loaded anew, or all devices of the group came anew."""
    # The inodes are read last: what was counted before may stand beside those of after.
    fewer = any(last.stats.get(name, 0) < first.stats.get(name, 0) for name in ("maps", "copied_maps"))
    return fewer or not first.folders & last.folders


def is_loaded() -> bool:
    """Whether the module is there."""
    return (machine.sysfs() / "module/xsmmu").is_dir()


def is_live() -> bool:
    """Whether it is there, and neither comes nor goes at this moment."""
    return machine.text(machine.sysfs() / "module/xsmmu/initstate") == "live"


def version() -> str | None:
    """The loaded module's version."""
    return machine.text(machine.sysfs() / "module/xsmmu/version")


def folder(device: Device) -> Path:
    """The module's folder of a device; says what is missing where there is none."""
    found = device.module_folder
    if found:
        return found
    if not device.folder.exists():
        raise gone(device)
    if not is_loaded():
        raise UserError("the module is not loaded: modprobe xsmmu", code="no-module")
    if not device.group:
        raise UserError(
            f"{device.label} is not behind an IOMMU: xsmmu doctor {device.address} says why", code="no-iommu"
        )
    raise UserError(
        f"the module offers no policy for {device.label}: dmesg | grep xsmmu may say why", code="not-offered"
    )


def gone(device: Device) -> UserError:
    """It was there a moment ago."""
    return UserError(f"{device.address} has gone: xsmmu status lists what there is", code="device-gone")


def unless_gone(look: Callable[[S], T], at: S) -> T | None:
    """What is seen of a device or group that nobody has named; None if it goes meanwhile (the module's files first)."""
    try:
        return look(at)
    except FileNotFoundError:
        return None
    except UserError as error:
        if error.code not in ("device-gone", "not-offered", "no-module"):
            raise
        return None


def of_group(look: Callable[[Device], T], devices: Iterable[Device]) -> T | None:
    """What is seen of a group, by the first of its devices that does not go meanwhile; None if all of them do."""
    seen = (unless_gone(look, each) for each in devices)
    return next((each for each in seen if each is not None), None)


def chosen(menu: str) -> str:
    """The word in brackets of `[none] strict lazy ...`."""
    found = re.search(r"\[([^\]]+)\]", menu)
    return found[1] if found else menu.strip()


def offered(device: Device) -> list[str]:
    """What may be asked of the module: `none` first, `auto` if it has that, and its policies."""
    return re.findall(r"[\w-]+", _read(device, "policy"))


def policies(device: Device) -> list[str]:
    """The policies themselves that the module offers."""
    return [name for name in offered(device) if name not in ("none", AUTO)]


def auto(device: Device) -> Auto | None:
    """What auto has chosen, or would choose; None of a module that does not know it, and for who may not read it."""
    if not os.access(folder(device) / "auto_policy", os.R_OK):
        return None
    words, _, reason = _read(device, "auto_policy").partition(": ")
    policy, _, level = words.partition(" ")
    return Auto(policy, level, reason)


def declined(device: Device) -> str | None:
    """Why the module takes no policy for the group, and which device is the reason; None where it takes one.

    An older module does not say it.
    """
    return _read(device, "declined") or None if (folder(device) / "declined").exists() else None


def menu() -> list[str] | None:
    """What may be asked of the loaded module for any device; None where nothing can be known of it."""
    device = next((each for each in machine.devices() if each.module_folder), None)
    return offered(device) if device else None


def defaults(device: Device) -> dict[str, dict[str, int]]:
    """The tunables of each policy as choosing it sets them; nothing of an older module, which does not say it."""
    if not (folder(device) / "defaults").exists():
        return {}
    rows = [line.split(",") for line in _read(device, "defaults").splitlines()]
    pairs = {row[0]: [word.partition(":") for word in row[1:]] for row in rows}
    return {
        policy: {name: _whole(device, "defaults", value) for name, _, value in words} for policy, words in pairs.items()
    }


def can_copy(device: Device) -> bool:
    """Whether copying can begin while the group's drivers are bound."""
    return (folder(device) / "can_copy").exists() and _read(device, "can_copy") == "1"


def choice(device: Device) -> Choice:
    """What is chosen for a device now."""
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
    """All that the module says of a device now."""
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
    """The inodes of the module's folders of a device's group, by address."""
    found, group = {}, device.group
    for each in group.members if group else [device]:
        with contextlib.suppress(FileNotFoundError):
            found[each.address] = (each.folder / "xsmmu").stat().st_ino
    return found


def from_record(record: Mapping[str, object], names: tuple[str, ...]) -> Sample:
    """A reading that a guest of the lab sent."""
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
    """The histogram of how long unmapped pages stayed reachable: the largest ns of a bucket, and its pages."""
    rows = [line.split() for line in _read(device, "exposure_ns").splitlines()]
    return [
        (int(row[0]), _whole(device, "exposure_ns", row[1])) for row in rows if len(row) == 2 and row[0].isdecimal()
    ]


def counts_are_readable(device: Device) -> bool:
    """Whether statistics may be read: they tell one user of another one's traffic, so they are root's."""
    return os.access(folder(device) / "stats/unmapped_pages", os.R_OK)


def exposure_max_ns(device: Device) -> int | None:
    """The longest that a page stayed reachable after its unmap."""
    kind, _, longest = _read(device, "exposure_ns").rpartition("\n")[2].partition(" ")
    return _whole(device, "exposure_ns", longest) if kind == "max" else None


def groups(wanted: tuple[Device, ...] = ()) -> dict[Device, Sample]:
    """One device of each group, and its reading: of the wanted ones, or of all that have a policy."""
    found: dict[tuple[str, ...], tuple[Device, Sample]] = {}
    for device in wanted or tuple(each for each in machine.devices() if each.module_folder):
        sample = read(device) if wanted else unless_gone(read, device)
        if sample and (wanted or sample.policy != "none"):
            found.setdefault(sample.devices, (device, sample))
    if not found:
        if not is_loaded():
            raise UserError("the module is not loaded: modprobe xsmmu", code="no-module")
        raise UserError("no device has a policy: choose one with xsmmu set", code="no-policy")
    return dict(found.values())


def number(device: Device, name: str) -> int:
    """What one of the module's files of a number says."""
    return _whole(device, name, _read(device, name))


def _whole(device: Device, name: str, word: str) -> int:
    if re.fullmatch(r"-?[0-9]{1,20}", word):
        return int(word)
    raise UserError(
        f"{device.address}: the module's file {name} has '{machine.shown(word[:40])}' where a number belongs: load the "
        "module anew (modprobe -r xsmmu && modprobe xsmmu), and report it with dmesg | grep xsmmu"
    )


def _read(device: Device, name: str) -> str:
    try:
        return (folder(device) / name).read_text().strip()
    except FileNotFoundError:
        raise gone(device) from None
    except PermissionError:
        raise UserError(f"{device.address}: {name} may be read by root only: try sudo", code="no-permission") from None
    except OSError as error:
        if error.errno in (errno.ENODEV, errno.ENXIO):
            raise gone(device) from None
        raise UserError(
            f"{device.address}: cannot read {name}: {error.strerror}: the kernel log may say why (dmesg)"
        ) from None


def write(device: Device, name: str, value: str) -> None:
    """Write one of the module's files; the module's own reason for a refusal is in the kernel log."""
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
            f"{device.address}: the module refused {name} {value} ({error.strerror}); the kernel log says why (dmesg)",
            code="busy" if error.errno == errno.EBUSY else "refused",
        ) from None


def _may_write(device: Device, name: str) -> bool:
    return os.access(folder(device) / name, os.W_OK)
