# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu doctor` on made-up machines: a healthy machine, and a machine for each possible fault."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import lzma
import os
import re
import struct
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.python.fake_kernel import program
from tests.python.sysfs import IGB, NVME0, NVME1, Machine, make_device, used_text

from xsmmu import __version__, checks_group, checks_machine, doctor, kernel, machine, metrics, module, packages
from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu.finding import LEVELS, Finding
from xsmmu.machine import Device
from xsmmu_lab.project import PROJECT

SIGNED = b"~Module signature appended~\n"
APT = """
echo >>${0%/bin/*}/asked
[ "$1 $2 $3" = "show --no-all-versions --" ] || exit 2
shift 3
while read -r name || [ "$name" ]; do
	for wanted; do [ "$name" = "$wanted" ] && echo "Package: $name"; done
done <${0%/bin/*}/archive
exit 100
"""
"""apt's knowledge is in a file; another file has a line per question to apt."""
EFIVAR = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@pytest.fixture
def healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """VT-d in legacy mode, Debian's 6.12, the module loaded, a NIC under fused and a disk under strict."""
    made = Machine(tmp_path)
    for name in machine.ROOTS:
        monkeypatch.setenv(f"XSMMU_{name.upper()}", str(tmp_path / name))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("XSMMU_CONF", str(tmp_path / "xsmmu.conf"))
    # An archive like Debian's.
    program(tmp_path / "bin/apt-cache", APT)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    monkeypatch.setattr(machine, "SBIN", str(tmp_path / "bin"))
    flavours = (f"linux-headers-{Machine.RELEASE}", "linux-headers-amd64", "linux-image-amd64", "linux-image-arm64")
    (tmp_path / "archive").write_text("\n".join(flavours))
    make_device(made.sysfs, IGB, 11, "fused", "igb", interface="eth1")
    disk = make_device(made.sysfs, NVME0, 13, "strict", "nvme", disk="nvme0n1")
    (disk / "level").write_text("strict\n")
    (disk.parent / "class").write_text("0x010802\n")
    made.link_iommu(IGB, NVME0)
    return made


def wrong(*devices: str) -> list[Finding]:
    """Findings that are not ok, of all devices or some."""
    return [each for each in doctor.examine([Device(name) for name in devices]) if each.level != "ok"]


@pytest.mark.usefixtures("healthy")
def test_nothing_is_wrong_with_a_healthy_machine() -> None:
    assert wrong() == []
    checks = {each.check for each in doctor.examine([])}
    assert checks == {"iommu-kind", "kernel-mode", "kernel-release", "kernel-options", "module", "auto", "exposure"}
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert result.output.endswith("nothing blocks.\n")


