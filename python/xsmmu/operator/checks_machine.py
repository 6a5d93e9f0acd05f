# SPDX-License-Identifier: GPL-2.0-only
"""What `xsmmu doctor` looks at once for the machine: its IOMMU, its kernel, and whether the module can be loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Final

from xsmmu import __version__
from xsmmu.operator import iommu, kernel, module
from xsmmu.operator.finding import Finding
from xsmmu.operator.machine import root, sysfs, text

TESTED: Final = {"x86_64": ("6.1", "6.12", "7.2", "7.3"), "aarch64": ("6.12", "7.2", "7.3")}
"""The kernel releases that docs/use.md has, of each architecture that the module is for."""

OPTIONS: Final = (
    "CONFIG_PCI",
    "CONFIG_IOMMU_DMA",
    "CONFIG_TRACEPOINTS",
    "!CONFIG_PREEMPT_RT",
)
"""What dkms.conf asks of a kernel; ! is what it must not have."""

_ENROLL: Final = "mokutil --import /var/lib/dkms/mok.pub, then reboot and confirm"


def _of_machine(level: str, check: str, reason: str, remedy: str | None = None) -> Finding:
    return Finding(level, check, "machine", reason, remedy)


def _firmware(table: str, name: str, remedy: str) -> Finding:
    acpi = sysfs() / "firmware/acpi/tables"
    if acpi.is_dir() and not (acpi / table).exists():
        reason = f"no device is behind an IOMMU: the firmware describes none (no ACPI table {table})"
        remedy = f"switch on {name} in the firmware's setup, or give the virtual machine one; then {remedy}"
    else:
        reason = "no device is behind an IOMMU, although the firmware may describe one"
    return _of_machine("blocks", "no-iommu", reason, remedy)


def check_iommu() -> Iterator[Finding]:
    """Is one there and switched on, and which word does that?"""
    if iommu.has_groups():
        return
    if kernel.architecture() == "aarch64":
        # There is no word that switches it on: its driver is there or is not.
        yield _firmware("IORT", "the SMMU", "boot a kernel with its driver (CONFIG_ARM_SMMU_V3)")
        return
    vendor = kernel.processor() or "intel"
    for option in (f"{vendor}_iommu", "iommu"):
        if "off" in kernel.words(option):
            reason = f"no device is behind an IOMMU, since {option}=off is on the kernel's command line"
            yield _of_machine("blocks", "no-iommu", reason, f"replace {option}=off by {vendor}_iommu=on, and reboot")
            return
    table, name = ("DMAR", "VT-d") if vendor == "intel" else ("IVRS", "AMD-Vi (IOMMU)")
    yield _firmware(table, name, f"add {vendor}_iommu=on to the kernel's command line and reboot")


def check_kind() -> Iterator[Finding]:
    """The module takes what was tried."""
    kinds = [iommu.kind(unit) for unit in iommu.units()]
    others = sorted({*kinds} - {*iommu.ACCEPTED})
    accepted = [kind for kind in iommu.ACCEPTED if kind in kinds]
    if others:
        reason = f"the IOMMU is {', '.join(others)}; the module accepts only {', '.join(iommu.ACCEPTED)}"
        yield _of_machine("risk" if accepted else "blocks", "iommu-kind", reason)
    elif accepted:
        count = len(kinds)
        yield _of_machine("ok", "iommu-kind", f"{', '.join(accepted)}, {count} unit{'s' if count > 1 else ''}")


def check_caching_mode() -> Iterator[Finding]:
    """What a hypervisor asks for costs each map a command."""
    if any(iommu.caches_absent_entries(unit) for unit in iommu.units()):
        reason = (
            "VT-d is in caching mode, so a hypervisor below this machine must hear of each map in tables of the second "
            "stage: each sends a command under every policy, and deferring saves only the unmap's"
        )
        yield _of_machine("note", "caching-mode", reason)


def _floor(why: str) -> Iterator[Finding]:
    """The module's floor is strict, unless another was given when it was loaded."""
    if not text(sysfs() / "module/xsmmu/parameters/min_level"):
        reason = f"{why}, so the module's floor is strict: it refuses policies of a lower level"
        yield _of_machine("note", "floor", reason, "modprobe xsmmu min_level=held, if you want less")


