# SPDX-License-Identifier: GPL-2.0-only
"""The module's boot-time rules in /etc/xsmmu.conf: a rule per line, `#` begins a comment.

A rule is MATCH=POLICY[,TUNABLE:VALUE...], where POLICY may be auto or none, in the module's syntax
(kmod/policy/rules.c). The first rule that matches a device decides. XSMMU_CONF names another file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xsmmu import guide, module
from xsmmu.errors import UserError
from xsmmu.machine import Device

_ADDRESS = re.compile(
    r"(?:([0-9a-f]+):)?([0-9a-f]{1,2}):([01]?[0-9a-f])\.([0-7])(?:/([0-9a-f]{4}:[0-9a-f]{4}))?", re.IGNORECASE
)
"""An address, optionally with a slash and the expected vendor and device."""
_ID = re.compile(r"([0-9a-f]{4}):([0-9a-f]{4})", re.IGNORECASE)
_CLASS = re.compile(r"class:((?:[0-9a-f]{2}){1,3})", re.IGNORECASE)
_DRIVER = re.compile(r"driver:([^\s=;,\"#][^=;,\"#]*)")
"""A driver's name; the excluded characters end a word of the rules."""

_BLANKS = (" ", "\t")

LENGTH_MAX: Final = 1024
"""Longest string parameter that the kernel accepts."""


def conf() -> Path:
    """Path of the rules."""
    return Path(os.environ.get("XSMMU_CONF", "/etc/xsmmu.conf"))


@dataclass(frozen=True)
class Rule:
    """A match and a choice."""

    match: str
    choice: str

    @property
    def text(self) -> str:
        """The rule in the module's syntax."""
        return f"{self.match}={self.choice}"

    @property
    def policy(self) -> str:
        """A policy, auto or none."""
        return self.choice.partition(",")[0]

    @property
    def address(self) -> str | None:
        """Full address, if the rule matches an address."""
        found = _ADDRESS.fullmatch(self.match)
        if not found:
            return None
        return f"{int(found[1] or '0', 16):04x}:{int(found[2], 16):02x}:{int(found[3], 16):02x}.{found[4]}"

    @property
    def identity(self) -> str | None:
        """Expected vendor and device at the rule's address, if given."""
        found = _ADDRESS.fullmatch(self.match)
        return found[5].lower() if found and found[5] else None

    def is_for_another(self, device: Device) -> bool:
        """Whether the rule names the device's address but expects another device; the module skips such a rule."""
        return self.address == device.address and self.identity not in (None, identity(device))

    @property
    def driver(self) -> str | None:
        """Driver, if the rule matches a driver."""
        found = _DRIVER.fullmatch(self.match)
        return found[1] if found else None

    def matches(self, device: Device, driver: str | None) -> bool:
        """Whether the rule matches a device with a given driver."""
        if self.match == "*":
            return True
        if self.address:
            return self.address == device.address and not self.is_for_another(device)
        if self.driver:
            return self.driver == driver
        if digits := _CLASS.fullmatch(self.match):
            return f"{device.number('class'):06x}".startswith(digits[1].lower())
        return self.match.lower() == identity(device)


def identity(device: Device) -> str:
    """Vendor and device number of a device."""
    return f"{device.number('vendor'):04x}:{device.number('device'):04x}"


def parse(text: str, policies: Sequence[str] | None) -> Rule:
    """Parse a rule; `policies` are the words that the module accepts, None if unknown."""
    match, equals, choice = text.partition("=")
    rule = Rule(match, choice)
    if not equals:
        raise _wrong("the rule has no policy: write MATCH=POLICY, such as 0000:01:00.0=fused")
    if match.endswith(_BLANKS) or re.search(r"\s", choice):
        plain = re.sub(r"\s*([=:,])\s*", r"\1", text)
        raise _wrong(f"the module accepts no blanks beside = , or :, so write {plain}")
    if match != "*" and not any(kind.fullmatch(match) for kind in (_ADDRESS, _ID, _CLASS, _DRIVER)):
        raise _wrong(f"'{match}' {_fault(match)}")
    if not re.fullmatch(r"[a-z][a-z0-9]*", rule.policy) or (policies and rule.policy not in policies):
        valid = ", ".join(policies or ["none", module.AUTO, *guide.POLICIES])
        raise _wrong(f"'{rule.policy}' is no policy: choose from {valid}")
    words = choice.split(",")[1:]
    if words and rule.policy == "none":
        raise _wrong(f"none has no tunables: leave out {', '.join(words)}")
    for word in words:
        name, _, value = word.partition(":")
        if "=" in name:
            raise _wrong(f"'{word}' has no colon before the value: write {word.replace('=', ':', 1)}")
        if name == "tables" and value in module.TABLES:
            continue
        if rule.policy == module.AUTO:
            raise _wrong(f"auto has no tunables: leave out {word}, or name a policy")
        check_tunable(name, value)
    return rule


