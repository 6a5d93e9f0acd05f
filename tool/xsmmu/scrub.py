# SPDX-License-Identifier: GPL-2.0-only
"""Removes names of a machine and its users from results.

Host name and serial numbers are removed from fields with words of a user: commands, file names, reasons. Patterns are
removed from these fields and from names: MAC and IP addresses, UUIDs, iSCSI and NVMe names, names of home folders. A
word in capitals takes their place. Fields that only the kernel and the tool write stay unchanged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv6Address, IPv6Network
from typing import Any, Final

from xsmmu.machine import root, sysfs, text

_SERIALS: Final = (
    *("class/dmi/id/*_serial", "class/dmi/id/*_asset_tag", "class/dmi/id/product_uuid", "class/nvme/*/serial"),
    *("class/nvme-subsystem/*/subsysnqn", "class/infiniband/*/node_guid", "class/infiniband/*/sys_image_guid"),
    *("class/block/*/device/serial", "class/block/*/device/wwid", "class/block/*/wwid", "class/block/*/eui"),
    *("class/block/*/serial", "class/block/*/device/vpd_pg80"),
)
"""Files in sysfs with numbers unique to this machine."""
_LEAST: Final = 4
"""Shortest serial number."""
_PLACEHOLDER: Final = re.compile(r"\D*|\d{1,5}|[\d.]*\d\.\d[\d.]*|(.)\1*|0?1?2345678?9?0?", re.IGNORECASE)
"""Placeholders of firmware for a missing number: a word, a short number, a version, a repeated character, 123456789."""
_FIXED: Final = frozenset(
    (
        *("schema", "document", "tool", "module", "version", "kernel", "kernel_version", "distribution"),
        *("architecture", "processor", "lockdown", "clock", "governor", "smt", "kind", "cap", "ecap", "level"),
        *("policy", "policies", "baseline", "figure", "state", "tables", "path", "check", "code", "driver"),
        *("drivers", "device", "members"),
    )
)
"""Fields that only the kernel and the tool write."""
_TOLD: Final = frozenset(("subject", "names", "command_line"))
"""Fields with names of interfaces and disks, but without names of the machine."""
_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_FORMS: Final = {
    "MAC": re.compile(r"(?<![0-9A-Fa-f:])[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5,}(?![0-9A-Fa-f:])"),
    # Interfaces named by their MAC address.
    "NAMED-BY-MAC": re.compile(r"(?<![A-Za-z0-9])(?:en|wl|ww|sl|ib)x[0-9a-f]{12}(?![A-Za-z0-9])"),
    "IQN": re.compile(r"(?<![A-Za-z0-9.])(?:iqn|nqn)\.\d{4}-\d\d\.[\w.:-]*\w", re.IGNORECASE),
    "UUID": re.compile(
        r"(?<![A-Za-z0-9])[0-9A-F]{8}(-?)(?:[0-9A-F]{4}\1){3}[0-9A-F]{12}(?![A-Za-z0-9])|(?<=UUID=)[0-9A-F-]+",
        re.IGNORECASE,
    ),
    # A version may have four numbers, too.
    "IP": re.compile(rf"(?<![A-Za-z\d.])(?<!version )(?:{_OCTET}\.){{3}}{_OCTET}(?!\.?\d|[A-Za-z+~])", re.IGNORECASE),
    "USER": re.compile(r"(?<=/home/)[^/\s\"']+"),
}
_MAY_BE_IP6: Final = re.compile(r"(?<![0-9A-Za-z:])[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(?![0-9A-Za-z:])")


_IP6: Final = tuple(map(IPv6Network, ("2000::/3", "fc00::/7", "fe80::/9", "ff00::/8", "64:ff9b::/96", "::ffff:0:0/96")))
"""Networks with addresses of machines; other words in this form (12::34, dead::beef) are no addresses."""


class Scrub:
    """Removes identifying words, and counts the removals."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        known = sorted({*_known()}, key=lambda pair: -len(pair[1]))
        self.words = [(kind, _WHOLE[kind](re.escape(word))) for kind, word in known]

    def value(self, found: Any, field: str = "") -> Any:
        """A JSON value without identifying words; names of fields stay."""
        if field in _FIXED:
            return found
        if isinstance(found, str):
            return self._formless(found) if field in _TOLD else self.text(found)
        if isinstance(found, list):
            return [self.value(each, field) for each in found]
        if isinstance(found, dict):
            return {key: self.value(each, key) for key, each in found.items()}
        return found

    def text(self, found: str) -> str:
        """A text without identifying words."""
        for kind, pattern in self.words:
            found = self._replaced(kind, pattern, found)
        return self._formless(found)

    def _formless(self, found: str) -> str:
        for kind, pattern in _FORMS.items():
            found = self._replaced(kind, pattern, found)
        return _MAY_BE_IP6.sub(self._ip6, found)

    def _replaced(self, kind: str, pattern: re.Pattern[str], found: str) -> str:
        found, count = pattern.subn(kind, found)
        self.taken[kind] += count
        return found

    def _ip6(self, found: re.Match[str]) -> str:
        # A full stop or a colon may follow the address.
        address = found[0].rstrip(".:")
        for word in (found[0], address):
            try:
                parsed = IPv6Address(word)
            except ValueError:
                continue
            if any(parsed in network for network in _IP6):
                self.taken["IP"] += 1
                return f"IP{found[0].removeprefix(word)}"
        return found[0]


_WHOLE: Final = {
    "HOST": lambda word: re.compile(rf"(?<![\w-]){word}(?![\w-])", re.IGNORECASE),
    # Disk links have the serial number between _ and -: /dev/disk/by-id/nvme-MODEL_SERIAL-part1.
    "SERIAL": lambda word: re.compile(rf"(?<![A-Za-z0-9]){word}(?![A-Za-z0-9])", re.IGNORECASE),
}
"""Patterns for whole words in any case; tools print upper and lower case."""


def _known() -> Iterator[tuple[str, str]]:
    """Identifying words of this machine."""
    names = {link.name for kind in ("net", "block", "nvme") for link in (sysfs() / "class" / kind).glob("*")}
    name = text(root("proc") / "sys/kernel/hostname") or ""
    for word in {name, name.partition(".")[0]} - {"", "(none)", "localhost", "xsmmu"} - names:
        yield "HOST", word
    for pattern in _SERIALS:
        for file in sysfs().glob(pattern):
            word = text(file) or ""
            # For SCSI and SATA the file is a VPD page with a header of four bytes.
            if file.name == "vpd_pg80":
                word = word[4:].strip()
            for form in _forms(word) - names:
                if len(form) >= _LEAST and not _PLACEHOLDER.fullmatch(form):
                    yield "SERIAL", form


def _forms(word: str) -> set[str]:
    """A serial number and its forms in udev's links: underscores for blanks, other prefixes or none."""
    found = {word, "_".join(word.split())}
    kind, _, number = word.partition(".")
    if kind in ("naa", "eui", "uuid", "t10"):
        found.add(number)
    if kind == "naa":
        found |= {f"0x{number}", f"3{number}"}
    return found