def test_a_device_that_goes_meanwhile_is_left_out(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    auto = module.auto

    def goes(device: Device) -> module.Auto | None:
        if device == Device(NVME0):
            healthy.remove(f"sysfs/bus/pci/devices/{NVME0}")
        return auto(device)

    monkeypatch.setattr(module, "auto", goes)
    found = doctor.examine([])
    assert {each.subject for each in found if each.check == "auto"} == {"group 11"}

    def gone(device: Device) -> module.Auto | None:
        raise module.gone(device)

    monkeypatch.setattr(module, "auto", gone)
    with pytest.raises(UserError, match="has disappeared"):
        doctor.examine([Device(IGB)])


def test_a_device_that_goes_is_not_one_that_lacks_an_iommu(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    has_ats = checks_group.has_ats

    def goes(device: Device) -> bool | None:
        if device == Device(IGB):
            healthy.remove(f"sysfs/bus/pci/devices/{NVME0}")
        return has_ats(device)

    monkeypatch.setattr(checks_group, "has_ats", goes)
    assert wrong() == []
    with pytest.raises(UserError, match=f"{NVME0} has disappeared"):
        wrong(IGB, NVME0)


@pytest.mark.usefixtures("healthy")
def test_a_device_that_a_check_says_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(device: Device) -> Iterator[Finding]:
        raise module.gone(device)

    monkeypatch.setattr(checks_group, "DEVICE_CHECKS", (gone,))
    assert wrong() == []
    with pytest.raises(UserError, match="has disappeared"):
        wrong(IGB)


@pytest.mark.parametrize("named", [(), (NVME1,)])
def test_a_group_that_goes_on_without_one_has_its_findings(
    healthy: Machine, monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...]
) -> None:
    make_device(healthy.sysfs, NVME1, 13, "strict", "nvme", kind="identity")
    choice = module.choice

    def goes(device: Device) -> module.Choice:
        if device == Device(NVME0):
            healthy.remove(f"sysfs/bus/pci/devices/{NVME0}")
        return choice(device)

    monkeypatch.setattr(module, "choice", goes)
    assert ("blocks", "group-type") in {(each.level, each.check) for each in wrong(*named)}


def test_of_one_that_was_not_named_nothing_is_missed(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    make_device(healthy.sysfs, NVME1, 13, "strict", "nvme")

    def look(device: Device) -> Iterator[Finding]:
        if device == Device(NVME0):
            raise UserError("the module xsmmu is not loaded", code="no-module")
        yield from ()

    monkeypatch.setattr(checks_group, "DEVICE_CHECKS", (look,))
    doctor.examine([Device(NVME1)])
    with pytest.raises(UserError, match="not loaded"):
        doctor.examine([Device(NVME0)])


@pytest.mark.parametrize(
    "what",
    [
        f"bus/pci/devices/{IGB}",
        f"bus/pci/devices/{IGB}/xsmmu",
        "kernel/iommu_groups/11",
        # One of two.
        f"bus/pci/devices/{NVME0}",
    ],
)
@pytest.mark.parametrize("named", [(), (IGB,), (NVME1,)])
def test_what_goes_at_whatever_moment_is_no_error_of_ours(
    healthy: Machine, monkeypatch: pytest.MonkeyPatch, what: str, named: tuple[str, ...]
) -> None:
    """Before any of doctor's reads of a file."""
    make_device(healthy.sysfs, NVME1, 13, "strict", "nvme")
    place = healthy.sysfs / what
    away = place.with_name("away")
    left = 0

    def counted(name: str) -> None:
        real = getattr(Path, name)

        def look(path: Path, *words: object, **more: object) -> object:
            nonlocal left
            left -= 1
            if left == 0 and os.path.lexists(place):
                place.rename(away)
            return real(path, *words, **more)

        monkeypatch.setattr(Path, name, look)

    for name in ("is_dir", "exists", "iterdir", "read_text", "readlink"):
        counted(name)
    found: list[Finding] = []
    for nth in range(1, 10_000):
        left = nth
        # Only a named device is missed.
        with contextlib.suppress(*([UserError] if named else [])):
            found += doctor.examine([Device(each) for each in named])
        if not os.path.lexists(away):
            break
        away.rename(place)
    assert 10 < nth < 10_000
    # A device that lacks its own files would be another matter.
    if place.name in (IGB, NVME0):
        assert [each for each in found if each.level == "blocks"] == []


def test_a_group_that_goes_at_any_time(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its link, or its folder: doctor examines all devices, and reports nothing about a vanished device."""
    name_at, iterdir = machine.name_at, Path.iterdir
    for nth in range(12):
        seen: list[Path | str] = []

        def at(link: Path, nth: int = nth, seen: list[Path | str] = seen) -> str | None:
            if NVME0 in str(link):
                seen.append(link)
            return None if NVME0 in str(link) and len(seen) > nth else name_at(link)

        monkeypatch.setattr(machine, "name_at", at)
        doctor.examine([])
        metrics.exposition()

    def goes(folder: Path) -> Iterator[Path]:
        if "iommu_groups/13" in str(folder):
            healthy.remove("sysfs/kernel/iommu_groups/13")
        return iterdir(folder)

    monkeypatch.setattr(machine, "name_at", name_at)
    monkeypatch.setattr(Path, "iterdir", goes)
    doctor.examine([])
    assert machine.Group(13).members == []


@pytest.mark.usefixtures("healthy")
def test_a_group_whose_devices_cannot_be_read_is_no_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    iterdir = Path.iterdir

    def refused(folder: Path) -> Iterator[Path]:
        if "iommu_groups" in str(folder) and folder.name == "devices":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return iterdir(folder)

    monkeypatch.setattr(Path, "iterdir", refused)
    for words in (["doctor", "eth1"], ["set", "eth1", "strict", "--rebind", "--dry-run"]):
        with pytest.raises((PermissionError, UserError), match="Permission denied"):
            CliRunner().invoke(app, words, catch_exceptions=False)


def no_groups(
    made: Machine,
    *words: str,
    tables: tuple[str, ...] | None = ("DMAR",),
    vendor: str = "GenuineIntel",
    more: str = "",
) -> None:
    made.remove("sysfs/kernel/iommu_groups")
    made.remove("sysfs/class/iommu")
    made.remove("sysfs/bus/pci/devices")
    made.write("proc/cmdline", " ".join(("quiet", *words)))
    made.write("proc/cpuinfo", f"processor\t: 0\nvendor_id\t: {vendor}\n{more}\n")
    for name in () if tables is None else ("FACP", *tables):
        made.write(f"sysfs/firmware/acpi/tables/{name}", "")


def on_by_default(made: Machine) -> None:
    no_groups(made)
    option(made, "CONFIG_PCI=y", "CONFIG_PCI=y\nCONFIG_INTEL_IOMMU_DEFAULT_ON=y")


def amd(made: Machine, *words: str) -> None:
    no_groups(made, *words, tables=("IVRS",), vendor="AuthenticAMD")
    option(made, "CONFIG_PCI=y", "CONFIG_PCI=y\nCONFIG_AMD_IOMMU=y")


def xen(made: Machine, capabilities: str) -> None:
    no_groups(made, "intel_iommu=on")
    made.write("sysfs/hypervisor/type", "xen")
    made.write("proc/xen/capabilities", capabilities)


def no_iommu_mode(made: Machine) -> None:
    """As VFIO leaves the machine with enable_unsafe_noiommu_mode."""
    no_groups(made)
    make_device(made.sysfs, IGB, 0, None, "vfio-pci")
    made.write("sysfs/kernel/iommu_groups/0/name", "vfio-noiommu")
    made.remove("sysfs/kernel/iommu_groups/0/type")


def arm(made: Machine, and_this: Callable[[], None]) -> None:
    made.write("proc/sys/kernel/arch", "aarch64")
    made.write("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\n")
    and_this()


def unit(made: Machine, *, cap: int = 0, ecap: int = 0) -> None:
    made.write("sysfs/class/iommu/dmar0/intel-iommu/cap", f"{cap:x}")
    made.write("sysfs/class/iommu/dmar0/intel-iommu/ecap", f"{ecap:x}")


def other_iommu(made: Machine, name: str, folder: str) -> None:
    made.remove("sysfs/class/iommu")
    for device in (IGB, NVME0):
        made.remove(f"sysfs/bus/pci/devices/{device}/iommu")
    made.write(f"sysfs/class/iommu/{name}/{folder}/features", "0")


def amd_unit(made: Machine, cap: int) -> None:
    other_iommu(made, "ivhd0", "amd-iommu")
    made.write("sysfs/class/iommu/ivhd0/amd-iommu/cap", f"{cap:x}")


def unloaded(made: Machine, content: bytes | None = b"module" + SIGNED, name: str = "xsmmu.ko") -> None:
    """The module is built and signed like the kernel's own modules, or not built, and nothing was chosen."""
    made.remove("sysfs/module/xsmmu")
    for device in (IGB, NVME0):
        made.remove(f"sysfs/bus/pci/devices/{device}/xsmmu")
    made.write(f"modules/{kernel.release()}/build/Makefile", "")
    if content is not None:
        made.write_bytes(f"modules/{kernel.release()}/updates/dkms/{name}", content)


def locked(made: Machine, content: bytes | None, name: str = "xsmmu.ko", keys: str = "") -> None:
    unloaded(made, content, name)
    made.write("sysfs/kernel/security/lockdown", "none [integrity] confidentiality")
    made.write("proc/keys", keys)


def second_disk(made: Machine, state: str = "idle") -> None:
    folder = make_device(made.sysfs, NVME1, 13, "strict", "nvme", state=state)
    (folder / "level").write_text("strict\n")
    made.write(f"sysfs/bus/pci/devices/{NVME0}/xsmmu/state", state)


def stat(made: Machine, name: str, value: int) -> None:
    made.write(f"sysfs/bus/pci/devices/{IGB}/xsmmu/stats/{name}", str(value))


def put(made: Machine, **files: str) -> None:
    """Write files of the NIC."""
    for name, content in files.items():
        made.write(f"sysfs/bus/pci/devices/{IGB}/xsmmu/{name}", content)


def direct(made: Machine, **counts: int) -> None:
    put(made, tables="kernel [direct]", used=used_text(**counts))


def copying(made: Machine, policy: str = "fused", **counts: int) -> None:
    menu = "none auto copy strict lazy fands xsmmu fused".replace(policy, f"[{policy}]")
    put(made, policy=menu, copy_bytes="256", used=used_text(**counts), auto_policy=f"{policy} held: the same")


def aware(made: Machine, **counts: int) -> None:
    counts = {"deferred_pages": 0, "immediate_pages": 2400} | counts
    put(made, batch_aware="1", level="strict", used=used_text(**counts))


def aware_by_auto(made: Machine) -> None:
    aware(made)
    put(made, policy="none [auto] copy strict lazy fands xsmmu fused", auto_policy="fused strict: all are batch-aware")


def exposed(made: Machine, longest_ns: int, device: str = IGB) -> None:
    made.write(f"sysfs/bus/pci/devices/{device}/xsmmu/exposure_ns", f"1024 10\n2048 3\nmax {longest_ns}")


def state(made: Machine, word: str) -> None:
    made.write(f"sysfs/bus/pci/devices/{IGB}/xsmmu/state", word)


def group_type(made: Machine, word: str) -> None:
    made.write("sysfs/kernel/iommu_groups/11/type", word)


def configuration_space(*capabilities: tuple[int, int]) -> bytes:
    """A chain of extended capabilities (id, control register)."""
    space = bytearray(4096)
    for index, (name, control) in enumerate(capabilities):
        at, following = 0x100 + index * 0x40, 0x100 + (index + 1) * 0x40
        last = index == len(capabilities) - 1
        struct.pack_into("<IHH", space, at, name | 1 << 16 | (0 if last else following) << 20, 0, control)
    return bytes(space)


def space(made: Machine, content: bytes) -> None:
    made.write_bytes(f"sysfs/bus/pci/devices/{IGB}/config", content)


DECLINED = "untrusted (external-facing) device: leave its IOMMU group to the kernel's own path"


def decline(made: Machine) -> None:
    state(made, "off")
    made.write(f"sysfs/bus/pci/devices/{IGB}/xsmmu/policy", "[none] auto copy strict lazy fands xsmmu fused")
    made.write(f"sysfs/bus/pci/devices/{IGB}/xsmmu/auto_policy", f"none none: {DECLINED}")
    made.write(f"sysfs/bus/pci/devices/{IGB}/xsmmu/declined", f"{IGB}: {DECLINED}")


def decline_strict(made: Machine) -> None:
    decline(made)
    group_type(made, "DMA")


def external(made: Machine) -> None:
    """A device behind an external port, and a module that does not show declined devices."""
    made.write(f"sysfs/bus/pci/devices/{IGB}/removable", "removable")
    made.remove(f"sysfs/bus/pci/devices/{IGB}/xsmmu/declined")


def option(made: Machine, old: str, new: str) -> None:
    made.write(f"boot/config-{kernel.release()}", made.config.replace(old, new))


PROBLEMS: dict[str, tuple[Callable[[Machine], None], str, str, str]] = {
    # The planted fault, the level and check that find it, and a part of the remedy (or the reason, without a remedy).
    "no IOMMU in the firmware": (lambda made: no_groups(made, tables=()), "blocks", "no-iommu", "enable VT-d"),
    "none in AMD's firmware": (
        lambda made: no_groups(made, tables=(), vendor="AuthenticAMD"),
        "blocks",
        "no-iommu",
        "enable AMD-Vi",
    ),
    "none in Zhaoxin's firmware": (
        lambda made: no_groups(made, tables=(), vendor="CentaurHauls"),
        "blocks",
        "no-iommu",
        "enable VT-d or AMD-Vi",
    ),
    "none in a virtual machine": (
        lambda made: no_groups(made, tables=(), more="flags\t\t: fpu hypervisor"),
        "blocks",
        "no-iommu",
        "libvirt's <iommu>",
    ),
    "no ACPI": (lambda made: no_groups(made, tables=None), "blocks", "no-iommu", "dmesg | grep -i -e iommu"),
    "Intel's is off": (no_groups, "blocks", "no-iommu", "add intel_iommu=on and reboot"),
    "Intel's table on AMD's processor": (
        lambda made: no_groups(made, vendor="AuthenticAMD"),
        "blocks",
        "no-iommu",
        "add intel_iommu=on and reboot",
    ),
    "Intel's is on": (lambda made: no_groups(made, "intel_iommu=on"), "blocks", "no-iommu", "dmesg | grep -i DMAR"),
    "Intel's is on by default": (
        on_by_default,
        "blocks",
        "no-iommu",
        "dmesg | grep -i DMAR",
    ),
    "intel_iommu=off": (
        lambda made: no_groups(made, "intel_iommu=off"),
        "blocks",
        "no-iommu",
        "remove intel_iommu=off from the command line, add intel_iommu=on, and reboot",
    ),
    "iommu=off": (
        lambda made: no_groups(made, '"iommu=off"', "intel_iommu=on"),
        "blocks",
        "no-iommu",
        "remove iommu=off from the command line, and reboot",
    ),
    "off behind --": (
        lambda made: no_groups(made, "--", "iommu=off"),
        "blocks",
        "no-iommu",
        "add intel_iommu=on and reboot",
    ),
    "AMD's is off": (
        lambda made: amd(made, "amd_iommu=off", "amd_iommu=on"),
        "blocks",
        "no-iommu",
        "remove amd_iommu=off from the command line, and reboot",
    ),
    "AMD's is on": (amd, "blocks", "no-iommu", "dmesg | grep -i AMD-Vi"),
    "the kernel has no driver for AMD's": (
        lambda made: no_groups(made, tables=("IVRS",)),
        "blocks",
        "no-iommu",
        "boot a kernel with CONFIG_AMD_IOMMU",
    ),
    "virtio-iommu without its driver": (
        lambda made: no_groups(made, tables=("VIOT",)),
        "blocks",
        "no-iommu",
        "boot a kernel with CONFIG_VIRTIO_IOMMU",
    ),
    "Xen's dom0": (lambda made: xen(made, "control_d"), "blocks", "no-iommu", "boot this kernel without Xen"),
    "a guest of Xen": (lambda made: xen(made, ""), "blocks", "no-iommu", "a machine without Xen"),
    "VFIO's groups of no IOMMU": (no_iommu_mode, "blocks", "no-iommu", "add intel_iommu=on and reboot"),
    "SMMUv2": (lambda made: other_iommu(made, "smmu.0x9", "x"), "blocks", "iommu-kind", "the IOMMU is Arm SMMUv2"),
    "unknown": (lambda made: other_iommu(made, "mystery", "x"), "blocks", "iommu-kind", "is of an unknown kind"),
    "AMD-Vi of a real machine": (lambda made: amd_unit(made, 0), "risk", "npcache", "try the module first"),
    "caching mode": (lambda made: unit(made, cap=1 << 7), "note", "caching-mode", "each map sends a command"),
    "passthrough": (lambda made: made.cmdline("iommu=pt"), "note", "kernel-mode", "remove iommu=pt"),
    "passthrough 2": (lambda made: made.cmdline("iommu.passthrough=1"), "note", "kernel-mode", "remove iommu.passth"),
    "passthrough 3": (
        lambda made: option(made, "CONFIG_PCI=y", "CONFIG_PCI=y\nCONFIG_IOMMU_DEFAULT_PASSTHROUGH=y"),
        "note",
        "kernel-mode",
        "add iommu.passthrough=0",
    ),
    "strict": (lambda made: made.cmdline("iommu.strict=1"), "note", "floor", "min_level=held"),
    "another device than a rule's": (
        lambda made: made.write("xsmmu.conf", f"{IGB}/144d:a808=strict\n{NVME0}/8086:10c9=strict\n*=none"),
        "risk",
        "rules",
        "remove the line",
    ),
    "a rule that is none": (lambda made: made.write("xsmmu.conf", "eth1=strict"), "risk", "rules", "correct"),
    "strict of old": (lambda made: made.cmdline("intel_iommu=on,strict"), "note", "floor", "min_level=held"),
    "realtime": (lambda made: made.write("sysfs/kernel/realtime", "1"), "blocks", "preempt-rt", "linux-image-amd64"),
    "realtime by name": (
        lambda made: made.write("proc/sys/kernel/version", "#1 SMP PREEMPT_RT Debian 6.12.9-1"),
        "blocks",
        "preempt-rt",
        "linux-image-amd64",
    ),
    "RISC-V": (
        lambda made: made.write("proc/sys/kernel/arch", "riscv64"),
        "blocks",
        "architecture",
        "use the module on a supported machine",
    ),
    "Arm, no SMMU in the firmware": (
        lambda made: arm(made, lambda: no_groups(made, tables=())),
        "blocks",
        "no-iommu",
        "enable the SMMU",
    ),
    "Arm, no driver": (
        lambda made: arm(made, lambda: no_groups(made, tables=("IORT",))),
        "blocks",
        "no-iommu",
        "boot a kernel with CONFIG_ARM_SMMU_V3",
    ),
    "Arm, realtime": (
        lambda made: arm(made, lambda: made.write("sysfs/kernel/realtime", "1")),
        "blocks",
        "preempt-rt",
        "linux-image-arm64",
    ),
    "no option": (
        lambda made: option(made, "CONFIG_IOMMU_DMA=y", "# CONFIG_IOMMU_DMA is not set"),
        "blocks",
        "kernel-options",
        "distribution's own kernel",
    ),
    "no configuration": (
        lambda made: made.remove(f"boot/config-{kernel.release()}"),
        "note",
        "kernel-options",
        f"boot/config-{Machine.RELEASE} from the kernel's package",
    ),
    "not loaded": (unloaded, "blocks", "module-not-loaded", "modprobe xsmmu"),
    "not built": (lambda made: unloaded(made, None), "blocks", "module-not-built", "dkms autoinstall"),
    "another version": (
        lambda made: made.write("sysfs/module/xsmmu/version", "0.0.9"),
        "risk",
        "module-version",
        "modprobe -r xsmmu",
    ),
    "lockdown": (
        lambda made: made.write("sysfs/kernel/security/lockdown", "none integrity [confidentiality]"),
        "note",
        "floor",
        "min_level=held",
    ),
    "not root": (lambda _made: None, "note", "not-root", "sudo xsmmu doctor"),
    "identity": (
        lambda made: group_type(made, "identity"),
        "blocks",
        "group-type",
        f"xsmmu set {IGB} POLICY --rebind; if a device is in use: boot with iommu.passthrough=0, and "
        f"xsmmu set {IGB} POLICY --persist",
    ),
    "another type": (lambda made: group_type(made, "blocked"), "blocks", "group-type", "echo DMA-FQ"),
    "no type": (lambda made: made.remove("sysfs/kernel/iommu_groups/11/type"), "note", "group-type", "cannot be read"),
    "not of PCI": (
        lambda made: made.write("sysfs/kernel/iommu_groups/11/devices/AMDI0020:00/x", ""),
        "blocks",
        "not-pci",
        "AMDI0020:00",
    ),
    "a shared group": (lambda made: second_disk(made, "active"), "note", "shared-group", "another root port"),
    "failed": (lambda made: state(made, "failed"), "blocks", "failed", "dmesg | grep xsmmu"),
    "orphaned": (lambda made: state(made, "orphaned"), "risk", "orphaned", "end the use of the pages"),
    "an exposure beyond the bound": (lambda made: exposed(made, 25_700_000), "risk", "exposure", "xsmmu watch"),
    "one just beyond it": (lambda made: exposed(made, 1_000_001), "risk", "exposure", f"xsmmu set {IGB} strict"),
    "bad_unmaps": (lambda made: stat(made, "bad_unmaps", 3), "risk", "bad_unmaps", "report dmesg"),
    "torn": (lambda made: stat(made, "torn_pages", 3), "risk", "torn", "unbind the driver"),
    "direct tables that have ended": (
        lambda made: put(made, no_direct="an entry has unknown bits"),
        "risk",
        "direct-tables",
        f"to try again: xsmmu set {IGB} fused --tables direct; if they end again: ",
    ),
    "direct tables that have ended, and tunables": (
        lambda made: put(made, no_direct="an entry has unknown bits", max_window_us="250", batch_pages="64"),
        "risk",
        "direct-tables",
        f"if they end again: xsmmu set {IGB} fused max_window_us=250 batch_pages=64 --tables kernel",
    ),
    "direct tables that do not engage": (
        lambda made: direct(made, direct_pages=64, direct_misses=2336),
        "risk",
        "direct-tables",
        f"xsmmu set {IGB} fused --tables kernel, which costs less",
    ),
    "direct tables for large mappings": (
        lambda made: direct(made, direct_pages=500, direct_misses=10, direct_large=1890),
        "note",
        "direct-tables",
        "if this is the device's usual work",
    ),
    "no buffer is copied": (
        lambda made: copying(made, copied_maps=0, copy_misses=0),
        "risk",
        "copying",
        f"xsmmu set {IGB} fused",
    ),
    "no buffer is copied under copy": (
        lambda made: copying(made, "copy", copied_maps=0),
        "risk",
        "copying",
        f"choose strict without copies, which has the same effect: xsmmu set {IGB} strict",
    ),
    "copies find no room": (
        lambda made: copying(made, copied_maps=900, copy_misses=1500),
        "risk",
        "copying",
        "raise pool_mib (64), or free memory",
    ),
    "a batch-aware driver defers nothing": (aware, "risk", "batch-aware", f"xsmmu set {IGB} strict"),
    "a batch-aware driver defers nothing under auto": (aware_by_auto, "risk", "batch-aware", f"xsmmu set {IGB} strict"),
    "blocked": (lambda made: put(made, blocked="1"), "blocks", "blocked", "unbind all drivers of the group"),
    "not offered": (
        lambda made: made.remove(f"sysfs/bus/pci/devices/{IGB}/xsmmu"),
        "blocks",
        "not-offered",
        "dmesg | grep xsmmu",
    ),
    "a disk that may lie": (
        lambda made: made.write(f"sysfs/bus/pci/devices/{NVME0}/xsmmu/level", "held"),
        "risk",
        "storage-level",
        f"xsmmu set {NVME0} strict",
    ),
    "ATS": (
        lambda made: space(made, configuration_space((0x0001, 0), (0x000F, 0x8000))),
        "risk",
        "ats",
        "pci=noats",
    ),
    "external": (
        external,
        "note",
        "untrusted",
        "leave the group to the kernel's own path",
    ),
    "declined": (
        decline_strict,
        "note",
        "declined",
        f"the module declines the group: {IGB}: untrusted (external-facing) device",
    ),
    "declined and lazy": (decline, "risk", "declined", "echo DMA > "),
    "peer to peer": (lambda made: made.write(f"sysfs/bus/pci/devices/{IGB}/p2pmem/size", "1"), "risk", "p2p", "P2P"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_problem_is_found_alone(name: str, healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, level, check, words = PROBLEMS[name]
    plant(healthy)
    if check == "not-root":
        monkeypatch.setattr("os.geteuid", lambda: 1000)
    [finding] = wrong()
    assert (finding.level, finding.check) == (level, check)
    assert words in (finding.remedy or finding.reason)
    assert CliRunner().invoke(app, ["doctor"]).exit_code == (1 if level == "blocks" else 0)


def test_the_module_knows_what_the_kernel_trusts(healthy: Machine) -> None:
    healthy.write(f"sysfs/bus/pci/devices/{IGB}/removable", "removable")
    assert wrong() == []


def planted(made: Machine, plant: Callable[[Machine], None]) -> dict[str, Finding]:
    plant(made)
    return {each.check: each for each in wrong()}


@pytest.mark.parametrize(
    ("architecture", "release", "tested"),
    [
        ("x86_64", "6.9.1-amd64", "6.1, 6.12, 7.2, 7.3"),
        ("x86_64", "6.13.1-amd64", "6.1, 6.12, 7.2, 7.3"),
        ("x86_64", "6.125-rc1", "6.1, 6.12, 7.2, 7.3"),
        ("aarch64", "6.1.0-56-arm64", "6.12, 7.2, 7.3"),
    ],
)
def test_a_kernel_that_nobody_tried(healthy: Machine, architecture: str, release: str, tested: str) -> None:
    """6.13 does not belong to 6.1; and tested kernels depend on the architecture."""
    healthy.write("proc/sys/kernel/arch", architecture)
    healthy.write("proc/sys/kernel/osrelease", release)
    healthy.write(f"boot/config-{release}", healthy.config)
    [finding] = wrong()
    assert (finding.level, finding.check) == ("risk", "kernel-release")
    assert finding.reason.endswith(f"{release}, but the module was tested with {tested}")


@pytest.mark.parametrize("loaded", [True, False])
def test_a_kernel_that_the_module_refuses(healthy: Machine, loaded: bool) -> None:
    """Unless the module is loaded with any_kernel."""
    release = "7.4.1-amd64"
    healthy.write("proc/sys/kernel/osrelease", release)
    healthy.write(f"boot/config-{release}", healthy.config)
    if not loaded:
        unloaded(healthy, None)
    [finding] = [each for each in wrong() if each.check == "kernel-release"]
    assert finding.level == ("risk" if loaded else "blocks")
    assert ("any_kernel=1" in str(finding.remedy)) != loaded


@pytest.mark.parametrize(
    ("architecture", "release", "oldest"),
    [
        ("x86_64", "5.15.0-130-generic", "6.1"),
        ("x86_64", "5.15.167.4-microsoft-standard-WSL2", "6.1"),
        ("x86_64", "6.0.12-76060006-generic", "6.1"),
        ("x86_64", "4.18.0-553.el8_10.x86_64", "6.1"),
        ("x86_64", "5.14.0-503.el9.x86_64", "6.1"),
        ("aarch64", "6.6.62-current-rockchip64", "6.12"),
    ],
)
def test_a_kernel_that_the_module_cannot_be_built_for(
    healthy: Machine, architecture: str, release: str, oldest: str
) -> None:
    """DKMS skips such a kernel, so building there is no advice."""
    healthy.write("proc/sys/kernel/arch", architecture)
    healthy.write("proc/sys/kernel/osrelease", release)
    healthy.write(f"boot/config-{release}", healthy.config)
    unloaded(healthy, None)
    [finding] = [each for each in wrong() if each.level == "blocks"]
    assert (finding.check, finding.remedy) == ("kernel-release", f"boot kernel {oldest} or later")
    assert f"older than {oldest}, the oldest" in finding.reason


def test_a_kernel_that_does_not_say_what_machine_it_is_for(healthy: Machine) -> None:
    """Before 6.1."""
    healthy.remove("proc/sys/kernel/arch")
    assert wrong() == []


@pytest.mark.parametrize("folder", [True, False])
def test_an_smmu_that_nothing_says_to_be_there(healthy: Machine, folder: bool) -> None:
    """Without ACPI tables nothing is known: the machine may have a device tree."""
    arm(healthy, lambda: no_groups(healthy, tables=()))
    if not folder:
        healthy.remove("sysfs/firmware/acpi/tables")
    [finding] = [each for each in wrong() if each.check == "no-iommu"]
    assert ("no ACPI table IORT" in finding.reason) == folder
    assert ": and" not in finding.reason


def test_a_machine_without_headers_is_told_of_them(healthy: Machine) -> None:
    unloaded(healthy, None)
    healthy.remove(f"modules/{kernel.release()}/build")
    [finding] = wrong()
    assert finding.check == "module-not-built"
    assert str(finding.remedy).startswith(f"apt install linux-headers-{Machine.RELEASE}; then ")


@pytest.mark.parametrize(
    ("release", "archive", "remedy"),
    [
        (
            "6.12.118+deb13-amd64",
            ["linux-headers-6.12.118+deb13-amd64"],
            "apt install linux-headers-6.12.118+deb13-amd64",
        ),
        (
            "6.1.0-56-cloud-amd64",
            ["linux-headers-6.1.0-56-cloud-amd64"],
            "apt install linux-headers-6.1.0-56-cloud-amd64",
        ),
        ("6.8.12-4-pve", ["proxmox-headers-6.8.12-4-pve"], "apt install proxmox-headers-6.8.12-4-pve"),
        # The archive has a later kernel of the flavour by now.
        (
            "6.12.100+deb13-amd64",
            ["linux-image-amd64", "linux-headers-amd64"],
            "apt has no headers of 6.12.100+deb13-amd64: apt install linux-image-amd64 linux-headers-amd64, and reboot",
        ),
        (
            "6.1.0-40-cloud-amd64",
            ["linux-image-amd64", "linux-headers-amd64", "linux-image-cloud-amd64", "linux-headers-cloud-amd64"],
            "apt install linux-image-cloud-amd64 linux-headers-cloud-amd64, and reboot",
        ),
        (
            "6.8.0-45-generic",
            ["linux-image-generic", "linux-headers-generic"],
            "apt install linux-image-generic linux-headers-generic, and reboot",
        ),
        (
            "6.12.47+rpt-rpi-v8",
            ["linux-image-rpi-v8", "linux-headers-rpi-v8"],
            "apt install linux-image-rpi-v8 linux-headers-rpi-v8, and reboot",
        ),
        ("6.12.118", ["linux-image-amd64", "linux-headers-amd64"], "install the headers that came with this kernel"),
        ("6.18.0-rc3-custom", ["linux-headers-amd64"], "install the headers that came with this kernel"),
        (
            "6.8.0-1018-aws",
            ["linux-image-aws", "linux-headers-aws"],
            "apt install linux-image-aws linux-headers-aws, and",
        ),
        ("6.6.87.2-microsoft-standard-WSL2", ["linux-headers-amd64"], "install the headers that came with this kernel"),
        ("6.1.19-v8+", ["linux-headers-arm64"], "install the headers that came with this kernel"),
        ("6.5.0-1020-oem", ["linux-image-oem-22.04", "linux-headers-amd64"], "install the headers that came"),
        (
            "6.6.31-current-rockchip64",
            ["linux-image-current-rockchip64", "linux-headers-current-rockchip64"],
            "apt install linux-image-current-rockchip64 linux-headers-current-rockchip64, and reboot",
        ),
        (
            "6.6.15-amd64",
            ["linux-image-amd64", "linux-headers-amd64"],
            "apt install linux-image-amd64 linux-headers-amd64",
        ),
        ("6.12.8-x64v3-xanmod1", [], "install the headers that came with this kernel"),
        # The image came before the headers.
        ("6.1.0-21-amd64", ["linux-image-amd64"], "install the headers that came with this kernel"),
        ("", [], "mount /proc"),
        ("6.9.7-1.el7.elrepo.x86_64", None, "install this kernel's headers"),
        ("6.12.1-1.el10.x86_64", None, "install this kernel's headers (kernel-devel, linux-headers)"),
        ("6.12.9-arch1-1", None, "install this kernel's headers"),
    ],
)
def test_headers_are_those_that_there_are(
    healthy: Machine, release: str, archive: list[str] | None, remedy: str
) -> None:
    healthy.write("proc/sys/kernel/osrelease", release)
    healthy.write("archive", "\n".join(archive or []))
    if archive is None:
        healthy.remove("bin/apt-cache")
    unloaded(healthy, None)
    healthy.remove(f"modules/{release}/build")
    found = next(each for each in wrong() if each.check == "module-not-built")
    assert remedy in (found.remedy or "")
    named = set(re.findall(r"[a-z]+-(?:headers|image)-[\w.+-]*\w", (found.remedy or "").partition("; then")[0]))
    assert named <= {*(archive or [])}
    assert ("apt" in (found.remedy or "")) == (archive is not None)


def test_a_name_that_other_packages_provide_cannot_be_installed(healthy: Machine) -> None:
    """For a virtual package apt-cache prints nothing, and no error."""
    healthy.write("archive", f"virtual linux-headers-{healthy.RELEASE}\nlinux-image-amd64\nlinux-headers-amd64\n")
    said = f"apt has no headers of {healthy.RELEASE}: apt install linux-image-amd64 linux-headers-amd64, and reboot"
    assert packages.headers() == said


def asked_apt(made: Machine) -> int:
    file = made.folder / "asked"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_apt_is_asked_once_for_all_names_and_only_for_a_remedy(healthy: Machine) -> None:
    """Without a cache of apt's, as in container images, each question takes seconds."""
    wrong()
    healthy.remove(f"boot/config-{kernel.release()}")
    [note] = wrong()
    assert note.level == "note"
    assert "apt install" not in (note.remedy or "") and "reboot" not in (note.remedy or "")
    assert asked_apt(healthy) == 0
    healthy.write("archive", "linux-image-amd64\nlinux-headers-amd64")
    unloaded(healthy, None)
    healthy.remove(f"modules/{kernel.release()}/build")
    healthy.write("sysfs/kernel/realtime", "1")
    remedies = " ".join(each.remedy or "" for each in wrong())
    assert "apt install linux-image-amd64 linux-headers-amd64, and reboot" in remedies
    assert "boot a kernel without PREEMPT_RT (apt install linux-image-amd64)" in remedies
    assert asked_apt(healthy) == 1


def test_apt_that_does_not_answer(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive's content is left out, and apt's children end."""
    monkeypatch.setattr(packages, "APT_S", 0.2)
    program(healthy.folder / "bin/apt-cache", "/bin/sleep 60 & /bin/sleep 60")
    unloaded(healthy, None)
    healthy.remove(f"modules/{kernel.release()}/build")
    began = time.monotonic()
    [found] = wrong()
    assert time.monotonic() - began < 10
    assert str(found.remedy).startswith(f"install the headers of {Machine.RELEASE}, so that ")


def test_a_kernel_whose_release_cannot_be_read(healthy: Machine) -> None:
    unloaded(healthy, None)
    healthy.remove("proc/sys/kernel/osrelease")
    found = {each.check: each for each in wrong()}
    assert found["module-not-built"].reason == "the module is not built for this kernel, whose release cannot be read"
    assert "  " not in str(found["module-not-built"].remedy) and " :" not in str(found["module-not-built"].remedy)


@pytest.mark.parametrize("name", ["boot/config-{}", "modules/{}/config"])
def test_a_configuration_with_other_bytes(healthy: Machine, name: str) -> None:
    healthy.remove(f"boot/config-{kernel.release()}")
    content = b'CONFIG_LOCALVERSION="\xe9"\n' + healthy.config.encode()
    healthy.write_bytes(name.format(kernel.release()), content)
    assert wrong() == []


@pytest.mark.parametrize("damage", [slice(20, None), slice(30), slice(0), "zlib", "text", "words"])
def test_a_damaged_configuration_is_none(healthy: Machine, damage: slice | str) -> None:
    whole = gzip.compress(healthy.config.encode())
    contents = {"zlib": whole[:10] + b"\xff" * 40, "text": b"not gzip", "words": gzip.compress(b"no option")}
    content = contents[damage] if isinstance(damage, str) else whole[damage]
    healthy.write_bytes("proc/config.gz", content)
    assert wrong() == []
    healthy.remove(f"boot/config-{kernel.release()}")
    assert [each.check for each in wrong()] == ["kernel-options"]


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + b"\xff" * 40, b"", b"\x1f\x8b"])
def test_a_damaged_module_says_nothing_of_its_signature(healthy: Machine, content: bytes) -> None:
    assert planted(healthy, lambda made: locked(made, content, "xsmmu.ko.gz"))["signing"].level in ("risk", "blocks")


@pytest.mark.parametrize("name", ["max_window_us", "stats/bad_unmaps", "exposure_ns", "stats/torn_pages"])
@pytest.mark.parametrize("content", ["", "x", "1e9", "0x10", "9" * 5000])
def test_a_file_of_the_module_without_a_number(healthy: Machine, name: str, content: str) -> None:
    words = f"max {content}" if name == "exposure_ns" else content
    healthy.write(f"sysfs/bus/pci/devices/{IGB}/xsmmu/{name}", words)
    for command in ("doctor", "status"):
        result = CliRunner().invoke(app, [command])
        assert isinstance(result.exception, UserError)
        assert f"{IGB}: the module's file {name} has '" in result.exception.message


@pytest.mark.parametrize("content", ["", "x", "0x", "-1", "12 34", "\u0663"])
def test_a_class_without_a_number(healthy: Machine, content: str) -> None:
    healthy.write(f"sysfs/bus/pci/devices/{IGB}/class", content)
    assert wrong() == []


@pytest.mark.parametrize(
    ("architecture", "archive", "remedy"),
    [
        ("x86_64", ["linux-image-amd64"], "boot a kernel without PREEMPT_RT (apt install linux-image-amd64)"),
        ("x86_64", ["linux-image-generic"], "boot a kernel without PREEMPT_RT (apt install linux-image-generic)"),
        (
            "aarch64",
            ["linux-image-amd64", "linux-image-arm64"],
            "boot a kernel without PREEMPT_RT (apt install linux-image-arm64)",
        ),
        ("x86_64", [], "boot a kernel without PREEMPT_RT"),
    ],
)
def test_a_kernel_that_is_not_real_time(healthy: Machine, architecture: str, archive: list[str], remedy: str) -> None:
    healthy.write("proc/sys/kernel/arch", architecture)
    healthy.write("sysfs/kernel/realtime", "1")
    healthy.write("archive", "\n".join(archive))
    assert [each.remedy for each in wrong() if each.check == "preempt-rt"] == [remedy]


@pytest.mark.parametrize("units", [True, False])
def test_of_no_iommu_nothing_is_as_it_should_be(healthy: Machine, units: bool) -> None:
    """The IOMMU's kind, the kernel's own path and auto's choice do not apply."""
    no_groups(healthy)
    if units:
        # VFIO's groups without an IOMMU: the unit exists, and no device is behind it.
        unit(healthy)
    found = doctor.examine([])
    assert {each.check for each in found if each.level == "ok"} == {"kernel-release", "kernel-options", "module"}
    assert "lazy" not in " ".join(each.reason for each in found)
    # No group is passthrough without an IOMMU.
    healthy.cmdline("iommu=pt")
    assert "kernel-mode" not in {each.check for each in doctor.examine([])}


def test_of_another_architecture_no_release_was_tested(healthy: Machine) -> None:
    healthy.write("proc/sys/kernel/arch", "riscv64")
    checks = {each.check for each in doctor.examine([])}
    assert "architecture" in checks
    assert not checks & {"kernel-release", "kernel-options"}
    unloaded(healthy, None)
    assert "module-not-built" not in {each.check for each in doctor.examine([])}


def test_a_module_that_the_command_line_forbids(healthy: Machine) -> None:
    healthy.cmdline("module_blacklist=foo,xsmmu")
    assert [*planted(healthy, unloaded)] == ["module-blacklisted"]
    # The kernel keeps the last list.
    healthy.cmdline("module_blacklist=xsmmu module_blacklist=foo")
    assert "module-blacklisted" not in {each.check for each in wrong()}


def test_a_floor_that_was_given(healthy: Machine) -> None:
    healthy.cmdline("iommu.strict=1")
    healthy.write("sysfs/module/xsmmu/parameters/min_level", "held")
    assert wrong() == []
    healthy.write("sysfs/module/xsmmu/parameters/min_level", "")
    assert [each.check for each in wrong()] == ["floor"]


def test_an_unsigned_module_under_lockdown(healthy: Machine) -> None:
    found = planted(healthy, lambda made: locked(made, b"module"))
    assert (found["signing"].level, found["floor"].level) == ("blocks", "note")
    assert "mokutil --import" in str(found["signing"].remedy)
    assert f"dkms install --force xsmmu/{__version__}" in str(found["signing"].remedy)


@pytest.mark.parametrize(
    ("name", "compress"),
    [("xsmmu.ko", bytes), ("xsmmu.ko.xz", lzma.compress), ("xsmmu.ko.gz", gzip.compress)],
)
def test_a_signature_is_seen_in_what_is_compressed(
    healthy: Machine, name: str, compress: Callable[[bytes], bytes]
) -> None:
    assert planted(healthy, lambda made: locked(made, compress(b"module"), name))["signing"].level == "blocks"
    with_it = compress(b"module" + SIGNED)
    assert planted(healthy, lambda made: locked(made, with_it, name))["signing"].level == "risk"


def test_a_key_that_the_kernel_trusts(healthy: Machine) -> None:
    keys = "1a2b I------ 1 perm 1f010000 0 0 asymmetri DKMS module signing key: 12ab: X509.rsa 12ab []\n"
    assert "signing" not in planted(healthy, lambda made: locked(made, b"module" + SIGNED, keys=keys))


@pytest.mark.parametrize(
    "plant",
    [
        lambda made: made.write("sysfs/module/module/parameters/sig_enforce", "Y"),
        lambda made: made.cmdline("module.sig_enforce"),
        lambda made: made.cmdline("module.sig_enforce=1"),
        lambda made: option(made, "CONFIG_PCI=y", "CONFIG_PCI=y\nCONFIG_MODULE_SIG_FORCE=y"),
    ],
)
def test_unsigned_modules_are_refused_in_many_ways(healthy: Machine, plant: Callable[[Machine], None]) -> None:
    unloaded(healthy, b"module")
    assert planted(healthy, plant)["signing"].level == "blocks"


def test_secure_boot_alone(healthy: Machine) -> None:
    unloaded(healthy)
    healthy.write_bytes(f"sysfs/{EFIVAR}", b"\6\0\0\0\0")
    assert [each.check for each in wrong()] == ["module-not-loaded"]
    healthy.write_bytes(f"sysfs/{EFIVAR}", b"\6\0\0\0\1")
    assert [each.check for each in wrong()] == ["module-not-loaded", "signing"]


def test_what_is_orphaned_and_for_how_long_is_in_the_reason(healthy: Machine) -> None:
    stat(healthy, "live_pages", 1234)
    stat(healthy, "held_pages", 77)
    state(healthy, "orphaned")
    healthy.write(f"sysfs/bus/pci/devices/{NVME0}/xsmmu/level", "held")
    healthy.write(f"sysfs/bus/pci/devices/{NVME0}/xsmmu/max_window_us", "25000")
    found = {each.check: each.reason for each in wrong()}
    assert "1,234 pages of an earlier driver are still in use" in found["orphaned"]
    measured = "(measured since the module was loaded: 2.00us at most)"
    assert found["storage-level"].endswith(f"change the data after verification for up to 25,000 us {measured}")


USED: dict[str, Callable[[Machine], None]] = {
    "direct tables": lambda made: direct(made, direct_pages=2300, direct_misses=90, direct_large=10),
    "direct tables and some large mappings": lambda made: direct(made, direct_pages=2300, direct_large=1500),
    "direct tables and few pages": lambda made: direct(made, direct_pages=10, direct_misses=989, direct_large=999),
    "the driver's tables": lambda made: put(made, used=used_text(direct_misses=2400)),
    "copies": lambda made: copying(made, copied_maps=1500, copy_misses=1400),
    "one copy": lambda made: copying(made, copied_maps=1, copy_misses=0),
    "few buffers": lambda made: copying(made, copied_maps=0, uncopied_maps=999, copy_misses=999),
    "copies under the policy copy": lambda made: copying(made, "copy"),
    "no copies": lambda made: put(made, used=used_text(copied_maps=0, copy_misses=2400)),
    "a batch-aware driver": lambda made: aware(made, deferred_pages=1),
    "a batch-aware driver and few pages": lambda made: aware(made, immediate_pages=999),
    "a batch-aware driver whose unmaps need not be strict": lambda made: put(
        made, batch_aware="1", used=used_text(deferred_pages=0, immediate_pages=2400)
    ),
    "a group that is not attached": lambda made: put(made, state="idle", tables="kernel [direct]", used=""),
}


@pytest.mark.parametrize("name", USED)
def test_a_choice_that_is_used_is_no_problem(name: str, healthy: Machine) -> None:
    USED[name](healthy)
    assert [each for each in wrong() if each.check in ("direct-tables", "copying", "batch-aware")] == []


def test_strict_defers_nothing_whatever_its_driver(healthy: Machine) -> None:
    aware(healthy)
    put(healthy, policy="none auto copy [strict] lazy fands xsmmu fused", auto_policy="strict strict: the same")
    assert wrong() == []


def test_an_older_module_does_not_show_what_is_used(healthy: Machine) -> None:
    direct(healthy, direct_pages=0, direct_misses=2400)
    for name in ("used", "no_direct", "batch_aware", "blocked"):
        healthy.remove(f"sysfs/bus/pci/devices/{IGB}/xsmmu/{name}")
    assert wrong() == []


def test_what_is_used_is_a_number(healthy: Machine) -> None:
    put(healthy, used="mapped_pages many")
    with pytest.raises(UserError, match="file used has 'many' instead of a number"):
        wrong()


def test_pages_that_are_stuck_are_a_risk(healthy: Machine) -> None:
    stat(healthy, "stuck_pages", 1234)
    state(healthy, "stuck")
    found = {each.check: each for each in wrong()}
    assert found["stuck"].level == "risk"
    assert "could not remove 1,234 unmapped pages" in found["stuck"].reason
    assert "/type" in (found["stuck"].remedy or "")


def exposures(*devices: str) -> list[tuple[str, str, str]]:
    found = [each for each in doctor.examine([Device(name) for name in devices]) if each.check == "exposure"]
    return [(each.level, each.subject, each.reason) for each in found]


def test_the_longest_exposure_stands_beside_the_bound(healthy: Machine) -> None:
    exposed(healthy, 918_000)
    # At level strict there is no timer, so no bound.
    reason = "unmapped pages stayed reachable for 918us at most; the bound of fused is 1,000 us (max_window_us)"
    assert exposures() == [("ok", "group 11", reason)]
    healthy.write(f"sysfs/bus/pci/devices/{IGB}/xsmmu/max_window_us", "500")
    [(level, _, reason)] = exposures(IGB)
    assert level == "risk"
    assert reason.startswith("an unmapped page stayed reachable for 918us, and the bound of fused is 500 us")


@pytest.mark.parametrize(("flags", "steal"), [("fpu hypervisor", True), ("fpu", False)])
def test_causes_of_an_exposure_beyond_the_bound(healthy: Machine, flags: str, steal: bool) -> None:
    exposed(healthy, 25_700_000)
    healthy.write("proc/cpuinfo", f"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: {flags}")
    [(_, _, reason)] = exposures(IGB)
    assert "disabled interrupts" in reason
    assert "another policy or max_window_us" in reason
    assert ("steal" in reason) == steal


@pytest.mark.parametrize("word", ["off", "idle", "failed"])
def test_no_bound_where_the_module_does_not_serve_the_group(healthy: Machine, word: str) -> None:
    exposed(healthy, 25_700_000)
    state(healthy, word)
    assert exposures() == []


def test_counts_for_root_are_not_looked_at_by_others(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    exposed(healthy, 25_700_000)
    monkeypatch.setattr(module, "counts_are_readable", lambda _: False)
    assert exposures() == []


@pytest.mark.parametrize("plant", ["identity", "not-pci"])
def test_auto_says_nothing_of_a_group_that_cannot_be_attached(healthy: Machine, plant: str) -> None:
    if plant == "identity":
        group_type(healthy, "identity")
    else:
        healthy.write("sysfs/kernel/iommu_groups/11/devices/AMDI0020:00/x", "")
    assert [each.subject for each in doctor.examine([]) if each.check == "auto"] == ["group 13"]


def test_a_choice_that_auto_would_not_make_is_a_note(healthy: Machine) -> None:
    healthy.write(f"sysfs/bus/pci/devices/{IGB}/xsmmu/policy", "[none] auto copy strict lazy fands xsmmu fused")
    state(healthy, "off")
    [finding] = wrong()
    assert (finding.level, finding.check, finding.remedy) == (
        "note",
        "auto",
        f"to use this choice: xsmmu set {IGB} auto --rebind; if the device is in use: "
        f"xsmmu set {IGB} auto --persist, for the next boot",
    )
    healthy.remove(f"sysfs/bus/pci/devices/{IGB}/driver")
    assert [each.remedy for each in wrong()] == [f"to use this choice: xsmmu set {IGB} auto"]


def test_what_auto_chooses_is_the_modules_word(healthy: Machine) -> None:
    folder = f"sysfs/bus/pci/devices/{IGB}/xsmmu"
    healthy.write(f"{folder}/auto_policy", "strict strict: for a reason: that one")

    def said() -> list[str]:
        return [each.reason for each in doctor.examine([Device(IGB)]) if each.check == "auto"]

    assert said() == ["auto would choose strict, level strict: for a reason: that one"]
    healthy.write(f"{folder}/policy", "none [auto] copy strict lazy fands xsmmu fused")
    assert said() == ["auto has chosen strict, level strict: for a reason: that one"]
    # A policy file of an earlier version without the policy.
    healthy.write(f"{folder}/policy", "none auto copy strict lazy fands xsmmu [fused]")
    healthy.remove(f"{folder}/auto_policy")
    assert said() == []


def test_what_auto_chooses_is_for_root(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = f"sysfs/bus/pci/devices/{IGB}/xsmmu"
    healthy.write(f"{folder}/policy", "none [auto] copy strict lazy fands xsmmu fused")
    healthy.write(f"{folder}/auto_policy", "fused held: for a reason")
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "auto_policy" and access(path, mode))
    assert [each for each in doctor.examine([Device(IGB)]) if each.check == "auto"] == []
    assert module.choice(Device(IGB)).policy == "auto"


def test_a_disk_under_a_lower_level_of_auto(healthy: Machine) -> None:
    """The finding names the policy, not its origin."""
    folder = f"sysfs/bus/pci/devices/{NVME0}/xsmmu"
    healthy.write(f"{folder}/policy", "none [auto] copy strict lazy fands xsmmu fused")
    healthy.write(f"{folder}/auto_policy", "fused held: for a reason")
    healthy.write(f"{folder}/level", "held")
    [found] = [each for each in wrong() if each.check == "storage-level"]
    assert "under fused (level held)" in found.reason


def test_a_kernel_built_for_passthrough_that_is_told_not_to(healthy: Machine) -> None:
    option(healthy, "CONFIG_PCI=y", "CONFIG_PCI=y\nCONFIG_IOMMU_DEFAULT_PASSTHROUGH=y")
    for word in ("iommu=nopt", "iommu.passthrough=0"):
        healthy.cmdline(word)
        assert wrong() == []


def test_drivers_of_a_group(healthy: Machine) -> None:
    found = planted(healthy, second_disk)
    assert [*found] == ["shared-group", "bound-drivers"]
    assert "drivers of 2 devices" in found["bound-drivers"].reason
    assert f"xsmmu set {NVME0} POLICY --rebind" in str(found["bound-drivers"].remedy)


@pytest.mark.parametrize("kind", ["DMA-FQ", "identity"])
def test_what_is_in_use_is_for_set_to_ask(healthy: Machine, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """An exclusive open would fail a concurrent mount or mkfs, and nobody is led to unbind a root disk."""

    def asked(*_words: object) -> None:
        raise AssertionError("doctor has asked what is in use")

    second_disk(healthy)
    healthy.write("sysfs/kernel/iommu_groups/13/type", kind)
    for name in ("disks.claim", "disks.reasons", "routing.View", "essential.View", "proc.lines"):
        monkeypatch.setattr(f"xsmmu.{name}", asked)
    check = "group-type" if kind == "identity" else "bound-drivers"
    [remedy] = [each.remedy or "" for each in wrong() if each.check == check]
    assert f"xsmmu set {NVME0} POLICY --rebind" in remedy and f"xsmmu set {NVME0} POLICY --persist" in remedy
    assert "unbind" not in remedy


def test_a_passthrough_group_without_drivers(healthy: Machine) -> None:
    group_type(healthy, "identity")
    healthy.remove(f"sysfs/bus/pci/devices/{IGB}/driver")
    [found] = wrong()
    assert found.remedy == (
        f"xsmmu set {IGB} POLICY --rebind; or by hand: echo DMA-FQ > {healthy.sysfs}/kernel/iommu_groups/11/type"
    )


def test_a_device_that_the_module_has_nothing_for(healthy: Machine) -> None:
    make_device(healthy.sysfs, NVME1, 11, None, "nvme")
    found = planted(healthy, lambda _made: None)
    assert (found["not-offered"].level, found["not-offered"].subject) == ("blocks", "group 11")
    assert f"{NVME1} [nvme]" in found["not-offered"].reason


@pytest.mark.parametrize("live", [[False], [True, False]])
def test_a_module_that_comes_or_goes_offers_nothing(
    live: list[bool], healthy: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy.remove(f"sysfs/bus/pci/devices/{IGB}/xsmmu")
    assert "not-offered" in [each.check for each in wrong(IGB)]
    looks = iter(live)
    monkeypatch.setattr(module, "is_live", lambda: next(looks))
    assert "not-offered" not in [each.check for each in wrong(IGB)]
    assert list(looks) == []


def test_all_else_is_told_while_the_module_comes_or_goes(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    state(healthy, "failed")
    stat(healthy, "bad_unmaps", 3)
    monkeypatch.setattr(module, "is_live", lambda: False)
    assert {"failed", "bad_unmaps"} <= {each.check for each in wrong()}


@pytest.mark.parametrize(("words", "live"), [("live", True), ("going", False), ("coming", False), (None, False)])
def test_a_module_is_live_by_its_own_word(words: str | None, live: bool, healthy: Machine) -> None:
    if words:
        healthy.write("sysfs/module/xsmmu/initstate", f"{words}\n")
    else:
        healthy.remove("sysfs/module/xsmmu")
    assert module.is_live() == live


def test_a_device_behind_no_iommu(healthy: Machine) -> None:
    make_device(healthy.sysfs, NVME1, None, None, "nvme")
    assert wrong() == []
    [finding] = wrong(NVME1)
    assert (finding.level, finding.check, finding.subject) == ("blocks", "device-no-iommu", NVME1)


@pytest.mark.parametrize(
    ("name", "group", "kind"),
    [("ivhd0", "amd-iommu", "AMD-Vi"), ("smmu3.0x9", "x", "Arm SMMUv3"), ("virtio3", "x", "virtio-iommu")],
)
def test_other_iommus_are_accepted(healthy: Machine, name: str, group: str, kind: str) -> None:
    other_iommu(healthy, name, group)
    assert wrong() == []
    [finding] = [each for each in doctor.examine([]) if each.check == "iommu-kind"]
    assert (finding.level, finding.reason) == ("ok", f"{kind}, 1 unit")


def kernel_mode() -> str:
    [finding] = [each for each in doctor.examine([]) if each.check == "kernel-mode"]
    assert finding.level == "ok"
    return finding.reason


def test_the_kernels_own_path_is_as_the_groups_are(healthy: Machine) -> None:
    assert kernel_mode().endswith(": 2 groups lazy (unmapped memory stays reachable for up to 10 ms)")
    group_type(healthy, "DMA")
    assert ": 1 group lazy (" in kernel_mode()
    assert kernel_mode().endswith(", 1 group strict")
    # A kernel that set the type by itself, as under caching mode.
    healthy.write("sysfs/kernel/iommu_groups/13/type", "DMA")
    assert kernel_mode().endswith(": 2 groups strict")
    healthy.write("proc/cpuinfo", "flags\t\t: fpu hypervisor")
    by_itself = ", which the kernel chooses if a hypervisor must see each map"
    assert kernel_mode().endswith(f": 2 groups strict{by_itself}")
    healthy.cmdline("iommu.strict=1")
    assert kernel_mode().endswith(": 2 groups strict")
    healthy.write("sysfs/kernel/iommu_groups/13/type", "identity")
    assert kernel_mode().endswith(": 1 group strict, 1 group passthrough (not translated)")


@pytest.mark.parametrize(
    ("words", "types", "level", "reason"),
    [
        ("iommu=pt", ("identity", "DMA-FQ"), "risk", "1 of 2 groups is passthrough, so not translated: iommu=pt is on"),
        ("iommu=pt", ("identity", "identity"), "risk", "2 of 2 groups are passthrough, so not translated: iommu=pt"),
        ("iommu=pt", ("identity", "blocked"), "risk", "1 of 2 groups is passthrough"),
        ("iommu=pt", ("DMA", "DMA-FQ"), "note", "reachable for up to 10 ms), 1 group strict; iommu=pt"),
        ("iommu=pt", ("", ""), "risk", "iommu=pt is on the kernel's command line, and the types of the groups cannot"),
        ("quiet", ("identity", "DMA"), "ok", "the kernel's own path: 1 group strict, 1 group passthrough"),
    ],
)
def test_groups_are_counted_before_the_command_line_is_believed(
    healthy: Machine, words: str, types: tuple[str, str], level: str, reason: str
) -> None:
    healthy.cmdline(words)
    for number, kind in zip((11, 13), types, strict=True):
        healthy.write(f"sysfs/kernel/iommu_groups/{number}/type", kind)
    [found] = [each for each in doctor.examine([]) if each.check == "kernel-mode"]
    assert found.level == level
    assert reason in found.reason
    assert "all groups" not in found.reason


def test_the_floor_is_the_one_in_force(healthy: Machine) -> None:
    """The loaded module shows the floor; before the load, the future floor counts."""

    def floors() -> list[str]:
        return [each.reason for each in doctor.examine([]) if each.check == "floor"]

    healthy.write("sysfs/module/xsmmu/parameters/min_level", "none")
    healthy.cmdline("iommu.strict=1")
    assert floors() == []
    healthy.write("sysfs/module/xsmmu/parameters/min_level", "strict")
    assert floors() == [
        "the module's minimum level is strict, because iommu.strict=1 is on the kernel's command line: policies of a "
        "lower level are refused"
    ]
    healthy.cmdline("quiet")
    assert floors() == ["the module's minimum level is strict: policies of a lower level are refused"]
    unloaded(healthy)
    assert floors() == []
    healthy.cmdline('"amd_iommu=fullflush"')
    option(healthy, "CONFIG_PCI=y", "CONFIG_PCI=y\nCONFIG_AMD_IOMMU=y")
    assert ["amd_iommu=fullflush" in each for each in floors()] == [True]


def test_a_device_behind_another_iommu(healthy: Machine) -> None:
    healthy.remove(f"sysfs/bus/pci/devices/{IGB}/iommu")
    healthy.write("sysfs/class/iommu/smmu.0/x", "")
    (healthy.sysfs / "bus/pci/devices" / IGB / "iommu").symlink_to(healthy.sysfs / "class/iommu/smmu.0")
    assert {(each.level, each.check) for each in wrong()} == {("risk", "iommu-kind"), ("blocks", "device-iommu-kind")}
    assert [each.check for each in wrong(NVME0)] == ["iommu-kind"]


def test_what_anybody_may_read_is_told_to_anybody(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    second_disk(healthy, "active")
    monkeypatch.setattr(Path, "read_text", _without_statistics(Path.read_text))
    assert [each.check for each in wrong()] == ["shared-group"]
    state(healthy, "failed")
    assert [each.check for each in wrong()] == ["failed", "shared-group"]


def _without_statistics(real: Callable[..., str]) -> Callable[..., str]:
    def read(path: Path, **options: str) -> str:
        if path.parent.name == "stats":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **options)

    return read


def test_only_what_was_asked_for(healthy: Machine) -> None:
    group_type(healthy, "identity")
    assert wrong(NVME0) == []
    assert [each.subject for each in wrong(IGB)] == ["group 11"]


def test_what_cannot_be_read_is_not_guessed(healthy: Machine) -> None:
    # Without root: the first 64 bytes.
    space(healthy, configuration_space((0x000F, 0x8000))[:64])
    assert wrong() == []
    # A conventional device, a device with a circular list, a device with ATS off.
    space(healthy, bytes(256))
    assert wrong() == []
    space(healthy, bytes(256) + struct.pack("<I", 1 | 0x100 << 20) + bytes(3836))
    assert wrong() == []
    space(healthy, configuration_space((0x0001, 0xFFFF), (0x000F, 0x7FFF)))
    assert wrong() == []
    # The configuration, in any of its places.
    healthy.remove(f"boot/config-{kernel.release()}")
    healthy.write_bytes("proc/config.gz", gzip.compress(healthy.config.encode()))
    assert wrong() == []
    healthy.cmdline("iommu.strict=1", "iommu-strict=1", "iommu.strict=0")
    assert wrong() == []


def test_doctor_as_json(healthy: Machine) -> None:
    group_type(healthy, "identity")
    result = CliRunner().invoke(app, ["doctor", "-o", "json"])
    assert result.exit_code == 1
    document = json.loads(result.output)
    assert document["schema"] == "xsmmu.doctor/1"
    assert {each["level"] for each in document["findings"]} <= {*LEVELS}
    [finding] = [each for each in document["findings"] if each["level"] == "blocks"]
    assert finding.keys() == {"level", "check", "subject", "reason", "remedy"}
    lines = CliRunner().invoke(app, ["doctor", "-o", "jsonl"]).output.splitlines()
    assert {json.loads(line)["schema"] for line in lines} == {"xsmmu.doctor/1"}


def test_the_worst_is_first_and_counted(healthy: Machine) -> None:
    group_type(healthy, "identity")
    stat(healthy, "bad_unmaps", 3)
    healthy.cmdline("iommu.strict=1")
    lines = CliRunner().invoke(app, ["doctor"]).output.splitlines()
    assert [line.split()[0] for line in lines if line[:1].strip()][:4] == ["blocks", "risk", "note", "ok"]
    assert lines[-1] == "1 block, 1 risky."


def test_no_line_is_cut_in_a_pipe(healthy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search needs a subject beside its check, whatever the terminal's width."""
    group_type(healthy, "identity")
    wide = CliRunner().invoke(app, ["doctor"]).output
    monkeypatch.setenv("COLUMNS", "20")
    assert CliRunner().invoke(app, ["doctor"]).output == wide


def test_a_group_is_called_by_its_device(healthy: Machine) -> None:
    """Users do not know group numbers."""
    lines = CliRunner().invoke(app, ["doctor"]).output.splitlines()
    assert "ok     group 11 (eth1)  auto" in lines
    make_device(healthy.sysfs, "0000:01:00.1", 11, "fused", "igb")
    space(healthy, configuration_space())
    lines = CliRunner().invoke(app, ["doctor"]).output.splitlines()
    assert "ok     group 11 (eth1 +1)  auto" in lines


def test_lines_of_a_terminal_are_wrapped_between_words(
    healthy: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    exposed(healthy, 1_000_001)
    found = wrong()
    doctor._print(found)
    lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 50
    assert lines == [line.rstrip() for line in lines]
    assert f"{found[0].reason} -> {found[0].remedy} nothing" in " ".join(" ".join(lines).split())


# ---- statements in two places must agree ----


def test_the_kernels_that_were_tested_are_the_labs() -> None:
    table = tomllib.loads((PROJECT / "lab/kernels.toml").read_text())["kernel"]
    for uname, arch in (("x86_64", "amd64"), ("aarch64", "arm64")):
        assert {*checks_machine.TESTED[uname]} == {
            name.partition("-")[0] for name, kernel in table.items() if arch in kernel["arch"]
        }
    text = (PROJECT / "docs/releases/0.1.0.md").read_text()
    assert {name for name in table if "-" not in name} <= {*re.findall(r"^\| Debian ([\d.]+) \(", text, re.MULTILINE)}


def test_the_options_and_architectures_are_those_of_dkms() -> None:
    text = (PROJECT / "dkms.conf").read_text()
    arch = re.search(r'^BUILD_EXCLUSIVE_ARCH="(.*)"$', text, re.MULTILINE)
    assert arch
    assert [
        name for name in ("i686", "x86_64", "aarch64", "aarch64_be", "armv7l", "riscv64") if re.search(arch[1], name)
    ] == [*checks_machine.TESTED]
    found = re.search(r'^BUILD_EXCLUSIVE_CONFIG="(.*)"$', text, re.MULTILINE)
    assert found
    assert tuple(found[1].split()) == checks_machine.OPTIONS
