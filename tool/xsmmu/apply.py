# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu apply`: writes the rules of /etc/xsmmu.conf to /etc/modprobe.d/xsmmu.conf, for the next boot.

The written file passes the rules to the module and has modprobe load the module before each driver that a rule reaches.
XSMMU_MODPROBE_CONF names another file.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from xsmmu import files, kernel, machine, module, output, rules, steps
from xsmmu.errors import UserError
from xsmmu.machine import Device
from xsmmu.rules import Rule
from xsmmu.steps import Step

_MADE: Final = "# made by xsmmu apply from "

_MAKERS: Final = {
    "update-initramfs": ["update-initramfs", "-u", "-k", "all"],
    "dracut": ["dracut", "--regenerate-all", "--force"],
}
"""Commands that rebuild the initramfs of all kernels; by default the programs take a single kernel."""

REMAKE: Final = "if the initramfs loads the driver, rebuild the initramfs: xsmmu apply --initramfs"


def modprobe_conf() -> Path:
    """Path of the file that modprobe reads."""
    return Path(os.environ.get("XSMMU_MODPROBE_CONF", "/etc/modprobe.d/xsmmu.conf"))


def text_of(found: Sequence[Rule]) -> str | None:
    """Content for modprobe's file; None without rules."""
    if not found:
        return None
    lines = [
        f"{_MADE}{rules.conf()}: edit that file, then run xsmmu apply",
        f'options xsmmu rules="{rules.joined(found)}"',
        *(f"softdep {name} pre: xsmmu" for name in drivers(found)),
    ]
    return "".join(f"{line}\n" for line in lines)


def drivers(found: Sequence[Rule]) -> list[str]:
    """Modules of drivers that the rules reach: bound, bound in future, or named in a rule."""
    modules = set(map(module_of, _bound(found)))
    for device in _reached(found):
        if not device.driver:
            modules |= set(_candidates(device))
    return sorted(name for name in modules if name)


def built_in(found: Sequence[Rule]) -> list[str]:
    """Drivers that are part of the kernel, so that rules for their devices are ineffective."""
    return sorted(driver for driver in _bound(found) if not module_of(driver))


def late(driver: str) -> str:
    """A note about a driver that rules do not reach."""
    if not (machine.sysfs() / "bus/pci/drivers" / driver).exists():
        return f"driver '{driver}' is not loaded, and no module has this name: load its module, then run xsmmu apply"
    return f"{driver} is part of the kernel and binds before xsmmu is loaded, so rules do not reach its devices at boot"


def _bound(found: Sequence[Rule]) -> set[str]:
    bound = {each.driver for each in _reached(found) if each.driver}
    return bound | {rule.driver for rule in found if rule.driver and rule.policy != "none"}


def _reached(found: Sequence[Rule]) -> set[Device]:
    """Devices with a policy by the rules; a group counts as a whole."""
    devices: set[Device] = set()
    for device in machine.devices():
        rule = rules.deciding(found, device, device.driver)
        if rule and rule.policy != "none":
            devices |= {device, *(device.group.members if device.group else ())}
    return {device for device in devices if not device.may_stay_bound}


def _candidates(device: Device) -> list[str]:
    """Modules that modprobe would load for a device."""
    modprobe = machine.program("modprobe")
    alias = files.text_of(device.folder / "modalias")
    if not modprobe or not alias:
        return []
    said = subprocess.run([modprobe, "--resolve-alias", alias.strip()], capture_output=True, text=True, check=False)
    return said.stdout.split()


def module_of(driver: str) -> str | None:
    """Module that contains a driver; None if the driver is part of the kernel."""
    folder = machine.sysfs() / "bus/pci/drivers" / driver
    if not folder.exists():
        return driver if re.fullmatch(r"[\w-]+", driver) else None
    link = folder / "module"
    # A built-in driver may have a module folder too, for its parameters.
    return link.resolve().name if (link / "initstate").exists() else None


def plan(text: str, force: bool) -> list[Step]:
    """Check all rules of `text` and return the step that writes modprobe's file, if the file needs a change."""
    wanted = text_of(rules.read(text, module.menu()))
    file = modprobe_conf()
    now = files.text_of(file)
    if now is not None and not now.startswith(_MADE) and not force:
        raise UserError(
            f"{file} was not made by xsmmu apply: move its rules to {rules.conf()} and remove the file, or replace "
            "the file with xsmmu apply --force",
            code="not-ours",
        )
    if now == wanted:
        return []
    return [files.step(file, wanted, lambda: text_of(rules.read(files.text_of(rules.conf()) or "", module.menu())))]


