# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu set` and `xsmmu unset`: choose a device's policy, and give it back to the kernel's own path."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

import click

from xsmmu.errors import UserError, unknown_name
from xsmmu.operator import apply, binding, complete, essential, files, guide, machine, module, output, rules, steps
from xsmmu.operator.machine import Device
from xsmmu.operator.module import Choice
from xsmmu.operator.steps import Step

LINGER_S: Final = 5.0
"""How long to wait for what a driver that has just gone leaves in use."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Wish:
    """What is asked for; policy `none` is the kernel's own path, `auto` the module's choice.

    `tables` None leaves them as they are.
    """

    policy: str
    tunables: Mapping[str, int] = field(default_factory=dict)
    tables: str | None = None
    rebind: bool = False
    persist: bool = False
    force: bool = False
    type: str | None = None
    """The group's type: what the kernel's own path is. None leaves it, but for one that a policy cannot have."""


@dataclass(frozen=True)
class Plan:
    """What is to be done for it, and what should be known of that."""

    steps: list[Step]
    notes: list[str]


def plan(device: Device, wish: Wish) -> Plan:
    """The steps; refuses what cannot be done as asked, before anything is changed."""
    offered = module.offered(device)
    if wish.policy not in offered:
        raise unknown_name("policy", wish.policy, [name for name in offered if name != "none"])
    if wish.policy == module.AUTO and wish.tunables:
        raise UserError("auto has no tunables: its policy comes with the defaults; or name the policy", code="usage")
    before = module.choice(device)
    group = device.group
    drivers = binding.bound(device)
    translates = wish.policy == "none" or not group or group.type != "identity"
    kind = wish.type or (None if translates else "DMA-FQ")
    changes_type = bool(group and kind and kind != group.type)
    if drivers and not wish.rebind and (changes_type or _changes_hands(before, wish.policy)):
        raise _bound(device)
    if drivers and wish.rebind and not wish.force:
        refuse_essential(device)
    notes = []
    middle = _choose(device, wish, before)
    if group and kind and changes_type:
        # The module has given the group back before the type of the kernel's own path changes.
        middle.insert(len(middle) if wish.policy == "none" else 0, binding.set_type(group, kind))
    if group and not translates:
        notes.append(f"group {group.number} was not translated (identity): its type becomes {kind}")
    if wish.rebind:
        # The last one first, so that putting back binds in order, too.
        middle[:0] = [binding.unbind(*each) for each in reversed(drivers)]
        middle += [binding.bind(*each) for each in drivers]
        if drivers and wish.policy != "none":
            middle.append(_taken_over(device))
    if wish.persist:
        kept = _persist(device, wish, before)
        middle += kept
        notes.append(f"{rules.conf()} has it for the next boot; {apply.REMAKE}" if kept else "kept for boot already")
        notes += [apply.late(driver) for _, driver in drivers if not apply.module_of(driver)]
    return Plan(middle, notes)


def _changes_hands(before: Choice, policy: str) -> bool:
    """From the kernel's own path or to it; after a take-over that has failed, the next bind tries again."""
    return (policy == "none") != (before.policy == "none") or (policy != "none" and before.state == "failed")


def _bound(device: Device) -> UserError:
    names = ", ".join(f"{each.label} to {driver}" for each, driver in binding.bound(device))
    return UserError(
        f"bound in the IOMMU group of {device.address}: {names}; this can be chosen only while no driver is: add "
        "--rebind to unbind and bind them again",
        code="driver-bound",
    )


def refuse_essential(device: Device) -> None:
    """Refuse to rebind a group that is in use."""
    reasons = essential.reasons([each for each, _ in binding.bound(device)])
    if reasons:
        raise UserError(
            f"to rebind the group of {device.label} takes away what is in use: {'; '.join(reasons)}; --force does it "
            "all the same",
            code="essential",
        )


# ---- steps ----


