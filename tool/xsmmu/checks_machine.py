# SPDX-License-Identifier: GPL-2.0-only
"""Checks of `xsmmu doctor` for the machine: the IOMMU, the kernel, and whether the module can be loaded."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from xsmmu import __version__, cmdline, defaults, files, iommu, kernel, machine, module, packages, rules
from xsmmu.errors import UserError
from xsmmu.finding import Finding
from xsmmu.machine import root, sysfs, text

TESTED: Final = {"x86_64": ("6.1", "6.12", "7.2", "7.3"), "aarch64": ("6.12", "7.2", "7.3")}
"""Kernel releases in docs/releases/0.1.0.md, for each supported architecture."""

OPTIONS: Final = (
    "CONFIG_PCI",
    "CONFIG_IOMMU_DMA",
    "CONFIG_TRACEPOINTS",
    "!CONFIG_PREEMPT_RT",
)
"""Kernel options that dkms.conf requires; `!` marks an option that must be off."""

_TRY: Final = "try the module first on a device that the machine does not need"
_ENROLL: Final = "mokutil --import /var/lib/dkms/mok.pub, then reboot and confirm"


def _of_machine(level: str, check: str, reason: str, remedy: str | None = None) -> Finding:
    return Finding(level, check, "machine", reason, remedy)


_TABLES: Final = {
    # By ACPI table: the firmware's name of the IOMMU, the driver's option, and the driver's prefix in the kernel log.
    "DMAR": ("VT-d", "CONFIG_INTEL_IOMMU", "DMAR"),
    "IVRS": ("AMD-Vi (IOMMU)", "CONFIG_AMD_IOMMU", "AMD-Vi"),
    "IORT": ("the SMMU", "CONFIG_ARM_SMMU_V3", "smmu"),
    "VIOT": ("virtio-iommu", "CONFIG_VIRTIO_IOMMU", "virtio_iommu"),
}


def check_iommu() -> Iterator[Finding]:
    """Whether an IOMMU is present and enabled; if not, whether firmware, command line or kernel is the reason."""
    if iommu.has_groups():
        return
    reason, remedy = _xen() or _by_firmware()
    yield _of_machine("blocks", "no-iommu", f"no device is behind an IOMMU: {reason}", remedy)


def _xen() -> tuple[str, str] | None:
    if text(sysfs() / "hypervisor/type") != "xen":
        return None
    if "control_d" in (text(root("proc") / "xen/capabilities") or ""):
        return "this is Xen's dom0, and Xen keeps the IOMMU for itself", "boot this kernel without Xen"
    return "this is a guest of Xen, which gives guests no IOMMU", "use the module on a machine without Xen"


def _by_firmware() -> tuple[str, str]:
    acpi = sysfs() / "firmware/acpi/tables"
    if not acpi.is_dir():
        reason = "no ACPI table describes an IOMMU, because there are no ACPI tables"
        return reason, "see the kernel log: dmesg | grep -i -e iommu -e smmu"
    table = next((name for name in _TABLES if (acpi / name).exists()), None)
    if not table:
        return _none_described()
    name, option, driver = _TABLES[table]
    configured = kernel.config()
    if configured is not None and configured.get(option) not in ("y", "m"):
        return f"the firmware describes {name}, but the kernel is built without {option}", (
            f"boot a kernel with {option}"
        )
    word = _word_missing(table, configured or {})
    return word or (
        f"the firmware describes {name} (ACPI table {table}), and no word of the command line disables the IOMMU",
        f"see the messages of the IOMMU driver: dmesg | grep -i {driver}",
    )


def _none_described() -> tuple[str, str]:
    if kernel.is_virtual():
        reason = "the virtual machine has no IOMMU (no ACPI table DMAR, IVRS, IORT or VIOT)"
        return reason, "add an IOMMU: QEMU's -device intel-iommu, amd-iommu or virtio-iommu-pci, libvirt's <iommu>"
    if kernel.architecture() == "aarch64":
        return "the firmware describes no IOMMU (no ACPI table IORT)", "enable the SMMU in the firmware's setup"
    name = {"intel": "VT-d", "amd": "AMD-Vi (IOMMU)"}.get(kernel.processor() or "", "VT-d or AMD-Vi")
    return "the firmware describes no IOMMU (no ACPI table DMAR or IVRS)", f"enable {name} in the firmware's setup"


def _word_missing(table: str, configured: dict[str, str]) -> tuple[str, str] | None:
    """Word of the command line to remove or to add; only x86 has such words."""
    vendor = {"DMAR": "intel", "IVRS": "amd"}.get(table)
    if not vendor:
        return None
    by_default = vendor == "amd" or configured.get("CONFIG_INTEL_IOMMU_DEFAULT_ON") == "y"
    add = "" if by_default or defaults.switched_on() else ", add intel_iommu=on"
    off = defaults.switched_off(vendor)
    if off:
        return f"{off} is on the kernel's command line", f"remove {off} from the command line{add}, and reboot"
    if add:
        return "intel_iommu=on is not on the kernel's command line", "add intel_iommu=on and reboot"
    return None


def check_kind() -> Iterator[Finding]:
    """The module supports only tested kinds of IOMMU."""
    if not iommu.has_groups():
        return
    kinds = [iommu.kind(unit) for unit in iommu.units()]
    others = sorted({*kinds} - {*iommu.ACCEPTED})
    accepted = [kind for kind in iommu.ACCEPTED if kind in kinds]
    if others:
        reason = f"the IOMMU is {', '.join(others)}, but the module supports only {', '.join(iommu.ACCEPTED)}"
        yield _of_machine("risk" if accepted else "blocks", "iommu-kind", reason)
    elif accepted:
        count = len(kinds)
        yield _of_machine("ok", "iommu-kind", f"{', '.join(accepted)}, {count} unit{'s' if count > 1 else ''}")


def check_npcache() -> Iterator[Finding]:
    """The mode of AMD-Vi on real machines was never run."""
    if any(iommu.is_bare_amd(unit) for unit in iommu.units()):
        reason = "AMD-Vi is without NpCache, as in real machines: the module accepts this mode, but was never run in it"
        yield _of_machine("risk", "npcache", reason, _TRY)


def check_caching_mode() -> Iterator[Finding]:
    """In caching mode each map costs a command."""
    if any(iommu.caches_absent_entries(unit) for unit in iommu.units()):
        reason = (
            "VT-d is in caching mode, so a hypervisor must see each map in second-stage tables: each map sends a "
            "command under every policy, and deferring saves only the commands of unmaps"
        )
        yield _of_machine("note", "caching-mode", reason)


def check_floor() -> Iterator[Finding]:
    """The module's minimum level, in force or expected."""
    found = defaults.strict()
    why = None
    if found and found.on:
        why = f"{found.word} is on the kernel's command line" if found.word else "the kernel is built strict"
    elif (kernel.lockdown() or "none") != "none":
        why = f"the kernel is locked down ({kernel.lockdown()})"
    in_force = text(sysfs() / "module/xsmmu/parameters/min_level")
    if in_force == "strict" or (why and not in_force):
        reason = (
            f"the module's minimum level is strict{f', because {why}' if why else ''}: policies of a lower level "
            "are refused"
        )
        yield _of_machine("note", "floor", reason, "to allow lower levels: modprobe xsmmu min_level=held")


