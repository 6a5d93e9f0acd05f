# SPDX-License-Identifier: GPL-2.0-only
"""What tells which machine it was, or whose, is taken out of results before they leave it.

By what this machine knows of itself: its name, addresses of interfaces, serial numbers. And by its form: MAC and IP
addresses, names of homes. Words in capitals stand in their place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv6Address
from typing import Any, Final

from xsmmu.operator.machine import root, sysfs, text

_SERIALS: Final = (
    *("class/dmi/id/*_serial", "class/dmi/id/product_uuid", "class/nvme/*/serial", "class/nvme-subsystem/*/subsysnqn"),
    *("class/block/*/device/serial", "class/block/*/device/wwid", "class/block/*/wwid", "class/block/*/eui"),
    *("class/block/*/serial", "class/block/*/device/vpd_pg80"),
)
"""Files of sysfs with a number that no other machine has."""
_LEAST: Final = 4
"""Characters of a serial number; less is a placeholder."""
_FORMS: Final = {
    "MAC": re.compile(r"(?<![0-9A-Fa-f:])[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5,}(?![0-9A-Fa-f:])"),
    # An interface that is named by it.
    "NAMED-BY-MAC": re.compile(r"(?<![A-Za-z0-9])(?:en|wl|ww|sl|ib)x[0-9a-f]{12}(?![A-Za-z0-9])"),
    "IP": re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?\d)"),
    "USER": re.compile(r"(?<=/home/)[^/\s\"']+"),
}
_MAY_BE_IP6: Final = re.compile(r"(?<![0-9A-Za-z:])[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(?![0-9A-Za-z:])")


class Scrub:
    """Takes it out, and counts what it took."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        known = sorted({*_known()}, key=lambda pair: -len(pair[1]))
        self.words = [(kind, _WHOLE[kind](re.escape(word))) for kind, word in known]

    def value(self, found: Any) -> Any:
        """The same JSON without it; names of fields and of schemas stay."""
        if isinstance(found, str):
            return self.text(found)
        if isinstance(found, list):
            return [self.value(each) for each in found]
        if isinstance(found, dict):
            return {key: each if key == "schema" else self.value(each) for key, each in found.items()}
        return found

    def text(self, found: str) -> str:
        """The same text without it."""
        for kind, pattern in (*self.words, *_FORMS.items()):
            found, count = pattern.subn(kind, found)
            self.taken[kind] += count
        return _MAY_BE_IP6.sub(self._ip6, found)

    def _ip6(self, found: re.Match[str]) -> str:
        # A sentence may end with it, or a path follow.
        address = found[0].rstrip(".:")
        for word in (found[0], address):
            try:
                IPv6Address(word)
            except ValueError:
                continue
            self.taken["IP"] += 1
            return f"IP{found[0].removeprefix(word)}"
        return found[0]


_WHOLE: Final = {
    "HOST": lambda word: re.compile(rf"(?<![\w-]){word}(?![\w-])", re.IGNORECASE),
    # Names of links to a disk have it between _ and -: /dev/disk/by-id/nvme-MODEL_SERIAL-part1.
    "SERIAL": lambda word: re.compile(rf"(?<![A-Za-z0-9]){word}(?![A-Za-z0-9])", re.IGNORECASE),
}
"""What stands for a word and no part of another one, in capitals or not: tools print both."""


def _known() -> Iterator[tuple[str, str]]:
    """What this machine knows of itself."""
    name = text(root("proc") / "sys/kernel/hostname") or ""
    for word in {name, name.partition(".")[0]} - {"", "(none)", "localhost"}:
        yield "HOST", word
    for pattern in _SERIALS:
        for file in sysfs().glob(pattern):
            word = text(file) or ""
            # Of SCSI and SATA it is a page, with a header of four bytes.
            if file.name == "vpd_pg80":
                word = word[4:].strip()
            for form in _forms(word):
                if len(form) >= _LEAST:
                    yield "SERIAL", form


def _forms(word: str) -> set[str]:
    """A number, and as udev writes it in names of links: without blanks, its kind left out or said otherwise."""
    found = {word, "_".join(word.split())}
    kind, _, number = word.partition(".")
    if kind in ("naa", "eui", "uuid", "t10"):
        found.add(number)
    if kind == "naa":
        found |= {f"0x{number}", f"3{number}"}
    return found