def _choose(device: Device, wish: Wish, before: Choice) -> list[Step]:
    """The module's files: the policy first, which brings its defaults."""
    words = {"policy": wish.policy}
    if wish.tables:
        words["tables"] = wish.tables
    words |= {name: str(value) for name, value in wish.tunables.items()}
    place = module.folder(device)
    undo = {"policy": lambda: restore(device, before)}
    return [
        Step(steps.echo(value, place / name), _writer(device, name, value), undo.get(name, steps.nothing))
        for name, value in words.items()
    ]


def _writer(device: Device, name: str, value: str) -> Callable[[], None]:
    def write() -> None:
        end = time.monotonic() + LINGER_S
        while True:
            try:
                return module.write(device, name, value)
            except UserError as error:
                if error.code != "busy":
                    raise
                if module.choice(device).state != "lingering":
                    raise (_bound(device) if binding.bound(device) else error) from None
            if time.monotonic() > end:
                raise UserError(
                    f"{device.label}: what its driver had mapped is still in use after {LINGER_S:.0f} s: close what "
                    "uses it, then try again",
                    code="busy",
                )
            time.sleep(0.1)

    return write


def restore(device: Device, before: Choice, others: Sequence[Device] = ()) -> None:
    """Have what was chosen before; by another device of the group, if this one has gone."""
    members = [device, *(device.group.members if device.group else others)]
    present = next((each for each in members if each.module_folder), None)
    if not present:
        raise module.gone(device)
    now = module.choice(present)
    if now == before:
        return

    def restore_tables() -> None:
        if now.tables != before.tables:
            module.write(present, "tables", before.tables)

    # Tables can be chosen beside a policy only.
    if before.policy == "none":
        restore_tables()
    _writer(present, "policy", before.asked)()
    if before.policy == "none":
        return
    restore_tables()
    if before.auto:
        return
    now = module.choice(present)
    for name, value in before.tunables.items():
        if now.tunables.get(name) != value:
            module.write(present, name, str(value))


def _taken_over(device: Device) -> Step:
    def check() -> None:
        if module.choice(device).state == "failed":
            raise UserError(
                f"{device.address}: the module could not take it over: the kernel log says why (dmesg)",
                code="take-over-failed",
            )

    return Step(f"grep -v failed {module.folder(device) / 'state'}", check)


def _persist(device: Device, wish: Wish, before: Choice) -> list[Step]:
    """The steps that have it chosen at boot."""
    file = rules.conf()
    text = files.text_of(file) or ""
    direct = (wish.tables or before.tables) == "direct"
    words = [wish.policy, *(f"{name}:{value}" for name, value in wish.tunables.items())]
    choice = ",".join([*words, "tables:direct"] if direct and wish.policy != "none" else words)
    rules.read(text, module.menu())
    wanted = rules.with_choice(text, device, None if wish.policy == "none" else choice)
    # The highest level of all of a group's devices counts: none of them may have a rule that says otherwise.
    for member in [device, *(device.group.members if device.group else [])]:
        if member != device:
            wanted = rules.with_choice(wanted, member, None)
        rule = rules.deciding(rules.read(wanted, module.menu()), member, member.driver)
        if rule and rule.choice != choice and rule.policy != "none":
            wanted = rules.with_choice(wanted, member, choice)
    changes = apply.plan(wanted, wish.force)
    if wanted != text:
        changes.insert(0, files.step(file, wanted))
    return changes


# ---- commands ----


def tunables(words: tuple[str, ...]) -> dict[str, int]:
    """TUNABLE=VALUE words."""
    found = {}
    for word in words:
        if word.startswith(("tables=", "tables:")):
            raise UserError(f"that is an option here: --tables {word[len('tables=') :]}", code="usage")
        name, _, value = word.partition("=")
        if ":" in name:
            raise UserError(f"a tunable is NAME=VALUE here: {word.replace(':', '=', 1)}", code="usage")
        found[name] = rules.check_tunable(name, value)
    return found