def _fault(match: str) -> str:
    """Description of an invalid match, with the correct form."""
    if match.startswith("class:"):
        return "is no class of 2, 4 or 6 hexadecimal digits: write class:02, class:0108 or class:010802"
    if match.startswith("driver:"):
        return 'is no driver name directly behind the colon without = ; , # ": write driver:igb'
    if re.fullmatch(r"[0-9a-f:]*:[0-9a-f]*\.[0-9a-f.]*(/.*)?", match, re.IGNORECASE):
        return "is no address [DOMAIN:]BUS:DEVICE.FUNCTION[/VENDOR:DEVICE]: write 0000:01:00.0"
    if re.fullmatch(r"[0-9a-fx]+:[0-9a-fx]+", match, re.IGNORECASE):
        return "is no vendor:device of 4 hexadecimal digits each: write 8086:10d3"
    if re.fullmatch(r"[\w.-]+", match):
        return (
            f"is no match of a rule, because rules take no names: run xsmmu set {match} POLICY --persist to write "
            "the address"
        )
    return "is no match of a rule: write an address, class:, vendor:device, driver: or *"


def _wrong(message: str) -> UserError:
    return UserError(message, code="bad-rule")


def check_tunable(name: str, value: str) -> int:
    """Check name and range of a tunable and return its value."""
    if name not in module.TUNABLES:
        raise UserError(f"unknown tunable '{name}': choose from {', '.join(module.TUNABLES)}", code="unknown-name")
    first, last = module.TUNABLES[name]
    if not re.fullmatch(r"[0-9]{1,10}", value) or not first <= int(value) <= last:
        raise UserError(f"{name} '{value}' is invalid: choose a whole number from {first} to {last}", code="bad-value")
    return int(value)


def read(text: str, policies: Sequence[str] | None) -> list[Rule]:
    """Rules in a file's text; an error names the line."""
    found = []
    for number, line in enumerate(_lines(text), 1):
        words = _rule_of(line)
        if words:
            try:
                found.append(parse(words, policies))
            except UserError as error:
                raise UserError(f"{conf()}, line {number}: '{words}': {error.message}", code="bad-rule") from None
    if len(joined(found)) > LENGTH_MAX:
        raise UserError(
            f"{conf()}: the rules have {len(joined(found))} characters together, but the kernel accepts "
            f"{LENGTH_MAX}: write fewer rules, with class: or driver:",
            code="bad-rule",
        )
    return found


def joined(rules: Iterable[Rule]) -> str:
    """Value of the module's parameter `rules`."""
    return ";".join(rule.text for rule in rules)


def deciding(rules: Iterable[Rule], device: Device, driver: str | None) -> Rule | None:
    """The rule that decides for a device."""
    return next((rule for rule in rules if rule.matches(device, driver)), None)


def passed_over(found: Sequence[Rule]) -> list[str]:
    """Notes about rules by address with another device at the address now."""
    reached = [(rule, Device(rule.address)) for rule in found if rule.address]
    return [
        f"{rule.match}: the address has device {identity(device)} now, so the module skips this rule"
        for rule, device in reached
        if device.folder.exists() and rule.is_for_another(device)
    ]


def with_choice(text: str, device: Device, choice: str | None) -> str:
    """The file's text with a new choice for a device, or without a rule for its address; other lines stay."""
    kept: list[str] = []
    own: int | None = None
    comment = ""
    for line in _lines(text):
        if _address_of(line) != device.address:
            kept.append(line)
        elif own is None:
            own = len(kept)
            comment = line[len(line.partition("#")[0].rstrip()) :]
    if choice is not None:
        # A rule by address must precede general rules that match the device.
        first = _first_general(kept)
        at = first if own is None or own > first else own
        kept.insert(at, f"{device.address}/{identity(device)}={choice}{comment}")
    return "".join(f"{line}\n" for line in kept)


def _lines(text: str) -> list[str]:
    """Lines of a file; splitlines() would also split at characters that may occur in comments."""
    return text.removesuffix("\n").split("\n") if text else []


def _rule_of(line: str) -> str:
    return line.partition("#")[0].strip()


def _address_of(line: str) -> str | None:
    return Rule(_rule_of(line).partition("=")[0], "").address


def _first_general(lines: Sequence[str]) -> int:
    """Index of the first rule without an address, or of the comment above the rule."""
    at = next((at for at, line in enumerate(lines) if _rule_of(line) and not _address_of(line)), len(lines))
    while 0 < at < len(lines) and lines[at - 1].startswith("#"):
        at -= 1
    return at
