# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu set` and `xsmmu unset`: choose a device's policy, or return the device to the kernel's own path."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

import click

from xsmmu import (
    apply,
    binding,
    complete,
    essential,
    files,
    guide,
    hooks,
    interfaces,
    machine,
    module,
    output,
    rules,
    steps,
)
from xsmmu.errors import UserError, unknown_name
from xsmmu.machine import Device
from xsmmu.module import Choice
from xsmmu.steps import Step

LINGER_S: Final = 5.0
"""Seconds to wait for mappings that an unbound driver has left in use."""

CHOOSE_ANOTHER: Final = "choose a device that is not in use"

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Wish:
    """A request; policy `none` means the kernel's own path, `auto` the module's choice.

    `tables` None keeps the present tables.
    """

    policy: str
    tunables: Mapping[str, int] = field(default_factory=dict)
    tables: str | None = None
    rebind: bool = False
    persist: bool = False
    force: bool = False
    type: str | None = None
    """The group's type, so the kernel's own path; None keeps a type that suits the policy."""
    before: str | None = None
    after: str | None = None
    """Shell commands to run before drivers are unbound and after drivers are bound."""


@dataclass(frozen=True)
class Plan:
    """Steps that fulfil a request, and notes for the user."""

    steps: list[Step]
    notes: list[str]
    waits: bool = False
    """Whether only the next boot applies the policy, because drivers stay bound now."""


def plan(device: Device, wish: Wish) -> Plan:
    """Plan the steps; refuse impossible requests before anything changes.

    There are no steps if the request is fulfilled already.
    """
    _check(device, wish)
    before = module.choice(device)
    kind = _new_type(device, wish)
    words = _words(device, wish, before)
    drivers = binding.bound(device)
    needs_rebind = bool(drivers) and (bool(kind) or _needs_unbound(device, wish, before, words))
    if needs_rebind and not wish.rebind and not wish.persist:
        raise _bound(device)
    waits = needs_rebind and not wish.rebind
    notes: list[str] = []
    todo: list[Step] = []
    if not waits:
        todo = _choose(device, wish, before, words)
        if device.group and kind:
            # For `none`, the module detaches the group before the type changes.
            todo.insert(len(todo) if wish.policy == "none" else 0, binding.set_type(device.group, kind))
            if wish.policy != "none":
                notes.append(f"group {device.group.number} was not translated (identity): its type becomes {kind}")
    if needs_rebind and not waits:
        if not wish.force:
            refuse_essential(device, "use --persist without --rebind to change the policy at the next boot only")
        todo = _rebind(device, wish, todo)
        notes += interfaces.notes([each for each, _ in drivers], bool(wish.after))
    if wish.persist:
        kept = _persist(device, wish, before)
        todo += kept
        notes += _notes_of_boot(device, wish, bool(kept), waits)
    return Plan(todo, notes, waits)


def _check(device: Device, wish: Wish) -> None:
    offered = module.offered(device)
    if wish.policy not in offered:
        raise unknown_name("policy", wish.policy, [name for name in offered if name != "none"])
    if wish.policy == module.AUTO and wish.tunables:
        raise UserError("auto has no tunables: leave out the tunables, or name a policy", code="usage")
    why = module.declined(device)
    if why and wish.policy != "none":
        raise UserError(f"{device.label}: the module declines its IOMMU group: {why}", code="declined")


def _new_type(device: Device, wish: Wish) -> str | None:
    """Type that the group must get; None if the present type is suitable."""
    group = device.group
    if not group:
        return None
    translates = wish.policy == "none" or group.type != "identity"
    kind = wish.type or (None if translates else "DMA-FQ")
    return kind if kind != group.type else None


def _needs_unbound(device: Device, wish: Wish, before: Choice, words: Mapping[str, str]) -> bool:
    """Whether drivers must be unbound: the module refuses otherwise, or would attach only at the next bind."""
    if (wish.policy == "none") != (before.policy == "none"):
        return True
    # After a failed attach, the next bind tries again.
    return (wish.policy != "none" and before.state == "failed") or _begins_copying(device, wish, words)


def _begins_copying(device: Device, wish: Wish, words: Mapping[str, str]) -> bool:
    """Whether a write enables copying after the group's drivers were bound without copying."""
    if wish.policy in ("none", module.AUTO) or module.can_copy(device):
        return False
    default = module.defaults(device).get(wish.policy)
    if default is None:
        # An older module does not tell; a requested rebind is right in both cases.
        return wish.rebind and bool(words)
    return bool(("policy" in words and default["copy_bytes"]) or int(words.get("copy_bytes", "0")))


def _names_of_bound(device: Device) -> str:
    return ", ".join(f"{each.label} to {driver}" for each, driver in binding.bound(device))


