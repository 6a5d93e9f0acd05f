# SPDX-License-Identifier: GPL-2.0-only
"""Bound drivers of a device's IOMMU group, and the steps that unbind and bind drivers."""

from __future__ import annotations

import os
from pathlib import Path

from xsmmu import machine, module, steps
from xsmmu.errors import UserError
from xsmmu.machine import Device, Group
from xsmmu.steps import Step


def bound(device: Device) -> list[tuple[Device, str]]:
    """Devices of the group with drivers to unbind before attach and detach, in order.

    A device in a PCI domain that a driver of the group creates (Intel VMD) is left out: unbinding that driver removes
    the device.
    """
    found = _working(device)
    return [(each, driver) for each, driver in found if not _known(_outer(each), found)]


def chosen_by(device: Device) -> Device:
    """Device that stays present while the group's drivers are unbound; the policy is chosen through this device."""
    makers = _known(above(device), _working(device))
    return chosen_by(makers[0]) if makers else device


def above(device: Device) -> list[Device]:
    """Devices that may have created `device` by their drivers: upstream devices, or the physical function."""
    physical = device.folder / "physfn"
    return [*_outer(device), *map(Device, machine.within(physical)[-1:] if physical.exists() else [])]


def _outer(device: Device) -> list[Device]:
    return [found for found in map(Device, machine.within(device.folder)[:-1]) if not found.may_stay_bound]


def _working(device: Device) -> list[tuple[Device, str]]:
    members = device.group.members if device.group else [device]
    return [(each, each.driver) for each in members if each.driver and not each.may_stay_bound]


def _known(devices: list[Device], working: list[tuple[Device, str]]) -> list[Device]:
    """The subset of `devices` in `working`."""
    return [each for each in devices if each in dict(working)]


def unbind(device: Device, driver: str) -> Step:
    """Step that unbinds a driver from a device."""
    return Step(
        steps.echo(device.address, _file(driver, "unbind")),
        lambda: _unbind(device, driver),
        lambda: _bind(device, driver),
    )


def bind(device: Device, driver: str) -> Step:
    """Step that binds a driver to a device; a virtual function may have gone with its physical function's driver."""
    echo = steps.echo(device.address, _file(driver, "bind"))
    if not (device.folder / "physfn").exists():
        return Step(echo, lambda: _bind(device, driver), lambda: _unbind(device, driver))
    return Step(
        f"[ ! -e {device.folder} ] || {echo}",
        lambda: _bind(device, driver) if device.folder.exists() else None,
        lambda: _unbind(device, driver),
    )


def claim(device: Device, driver: str) -> Step:
    """Step that reserves a device for a driver by driver_override."""
    file = device.folder / "driver_override"
    before = machine.text(file)
    # A killed command may have left its own driver name; an empty line clears driver_override.
    back = "\n" if before in (None, "(null)", driver) else before

    def put(value: str) -> None:
        _must_be_there(device)
        _put(file, value, f"{device.label} cannot be reserved for a driver")

    return Step(steps.echo(driver, file), lambda: put(driver), lambda: put(back))


def set_type(group: Group, kind: str) -> Step:
    """Step that changes a group's type, so the kernel's own path."""
    file, before = group.folder / "type", group.type

    def put(value: str) -> None:
        if group.type != value:
            _put(file, value, f"the type of group {group.number} cannot be changed to {value}")

    return Step(steps.echo(kind, file), lambda: put(kind), lambda: put(before))


def _unbind(device: Device, driver: str) -> None:
    if device.driver == driver:
        _put(_file(driver, "unbind"), device.address, f"{driver} cannot be unbound from {device.label}")
    _must_be_there(device)
    if device.driver == driver:
        raise UserError(
            f"{device.label} is still bound to {driver} after the unbind: see the kernel log (dmesg)",
            code="unbind-failed",
        )


def _bind(device: Device, driver: str) -> None:
    if device.driver == driver:
        return
    _must_be_there(device)
    _put(_file(driver, "bind"), device.address, f"{driver} cannot be bound to {device.address}")
    if device.driver != driver:
        raise UserError(
            f"{driver} did not bind to {device.address}: see the kernel log (dmesg)",
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
                f"{what}: the kernel refused ({error.strerror}): see the kernel log (dmesg)",
                code=f"{file.name}-failed",
            ) from None
        raise UserError(f"{what}: only root may write {file}: try sudo", code="no-permission") from None
    except OSError as error:
        raise UserError(
            f"{what}: {error.strerror} ({file}): see the kernel log (dmesg)", code=f"{file.name}-failed"
        ) from None