def initramfs_since() -> list[Path]:
    """Initramfs of each kernel if all are newer than rules and module; empty if one is older or unknown."""
    images = {release: image for release in kernel.installed() if (image := _image(release))}
    is_known = kernel.release() in images and all(map(_is_newer, images, images.values()))
    return list(images.values()) if is_known else []


def _image(release: str) -> Path | None:
    """Initramfs of a kernel."""
    names = (f"initrd.img-{release}", f"initramfs-{release}.img", f"initrd-{release}")
    return next((file for name in names if (file := machine.root("boot") / name).exists()), None)


def _is_newer(release: str, image: Path) -> bool:
    """Whether an initramfs is newer than the rules and the module of its kernel."""
    # The time of the folder covers replaced and removed files.
    parts = [modprobe_conf(), modprobe_conf().parent, kernel.built("xsmmu", release)]
    written = [part.stat().st_mtime_ns for part in parts if part and part.exists()]
    return image.stat().st_mtime_ns > max(written, default=0)


def make_initramfs() -> None:
    """Rebuild the initramfs of each kernel; output of the builder goes to standard error."""
    maker = next((words for name, words in _MAKERS.items() if machine.program(name)), None)
    if not maker:
        raise UserError(
            "neither update-initramfs nor dracut is installed: rebuild the initramfs with the tool of this system",
            code="no-initramfs-maker",
        )
    click.echo(f"{' '.join(maker)}: takes up to a minute", err=True)
    # update-initramfs and dracut call other programs by name, so PATH is needed.
    status = subprocess.run(maker, stdout=2, env={**os.environ, "PATH": machine.path()}, check=False).returncode
    if status:
        raise UserError(
            f"{' '.join(maker)} failed (status {status}, see above), so the initramfs may be old, but "
            f"{modprobe_conf()} is up to date: remove the cause, then run xsmmu apply --initramfs",
            code="initramfs-failed",
        )


@click.command()
@click.option("--dry-run", is_flag=True, help="Check the rules and print the planned file; change nothing.")
@click.option("--initramfs", is_flag=True, help="Rebuild the initramfs of each kernel, if one is older than the rules.")
@click.option(
    "--force", is_flag=True, help="Replace a file not made by xsmmu apply; rebuild the initramfs in any case."
)
@output.option
def apply(dry_run: bool, initramfs: bool, force: bool, form: str) -> None:
    """Apply the rules of /etc/xsmmu.conf from the next boot on.

    Check every rule, then write /etc/modprobe.d/xsmmu.conf, which passes the rules to the module and has modprobe load
    the module before each driver that the rules reach. Present policies stay; xsmmu set changes them.

    \b
    Examples:
      xsmmu apply --dry-run
      xsmmu apply --initramfs
    """
    text = files.text_of(rules.conf())
    if text is None:
        raise UserError(
            f"{rules.conf()} does not exist: write a rule per line, such as 0000:01:00.0=fused, or use xsmmu set "
            "--persist",
            code="no-file",
        )
    found = rules.read(text, module.menu())
    changes = plan(text, force)
    wanted = text_of(found)
    if not dry_run:
        steps.run(changes)
    since = [] if force or changes else initramfs_since()
    if initramfs and not dry_run and not since:
        make_initramfs()
    row: dict[str, Any] = {
        "dry_run": dry_run,
        "file": str(modprobe_conf()),
        "changed": bool(changes),
        "initramfs": None if not initramfs else "made since" if since else "to be made" if dry_run else "made",
        "rules": [rule.text for rule in found],
        "drivers": drivers(found),
        "built_in": built_in(found),
        "text": wanted,
    }
    if form != "table":
        output.emit(form, "apply", "changes", [row])
        return
    for note in (*map(late, built_in(found)), *rules.passed_over(found)):
        click.echo(note, err=True)
    if dry_run:
        _print_plan(bool(changes), wanted, initramfs, since)
        return
    said = f"written, {len(found)} rules; xsmmu is loaded before {', '.join(drivers(found)) or 'no driver'}"
    if not changes:
        said = "up to date"
    elif not wanted:
        said = "removed, because there are no rules"
    click.echo(f"{modprobe_conf()}: {said}")
    for image in since if initramfs else []:
        click.echo(f"{image}: newer than the rules, so kept")
    if changes and not initramfs:
        click.echo(REMAKE)


def _print_plan(changes: bool, wanted: str | None, initramfs: bool, since: Sequence[Path]) -> None:
    """Print the planned file, and comments about the initramfs."""
    click.echo(f"# {modprobe_conf()}, {'to be written' if changes else 'unchanged'}:")
    click.echo(wanted or "# (no rules: no file)\n", nl=False)
    if initramfs and not since:
        click.echo("# then the initramfs of each kernel is rebuilt")
    for image in since if initramfs else []:
        click.echo(f"# {image} is newer than the rules, so it is kept")
