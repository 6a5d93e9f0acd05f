# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu doctor`: finds obstacles and risks of using the module on this machine, with remedies.

Nothing is changed. A fact that cannot be read is reported as unknown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import Final, TypeVar

import click

from xsmmu import checks_group, checks_machine, complete, machine, module, output, sample
from xsmmu.finding import LEVELS, Finding
from xsmmu.machine import Device, Group, is_address

P = TypeVar("P", Group, Device)


def examine(wanted: Sequence[Device]) -> list[Finding]:
    """Findings about the machine, and about the given devices and their groups (about all without any given)."""
    found = [finding for check in checks_machine.CHECKS for finding in check()]
    devices = wanted or [each for each in machine.devices() if each.group and not each.is_bridge]
    groups = {group.number: group for each in devices if (group := each.group)}
    for group in (groups[number] for number in sorted(groups)):
        found += _seen(checks_group.CHECKS, group, bool(wanted))
    members = {each.address: each for group in groups.values() for each in checks_group.working(group)}
    members |= {each.address: each for each in wanted}
    for address in sorted(members):
        found += _seen(checks_group.DEVICE_CHECKS, members[address], members[address] in wanted)
    for each in wanted:
        if not each.folder.exists():
            raise module.gone(each)
    return found


def _seen(checks: Sequence[Callable[[P], Iterator[Finding]]], at: P, named: bool) -> list[Finding]:
    """Findings about a group or a device; empty if the group or device disappears during the checks."""

    def look(at: P) -> list[Finding]:
        return [finding for check in checks for finding in check(at)]

    found = module.unless_gone(look, at)
    if found is None and at.folder.exists():
        # The group lost a device, or the module was unloaded; repeat the checks.
        found = look(at) if named else module.unless_gone(look, at)
    # A device that disappears seems to lack features.
    return found if found and at.folder.exists() else []


# ---- the command ----

_INDENT: Final = 7
_STYLES: Final = {"ok": "green", "note": "cyan", "risk": "yellow", "blocks": "bold red"}


def _named(subject: str) -> str:
    """The subject, with the name of its first device."""
    kind, _, number = subject.partition(" ")
    devices = checks_group.working(Group(int(number))) if kind == "group" else []
    if is_address(subject):
        devices = [Device(subject)]
    if not devices:
        return subject
    first = " ".join(devices[0].names) or devices[0].address
    return subject if first == subject else f"{subject} ({first}{f' +{len(devices) - 1}' if devices[1:] else ''})"


def _print(findings: Sequence[Finding]) -> None:
    from rich.text import Text

    console = output.console()
    # Wrapped on a terminal, unwrapped in pipes for grep; options are not broken at hyphens.
    room = max(console.width - _INDENT, 20) if sys.stdout.isatty() else sys.maxsize

    def put(words: str) -> None:
        for line in wrap(words, room, break_long_words=False, break_on_hyphens=False):
            console.print(Text(" " * _INDENT + line), soft_wrap=True)

    for each in sorted(findings, key=lambda finding: -LEVELS.index(finding.level)):
        head = Text(f"{each.level:<{_INDENT}}", style=_STYLES[each.level]).append(_named(each.subject), style="bold")
        console.print(head.append(f"  {each.check}", style="dim"), soft_wrap=not sys.stdout.isatty())
        put(each.reason)
        if each.remedy:
            put(f"-> {each.remedy}")
    count = {level: sum(each.level == level for each in findings) for level in LEVELS}
    words = [f"{count['blocks']} block" if count["blocks"] else "nothing blocks", f"{count['risk']} risky"]
    click.echo(f"\n{', '.join(words[: 2 if count['risk'] else 1])}.")


@click.command()
@click.argument("device", nargs=-1, shell_complete=complete.devices)
@click.option(
    "--sample",
    "seconds",
    type=output.Seconds(0.1, 3600),
    metavar="SECONDS",
    help="Count maps and unmaps on the kernel's own path, and estimate the cost of each policy.",
)
@output.option
@click.pass_context
def doctor(context: click.Context, device: tuple[str, ...], seconds: float | None, form: str) -> None:
    """List obstacles and risks of using the module on this machine, each with a remedy.

    All devices behind an IOMMU are checked, or each DEVICE and its IOMMU group. Nothing is changed. The exit status is
    1 if a finding blocks the module, else 0.

    \b
    Examples:
      xsmmu doctor
      xsmmu doctor eth1 nvme0n1
      xsmmu doctor eth1 --sample 10
      xsmmu doctor -o json | jq '.findings[] | select(.level=="blocks").remedy'
    """
    wanted = [machine.find(name) for name in device]
    findings = examine(wanted)
    if form == "table":
        _print(findings)
        if seconds:
            sample.show(sample.take(wanted, seconds))
    else:
        taken = sample.take(wanted, seconds).as_dict() if seconds else None
        more = {"sample": taken} if taken and form == "json" else {}
        output.emit(form, "doctor", "findings", (asdict(each) for each in findings), **more)
        if taken and form == "jsonl":
            output.emit(form, "doctor-sample", "sample", [taken])
    if any(each.level == "blocks" for each in findings):
        context.exit(1)