def check_mode() -> Iterator[Finding]:
    """The kernel's own path: types of the groups now, and at boot."""
    if not iommu.has_groups():
        return
    types = Counter(group.type for group in machine.groups())
    count, total = types["identity"], types.total()
    known = bool({*types} & {*machine.MODES})
    how, remedy = _to_passthrough()
    if how and (count or not known):
        verb = "is" if count == 1 else "are"
        reason = f"{count} of {total} groups {verb} passthrough, so not translated: {how}" if known else how
        reason += "" if known else ", and the types of the groups cannot be read"
        remedy += "; or change single groups: see the finding group-type"
        yield _of_machine("risk", "kernel-mode", reason, remedy)
    elif how:
        reason = f"{_own_path(types)}; {how}, so the next boot may make groups passthrough"
        yield _of_machine("note", "kernel-mode", reason, remedy)
    elif known:
        yield _of_machine("ok", "kernel-mode", _own_path(types))


def _to_passthrough() -> tuple[str, str]:
    """Cause of passthrough at boot and the remedy; empty strings without a cause."""
    found = defaults.passthrough()
    if not found or not found.on:
        return "", ""
    if found.word:
        return f"{found.word} is on the kernel's command line", f"remove {found.word} and reboot"
    return "the kernel is built for passthrough", "add iommu.passthrough=0 to the command line and reboot"