def _in_use(device: Device) -> list[str]:
    """Reasons to keep the group's drivers bound."""
    return essential.reasons([each for each, _ in binding.bound(device)])


def _bound(device: Device) -> UserError:
    reasons = _in_use(device)
    way = (
        "add --persist to change the policy at the next boot"
        if reasons
        else "add --rebind to unbind and bind the drivers"
    )
    return UserError(
        f"{device.label} cannot change its policy while drivers are bound in its IOMMU group "
        f"({_names_of_bound(device)}){''.join(f'; {reason}' for reason in reasons)}: {way}",
        code="driver-bound",
    )


def refuse_essential(device: Device, instead: str) -> None:
    """Refuse to rebind a group in use; `instead` names the alternative."""
    reasons = _in_use(device)
    if reasons:
        raise UserError(
            f"{device.label} is in use: {'; '.join(reasons)}: {instead}",
            code="essential",
        )


def _notes_of_boot(device: Device, wish: Wish, is_new: bool, waits: bool) -> list[str]:
    """Notes about the rule for the next boot."""
    drivers = [driver for _, driver in binding.bound(device)]
    late = [apply.late(driver) for driver in drivers if not apply.module_of(driver)]
    in_use = _in_use(device) if waits else []
    if waits and late and wish.policy != "none":
        raise UserError(
            f"{'; '.join(late)}; nothing was changed: build the driver as a module of the kernel, or choose another "
            "device",
            code="built-in",
        )
    found = []
    if waits:
        now = "" if in_use else "; --rebind changes the policy now, too"
        found.append(f"nothing changes now, because drivers stay bound ({_names_of_bound(device)}){now}")
    remake = apply.REMAKE
    if in_use and any(each.is_storage for each, _ in binding.bound(device)):
        remake = "the disk may be needed for boot, so before the reboot: xsmmu apply --initramfs"
    if is_new or waits:
        already = "" if is_new else " already"
        found.append(f"{rules.conf()} has the rule for the next boot{already}; {remake}")
    else:
        found.append("the rule for the next boot exists already")
    group = device.group
    if wish.policy != "none" and group and group.type == "identity":
        found.append(
            f"group {group.number} must be DMA or DMA-FQ at boot, or the rule has no effect: xsmmu doctor shows why "
            "the group is identity"
        )
    return found + late


# ---- steps ----


def _rebind(device: Device, wish: Wish, todo: list[Step]) -> list[Step]:
    """Steps `todo` between unbinding and binding of the group's drivers."""
    drivers = binding.bound(device)
    first, last = hooks.around([each for each, _ in drivers], wish.before, wish.after)
    # Unbinding runs in reverse order, so undo binds in order.
    unbinding = [binding.unbind(*each) for each in reversed(drivers)]
    taken = [_attached(device)] if wish.policy != "none" else []
    return [*first, *unbinding, *todo, *(binding.bind(*each) for each in drivers), *taken, *last]


def _words(device: Device, wish: Wish, before: Choice) -> dict[str, str]:
    """Words to write to the module's files, by file name. The policy comes first because it sets defaults.

    Words that the files show already are left out, with two exceptions: `auto`, because the module decides again on
    each write, and tables `kernel`, which the file also shows after direct tables had to end.
    """
    default = module.defaults(device).get(wish.policy)
    again = wish.policy != before.asked
    if wish.policy not in ("none", module.AUTO):
        others = {name: value for name, value in before.tunables.items() if name not in wish.tunables}
        again = again or default is None or any(default.get(name) != value for name, value in others.items())
    words = {"policy": wish.policy} if again or wish.policy == module.AUTO else {}
    if wish.tables and (again or wish.tables == "kernel" or wish.tables != before.tables):
        words["tables"] = wish.tables
    return words | {
        name: str(value) for name, value in wish.tunables.items() if again or before.tunables.get(name) != value
    }


