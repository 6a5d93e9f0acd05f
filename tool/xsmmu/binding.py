# SPDX-License-Identifier: GPL-2.0-only
"""Which drivers are bound in a device's IOMMU group, and the steps that unbind and bind them."""

from __future__ import annotations

import os
from pathlib import Path

from xsmmu import machine, module, steps
from xsmmu.errors import UserError
from xsmmu.machine import Device, Group
from xsmmu.steps import Step


def bound(device: Device) -> list[tuple[Device, str]]:
    """The devices of its group with the drivers that must go before the group changes hands, in order.

    A device of a PCI domain that one of these drivers makes (Intel VMD) is not among them: it goes and comes with that.
    """
    found = _working(device)
    return [(each, driver) for each, driver in found if not _known(_outer(each), found)]


def chosen_by(device: Device) -> Device:
    """The device that its group is chosen by: one that stays when the group's drivers are unbound."""
    makers = _known(above(device), _working(device))
    return chosen_by(makers[0]) if makers else device


def above(device: Device) -> list[Device]:
    """The devices whose drivers make this one, or may: around it, or the physical function of a virtual one."""
    physical = device.folder / "physfn"
    return [*_outer(device), *map(Device, machine.within(physical)[-1:] if physical.exists() else [])]


def _outer(device: Device) -> list[Device]:
    return [found for found in map(Device, machine.within(device.folder)[:-1]) if not found.may_stay_bound]


def _working(device: Device) -> list[tuple[Device, str]]:
    members = device.group.members if device.group else [device]
    return [(each, each.driver) for each in members if each.driver and not each.may_stay_bound]


def _known(devices: list[Device], working: list[tuple[Device, str]]) -> list[Device]:
    """Those of them that have such a driver."""
    return [each for each in devices if each in dict(working)]


def unbind(device: Device, driver: str) -> Step:
    """Take a device from its driver."""
    return Step(
        steps.echo(device.address, _file(driver, "unbind")),
        lambda: _unbind(device, driver),
        lambda: _bind(device, driver),
    )


def bind(device: Device, driver: str) -> Step:
    """Give a device to its driver again; a virtual function may have gone with the driver of its physical one."""
    echo = steps.echo(device.address, _file(driver, "bind"))
    if not (device.folder / "physfn").exists():
        return Step(echo, lambda: _bind(device, driver), lambda: _unbind(device, driver))
    return Step(
        f"[ ! -e {device.folder} ] || {echo}",
        lambda: _bind(device, driver) if device.folder.exists() else None,
        lambda: _unbind(device, driver),
    )


def claim(device: Device, driver: str) -> Step:
    """Have only this driver take a device, whatever that is for."""
    file = device.folder / "driver_override"
    before = machine.text(file)
    # A killed command may have left its own word; a line that is empty takes it away.
    back = "\n" if before in (None, "(null)", driver) else before

    def put(value: str) -> None:
        _must_be_there(device)
        _put(file, value, f"{device.label} cannot be kept for a driver")

    return Step(steps.echo(driver, file), lambda: put(driver), lambda: put(back))


def set_type(group: Group, kind: str) -> Step:
    """Change what the kernel's own path of a group is."""
    file, before = group.folder / "type", group.type

    def put(value: str) -> None:
        if group.type != value:
            _put(file, value, f"group {group.number} cannot be made {value}")

    return Step(steps.echo(kind, file), lambda: put(kind), lambda: put(before))


def _unbind(device: Device, driver: str) -> None:
    if device.driver == driver:
        _put(_file(driver, "unbind"), device.address, f"{driver} cannot be unbound from {device.label}")
    _must_be_there(device)
    if device.driver == driver:
        raise UserError(
            f"{device.label} is still bound to {driver} after it was unbound: the kernel log may say why (dmesg)",
            code="unbind-failed",
        )


def _bind(device: Device, driver: str) -> None:
    if device.driver == driver:
        return
    _must_be_there(device)
    _put(_file(driver, "bind"), device.address, f"{driver} cannot be bound to {device.address}")
    if device.driver != driver:
        raise UserError(
            f"{driver} did not take {device.address} when it was bound: the kernel log says why (dmesg)",
            code="bind-failed",
        )


def _must_be_there(device: Device) -> None:
    if not device.folder.exists():
        raise module.gone(device)


def _file(driver: str, name: str) -> Path:
    return machine.sysfs() / "bus/pci/drivers" / driver / name


def _put(file: Path, value: str, what: str) -> None:
    try:
        machine.put(file, value)
    except PermissionError as error:
        if os.access(file, os.W_OK):
            raise UserError(
                f"{what}: the kernel refused it ({error.strerror}): the kernel log may say why (dmesg)",
                code=f"{file.name}-failed",
            ) from None
        raise UserError(f"{what}: only root may write {file}: try sudo", code="no-permission") from None
    except OSError as error:
        raise UserError(
            f"{what}: {error.strerror} ({file}); the kernel log may say more (dmesg)", code=f"{file.name}-failed"
        ) from None