def _own_path(types: Counter[str]) -> str:
    lazy, strict = types["DMA-FQ"], types["DMA"]
    said = [
        (lazy, "lazy (unmapped memory stays reachable for up to 10 ms)"),
        (strict, f"strict{_by_itself() if strict and not lazy else ''}"),
        (types["identity"], "passthrough (not translated)"),
    ]
    parts = [f"{count} group{'s' if count > 1 else ''} {how}" for count, how in said if count]
    return f"the kernel's own path: {', '.join(parts)}"


def _by_itself() -> str:
    """Explanation for strict groups without a setting that asks for strict."""
    found = defaults.strict()
    if found and found.on:
        return ""
    return ", which the kernel chooses if a hypervisor must see each map" if kernel.is_virtual() else ""


def check_realtime() -> Iterator[Finding]:
    """The module does not support PREEMPT_RT."""
    if kernel.is_realtime():
        reason = "the kernel is PREEMPT_RT, which the module does not support"
        usual = packages.usual_kernel()
        yield _of_machine(
            "blocks",
            "preempt-rt",
            reason,
            f"boot a kernel without PREEMPT_RT{f' (apt install {usual})' if usual else ''}",
        )


def _age(tested: Sequence[str]) -> str | None:
    """Whether the kernel is older or newer than all supported kernels; None if neither or unknown."""
    series = kernel.series()
    oldest, newest = (tuple(map(int, each.split("."))) for each in (tested[0], tested[-1]))
    return "newer" if series > newest else "older" if (0, 0) < series < oldest else None


def check_release() -> Iterator[Finding]:
    """Whether the module supports the running kernel and was tested with its release."""
    release, architecture = kernel.release(), kernel.architecture() or "x86_64"
    if architecture not in TESTED:
        return
    tested = TESTED[architecture]
    if (age := _age(tested)) and not module.is_loaded():
        end = tested[0] if age == "older" else tested[-1]
        reason = (
            f"the kernel is {release}, {age} than {end}, the {age[:-2]}est kernel that this version of the module "
            "supports"
        )
        remedy = f"boot kernel {end} or later"
        if age == "newer":
            remedy = (
                "install a later xsmmu, or boot an older kernel; modprobe xsmmu any_kernel=1 if you built the "
                "module yourself"
            )
        yield _of_machine("blocks", "kernel-release", reason, remedy)
        return
    name = ".".join(map(str, kernel.series()))
    if name in tested:
        reason = f"the kernel is {release}, and the module was tested with {name}"
        yield _of_machine("ok", "kernel-release", reason)
        return
    reason = f"the kernel is {release or 'of an unknown release'}, but the module was tested with {', '.join(tested)}"
    yield _of_machine("risk", "kernel-release", reason, _TRY)


def check_config() -> Iterator[Finding]:
    """Options that dkms.conf requires; PREEMPT_RT has a check of its own."""
    architecture = kernel.architecture()
    if architecture is not None and architecture not in TESTED:
        reason = f"the machine is {architecture}, but the module supports {' and '.join(TESTED)}"
        yield _of_machine("blocks", "architecture", reason, "use the module on a supported machine")
        return
    found = kernel.config()
    if found is None:
        reason = (
            "the kernel's options were not checked, because its configuration cannot be read (/proc/config.gz, "
            "/boot/config-RELEASE)"
        )
        release = kernel.release()
        place = f"{root('boot')}/config-{release} from the kernel's package"
        remedy = f"to check the options: restore {place}" if release else None
        yield _of_machine("note", "kernel-options", reason, remedy)
        return
    missing = [name for name in OPTIONS if not name.startswith("!") and found.get(name) not in ("y", "m")]
    if missing:
        reason = f"the kernel is built without {', '.join(missing)}, which the module needs"
        yield _of_machine("blocks", "kernel-options", reason, "boot a distribution's own kernel")
    else:
        yield _of_machine("ok", "kernel-options", "the kernel has the options that the module needs")