def check_mode() -> Iterator[Finding]:
    """What the kernel's own path is from boot on, by the command line or the configuration."""
    passthrough = kernel.switch("iommu.passthrough")
    if passthrough or (passthrough is None and "pt" in kernel.words("iommu")):
        word = "iommu.passthrough=1" if passthrough else "iommu=pt"
        reason = f"{word} is on the kernel's command line: all groups are passthrough from boot on, and not translated"
        remedy = f"remove {word} and reboot; or switch single groups, without their drivers: see group-type"
        yield _of_machine("risk", "kernel-mode", reason, remedy)
        return
    configured = kernel.config() or {}
    built = configured.get("CONFIG_IOMMU_DEFAULT_PASSTHROUGH") == "y" and "nopt" not in kernel.words("iommu")
    if built and passthrough is None:
        reason = "the kernel is built for passthrough: all groups are so from boot on, and not translated"
        yield _of_machine("risk", "kernel-mode", reason, "add iommu.passthrough=0 to the command line and reboot")
        return
    strict = kernel.switch("iommu.strict")
    if strict is None:
        strict = "strict" in kernel.words("intel_iommu") or configured.get("CONFIG_IOMMU_DEFAULT_DMA_STRICT") == "y"
    if strict:
        yield from _floor("the kernel's own path is strict by configuration")
    elif kernel.words("iommu.strict") or configured:
        reason = "the kernel's own path is lazy by default: unmapped memory stays in a device's reach for up to 10 ms"
        yield _of_machine("ok", "kernel-mode", reason)


def check_realtime() -> Iterator[Finding]:
    """The module has no code for it."""
    if kernel.is_realtime():
        reason = "this is a PREEMPT_RT kernel, for which the module does not compile"
        flavour = "arm64" if kernel.architecture() == "aarch64" else "amd64"
        yield _of_machine("blocks", "preempt-rt", reason, f"boot one without (apt install linux-image-{flavour})")


def check_release() -> Iterator[Finding]:
    """Is the module for this kernel, and was it tried on it?"""
    release = kernel.release()
    tested = TESTED.get(kernel.architecture() or "", TESTED["x86_64"])
    series = re.match(r"\d+\.\d+", release)
    if series and _number(series[0]) > _number(tested[-1]) and not module.is_loaded():
        reason = f"the kernel is {release}, newer than {tested[-1]}, the newest that this version of the module is for"
        remedy = "install a later xsmmu, or boot an older kernel; modprobe xsmmu any_kernel=1 if you built it yourself"
        yield _of_machine("blocks", "kernel-release", reason, remedy)
        return
    if series and series[0] in tested:
        reason = f"the kernel is {release}; {series[0]} is among those that were tested"
        yield _of_machine("ok", "kernel-release", reason)
        return
    reason = f"the kernel is {release or 'of an unknown release'}; tested were {', '.join(tested)}"
    yield _of_machine("risk", "kernel-release", reason, "try it first on a device that the machine can do without")


def _number(series: str) -> tuple[int, ...]:
    return tuple(map(int, series.split(".")))


def check_config() -> Iterator[Finding]:
    """What dkms.conf asks for; PREEMPT_RT has its own check."""
    architecture = kernel.architecture()
    if architecture is not None and architecture not in TESTED:
        reason = f"the machine is {architecture}; the module is for {' and '.join(TESTED)}"
        yield _of_machine("blocks", "architecture", reason)
    found = kernel.config()
    if found is None:
        reason = "the kernel's configuration cannot be read (/proc/config.gz, /boot/config-RELEASE), so not checked"
        yield _of_machine("note", "kernel-options", reason, _headers())
        return
    missing = [name for name in OPTIONS if not name.startswith("!") and found.get(name) not in ("y", "m")]
    if missing:
        reason = f"the kernel is built without {', '.join(missing)}, which the module needs"
        yield _of_machine("blocks", "kernel-options", reason, "boot a distribution's own kernel")
    else:
        yield _of_machine("ok", "kernel-options", "the kernel has the options that the module needs")


