# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu set` and `xsmmu unset`: choose a device's policy, and give it back to the kernel's own path."""

from __future__ import annotations

import click

from xsmmu.errors import UserError, unknown_name
from xsmmu.operator import machine, module
from xsmmu.operator.machine import Device


def refuse_bound(device: Device) -> None:
    """Taking over and giving back need a group without drivers."""
    group = device.group
    for member in group.members if group else [device]:
        if member.driver and not member.is_bridge:
            raise UserError(
                f"{member.label} is bound to {member.driver}, and a device is taken over or given back only without a "
                f"driver: echo {member.address} > /sys/bus/pci/drivers/{member.driver}/unbind, then try again",
                code="driver-bound",
            )


def tunables(words: tuple[str, ...]) -> dict[str, int]:
    """TUNABLE=VALUE words."""
    found = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in module.TUNABLES:
            raise unknown_name("tunable", name, module.TUNABLES)
        if not value.isdigit():
            raise UserError(f"'{word}': {name} needs a whole number, as {name}=1000", code="bad-value")
        found[name] = int(value)
    return found


def choose(device: Device, policy: str, values: dict[str, int]) -> module.Sample:
    """Choose a policy and what goes with it; what the device then says."""
    offered = module.offered(device)
    if policy not in offered:
        raise unknown_name("policy", policy, offered)
    now = module.read(device).policy
    if policy != now and "none" in (policy, now):
        refuse_bound(device)
    module.write(device, "policy", policy)
    for name, value in values.items():
        module.write(device, name, str(value))
    return module.read(device)


@click.command("set")
@click.argument("device")
@click.argument("policy")
@click.argument("tunable", nargs=-1)
def set_policy(device: str, policy: str, tunable: tuple[str, ...]) -> None:
    """Choose the policy of DEVICE; all devices of its IOMMU group move together.

    TUNABLE is NAME=VALUE, of max_window_us, batch_pages, range_commands_max, copy_bytes and pool_mib.

    \b
    Examples:
      xsmmu set eth1 fused
      xsmmu set 0000:05:00.0 strict
      xsmmu set eth1 fused copy_bytes=256 max_window_us=500
    """
    found = machine.find(device)
    sample = choose(found, policy, tunables(tunable))
    click.echo(f"{found.label}: {sample.policy}, level {sample.level}, state {sample.state}")


@click.command()
@click.argument("device")
def unset(device: str) -> None:
    """Give DEVICE, with its IOMMU group, back to the kernel's own path.

    \b
    Examples:
      xsmmu unset eth1
    """
    found = machine.find(device)
    sample = choose(found, "none", {})
    click.echo(f"{found.label}: the kernel's own path, {sample.state}")