def carry_out(named: Device, wish: Wish, dry_run: bool, form: str, command: str) -> None:
    """Do it, or with `dry_run` only say it, and print what has come of it."""
    device = binding.chosen_by(named)
    label = device.label
    members = [each.address for each in (device.group.members if device.group else [device])]
    made = plan(device, wish)
    if device != named:
        made.notes.insert(0, f"{named.label} comes and goes with {device.driver} of {label}, which gets the policy")
    if not dry_run:
        steps.run(made.steps, output.progress)
    now = module.choice(device)
    if form != "table":
        row = {
            "device": device.address,
            "members": members,
            "dry_run": dry_run,
            "policy": wish.policy,
            "auto": asdict(now.auto) if now.auto and not dry_run else None,
            "level": None if dry_run else now.level,
            "state": None if dry_run else now.state,
            "steps": [step.shell for step in made.steps],
            "notes": made.notes,
        }
        output.emit(form, command, "changes", [row])
        return
    if dry_run:
        for line in [*(f"# {note}" for note in made.notes), *(step.shell for step in made.steps)]:
            click.echo(line)
        return
    for note in made.notes:
        click.echo(note, err=True)
    path = "the kernel's own path" if wish.policy == "none" else f"{now.policy}, level {now.level}"
    why = f"; auto: {now.auto.reason}" if now.auto else ""
    click.echo(f"{label}: {path}, state {now.state}{why}")


def options(command: F) -> F:
    """What set and unset have in common."""
    for add in (
        output.option,
        click.option("--force", is_flag=True, help="Take away a disk in use or the way here; replace modprobe's file."),
        click.option("--dry-run", is_flag=True, help="Print the steps as lines for a shell, and change nothing."),
        click.option("--persist", is_flag=True, help="Keep it for boot: a rule in /etc/xsmmu.conf, and xsmmu apply."),
        click.option("--rebind", is_flag=True, help="Unbind the drivers of the IOMMU group, and bind them again."),
    ):
        command = add(command)
    return command


@click.command("set", epilog=guide.text())
@click.argument("device", shell_complete=complete.devices)
@click.argument("policy", shell_complete=complete.policies)
@click.argument("tunable", nargs=-1)
@click.option("--tables", type=click.Choice(module.TABLES), help="Who writes the IOMMU's page table.")
@options
def set_policy(
    device: str,
    policy: str,
    tunable: tuple[str, ...],
    tables: str | None,
    rebind: bool,
    persist: bool,
    dry_run: bool,
    force: bool,
    form: str,
) -> None:
    """Choose the policy of DEVICE; all devices of its IOMMU group move together.

    POLICY may be auto: the module chooses, by what the group, its drivers and its IOMMU are, and says why.

    TUNABLE is NAME=VALUE, of max_window_us, batch_pages, range_commands_max, copy_bytes and pool_mib; those that are
    not named get the policy's defaults. From the kernel's own path, and to copying, DEVICE changes only while no
    driver is bound in the group: --rebind sees to that, and puts everything back if anything fails. From one policy to
    another no --rebind is needed.

    \b
    Examples:
      xsmmu set eth1 fused --rebind --persist
      xsmmu set eth1 fused --rebind --dry-run
      xsmmu set 0000:05:00.0 strict
      xsmmu set nvme0n1 auto --rebind
      xsmmu set eth1 fused copy_bytes=256 max_window_us=500 --rebind
    """
    found = machine.find(device)
    if policy == "none":
        raise UserError(f"none is no policy: xsmmu unset {device} gives it back to the kernel's own path", code="usage")
    carry_out(found, Wish(policy, tunables(tunable), tables, rebind, persist, force), dry_run, form, "set")


@click.command()
@click.argument("device", shell_complete=complete.devices)
@options
def unset(device: str, rebind: bool, persist: bool, dry_run: bool, force: bool, form: str) -> None:
    """Give DEVICE, with its IOMMU group, back to the kernel's own path.

    With --persist it has that at boot, too.

    \b
    Examples:
      xsmmu unset eth1 --rebind --persist
      xsmmu unset eth1 --rebind --dry-run
    """
    wish = Wish("none", rebind=rebind, persist=persist, force=force)
    carry_out(machine.find(device), wish, dry_run, form, "unset")