def _choose(device: Device, wish: Wish, before: Choice, words: Mapping[str, str]) -> list[Step]:
    """Steps that write the module's files."""
    place = module.folder(device)
    shown = {"tables": before.tables, **{name: str(value) for name, value in before.tunables.items()}}
    is_known = wish.policy in module.defaults(device)
    changes = {name: shown.get(name) != value for name, value in words.items()}
    # Rewriting the present policy resets a tunable if the defaults are known; otherwise the caller compares afterwards.
    changes["policy"] = wish.policy != before.asked or is_known

    def undo() -> None:
        restore(device, before)

    return [
        Step(
            steps.echo(value, place / name),
            _writer(device, name, value),
            undo if at == 0 else steps.nothing,
            changes[name],
        )
        for at, (name, value) in enumerate(words.items())
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
                if module.choice(device).state != "orphaned":
                    raise (_bound(device) if binding.bound(device) else error) from None
            if time.monotonic() > end:
                raise UserError(
                    f"{device.label} still has mappings of an earlier driver in use after {LINGER_S:.0f} s: end "
                    "their use, then try again",
                    code="busy",
                )
            time.sleep(0.1)

    return write


def restore(device: Device, before: Choice, others: Sequence[Device] = ()) -> None:
    """Restore an earlier choice, through another device of the group if `device` has gone."""
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

    # The tables file is writable only while a policy is chosen.
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


def _attached(device: Device) -> Step:
    def check() -> None:
        if module.choice(device).state == "failed":
            raise UserError(
                f"{device.address} could not be attached: see the kernel log (dmesg)",
                code="attach-failed",
            )

    return Step(f"grep -v failed {module.folder(device) / 'state'}", check)


def _persist(device: Device, wish: Wish, before: Choice) -> list[Step]:
    """Steps that store the choice for the next boot."""
    file = rules.conf()

    def wanted() -> str:
        return _with_rule(files.text_of(file) or "", device, wish, before)

    text = wanted()
    changes = apply.plan(text, wish.force)
    if text != (files.text_of(file) or ""):
        changes.insert(0, files.step(file, text, wanted))
    return changes


def _with_rule(text: str, device: Device, wish: Wish, before: Choice) -> str:
    """Text of the rules file with the choice."""
    direct = (wish.tables or before.tables) == "direct"
    words = [wish.policy, *(f"{name}:{value}" for name, value in wish.tunables.items())]
    choice = ",".join([*words, "tables:direct"] if direct and wish.policy != "none" else words)
    rules.read(text, module.menu())
    wanted = text
    # The highest level in a group wins, so no other member may have a rule for another policy.
    for member in [device, *(each for each in (device.group.members if device.group else []) if each != device)]:
        without = rules.with_choice(wanted, member, None)
        rule = rules.deciding(rules.read(without, module.menu()), member, member.driver)
        is_own = member == device and wish.policy != "none"
        is_ruled = rule is not None and rule.policy != "none" and rule.choice != choice
        wanted = rules.with_choice(wanted, member, choice) if is_own or is_ruled else without
    return wanted


# ---- commands ----


def tunables(words: tuple[str, ...]) -> dict[str, int]:
    """Parse TUNABLE=VALUE words."""
    found = {}
    for word in words:
        if word.startswith(("tables=", "tables:")):
            raise UserError(f"tables is no tunable: write --tables {word[len('tables=') :]}", code="usage")
        name, equals, value = word.partition("=")
        if name in module.TUNABLES and not equals:
            raise UserError(f"tunable {name} has no value: write {name}=VALUE without blanks", code="bad-value")
        if ":" in name:
            raise UserError(f"'{word}' is no tunable: write {word.replace(':', '=', 1)}", code="usage")
        found[name] = rules.check_tunable(name, value)
    return found


def _ask(device: Device, policy: str, before: Choice) -> None:
    """Ask the module whether it accepts a policy, by writing the policy while a driver is bound; raises the refusal.

    A module that accepts the policy answers EBUSY. If the driver was unbound in between, the policy is restored at
    once.
    """
    with steps.later(*steps.STOPPING):
        try:
            module.write(device, "policy", policy)
        except UserError as error:
            if error.code != "busy":
                raise
            return
        try:
            restore(device, before)
        except UserError as error:
            raise UserError(
                f"{device.label} is under {policy} now, because its driver was unbound for a moment, and restoring "
                f"the earlier policy failed ({error}): run xsmmu unset {device.address} --rebind",
                code="not-put-back",
            ) from None


def carry_out(named: Device, wish: Wish, dry_run: bool, form: str, command: str) -> None:
    """Carry out or, with `dry_run`, print a request; then print the outcome."""
    device = binding.chosen_by(named)
    label = device.label
    members = [each.address for each in (device.group.members if device.group else [device])]
    before = module.choice(device)
    made = plan(device, wish)
    if device != named:
        made.notes.insert(0, f"{named.label} is created by {device.driver} of {label}, so {label} gets the policy")
    lines = [step.shell for step in made.steps if step.shell]
    is_new = any(step.changes for step in made.steps)
    if form == "table":
        for note in made.notes:
            click.echo(f"# {note}" if dry_run else note, err=not dry_run)
    if not dry_run:
        if made.waits and is_new and before.policy == "none":
            _ask(device, wish.policy, before)
        steps.run(made.steps, output.progress)
    now = module.choice(device)
    is_new = is_new or (now.asked, now.policy, now.tunables, now.tables) != (
        before.asked,
        before.policy,
        before.tunables,
        before.tables,
    )
    if form != "table":
        row = {
            "device": device.address,
            "members": members,
            "dry_run": dry_run,
            "changed": is_new,
            "at_next_boot": made.waits,
            "policy": wish.policy,
            "auto": asdict(now.auto) if now.auto and not dry_run else None,
            "level": None if dry_run else module.path(device, now)[1],
            "state": None if dry_run else now.state,
            "steps": lines,
            "notes": made.notes,
        }
        output.emit(form, command, "changes", [row])
        return
    if dry_run:
        for line in [*lines, *([] if is_new else ["# nothing to do"])]:
            click.echo(line)
        return
    click.echo(f"{label}: {'' if is_new else 'unchanged: '}{_outcome(device, wish, now, made.waits)}")


def _outcome(device: Device, wish: Wish, now: Choice, waits: bool) -> str:
    if waits:
        policy = "the kernel's own path" if wish.policy == "none" else wish.policy
        return f"{policy} from the next boot on, state now {now.state}"
    name, level = module.path(device, now)
    path = f"{now.policy}, level {level}" + (f" of {name} until a driver is bound" if name != now.policy else "")
    path = "the kernel's own path" if wish.policy == "none" else path
    why = f"; auto: {now.auto.reason}" if now.auto else ""
    return f"{path}, state {now.state}{why}"


def options(command: F) -> F:
    """Options that set and unset share."""
    for add in (
        output.option,
        click.option(
            "--force", is_flag=True, help="Rebind devices in use, with loss of data; replace modprobe's file."
        ),
        click.option(
            "--after", metavar="SHELL", help="Command to run after drivers are bound; its failure undoes nothing."
        ),
        click.option("--before", metavar="SHELL", help="Command to run before drivers are unbound."),
        click.option("--dry-run", is_flag=True, help="Print the steps as shell lines; change nothing."),
        click.option(
            "--persist",
            is_flag=True,
            help="Keep the choice for boot in a rule, with xsmmu apply; alone, unbind nothing.",
        ),
        click.option("--rebind", is_flag=True, help="Unbind the group's drivers and bind them again, if necessary."),
    ):
        command = add(command)
    return command


@click.command("set", epilog=guide.text())
@click.argument("device", shell_complete=complete.devices)
@click.argument("policy", shell_complete=complete.policies)
@click.argument("tunable", nargs=-1)
@click.option(
    "--tables",
    type=click.Choice(module.TABLES),
    help="Code that writes the page table: the IOMMU driver, or the module.",
)
@options
def set_policy(
    device: str,
    policy: str,
    tunable: tuple[str, ...],
    tables: str | None,
    rebind: bool,
    persist: bool,
    dry_run: bool,
    before: str | None,
    after: str | None,
    force: bool,
    form: str,
) -> None:
    """Choose the policy of DEVICE and of all devices in its IOMMU group.

    With POLICY auto, the module chooses by the group's devices, drivers and IOMMU, and reports its reason.

    TUNABLE is NAME=VALUE, where NAME is max_window_us, batch_pages, range_commands_max, copy_bytes or pool_mib; other
    tunables get the policy's defaults.

    A change from the kernel's own path, or to copying, needs the group without drivers: --rebind unbinds and binds
    drivers, and restores everything after an error. Other changes unbind nothing, and a repeated command changes
    nothing. A rebind removes addresses and routes of interfaces, which are listed before; --after can restore them. A
    failure of --after keeps the policy, and the command ends with an error.

    Devices in use, such as the disk of the root file system, are not rebound: --persist without --rebind only writes
    the rule for the next boot.

    \b
    Examples:
      xsmmu set eth1 fused --rebind --persist
      xsmmu set eth1 fused --rebind --dry-run
      xsmmu set 0000:05:00.0 strict
      xsmmu set nvme0n1 strict --persist
      xsmmu set eth1 fused copy_bytes=256 max_window_us=500 --rebind
    """
    found = machine.find(device)
    kernels_own = [path for path, _ in machine.MODES.values()]
    if policy in ("none", *kernels_own):
        raise UserError(
            f"{policy} is no policy of the module: run xsmmu unset {device} for the kernel's own path", code="usage"
        )
    wish = Wish(policy, tunables(tunable), tables, rebind, persist, force, before=before, after=after)
    carry_out(found, wish, dry_run, form, "set")


@click.command()
@click.argument("device", shell_complete=complete.devices)
@options
def unset(
    device: str,
    rebind: bool,
    persist: bool,
    dry_run: bool,
    before: str | None,
    after: str | None,
    force: bool,
    form: str,
) -> None:
    """Return DEVICE, with its IOMMU group, to the kernel's own path.

    With --persist the choice holds at boot, too; if drivers are bound and --rebind is missing, at boot only.

    \b
    Examples:
      xsmmu unset eth1 --rebind --persist
      xsmmu unset eth1 --rebind --dry-run
    """
    wish = Wish("none", rebind=rebind, persist=persist, force=force, before=before, after=after)
    carry_out(machine.find(device), wish, dry_run, form, "unset")