def _build() -> str:
    """Command that builds the module for the running kernel."""
    return "apt install ./xsmmu-dkms_*.deb, or dkms autoinstall" if packages.has_apt() else "dkms autoinstall"


def _refusal() -> str | None:
    """Word of the command line that blocks the module; the last module_blacklist counts."""
    listed = [*cmdline.named("module_blacklist")][-1:]
    return next((word.plain for word in listed if "xsmmu" in word.parts), None)


def check_module() -> Iterator[Finding]:
    """Whether the module is built, loaded, and of the tool's version."""
    if module.is_loaded():
        version = module.version()
        if version == __version__:
            yield _of_machine("ok", "module", f"the module is loaded, version {version}")
            return
        reason = f"the loaded module has version {version or 'unknown'}, but this tool has version {__version__}"
        remedy = "unbind the drivers of attached groups, then modprobe -r xsmmu && modprobe xsmmu; or reboot"
        yield _of_machine("risk", "module-version", reason, remedy)
        return
    word = _refusal()
    if word:
        reason = f"the kernel refuses to load the module: {word} is on the kernel's command line"
        yield _of_machine("blocks", "module-blacklisted", reason, f"remove {word} and reboot")
    if kernel.built("xsmmu"):
        if not word:
            yield _of_machine("blocks", "module-not-loaded", "the module is built, but not loaded", "modprobe xsmmu")
        return
    tested = TESTED.get(kernel.architecture() or "x86_64")
    if not tested or _age(tested) == "older":
        # Another finding says that this kernel or architecture is not supported.
        return
    release = kernel.release()
    reason = f"the module is not built for {release or 'this kernel, whose release cannot be read'}"
    if not release or not (root("modules") / release / "build").exists():
        reason += ", and the kernel headers for the build are missing" if release else ""
        remedy = f"{packages.headers()}; then {_build()}"
        yield _of_machine("blocks", "module-not-built", reason, remedy)
    else:
        yield _of_machine("blocks", "module-not-built", reason, _build())


def check_signing() -> Iterator[Finding]:
    """Whether the kernel accepts the module's signature; a loaded module was accepted."""
    if module.is_loaded():
        return
    why = kernel.refuses_unsigned()
    if not why:
        if kernel.secure_boot():
            reason = "Secure Boot is on, but this kernel shows no sign of refusing unsigned modules"
            yield _of_machine("note", "signing", reason, f"if modprobe says Key was rejected: {_ENROLL}")
        return
    built = kernel.built("xsmmu")
    signed = kernel.is_signed(built) if built else None
    if signed is False:
        reason = f"{why}, and {built} has no signature, so the module will not load"
        yield _of_machine("blocks", "signing", reason, f"{_ENROLL}; then dkms install --force xsmmu/{__version__}")
    elif not kernel.knows_key_of_dkms():
        state = "is signed" if signed else "has to be signed (DKMS does)"
        reason = f"{why}: the module {state}, but no key of DKMS was found among the kernel's trusted keys"
        yield _of_machine("risk", "signing", reason, _ENROLL)


def check_rules() -> Iterator[Finding]:
    """Whether the rules for the next boot match the present devices."""
    try:
        found = rules.read(files.text_of(rules.conf()) or "", None)
    except UserError as error:
        yield _of_machine("risk", "rules", error.message, f"correct {rules.conf()}, then run xsmmu apply")
        return
    for said in rules.passed_over(found):
        remedy = f"xsmmu set DEVICE POLICY --persist, or remove the line from {rules.conf()}; then run xsmmu apply"
        yield _of_machine("risk", "rules", f"{rules.conf()}: {said}", remedy)


def check_permission() -> Iterator[Finding]:
    """Findings that need root."""
    if os.geteuid() != 0:
        reason = (
            "not root, so ATS, statistics and bad unmaps were not checked, and keys or Secure Boot may be invisible"
        )
        yield _of_machine("note", "not-root", reason, "sudo xsmmu doctor")


CHECKS: Final[tuple[Callable[[], Iterator[Finding]], ...]] = (
    check_iommu,
    check_kind,
    check_npcache,
    check_caching_mode,
    check_mode,
    check_floor,
    check_realtime,
    check_release,
    check_config,
    check_module,
    check_signing,
    check_rules,
    check_permission,
)
