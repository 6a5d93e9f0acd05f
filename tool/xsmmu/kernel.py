# SPDX-License-Identifier: GPL-2.0-only
"""Properties of the running kernel: release, configuration, and rules for loading modules.

None means unknown, never `no`.
"""

from __future__ import annotations

import gzip
import lzma
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from xsmmu import cmdline
from xsmmu.machine import root, sysfs, text

_SECURE_BOOT: Final = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_SIGNED: Final = b"~Module signature appended~\n"
_VIRTUAL: Final = re.compile(
    r"QEMU|KVM|VMware|VirtualBox|Virtual Machine|Apple Virtualization|Parallels|BHYVE|OpenStack|KubeVirt|vServer|"
    r"Google Compute|Amazon EC2(?!.*\.metal)|dummy-virt|\bxen\b",
    re.IGNORECASE,
)
"""Names of virtual machines in firmware and device tree."""
_VENDORS: Final = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "amd"}


def release() -> str:
    """Output of `uname -r`; empty if not readable."""
    return text(root("proc") / "sys/kernel/osrelease") or ""


def series() -> tuple[int, int]:
    """First two numbers of the release; (0, 0) if not readable."""
    found = re.match(r"(\d+)\.(\d+)", release())
    return (int(found[1]), int(found[2])) if found else (0, 0)


def architecture() -> str | None:
    """Output of `uname -m`, from Linux 6.1 on."""
    return text(root("proc") / "sys/kernel/arch")


def processor() -> str | None:
    """Vendor of the processor: intel or amd."""
    found = re.search(r"^vendor_id\s*:\s*(\w+)", text(root("proc") / "cpuinfo") or "", re.MULTILINE)
    return _VENDORS.get(found[1]) if found else None


def model() -> str | None:
    """Name of the processor."""
    found = re.search(r"^model name\s*:\s*(.+)", text(root("proc") / "cpuinfo") or "", re.MULTILINE)
    return found[1].strip() if found else None


def is_virtual() -> bool:
    """Whether the machine is virtual: a processor flag on x86, the machine's name on arm64."""
    found = re.search(r"^flags\s*:(.*)", text(root("proc") / "cpuinfo") or "", re.MULTILINE)
    if found:
        return "hypervisor" in found[1].split()
    names = [sysfs() / "class/dmi/id/sys_vendor", sysfs() / "class/dmi/id/product_name"]
    called = " ".join(text(each) or "" for each in (*names, root("proc") / "device-tree/compatible"))
    return _VIRTUAL.search(called) is not None


def is_realtime() -> bool:
    """Whether the kernel is PREEMPT_RT."""
    version = text(root("proc") / "sys/kernel/version") or ""
    return text(sysfs() / "kernel/realtime") == "1" or "PREEMPT_RT" in version.split()


def boolean(value: str | None) -> bool | None:
    """As kstrtobool(): the meaning of a value's first characters; None without a meaning."""
    first = (value or "")[:2].lower()
    # Linux 7.2 and 7.3 accept enabled and disabled; 6.1 and 6.12 do not.
    knows_enabled = series() > (6, 12)
    if first.startswith(("y", "t", "1", "on", *(["e"] if knows_enabled else []))):
        return True
    if first.startswith(("n", "f", "0", "of", *(["d"] if knows_enabled else []))):
        return False
    return None


def _enforces() -> bool:
    """Whether module.sig_enforce is on; the name alone enables the parameter, nothing disables (bool_enable_only)."""
    return any(word.value is None or boolean(word.value) for word in cmdline.named("module.sig_enforce"))


def _parsed(file: Path) -> dict[str, str]:
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return dict(re.findall(r"^(CONFIG_\w+)=(.*)$", content.decode(errors="replace"), re.MULTILINE))


def config() -> dict[str, str] | None:
    """Options of the kernel's configuration: CONFIG_X with y, m or a value; None if not readable."""
    candidates = (
        root("proc") / "config.gz",
        root("boot") / f"config-{release()}",
        root("modules") / release() / "build/.config",
        root("modules") / release() / "config",
    )
    for file in candidates:
        try:
            found = _parsed(file)
        except (OSError, EOFError, zlib.error):
            continue
        # A file without options is no configuration.
        if found:
            return found
    return None


def lockdown() -> str | None:
    """none, integrity or confidentiality; None for a kernel without lockdown, or if not readable."""
    found = re.search(r"\[(\w+)\]", text(sysfs() / "kernel/security/lockdown") or "")
    return found[1] if found else None


def secure_boot() -> bool | None:
    """Whether Secure Boot is on; None without EFI or permission."""
    try:
        return (sysfs() / _SECURE_BOOT).read_bytes()[4:5] == b"\1"
    except OSError:
        return None


def refuses_unsigned() -> str | None:
    """Reason why the kernel refuses unsigned modules; None if unsigned modules load or the answer is unknown."""
    if (lockdown() or "none") != "none":
        return f"the kernel is locked down ({lockdown()})"
    if _enforces() or text(sysfs() / "module/module/parameters/sig_enforce") == "Y":
        return "module.sig_enforce is on"
    if (config() or {}).get("CONFIG_MODULE_SIG_FORCE") == "y":
        return "the kernel is built with CONFIG_MODULE_SIG_FORCE"
    return None


def knows_key_of_dkms() -> bool:
    """Whether the kernel trusts a key of DKMS, as far as this user can read the key rings."""
    return "DKMS" in (text(root("proc") / "keys") or "")


def installed() -> list[str]:
    """Releases of all kernels with modules in /lib/modules, including the running kernel."""
    try:
        return sorted(path.name for path in root("modules").iterdir() if path.is_dir())
    except FileNotFoundError:
        return []


def built(name: str, of: str = "") -> Path | None:
    """File of an installed module, for the running kernel or another release."""
    wanted = of or release()
    return next(iter(sorted(_built(root("modules") / wanted, name))), None) if wanted else None


def _built(folder: Path, name: str) -> Iterator[Path]:
    # Folders of out-of-tree modules; a search of the whole tree is slow.
    for place in ("updates", "extra", "kernel/extra", "weak-updates", "misc"):
        yield from (folder / place).rglob(f"{name}.ko*")


def is_signed(module: Path) -> bool | None:
    """Whether a module's file is signed by any key; None if the file's compression is not supported (zstd)."""
    try:
        if module.suffix == ".ko":
            return module.read_bytes().endswith(_SIGNED)
        if module.suffix == ".xz":
            return lzma.decompress(module.read_bytes()).endswith(_SIGNED)
        if module.suffix == ".gz":
            return gzip.decompress(module.read_bytes()).endswith(_SIGNED)
    except (OSError, EOFError, lzma.LZMAError, zlib.error):
        pass
    return None
