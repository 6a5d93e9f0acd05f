# SPDX-License-Identifier: GPL-2.0-only
"""Effects of the kernel's command line and configuration on IOMMU groups at boot.

From the source of Linux 6.1, 6.12, 7.2 and 7.3. A kernel may also become strict for a virtual IOMMU; only a group's
type shows the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xsmmu import cmdline, kernel
from xsmmu.cmdline import Word


@dataclass(frozen=True)
class Setting:
    """A setting, and the word that made it; None for the kernel's configuration."""

    on: bool
    word: str | None = None


def passthrough() -> Setting | None:
    """Whether groups are passthrough; None if neither the command line nor a readable configuration says.

    Follows iommu_set_def_domain_type(), x86's iommu_setup(), and iommu_subsys_init(). The last word counts.
    """
    found = _configured("CONFIG_IOMMU_DEFAULT_PASSTHROUGH")
    for word in cmdline.named("iommu.passthrough", "iommu"):
        said = _of_list(word) if word.name == "iommu" else kernel.boolean(word.value)
        found = found if said is None else Setting(said, word.plain)
    return found


def strict() -> Setting | None:
    """Whether the kernel's own path is strict; None if unknown.

    Follows iommu_dma_setup(), then intel_iommu_setup() and parse_amd_iommu_options(): the kernel reads the latter two
    later, on every x86 machine, and no word can revert them.
    """
    found = _configured("CONFIG_IOMMU_DEFAULT_DMA_STRICT")
    for word in cmdline.named("iommu.strict"):
        said = kernel.boolean(word.value)
        found = found if said is None else Setting(said, word.plain)
    for option, part in {"intel_iommu": "strict", "amd_iommu": "fullflush"}.items():
        for word in cmdline.named(option):
            if any(each.startswith(part) for each in word.parts) and _reads(option):
                found = found if found and found.on else Setting(True, word.plain)
    return found


def switched_on() -> bool:
    """Whether the last word for Intel's driver is intel_iommu=on."""
    said = [part for word in cmdline.named("intel_iommu") for part in word.parts if part.startswith(("on", "off"))]
    return bool(said) and said[-1].startswith("on")


def switched_off(vendor: str) -> str | None:
    """The word that disables x86's IOMMU of a vendor (intel, amd), if any."""
    for word in cmdline.named("iommu"):
        if any(part.startswith("off") for part in _parts(word)):
            return word.plain
    # AMD's driver has no word that enables the IOMMU.
    if vendor == "intel" and switched_on():
        return None
    words = [word.plain for word in cmdline.named(f"{vendor}_iommu") if any(p.startswith("off") for p in word.parts)]
    return words[-1] if words else None


def _of_list(word: Word) -> bool | None:
    """iommu=pt and iommu=nopt, by prefix; only on x86."""
    said = [part.startswith("pt") for part in _parts(word) if part.startswith(("pt", "nopt"))]
    return said[-1] if said and _is_x86() else None


def _parts(word: Word) -> Iterator[str]:
    """Parts of iommu=; the kernel ignores the parts after usedac."""
    for part in word.parts:
        if part.startswith("usedac"):
            return
        yield part


def _is_x86() -> bool:
    return kernel.architecture() in (None, "x86_64")


def _reads(option: str) -> bool:
    """Whether the kernel may contain the driver of an option."""
    name = f"CONFIG_{option.upper()}"
    return _is_x86() and (kernel.config() or {name: "y"}).get(name) == "y"


def _configured(option: str) -> Setting | None:
    configured = kernel.config()
    return None if configured is None else Setting(configured.get(option) == "y")