def _headers() -> str:
    return f"apt install linux-headers-{kernel.release()}"


def _refusal() -> str | None:
    """Why the kernel will not load the module, if it is told not to."""
    return "module_blacklist=xsmmu" if "xsmmu" in kernel.words("module_blacklist") else None


def check_module() -> Iterator[Finding]:
    """Is it there, loaded, and of this tool's version?"""
    if module.is_loaded():
        version = module.version()
        if version == __version__:
            yield _of_machine("ok", "module", f"the module is loaded, version {version}")
            return
        reason = f"the loaded module is of version {version or 'unknown'}, and this tool of {__version__}"
        remedy = "unbind the drivers of what is taken over, then modprobe -r xsmmu && modprobe xsmmu; or reboot"
        yield _of_machine("risk", "module-version", reason, remedy)
        return
    word = _refusal()
    if word:
        reason = f"the kernel refuses to load the module: {word} is on its command line"
        yield _of_machine("blocks", "module-blacklisted", reason, f"remove {word} and reboot")
    if kernel.built("xsmmu"):
        if not word:
            yield _of_machine("blocks", "module-not-loaded", "the module is built and not loaded", "modprobe xsmmu")
    elif not (root("modules") / kernel.release() / "build").exists():
        reason = f"the module is not built for {kernel.release()}, and the headers that it needs for that are not there"
        remedy = f"{_headers()}, then apt install ./xsmmu-dkms_*.deb, or dkms autoinstall"
        yield _of_machine("blocks", "module-not-built", reason, remedy)
    else:
        reason = f"the module is not built for {kernel.release()}"
        yield _of_machine("blocks", "module-not-built", reason, "apt install ./xsmmu-dkms_*.deb, or dkms autoinstall")


def check_lockdown() -> Iterator[Finding]:
    """Under lockdown the floor is strict, too."""
    if (kernel.lockdown() or "none") != "none":
        yield from _floor(f"the kernel is locked down ({kernel.lockdown()})")


def check_signing() -> Iterator[Finding]:
    """Will this kernel load the module? One that is loaded has passed."""
    if module.is_loaded():
        return
    why = kernel.refuses_unsigned()
    if not why:
        if kernel.secure_boot():
            reason = "Secure Boot is on; this kernel says no reason why it would refuse an unsigned module"
            yield _of_machine("note", "signing", reason, f"if modprobe says Key was rejected: {_ENROLL}")
        return
    built = kernel.built("xsmmu")
    signed = kernel.is_signed(built) if built else None
    if signed is False:
        reason = f"{why}, and {built} has no signature: it will not load"
        yield _of_machine("blocks", "signing", reason, f"{_ENROLL}; then dkms install --force xsmmu/{__version__}")
    elif not kernel.knows_key_of_dkms():
        state = "is signed" if signed else "has to be signed (DKMS does)"
        reason = f"{why}: the module {state}, and no key of DKMS is seen among those that the kernel trusts"
        yield _of_machine("risk", "signing", reason, _ENROLL)


def check_permission() -> Iterator[Finding]:
    """What only root can see."""
    if os.geteuid() != 0:
        reason = "not root: ATS, statistics and strays are not looked at, and a key or Secure Boot may not be seen"
        yield _of_machine("note", "not-root", reason, "sudo xsmmu doctor")


CHECKS: Final[tuple[Callable[[], Iterator[Finding]], ...]] = (
    check_iommu,
    check_kind,
    check_caching_mode,
    check_mode,
    check_realtime,
    check_release,
    check_config,
    check_module,
    check_lockdown,
    check_signing,
    check_permission,
)
