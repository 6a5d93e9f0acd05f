# SPDX-License-Identifier: GPL-2.0-only
"""The policy of a device after the next boot, by the rules in modprobe's file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xsmmu import apply, cmdline, files, guide, rules
from xsmmu.machine import Device
from xsmmu.module import Choice
from xsmmu.rules import Rule


@dataclass(frozen=True)
class NextBoot:
    """A choice by the rules, or none; and whether the present choice differs."""

    choice: str
    differs: bool


def read() -> list[Rule]:
    """Rules in the file that `xsmmu apply` writes; UserError if not readable."""
    text = (files.text_of(apply.modprobe_conf()) or "").replace("\\\n", "")
    options = re.findall(r"^\s*options\s+xsmmu\s+(.*)$", text, re.MULTILINE)
    said = {word.name: word.value or "" for line in options for word in cmdline.parse(line)}
    found = [word.strip() for word in said.get("rules", "").split(";")]
    return [Rule(*word.partition("=")[::2]) for word in found if word]


def of(device: Device, now: Choice | None, found: Sequence[Rule]) -> NextBoot:
    """Choice of the rules for a device's group; the strongest level wins if rules differ between devices."""
    members = [each for each in (device.group.members if device.group else [device]) if not each.is_bridge]
    choices = [_choice(each, found) for each in members or [device]]
    strongest = guide.strongest([Rule("", choice).policy for choice in choices])
    choice = next(each for each in choices if Rule("", each).policy == strongest)
    return NextBoot(choice, not _is(choice, now))


def _choice(device: Device, found: Sequence[Rule]) -> str:
    rule = rules.deciding(found, device, device.driver)
    # A built-in driver binds before the module is loaded.
    is_late = device.driver is not None and not apply.module_of(device.driver)
    return rule.choice if rule and not is_late else "none"


def _is(choice: str, now: Choice | None) -> bool:
    """Whether a choice equals the present choice, including tunables."""
    policy, *words = choice.split(",")
    if not now or now.policy == "none":
        return policy == "none"
    said = dict(word.partition(":")[::2] for word in words)
    if policy != now.asked or said.pop("tables", "kernel") != now.tables:
        return False
    known = guide.POLICIES.get(policy)
    wanted = {**(known.tunables if known else {}), **{name: _number(value) for name, value in said.items()}}
    return all(now.tunables.get(name, value) == value for name, value in wanted.items())


def _number(word: str) -> int | None:
    return int(word) if re.fullmatch(r"[0-9]{1,10}", word) else None
