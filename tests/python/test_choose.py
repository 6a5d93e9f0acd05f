# SPDX-License-Identifier: GPL-2.0-only
"""The commands that write, on a made-up sysfs; its kernel binds, unbinds and refuses like a real one."""

from __future__ import annotations

import errno
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.python import fake_kernel
from tests.python.fake_kernel import Kernel, Refuses, end, everything, fails, ignore, program, put_back, run
from tests.python.fake_network import Network
from tests.python.sysfs import BELOW_VMD, IGB, MENU, NVME0, NVME1, VMD, make_device, make_driver, move

from xsmmu import apply, choose, cli, files, machine, modes, module, rules, steps
from xsmmu.errors import UserError
from xsmmu.machine import Device


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    with fake_kernel.booted(tmp_path, monkeypatch) as made:
        yield made


SET = ("set", "eth1", "fused", "max_window_us=500", "--tables", "direct", "--rebind", "--persist")
RULE = f"{IGB}/8086:10c9=fused,max_window_us:500,tables:direct"


def test_set_rebinds_and_keeps(kernel: Kernel) -> None:
    said = run(*SET)
    assert f"{IGB} (eth1): fused, level held, state attached" in said
    folder = f"bus/pci/devices/{IGB}/xsmmu"
    assert kernel.writes == [
        f"bus/pci/drivers/igb/unbind {IGB}",
        f"{folder}/policy fused",
        f"{folder}/tables direct",
        f"{folder}/max_window_us 500",
        f"bus/pci/drivers/igb/bind {IGB}",
    ]
    assert Device(IGB).driver == "igb"
    assert rules.conf().read_text() == f"{RULE}\n"
    lines = apply.modprobe_conf().read_text().splitlines()
    assert lines[0].startswith("# made by xsmmu apply from")
    assert lines[1:] == [f'options xsmmu rules="{RULE}"', "softdep igb pre: xsmmu"]
    assert "the rule for the next boot exists already" in run(*SET)


REPEATED = [
    ("set", "eth1", "fused", "--rebind", "--persist"),
    ("set", "eth1", "fused", "--rebind"),
    SET,
    ("set", "eth1", "fused", "max_window_us=500", "batch_pages=1024", "--rebind", "--tables", "kernel"),
    ("set", "eth1", "copy", "--rebind", "--persist"),
    ("set", "eth1", "copy", "copy_bytes=256", "--rebind"),
    ("set", "eth1", "strict", "copy_bytes=256", "--rebind", "--persist"),
    ("set", "eth1", "auto", "--rebind", "--persist"),
    ("set", "eth1", "auto", "--rebind", "--tables", "direct", "--persist"),
    ("set", "eth1", "fused", "--persist"),
    ("set", "eth1", "auto", "--persist"),
    ("unset", "eth1"),
    ("unset", "eth1", "--rebind"),
    ("unset", "eth1", "--rebind", "--persist"),
    ("set", "nvme0n1", "strict", "--persist"),
    ("set", "06:00.0", "strict", "--rebind", "--persist"),
    ("set", "nvme0n1", "xsmmu", "--rebind"),
    ("unset", "nvme0n1", "--rebind", "--persist"),
    ("unset", "nvme0n1", "--persist"),
]


@pytest.mark.parametrize(
    "conf",
    [
        "",
        f"{NVME1}=none # broken\n{NVME0}=fused\n\n# all\nclass:02=lazy\n*=fused",
        "01:00.0=fused # as an older tool wrote it\r\n05:00.0/8086:10c9=strict\r\n",
        "*=strict\n01:00.0=lazy\n01:00.0=copy\ndriver:nvme=fused\n",
    ],
)
@pytest.mark.parametrize("words", REPEATED, ids=" ".join)
def test_twice_changes_nothing(kernel: Kernel, words: tuple[str, ...], conf: str) -> None:
    """As an hourly configuration system does: no driver is unbound, nothing is written, and the output says so."""
    rules.conf().write_text(conf)
    run(*words)
    before, stamps = everything(kernel), stamps_of_files()
    kernel.writes.clear()
    said = run(*words)
    assert "unchanged: " in said
    change = json.loads(run(*words, "-o", "json"))["changes"][0]
    assert not change["changed"]
    lines = run(*words, "--dry-run")
    assert "# nothing to do\n" in lines
    assert not any("bind" in write for write in kernel.writes)
    # A choice that files do not show completely is written again: the module decides whether anything changes.
    asked_again = [line for line in lines.splitlines() if not line.startswith("#")]
    assert asked_again == change["steps"]
    assert {line.split("/")[-1] for line in asked_again} <= {"policy", "tables"}
    if "auto" not in words and "kernel" not in words:
        assert (asked_again, kernel.writes) == ([], [])
    assert (everything(kernel), stamps_of_files()) == (before, stamps)


def stamps_of_files() -> list[tuple[int, int]]:
    """A replaced file has another inode."""
    found = [file.stat() for file in (rules.conf(), apply.modprobe_conf()) if file.exists()]
    return [(each.st_ino, each.st_mtime_ns) for each in found]


def test_a_rebind_only_where_the_change_needs_it(kernel: Kernel, network: Network) -> None:
    run("set", "eth1", "fused", "--rebind")
    kernel.writes.clear()
    for words in (("strict",), ("strict", "batch_pages=7"), ("auto",), ("xsmmu", "--tables", "direct"), ("fused",)):
        run("set", "eth1", *words, "--rebind")
        assert not any("bind" in write for write in kernel.writes), words
    # Then uses of a device do not matter, either.
    network.route("eth1")
    run("set", "eth1", "lazy", "--rebind")
    assert fails("set", "eth1", "copy", "--rebind").code == "essential"


def test_a_tunable_that_is_not_named_has_its_default_again(kernel: Kernel) -> None:
    run("set", "nvme0", "fused", "max_window_us=500", "batch_pages=7")
    kernel.writes.clear()
    run("set", "nvme0", "fused", "max_window_us=500", "batch_pages=8")
    assert [write.split("/")[-1] for write in kernel.writes] == ["batch_pages 8"]
    kernel.writes.clear()
    assert "unchanged" not in run("set", "nvme0", "fused", "max_window_us=500")
    assert [write.split("/")[-1] for write in kernel.writes] == ["policy fused", "max_window_us 500"]
    assert module.choice(Device(NVME0)).tunables["batch_pages"] == 1024


def test_auto_that_decides_otherwise_now_is_a_change(kernel: Kernel) -> None:
    run("set", "nvme0", "auto")
    kernel.after = lambda _: kernel.show(Device(NVME0), "auto_policy", "fused held: what it looks at has changed")
    assert "unchanged" not in run("set", "nvme0", "auto")


def test_an_older_module_does_not_say_its_defaults(kernel: Kernel) -> None:
    """Then the policy is written again, and a rebind happens only on request."""
    for device in machine.devices():
        for name in ("defaults", "can_copy"):
            (device.folder / "xsmmu" / name).unlink()
    kernel.show(Device(NVME0), "can_copy", "0")
    before = kernel.choose

    def choose_as_before(device: Device, name: str, value: str) -> None:
        kernel.show(Device(NVME0), "can_copy", "0")
        try:
            before(device, name, value)
        finally:
            for each in (NVME0, NVME1):
                (Device(each).folder / "xsmmu/can_copy").unlink()

    kernel.choose = choose_as_before  # type: ignore[method-assign]
    (Device(NVME0).folder / "xsmmu/can_copy").unlink()
    (Device(NVME1).folder / "xsmmu/can_copy").unlink()
    run("set", "nvme0", "strict")
    assert "unchanged: strict" in run("set", "nvme0", "strict")
    assert put_back(kernel, "set", "nvme0", "copy").code == "driver-bound"
    run("set", "nvme0", "fused", "--rebind")
    assert f"bus/pci/drivers/nvme/unbind {NVME0}" in kernel.writes


def mounted_root(kernel: Kernel) -> None:
    """The disk nvme0n1 has the root file system."""
    (kernel.sysfs.parent / "proc/self").mkdir(parents=True)
    (kernel.sysfs.parent / "proc/self/mountinfo").write_text("22 1 259:0 / / rw - ext4 /dev/nvme0n1 rw\n")


@pytest.mark.parametrize(
    "words", [("set", "nvme0n1", "strict"), ("set", "06:00.0", "auto"), ("set", "nvme0n1", "copy")]
)
def test_a_root_disk_has_its_policy_from_the_next_boot_on(kernel: Kernel, words: tuple[str, ...]) -> None:
    run("unset", "nvme0n1", "--rebind")
    kernel.writes.clear()
    mounted_root(kernel)
    before = everything(kernel)
    for refused in (words, (*words, "--rebind"), (*words, "--rebind", "--persist")):
        error = put_back(kernel, *refused)
        assert "nvme0n1 is mounted on /" in error.message
        assert "--persist" in error.message and "--force" not in error.message
    way = (*words, "--persist")
    dry = run(*way, "--dry-run")
    assert everything(kernel) == before
    said = run(*way)
    notes = [line.removeprefix("# ") for line in dry.splitlines() if line.startswith("# ") and "made by" not in line]
    assert said.splitlines()[: len(notes)] == notes
    assert "nothing changes now, because drivers stay bound" in notes[0]
    assert "--rebind" not in said
    assert (
        "has the rule for the next boot; the disk may be needed for boot, so before the reboot: xsmmu apply" in notes[1]
    )
    assert f"{words[2]} from the next boot on, state now off" in said
    # The module was asked for reasons against the policy other than the bound driver, and nothing else was written.
    assert kernel.writes == [f"bus/pci/devices/{machine.find(words[1]).address}/xsmmu/policy {words[2]}"]
    assert everything(kernel)["devices"] == before["devices"]
    assert [line.split("=")[1] for line in rules.conf().read_text().splitlines()] == [words[2]]
    assert "softdep nvme pre: xsmmu" in apply.modprobe_conf().read_text()
    change = json.loads(run(*way, "-o", "json"))["changes"][0]
    assert (change["at_next_boot"], change["changed"], change["policy"], change["state"]) == (
        True,
        False,
        words[2],
        "off",
    )


def test_a_root_disk_is_given_back_at_the_next_boot(kernel: Kernel) -> None:
    run("set", "nvme0n1", "fused", "--persist")
    mounted_root(kernel)
    assert "--force" not in put_back(kernel, "unset", "nvme0n1", "--rebind").message
    kernel.writes.clear()
    said = run("unset", "nvme0n1", "--persist")
    assert "the kernel's own path from the next boot on, state now attached" in said
    assert (kernel.writes, rules.conf().read_text()) == ([], "")


@pytest.mark.parametrize("is_bound_again", [False, True])
def test_a_question_to_the_module_chooses_nothing(kernel: Kernel, is_bound_again: bool) -> None:
    """If the driver is unbound at that moment, the module takes the policy instead of only checking it."""
    driver = Device(IGB).folder / "driver"
    target = driver.readlink()

    def before(write: str) -> None:
        if write.endswith("policy fused"):
            driver.unlink()
        elif is_bound_again:
            driver.symlink_to(target)
            kernel.show(Device(IGB), "state", "attached")

    kernel.before = before
    if is_bound_again:
        error = fails("set", "eth1", "fused", "--persist")
        assert error.code == "not-put-back" and error.message.startswith(f"{IGB} (eth1) is under fused now, because ")
        assert error.message.endswith(f": run xsmmu unset {IGB} --rebind")
        assert not rules.conf().exists()
        return
    said = run("set", "eth1", "fused", "--persist")
    assert "nothing changes now" in said and "fused from the next boot on, state now off" in said
    assert [write.split()[1] for write in kernel.writes] == ["fused", "none"]
    assert module.choice(Device(IGB)).policy == "none"


def test_the_level_is_that_of_the_path_in_force(kernel: Kernel) -> None:
    """Without a bound driver the module shows level none, or the policy's level."""
    (Device(IGB).folder / "driver").unlink()
    kernel.after = lambda _: kernel.show(Device(IGB), "level", "none")
    assert "fused, level lazy of kernel-lazy until a driver is bound, state idle" in run("set", "eth1", "fused")
    said = json.loads(run("set", "eth1", "strict", "-o", "json"))["changes"][0]
    assert (said["level"], said["policy"], said["state"]) == ("lazy", "strict", "idle")


@pytest.mark.usefixtures("kernel")
def test_persist_alone_unbinds_nothing() -> None:
    said = run("set", "eth1", "fused", "--persist")
    assert f"because drivers stay bound ({IGB} (eth1) to igb); --rebind changes the policy now, too" in said
    assert "if the initramfs loads the driver" in said
    assert module.choice(Device(IGB)).policy == "none"
    assert "fused, level held, state attached" in run("set", "eth1", "fused", "--persist", "--rebind")


def test_no_rule_that_the_module_would_refuse_at_boot(kernel: Kernel) -> None:
    """A policy below the floor would make the module refuse all rules."""

    def before(write: str) -> None:
        if write.endswith("policy lazy"):
            raise PermissionError(errno.EPERM, "Operation not permitted")

    kernel.before = before
    assert put_back(kernel, "set", "eth1", "lazy", "--persist").code == "refused"


def test_a_disk_whose_driver_is_part_of_the_kernel(kernel: Kernel) -> None:
    """Neither now nor at boot: a rule would have no effect."""
    (kernel.sysfs / "module/igb/initstate").unlink()
    error = put_back(kernel, "set", "eth1", "strict", "--persist")
    assert error.code == "built-in"
    assert "igb is part of the kernel" in error.message and "nothing was changed" in error.message


def test_what_has_identity_at_boot_again(kernel: Kernel) -> None:
    (kernel.sysfs / "kernel/iommu_groups/11/type").write_text("identity\n")
    assert "group 11 must be DMA or DMA-FQ at boot" in run("set", "eth1", "fused", "--persist")


def test_hooks_around_a_rebind(kernel: Kernel, tmp_path: Path) -> None:
    log = tmp_path / "log"
    hooks = ("--before", f"echo before >>{log}", "--after", f"echo after '$x' >>{log}")
    run("set", "eth1", "fused", "--rebind", *hooks)
    assert log.read_text() == "before\nafter $x\n"
    # Not if nothing is unbound.
    run("set", "eth1", "fused", "--rebind", *hooks)
    run("set", "eth1", "strict", "--rebind", *hooks)
    assert log.read_text() == "before\nafter $x\n"
    script = run("unset", "eth1", "--rebind", *hooks, "--dry-run").splitlines()
    assert script[0] == f"sh -c 'echo before >>{log}'"
    assert script[-2] == f"until [ -e {kernel.sysfs}/class/net/eth1 ]; do sleep 0.1; done"
    assert subprocess.run(script[-1], shell=True, check=True) and log.read_text().endswith("after $x\nafter $x\n")


@pytest.mark.parametrize("nth", range(1, 4))
def test_what_is_put_back_has_its_hooks_too(kernel: Kernel, tmp_path: Path, nth: int) -> None:
    log = tmp_path / "log"
    kernel.after = lambda _: refuse() if len(kernel.writes) == nth else None
    hooks = ("--before", f"echo before >>{log}", "--after", f"echo after >>{log}")
    put_back(kernel, "set", "eth1", "fused", "--rebind", *hooks)
    assert log.read_text() == "before\nafter\n"


def test_a_hook_that_fails(kernel: Kernel, tmp_path: Path) -> None:
    error = put_back(kernel, "set", "eth1", "fused", "--rebind", "--persist", "--before", "echo no; false")
    assert (error.code, error.lines) == ("hook-failed", ("no",))
    assert kernel.writes == []
    once = f"test -e {tmp_path}/once || {{ touch {tmp_path}/once; false; }}"
    error = fails("set", "eth1", "fused", "--rebind", "--persist", "--after", once)
    assert error.code == "hook-failed" and error.message.startswith(f"--after '{once}' ended with status 1: ")
    assert error.message.endswith(
        "all other steps are done and stay; correct the command, and run the command alone in a shell"
    )
    # To restore the policy would be a second outage, and would run the same command again.
    assert [write.split()[0].rpartition("/")[2] for write in kernel.writes] == ["unbind", "policy", "bind"]
    assert module.choice(Device(IGB)).state == "attached"
    assert rules.conf().read_text().endswith("=fused\n")
    kernel.writes.clear()
    error = fails("unset", "eth1", "--rebind", "--after", "echo gone; exit 7")
    assert (error.code, error.lines, module.choice(Device(IGB)).policy) == ("hook-failed", ("gone",), "none")


def test_what_fails_after_a_hook_that_failed_is_put_back(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_files(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.mkstemp", refuse_files)
    before = everything(kernel)
    error = fails("set", "eth1", "fused", "--rebind", "--persist", "--after", "false")
    # Then the state of the interfaces is unknown, too.
    assert error.code == "not-put-back" and "No space left" in error.message
    assert everything(kernel) == before


def test_unset_rebinds_the_whole_group_and_forgets(kernel: Kernel) -> None:
    run("set", "nvme0n1", "fused", "--persist")
    assert not any("bind" in write for write in kernel.writes)
    assert rules.conf().read_text() == f"{NVME0}/8086:10c9=fused\n"
    kernel.writes.clear()
    run("unset", "nvme0n1", "--rebind", "--persist")
    assert [write.split("/")[-1] for write in kernel.writes] == [
        f"unbind {NVME1}",
        f"unbind {NVME0}",
        "policy none",
        f"bind {NVME0}",
        f"bind {NVME1}",
    ]
    assert rules.conf().read_text() == ""
    assert not apply.modprobe_conf().exists()


def test_a_group_that_is_not_translated_becomes_so(kernel: Kernel) -> None:
    (kernel.sysfs / "kernel/iommu_groups/11/type").write_text("identity\n")
    assert put_back(kernel, "set", "eth1", "fused").code == "driver-bound"
    said = run("set", "eth1", "fused", "--rebind")
    assert "group 11 was not translated (identity): its type becomes DMA-FQ" in said
    assert Device(IGB).group == machine.Group(11)
    assert machine.Group(11).type == "DMA-FQ"
    assert module.choice(Device(IGB)).state == "attached"


def test_a_bridge_stays_bound(kernel: Kernel) -> None:
    """A bridge to another bus; the module counts drivers of other bridges."""
    make_device(kernel.sysfs, "0000:00:1c.0", 11, "none", "pcieport", state="off")
    (Device("0000:00:1c.0").folder / "class").write_text("0x060400\n")
    run("set", "eth1", "fused", "--rebind")
    assert not any("pcieport" in write for write in kernel.writes)
    (Device("0000:00:1c.0").folder / "class").write_text("0x060100\n")
    kernel.writes.clear()
    run("unset", "eth1", "--rebind")
    assert "bus/pci/drivers/pcieport/unbind 0000:00:1c.0" in kernel.writes


def writes_of(kernel: Kernel, *arguments: str) -> int:
    """The number of a command's writes; the command is undone."""
    run(*arguments)
    count = len(kernel.writes)
    run("unset", "eth1", "--rebind", "--persist")
    (kernel.sysfs / "kernel/iommu_groups/11/type").write_text("identity\n")
    rules.conf().unlink()
    kernel.writes.clear()
    return count


def refuse() -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("how", ["refused", "refused after it was done", "Ctrl-C", "SIGTERM"])
def test_any_write_may_fail(kernel: Kernel, how: str) -> None:
    """Whichever write fails, or is the last before a signal: everything is restored, and the error says so."""
    (kernel.sysfs / "kernel/iommu_groups/11/type").write_text("identity\n")
    count = writes_of(kernel, *SET)
    assert count == 6
    before = everything(kernel)
    answers = {"Ctrl-C": (signal.SIGINT, 130, "stopped"), "SIGTERM": (signal.SIGTERM, 130, "stopped")}
    number, status, code = answers.get(how, (None, 1, ""))
    for nth in range(1, count + 1):
        kernel.writes.clear()

        def strike(_write: str, at: int = nth) -> None:
            if len(kernel.writes) == at:
                if number:
                    signal.raise_signal(number)
                else:
                    refuse()

        kernel.before, kernel.after = (strike, ignore) if how == "refused" else (ignore, strike)
        error = fails(*SET)
        assert error.message.endswith("; everything was restored"), error
        assert error.status == status
        assert not code or error.code == code
        assert everything(kernel) == before, nth


@pytest.mark.parametrize(
    ("arguments", "nth"),
    [
        *((("set", "nvme0", "strict", "max_window_us=1", "--tables", "kernel"), nth) for nth in range(1, 4)),
        *((("unset", "nvme0", "--rebind", "--persist"), nth) for nth in range(1, 6)),
    ],
)
def test_what_was_chosen_before_is_put_back(kernel: Kernel, arguments: tuple[str, ...], nth: int) -> None:
    """With tables and tunables, from one policy to another and to none."""
    run("set", "nvme0", "xsmmu", "max_window_us=77", "batch_pages=5", "--tables", "direct")
    kernel.writes.clear()
    kernel.after = lambda _: refuse() if len(kernel.writes) == nth else None
    put_back(kernel, *arguments)
    assert module.choice(Device(NVME1)).tunables["max_window_us"] == 77


@pytest.mark.parametrize("error", [errno.EROFS, errno.ENOSPC])
def test_a_disk_that_takes_nothing(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """Files that were not written need no restoration."""
    rules.conf().write_text("0000:09:00.0=strict\n")

    def refuse_files(**_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("tempfile.mkstemp", refuse_files)
    found = put_back(kernel, *SET)
    assert found.code == "cannot-write"
    assert found.message.endswith(f"{os.strerror(error)}: remove the cause, then try again; everything was restored")


@pytest.mark.usefixtures("kernel")
def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """A link to /dev/null disables a file, and /dev/null must survive."""
    os.mkfifo(device := tmp_path / "null")
    assert fails("metrics", "--output-file", str(device)).message.endswith(
        "not a regular file: put a regular file there, or name another file"
    )
    rules.conf().symlink_to(device)
    with pytest.raises(UserError) as error:
        files.replace(rules.conf(), "")
    assert error.value.code == "cannot-write"
    with pytest.raises(UserError):
        files.replace(rules.conf(), None)
    assert device.is_fifo()


def test_what_could_not_be_kept_is_known_before_drivers_are_unbound(kernel: Kernel) -> None:
    rules.conf().symlink_to("/dev/null")
    error = fails(*SET)
    assert (error.code, error.message) == (
        "cannot-write",
        "cannot write /dev/null: not a regular file: put a regular file there, or name another file",
    )
    assert kernel.writes == []
    assert str(rules.conf().readlink()) == "/dev/null"


def test_a_filesystem_that_is_read_only_is_known_before_drivers_are_unbound(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    error = fails(*SET)
    assert error.code == "cannot-write" and ": Read-only file system: " in error.message
    assert kernel.writes == []


@pytest.mark.usefixtures("kernel")
def test_a_link_to_where_nothing_can_be_written_is_known_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "read-only"):
        (tmp_path / name).mkdir()
    (tmp_path / "here/file").symlink_to(tmp_path / "read-only/file")
    with monkeypatch.context() as patch:
        flags = {"read-only": os.ST_RDONLY}
        patch.setattr("os.statvfs", lambda at: SimpleNamespace(f_flag=flags.get(Path(at).name, 0)))
        with pytest.raises(UserError, match="Read-only"):
            files.step(tmp_path / "here/file", "2")
    with pytest.raises(UserError, match=r"because folder .*blocked does not exist: create the folder") as error:
        files.step(tmp_path / "blocked/file", "2")
    assert error.value.code == "cannot-write"
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Not a directory") as error:
        files.step(tmp_path / "file/file", "2")
    assert error.value.code == "cannot-write"

    def refused(_: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("os.statvfs", refused)
    with pytest.raises(UserError, match="is not writable for this user: try sudo") as error:
        files.step(tmp_path / "here/file", "2")
    assert error.value.code == "no-permission"


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("stops", "raised", "words"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), UserError, "No space left"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
    ids=["full", "Ctrl-C"],
)
def test_what_could_not_be_written_leaves_nothing(
    stops: BaseException,
    raised: type[BaseException],
    words: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(_: int) -> None:
        raise stops

    monkeypatch.setattr("os.fsync", stop)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(raised, match=words):
        files.replace(tmp_path / "file", "text")
    assert sorted(tmp_path.iterdir()) == before
    # An absent file need not be removed.
    files.replace(tmp_path / "file", None)


@pytest.mark.usefixtures("kernel")
def test_all_is_on_the_disk_before_it_has_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, bool]] = []
    monkeypatch.setattr("os.fsync", lambda fd: synced.append((os.fstat(fd).st_size, (tmp_path / "file").exists())))
    files.replace(tmp_path / "file", "text")
    assert synced == [(4, False)]


@pytest.mark.usefixtures("kernel")
def test_a_name_that_cannot_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Obstacles to writing are reported in the tool's words, also if found before anything is written."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, code in (("a" * 300, "cannot-write"), ("loop", "cannot-write")):
        with pytest.raises(UserError) as error:
            files.replace(tmp_path / name, "")
        assert error.value.code == code

    def refuse_to_look(_: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "lstat", refuse_to_look)
    with pytest.raises(UserError) as error:
        files.replace(tmp_path / "closed/file", "")
    assert error.value.code == "no-permission"


def test_a_second_signal_does_not_stop_the_putting_back(kernel: Kernel) -> None:
    def after(_: str) -> None:
        if len(kernel.writes) in (2, 3):
            signal.raise_signal(signal.SIGINT)

    kernel.after = after
    assert put_back(kernel, *SET).code == "stopped"
    assert len(kernel.writes) > 3


def test_nor_does_one_that_comes_when_the_first_was_answered(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second signal comes between the answer to the first and the restoration, during which signals wait."""
    wait = steps.later

    def late(*signals: signal.Signals) -> AbstractContextManager[None]:
        if signal.SIGTERM in signals:
            signal.raise_signal(signal.SIGTERM)
        return wait(*signals)

    monkeypatch.setattr(steps, "later", late)
    kernel.after = lambda _: signal.raise_signal(signal.SIGINT) if len(kernel.writes) == 2 else None
    assert put_back(kernel, *SET).code == "stopped"


@pytest.mark.parametrize("signals", [steps.STOPPING[:1], steps.STOPPING[:2], steps.STOPPING], ids=len)
def test_signals_while_it_is_put_back_after_an_error(kernel: Kernel, signals: tuple[signal.Signals, ...]) -> None:
    """The error is still reported."""

    def after(_: str) -> None:
        if len(kernel.writes) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if len(kernel.writes) == 3:
            for each in signals:
                signal.raise_signal(each)

    kernel.after = after
    assert put_back(kernel, *SET).code == "refused"


@pytest.mark.parametrize("number", steps.STOPPING)
def test_a_signal_between_an_error_and_putting_back(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    wait, came = steps.later, list[bool]()

    def late(*signals: signal.Signals) -> AbstractContextManager[None]:
        if signal.SIGTERM in signals and not came:
            came.append(True)
            signal.raise_signal(number)
        return wait(*signals)

    def after(_: str) -> None:
        if len(kernel.writes) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(steps, "later", late)
    kernel.after = after
    usual = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else cli._stop)
    try:
        assert put_back(kernel, *SET).code == "refused"
    finally:
        signal.signal(number, usual)
    assert came


def test_signals_wait_no_longer_when_one_came_as_they_were_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python answers the signal although signals are already blocked."""
    mask = signal.pthread_sigmask
    before = mask(signal.SIG_BLOCK, ())

    def asked(how: int, which: Collection[signal.Signals]) -> set[int | signal.Signals]:
        found = mask(how, which)
        if signal.SIGHUP in which and how == signal.SIG_BLOCK:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(signal, "pthread_sigmask", asked)
    try:
        with pytest.raises(KeyboardInterrupt), steps.later(signal.SIGHUP):
            pass
        assert mask(signal.SIG_BLOCK, ()) == before
    finally:
        mask(signal.SIG_SETMASK, before)


def test_signals_while_it_is_put_back_have_nothing_undone_twice() -> None:
    undone: list[bool] = []

    def undo() -> None:
        undone.append(True)
        for each in steps.STOPPING:
            signal.raise_signal(each)

    before = {each: signal.signal(each, signal.default_int_handler) for each in steps.STOPPING}
    try:
        with pytest.raises(UserError), steps.put_back_if_it_fails([steps.Step("", lambda: None, undo)]):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    finally:
        for each, answer in before.items():
            signal.signal(each, answer)
    assert undone == [True]


@pytest.mark.parametrize(
    ("bug", "words"),
    [
        (ValueError("a word that is no number"), "ValueError: a word that is no number"),
        (AssertionError(), "AssertionError"),
        (OSError(errno.EBUSY, "Busy"), r"\[Errno 16\] Busy"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_a_bug_in_an_undo_keeps_no_other_from_being_taken_back(bug: Exception, words: str) -> None:
    undone: list[int] = []

    def undo(number: int) -> None:
        undone.append(number)
        if number == 2:
            raise bug

    todo = [steps.Step("", lambda: None, partial(undo, number)) for number in (1, 2, 3)]
    with (
        pytest.raises(UserError, match=f"not restored: {words}: see xsmmu status") as error,
        steps.put_back_if_it_fails(todo),
    ):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    assert (error.value.code, undone) == ("not-put-back", [3, 2, 1])


@pytest.mark.parametrize(
    "command",
    [SET, ("bench", "eth1", "--rebind", "--policies", "strict,fused"), ("compare", "eth1", "--", "true")],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("signals", [(signal.SIGINT, signal.SIGTERM), steps.STOPPING], ids=len)
def test_signals_that_come_at_once_do_not_stop_it_either(
    kernel: Kernel, command: tuple[str, ...], signals: tuple[signal.Signals, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As all signals that come while the kernel works on a write."""
    (kernel.sysfs.parent / "proc").mkdir()
    (kernel.sysfs.parent / "proc/stat").write_text("cpu 1 1 1 1 1 1 1 1\n")
    before = everything(kernel)
    for nth in range(1, 6):
        kernel.writes.clear()
        (folder := kernel.sysfs.parent / f"{nth}").mkdir()
        monkeypatch.chdir(folder)

        def after(_write: str, at: int = nth) -> None:
            if len(kernel.writes) == at:
                with steps.later(*signals):
                    for each in signals:
                        signal.raise_signal(each)

        kernel.after = after
        assert fails(*command).code == "stopped"
        assert everything(kernel) == before, nth


def test_what_is_in_use_is_not_taken_away(kernel: Kernel, network: Network) -> None:
    network.route("eth1")
    error = put_back(kernel, *SET)
    assert error.code == "essential"
    assert error.message.startswith(f"{IGB} (eth1) is in use: the only default route uses ")
    assert ": use --persist without --rebind" in error.message
    assert put_back(kernel, *SET, "--dry-run").code == "essential"
    assert not kernel.writes
    run(*SET, "--force")
    assert module.choice(Device(IGB)).policy == "fused"


@pytest.mark.parametrize("words", [("set", "0000:06:00.0", "copy"), ("unset", "0000:06:00.0")])
def test_what_is_in_use_may_be_another_device_of_the_group(kernel: Kernel, words: tuple[str, ...]) -> None:
    """Releasing the device also interrupts it for a moment."""
    (kernel.sysfs.parent / "proc").mkdir()
    (kernel.sysfs.parent / "proc/swaps").write_text("Filename Type\n/dev/nvme0n1 partition 1 0 -2\n")
    error = put_back(kernel, *words, "--rebind")
    assert error.code == "essential"
    assert "nvme0n1 is used as swap" in error.message
    assert not kernel.writes
    run(*words, "--rebind", "--force")


@pytest.fixture
def vmd(kernel: Kernel) -> Kernel:
    """Both controllers are in a domain made by a third controller's driver, and in its group."""
    make_device(kernel.sysfs, VMD, 13, "none", "vmd")
    (Device(VMD).folder / "class").write_text("0x010400\n")
    below = {NVME0: BELOW_VMD, NVME1: BELOW_VMD.replace("e1", "e2")}
    for device, address in below.items():
        move(kernel.sysfs, device, address)
    kernel.show(Device(VMD), "policy", " ".join("[none]" if name == "none" else name for name in MENU))
    kernel.show(Device(VMD), "state", "off")
    places = [kernel.sysfs / "bus/pci/devices", kernel.sysfs / "kernel/iommu_groups/13/devices"]

    def after(write: str) -> None:
        for place in places if "vmd/" in write else []:
            for address in below.values():
                link, gone = place / address, place.with_name(f"gone-{place.name}-{address}")
                gone.rename(link) if "/bind" in write else link.rename(gone)

    kernel.after = after
    return kernel


@pytest.mark.parametrize("name", ["nvme0n1", "nvme0", BELOW_VMD, VMD])
def test_a_disk_that_goes_with_another_driver(vmd: Kernel, name: str) -> None:
    """The disk is not unbound and then missed: the policy is chosen through the device that stays."""
    expected = [
        f"bus/pci/drivers/vmd/unbind {VMD}",
        f"bus/pci/devices/{VMD}/xsmmu/policy fused",
        f"bus/pci/drivers/vmd/bind {VMD}",
    ]
    note = f"{BELOW_VMD} (nvme0n1) is created by vmd of {VMD}, so {VMD} gets the policy"
    dry = run("set", name, "fused", "--rebind", "--persist", "--dry-run")
    assert (note in dry) == (name != VMD)
    assert not vmd.writes
    said = run("set", name, "fused", "--rebind", "--persist")
    assert (note in said) == (name != VMD)
    assert f"{VMD}: fused, level held" in said
    assert vmd.writes == expected
    assert rules.conf().read_text() == f"{VMD}/8086:10c9=fused\n"
    vmd.writes.clear()
    run("unset", name, "--rebind", "--persist")
    assert [write.split()[-1] for write in vmd.writes] == [VMD, "none", VMD]
    assert rules.conf().read_text() == ""


def test_measurements_of_a_disk_that_goes_with_another_driver(vmd: Kernel) -> None:
    stat = vmd.sysfs.parent / "proc/stat"
    stat.parent.mkdir()
    stat.write_text("cpu  1000 0 1000 8000 0 0 0 0 0 0\n")
    folder = str(vmd.sysfs.parent / "results")
    words = ("--runs", "1", "--policies", "kernel-lazy,strict", "--output-folder", folder, "--", "true")
    run("compare", "nvme0n1", *words)
    assert {write.split()[-1] for write in vmd.writes if "bind" in write} == {VMD}
    assert (Device(VMD).driver, module.choice(Device(VMD)).policy) == ("vmd", "none")
    assert (vmd.sysfs / "kernel/iommu_groups/13/type").read_text().strip() == "DMA-FQ"


def test_a_mounted_disk_that_goes_with_another_driver(vmd: Kernel, network: Network) -> None:
    network.claimed["/dev/nvme0n1"] = errno.EBUSY
    for name in ("nvme0n1", BELOW_VMD.replace("e1", "e2"), VMD):
        assert "nvme0n1 is in use" in put_back(vmd, "set", name, "fused", "--rebind").message
    assert not vmd.writes


VF = "0000:01:10.0"


@pytest.mark.parametrize("name", ["eth1", VF])
@pytest.mark.parametrize("stays", [True, False])
def test_a_virtual_function_of_the_group(kernel: Kernel, name: str, stays: bool) -> None:
    """The function may disappear with the driver of its physical function, and then cannot be bound."""
    make_device(kernel.sysfs, VF, 11, "none", "igbvf", state="off")
    (Device(VF).folder / "physfn").symlink_to(Device(IGB).folder)
    (Device(IGB).folder / "sriov_numvfs").write_text("1\n")

    def after(write: str) -> None:
        if write.startswith("bus/pci/drivers/igb/unbind") and not stays:
            Device(VF).folder.rename(kernel.sysfs / "gone")

    kernel.after = after
    assert "has 1 virtual functions" in put_back(kernel, "set", name, "fused", "--rebind").message
    run("set", name, "fused", "--rebind", "--force")
    done = [write.split()[-1] for write in kernel.writes]
    assert done == [VF, IGB, "fused", IGB, VF][: 5 if stays else 4]


def on_a_terminal_that_hangs_up(kernel: Kernel, *arguments: str) -> int:
    """The status of a command whose terminal hangs up when the driver is unbound."""
    process, terminal = pty.fork()
    if not process:
        try:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            kernel.after = lambda write: until_hung_up() if "unbind" in write else None
            sys.argv, sys.stdout, sys.stderr = ["xsmmu", *arguments], os.fdopen(1, "w"), os.fdopen(2, "w")
            cli.main()
            sys.stdout.flush()
            os._exit(0)
        except SystemExit as ended:
            os._exit(int(ended.code or 0))
        finally:
            os._exit(99)
    said = b""
    while b"unbind" not in said:
        said += os.read(terminal, 1000)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def until_hung_up() -> None:
    while True:
        try:
            os.write(1, b"")
        except OSError:
            return


def test_a_terminal_that_hangs_up_stops_nothing(kernel: Kernel) -> None:
    """The step that unbinds the card may cause the hang-up; the status is that of the finished work."""
    assert on_a_terminal_that_hangs_up(kernel, *SET) == 0
    assert (Device(IGB).driver, module.choice(Device(IGB)).policy) == ("igb", "fused")


def test_what_fails_when_the_terminal_has_hung_up(kernel: Kernel) -> None:
    before = everything(kernel)
    kernel.before = lambda write: refuse() if "policy fused" in write else None
    assert on_a_terminal_that_hangs_up(kernel, *SET) == 1
    assert everything(kernel) == before


def test_after_a_attach_that_has_failed(kernel: Kernel) -> None:
    """Another policy would have no effect until the driver binds again."""
    kernel.show(Device(NVME0), "state", "failed")
    assert put_back(kernel, "set", "nvme0", "strict").code == "driver-bound"
    run("set", "nvme0", "strict", "--rebind")
    assert module.choice(Device(NVME0)).state == "attached"


def test_a_driver_that_binds_and_is_not_there(kernel: Kernel) -> None:
    def after(write: str) -> None:
        if "igb/bind" in write and len(kernel.writes) < 6:
            (Device(IGB).folder / "driver").unlink()

    kernel.after = after
    error = put_back(kernel, *SET)
    assert error.code == "bind-failed"
    assert "igb did not bind to 0000:01:00.0" in error.message


def test_a_folder_that_is_not_there_is_known_before_drivers_are_unbound(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSMMU_MODPROBE_CONF", str(kernel.sysfs / "no/folder/xsmmu.conf"))
    assert fails(*SET).code == "cannot-write"
    assert kernel.writes == []


def test_a_driver_that_does_not_bind_under_the_policy(kernel: Kernel) -> None:
    def before(write: str) -> None:
        if "igb/bind" in write and module.choice(Device(IGB)).policy != "none":
            refuse()

    kernel.before = before
    error = put_back(kernel, *SET)
    assert error.code == "bind-failed"
    assert "igb cannot be bound to 0000:01:00.0: Input/output error" in error.message


def test_a_driver_that_does_not_bind_any_more(kernel: Kernel) -> None:
    kernel.before = lambda write: refuse() if f"nvme/bind {NVME1}" in write else None
    error = fails("unset", "nvme0", "--rebind")
    assert error.code == "not-put-back"
    assert f"; not restored: nvme cannot be bound to {NVME1}" in error.message
    assert error.message.count("cannot be bound") == 2
    assert module.choice(Device(NVME0)).policy == "xsmmu"
    assert Device(NVME0).driver == "nvme"


def test_a_type_that_changes_neither_to_nor_fro(kernel: Kernel) -> None:
    """Each error names the type that the kernel refused."""
    file = kernel.sysfs / "kernel/iommu_groups/11/type"
    file.write_text("identity\n")

    def before(write: str) -> None:
        if "11/type identity" in write or f"{IGB}/xsmmu/policy fused" in write:
            refuse()

    kernel.before = before
    error = fails(*SET)
    assert error.code == "not-put-back"
    assert "; not restored: the type of group 11 cannot be changed to identity: " in error.message
    assert file.read_text().strip() == "DMA-FQ"


def test_a_device_that_goes_away(kernel: Kernel) -> None:
    """The rest of its group gets driver and policy back."""

    def after(write: str) -> None:
        if f"unbind {NVME0}" in write:
            shutil.rmtree(Device(NVME0).folder)

    kernel.after = after
    error = fails("unset", "nvme1", "--rebind", "--persist")
    assert error.code == "unknown-device"
    error = fails("unset", "nvme0", "--rebind", "--persist")
    assert error.code == "device-gone"
    assert error.message == f"{NVME0} has disappeared: xsmmu status lists the devices; everything was restored"
    assert module.choice(Device(NVME1)).policy == "xsmmu"
    assert Device(NVME1).driver == "nvme"
    assert not rules.conf().exists()


def test_a_attach_that_fails(kernel: Kernel) -> None:
    def after(write: str) -> None:
        if "igb/bind" in write and module.choice(Device(IGB)).policy != "none":
            kernel.show(Device(IGB), "state", "failed")

    kernel.after = after
    assert put_back(kernel, *SET).code == "attach-failed"


def test_what_is_orphaned_is_waited_for(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    left = 3

    def before(write: str) -> None:
        nonlocal left
        if write.endswith("policy none") and left:
            left -= 1
            kernel.show(Device(NVME0), "state", "orphaned")
            raise OSError(errno.EBUSY, "Device or resource busy")

    kernel.before = before
    monkeypatch.setattr(time, "sleep", lambda _: None)
    run("unset", "nvme0", "--rebind")
    assert left == 0
    run("set", "nvme0", "strict", "--rebind")
    left = 10**6
    monkeypatch.setattr(choose, "LINGER_S", 0.05)
    error = put_back(kernel, "unset", "nvme0", "--rebind")
    assert error.code == "busy"


def test_copying_needs_a_rebind(kernel: Kernel) -> None:
    """The module shows the need; drivers that were bound with copies can go without, and back."""
    for words in (("copy",), ("strict", "copy_bytes=256")):
        error = put_back(kernel, "set", "nvme0", *words)
        assert error.code == "driver-bound"
        assert "--rebind" in error.message
    assert kernel.writes == []
    run("set", "nvme0", "copy", "--rebind")
    assert module.choice(Device(NVME0)).tunables["copy_bytes"] == 4096
    kernel.writes.clear()
    for words in (("fused",), ("copy",), ("copy", "copy_bytes=0"), ("copy", "copy_bytes=256"), ("strict",)):
        run("set", "nvme0", *words, "--rebind")
    assert not any("bind" in write for write in kernel.writes)


def test_steps_are_what_a_shell_would_do(kernel: Kernel) -> None:
    (kernel.sysfs / "kernel/iommu_groups/11/type").write_text("identity\n")
    conf = "# mine, $HOME and `this`\n\n*=none\n"
    rules.conf().write_text(conf)
    before = everything(kernel)
    script = run(*SET, "--dry-run")
    change = json.loads(run(*SET, "--dry-run", "-o", "json"))["changes"][0]
    assert change["dry_run"]
    assert "".join(f"{step}\n" for step in change["steps"]) in script
    assert script.startswith("# group 11 was not translated (identity)")
    assert everything(kernel) == before
    assert not kernel.writes

    run(*SET)
    assert [f"echo {write.split()[1]} > {kernel.sysfs}/{write.split()[0]}" for write in kernel.writes] == [
        step for step in change["steps"] if step.startswith("echo ")
    ]
    files = {file: file.read_text() for file in (rules.conf(), apply.modprobe_conf())}
    rules.conf().write_text(conf)
    apply.modprobe_conf().unlink()
    subprocess.run(["sh", "-e"], input=script, text=True, check=True)
    assert {file: file.read_text() for file in files} == files
    assert module.chosen((Device(IGB).folder / "xsmmu/policy").read_text()) == "fused"


@pytest.mark.parametrize("driver", ["SAA716x Budget", "b'c", "a$HOME;b", "`x`"])
def test_a_driver_may_have_any_name(kernel: Kernel, tmp_path: Path, driver: str) -> None:
    """Its steps, pasted into a shell, write to the right places only."""
    make_device(kernel.sysfs, "0000:0a:00.0", 20, "none", driver, state="off")
    script = run("set", "0a:00.0", "strict", "--rebind", "--dry-run")
    for step in ("bind", "unbind"):
        (kernel.sysfs / "bus/pci/drivers" / driver / step).unlink()
    place = tmp_path / "empty"
    place.mkdir()
    subprocess.run(["sh", "-e"], input=script, text=True, check=True, cwd=place)
    assert not [*place.iterdir()]
    for step in ("bind", "unbind"):
        assert (kernel.sysfs / "bus/pci/drivers" / driver / step).read_text() == "0000:0a:00.0\n"


@pytest.mark.usefixtures("kernel")
def test_a_rule_by_a_driver_that_no_module_is_called_like() -> None:
    rules.conf().write_text("driver:SAA716x Budget=strict\n")
    said = run("apply")
    assert "driver 'SAA716x Budget' is not loaded, and no module has this name" in said
    lines = apply.modprobe_conf().read_text().splitlines()
    assert lines[1:] == ['options xsmmu rules="driver:SAA716x Budget=strict"']


def test_auto_is_the_modules_choice(kernel: Kernel) -> None:
    """The choice and its record use the name auto; the output shows the policy in force."""
    said = run("set", "eth1", "auto", "--rebind", "--persist", "--tables", "direct")
    assert "(eth1): fused, level held, state attached; auto: an Ethernet NIC: its polls flush deferred unmaps" in said
    assert f"bus/pci/devices/{IGB}/xsmmu/policy auto" in kernel.writes
    assert rules.conf().read_text() == f"{IGB}/8086:10c9=auto,tables:direct\n"
    now = module.choice(Device(IGB))
    assert (now.policy, now.asked, now.auto) == (
        "fused",
        "auto",
        module.Auto("fused", "held", "an Ethernet NIC: its polls flush deferred unmaps"),
    )
    assert module.read(Device(IGB)).policy == "fused"
    assert {"auto", "none"}.isdisjoint(modes.offered(Device(IGB)))
    run("set", "eth1", "xsmmu", "max_window_us=77")
    assert module.choice(Device(IGB)).auto is None
    change = json.loads(run("set", "eth1", "auto", "-o", "json"))["changes"][0]
    assert (change["policy"], change["auto"]["policy"], change["level"]) == ("auto", "fused", "held")
    assert json.loads(run("set", "eth1", "auto", "--dry-run", "-o", "json"))["changes"][0]["auto"] is None


@pytest.mark.parametrize("nth", range(1, 4))
def test_auto_is_put_back(kernel: Kernel, nth: int) -> None:
    run("set", "nvme0", "auto", "--tables", "direct")
    kernel.writes.clear()
    kernel.after = lambda _: refuse() if len(kernel.writes) == nth else None
    put_back(kernel, "set", "nvme0", "lazy", "max_window_us=1", "--tables", "kernel")
    assert module.choice(Device(NVME1)).asked == "auto"


@pytest.mark.usefixtures("kernel")
def test_a_change_as_json() -> None:
    change = json.loads(run("set", "eth1", "fused", "--rebind", "-o", "json"))["changes"][0]
    assert [change[name] for name in ("device", "members", "policy", "state", "dry_run")] == [
        IGB,
        [IGB],
        "fused",
        "attached",
        False,
    ]
    assert len(change["steps"]) == 4
    assert json.loads(run("unset", "eth1", "--rebind", "-o", "jsonl"))["schema"] == "xsmmu.unset/1"


@pytest.mark.parametrize("words", [(), ("--rebind",), ("--persist",), ("--rebind", "--dry-run")])
def test_a_group_that_the_module_declines(kernel: Kernel, refuses: Refuses, words: tuple[str, ...]) -> None:
    """Nothing is unbound, and no rule is written; releasing the group is no choice."""
    kernel.show(Device(IGB), "declined", f"{IGB}: untrusted (external-facing) device: leave its group alone")
    for policy in ("fused", "auto"):
        said = f"eth1): the module declines its IOMMU group: {IGB}: untrusted (external-facing) device: leave"
        refuses(["set", "eth1", policy, *words], (1, "declined", said))
    kernel.show(Device(IGB), "policy", "[none] auto copy strict lazy fands xsmmu fused")
    assert "unchanged" in run("unset", "eth1", "--rebind")


BAD = [
    (["set", "eth9", "fused"], (1, "unknown-device", "no device 'eth9'")),
    (["set", "eth1", "none"], (2, "usage", "xsmmu unset eth1")),
    (["set", "eth1", "fuse"], (1, "unknown-name", "unknown policy 'fuse': choose from auto, copy, strict")),
    (["set", "nvme0", "auto", "max_window_us=5"], (2, "usage", "auto has no tunables")),
    (["set", "nvme0", "Auto"], (1, "unknown-name", "unknown policy 'Auto': choose from auto, copy")),
    (["set", "eth1", "fused"], (1, "driver-bound", "--rebind")),
    (["unset", "nvme0"], (1, "driver-bound", "--rebind")),
    (["set", "nvme0", "fused", "window=1"], (1, "unknown-name", "unknown tunable 'window': choose from max_window_us")),
    (
        ["set", "nvme0", "fused", "pool_mib=x"],
        (1, "bad-value", "pool_mib 'x' is invalid: choose a whole number from 2 to 256"),
    ),
    (["set", "nvme0", "fused", "pool_mib"], (1, "bad-value", "tunable pool_mib has no value: write pool_mib=VALUE")),
    (
        ["set", "nvme0", "fused", "pool_mib", "64"],
        (1, "bad-value", "tunable pool_mib has no value: write pool_mib=VALUE"),
    ),
    (["set", "nvme0", "fused", "pool_mib="], (1, "bad-value", "pool_mib '' is invalid")),
    (["set", "eth1", "kernel-lazy"], (2, "usage", "kernel-lazy is no policy of the module: run xsmmu unset eth1")),
    (["set", "eth1", "passthrough"], (2, "usage", "passthrough is no policy of the module: run xsmmu unset eth1")),
    (["set", "class:02", "fused"], (1, "unknown-device", "write class:02=POLICY in ")),
    (["set", "driver:igb", "fused"], (1, "unknown-device", "driver:igb is a match of a rule and no device")),
    (["set", "8086:10c9", "fused"], (1, "unknown-device", "8086:10c9 is a match of a rule and no device")),
    (["watch", "--interval", "1s"], (2, "usage", "'1s' is not a valid number of seconds")),
    (["set", "nvme0", "fused", "batch_pages=1025"], (1, "bad-value", "from 1 to 1024")),
    (["set", "nvme0", "fused", "max_window_us:5"], (2, "usage", "is no tunable: write max_window_us=5")),
    (["set", "nvme0", "fused", "max_window_us:5:6"], (2, "usage", "is no tunable: write max_window_us=5:6")),
    (["set", "nvme0", "fused", "tables:direct"], (2, "usage", "tables is no tunable: write --tables direct")),
    (["set", "nvme0", "fused", "tables=direct"], (2, "usage", "tables is no tunable: write --tables direct")),
    (["set", "nvme0", "fused", "max_window_us=-1"], (1, "bad-value", "from 1 to 10000000")),
    (["set", "nvme0", "fused", "--tables", "fast"], (2, "usage", "'fast' is not one of")),
    (["set", "nvme0"], (2, "usage", "Missing argument 'POLICY'")),
    (["set", "0000:0c:00.0", "fused"], (1, "no-iommu", "is not behind an IOMMU")),
    (["set", "0000:0b:00.0", "fused"], (1, "not-offered", "the module offers no policy")),
    (["unset", "eth9"], (1, "unknown-device", "no device 'eth9'")),
    (["apply"], (1, "no-file", "does not exist: write a rule")),
]


@pytest.mark.parametrize(("words", "expected"), BAD, ids=[" ".join(case[0]) for case in BAD])
def test_bad_input(kernel: Kernel, refuses: Refuses, words: list[str], expected: tuple[int, str, str]) -> None:
    make_device(kernel.sysfs, "0000:0b:00.0", 22, None)
    make_device(kernel.sysfs, "0000:0c:00.0", None, None)
    refuses(words, expected)


def test_the_status_after_a_signal(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel.after = lambda _: signal.raise_signal(signal.SIGTERM) if len(kernel.writes) == 2 else None
    status, _, said = end(monkeypatch, capsys, "set", "eth1", "fused", "--rebind")
    assert status == 130
    assert said == "xsmmu: stopped; everything was restored\n"
    assert module.choice(Device(IGB)).policy == "none"


def test_without_the_module(kernel: Kernel) -> None:
    shutil.rmtree(kernel.sysfs / "module/xsmmu")
    for device in machine.devices():
        shutil.rmtree(device.folder / "xsmmu")
    error = fails("set", "eth1", "fused", "--rebind")
    assert error.code == "no-module"
    assert "modprobe xsmmu" in error.message


@pytest.mark.parametrize("where", ["igb/unbind", "xsmmu/policy"])
def test_without_permission(kernel: Kernel, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def before(write: str) -> None:
        if where in write:
            raise PermissionError(errno.EACCES, "Permission denied")

    kernel.before = before
    monkeypatch.setattr(os, "access", lambda *_: False)
    error = put_back(kernel, "set", "eth1", "fused", "--rebind")
    assert error.code == "no-permission"
    assert "only root may write" in error.message


def test_what_the_module_refuses(kernel: Kernel) -> None:
    def before(write: str) -> None:
        if write.endswith("policy lazy"):
            raise PermissionError(errno.EPERM, "Operation not permitted")

    kernel.before = before
    error = put_back(kernel, "set", "nvme0", "lazy")
    assert error.code == "refused"
    assert "the module refused policy lazy (Operation not permitted): see the kernel log" in error.message


def test_the_rule_of_another_run_is_kept(kernel: Kernel) -> None:
    """As when systemd and a user start it together: both read the file before either writes."""

    def another(_: str) -> None:
        kernel.after = ignore
        run("set", "nvme0n1", "strict", "--persist")

    kernel.after = another
    run("set", "eth1", "fused", "--rebind", "--persist")
    lines = [f"{NVME0}/8086:10c9=strict", f"{IGB}/8086:10c9=fused"]
    assert rules.conf().read_text().splitlines() == lines
    assert f'rules="{";".join(lines)}"' in apply.modprobe_conf().read_text()


def test_another_run_has_chosen_the_same_meanwhile(kernel: Kernel) -> None:
    def another(_: str) -> None:
        kernel.after = ignore
        rules.conf().write_text(f"{IGB}/8086:10c9=fused # by another one\n")

    kernel.after = another
    run("set", "eth1", "fused", "--rebind", "--persist")
    assert rules.conf().read_text() == f"{IGB}/8086:10c9=fused # by another one\n"


@pytest.mark.usefixtures("kernel")
def test_what_others_rules_say_of_the_device_and_its_group() -> None:
    """The choice must decide at boot, for the whole group."""
    (Device(NVME1).folder / "class").write_text("0x010802\n")
    rules.conf().write_text("# all disks\nclass:0108=strict\n")
    run("set", "nvme0n1", "fused", "--persist")
    assert rules.conf().read_text().splitlines() == [
        f"{NVME0}/8086:10c9=fused",
        f"{NVME1}/8086:10c9=fused",
        "# all disks",
        "class:0108=strict",
    ]
    run("unset", "nvme0n1", "--persist", "--rebind")
    assert rules.conf().read_text().splitlines() == [
        f"{NVME0}/8086:10c9=none",
        f"{NVME1}/8086:10c9=none",
        "# all disks",
        "class:0108=strict",
    ]
    assert "softdep" not in apply.modprobe_conf().read_text()


@pytest.mark.usefixtures("kernel")
def test_tables_that_stay_are_kept_for_boot() -> None:
    run("set", "nvme0n1", "xsmmu", "--tables", "direct")
    run("set", "nvme0n1", "fused", "--persist")
    assert rules.conf().read_text() == f"{NVME0}/8086:10c9=fused,tables:direct\n"


@pytest.mark.usefixtures("kernel")
def test_the_file_of_rules_stays_whose_it_is(tmp_path: Path) -> None:
    """The file's mode and a link to it belong to its owner."""
    (tmp_path / "mine.conf").write_text("")
    (tmp_path / "mine.conf").chmod(0o600)
    rules.conf().symlink_to(tmp_path / "mine.conf")
    run(*SET)
    assert rules.conf().is_symlink()
    assert (tmp_path / "mine.conf").read_text() == f"{RULE}\n"
    assert (tmp_path / "mine.conf").stat().st_mode & 0o777 == 0o600


def test_a_wrong_line_is_found_before_anything_changes(kernel: Kernel) -> None:
    rules.conf().write_text("# mine\n\n*=turbo\n")
    error = put_back(kernel, *SET)
    assert error.code == "bad-rule"
    said = f"{rules.conf()}, line 3: '*=turbo': 'turbo' is no policy: choose from none, auto, copy"
    assert said in error.message
    assert not kernel.writes


def test_apply(kernel: Kernel) -> None:
    make_driver(kernel.sysfs, "xhci_hcd", "xhci_pci")
    make_device(kernel.sysfs, "0000:00:14.0", 30, "none", "xhci_hcd", state="off")
    make_device(kernel.sysfs, "0000:00:17.0", 31, "none", "ahci", state="off")
    (kernel.sysfs / "module/ahci/initstate").unlink()
    rules.conf().write_text("driver:ixgbe=fused # not there\n0000:01:00.0=none\n*=strict\n")
    assert "options xsmmu" in run("apply", "--dry-run")
    assert not apply.modprobe_conf().exists()
    said = run("apply")
    assert "ahci is part of the kernel" in said
    assert "3 rules; xsmmu is loaded before ixgbe, nvme, xhci_pci" in said
    assert "xsmmu apply --initramfs" in said
    lines = apply.modprobe_conf().read_text().splitlines()
    assert lines[1] == 'options xsmmu rules="driver:ixgbe=fused;0000:01:00.0=none;*=strict"'
    assert lines[2:] == [f"softdep {name} pre: xsmmu" for name in ("ixgbe", "nvme", "xhci_pci")]
    assert "up to date" in run("apply")
    change = json.loads(run("apply", "-o", "json"))["changes"][0]
    assert change["changed"] is False
    assert change["drivers"] == ["ixgbe", "nvme", "xhci_pci"]
    assert change["built_in"] == ["ahci"]
    assert "ahci is part of the kernel" in run("set", "0000:00:17.0", "strict", "--rebind", "--persist")
    rules.conf().unlink()
    rules.conf().write_text("")
    assert "removed" in run("apply")
    assert not apply.modprobe_conf().exists()


def test_a_rule_whose_device_is_another_one_by_now(kernel: Kernel) -> None:
    """The rule reaches no device; the output says so, and a new choice replaces the rule."""
    rules.conf().write_text(f"{IGB}/144d:a808=strict\n{NVME0}/8086:10c9=strict\n")
    said = run("apply")
    assert f"{IGB}/144d:a808: the address has device 8086:10c9 now, so the module skips this rule" in said
    assert NVME0 not in said
    assert json.loads(run("apply", "-o", "json"))["changes"][0]["drivers"] == ["nvme"]
    run(*SET)
    assert rules.conf().read_text() == f"{RULE}\n{NVME0}/8086:10c9=strict\n"
    assert kernel.writes


def test_a_device_without_a_driver(kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's future driver waits for the module, too."""
    make_device(kernel.sysfs, "0000:09:00.0", 20, "none", state="off")
    (Device("0000:09:00.0").folder / "modalias").write_text("pci:v00008086d000010D3\n")
    program(tmp_path / "bin/modprobe", '[ "$*" = "--resolve-alias pci:v00008086d000010D3" ] && echo e1000e')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    run("set", "0000:09:00.0", "fused", "--persist")
    assert apply.modprobe_conf().read_text().endswith("softdep e1000e pre: xsmmu\n")
    # A folder outside the PATH of `su` without `-`.
    (tmp_path / "sbin").mkdir()
    (tmp_path / "bin/modprobe").rename(tmp_path / "sbin/modprobe")
    monkeypatch.setenv("PATH", "/blocked")
    apply.modprobe_conf().unlink()
    run("apply")
    assert apply.modprobe_conf().read_text().endswith("softdep e1000e pre: xsmmu\n")


@pytest.mark.usefixtures("kernel")
def test_a_file_made_by_hand_is_kept() -> None:
    apply.modprobe_conf().write_text("options xsmmu rules=*=strict\n")
    for arguments in (SET, ("apply",)):
        rules.conf().write_text("*=fused\n")
        error = fails(*arguments)
        assert error.code == "not-ours"
        assert apply.modprobe_conf().read_text() == "options xsmmu rules=*=strict\n"
    run("apply", "--force")
    assert "made by xsmmu apply" in apply.modprobe_conf().read_text()


@pytest.mark.usefixtures("kernel")
def test_the_initramfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    rules.conf().write_text("*=fused\n")
    maker = tmp_path / "bin/update-initramfs"
    monkeypatch.setenv("PATH", str(maker.parent))
    error = fails("apply", "--initramfs")
    assert error.code == "no-initramfs-maker"
    assert apply.modprobe_conf().exists()
    program(maker, f'echo "$@" >{tmp_path}/made; echo working')
    run("apply", "--initramfs", "--dry-run")
    assert not (tmp_path / "made").exists()
    run("apply", "--initramfs")
    assert (tmp_path / "made").read_text() == "-u -k all\n"
    # The program's output is not part of the tool's.
    assert "working" not in capfd.readouterr().out
    program(maker, "exit 3")
    error = fails("apply", "--initramfs")
    assert error.code == "initramfs-failed"
    assert "update-initramfs -u -k all failed (status 3" in error.message
    # As in a shell of `su` without `-`: the administrator's programs are not in PATH.
    monkeypatch.setenv("PATH", "/blocked")
    program(tmp_path / "sbin/update-initramfs", 'mkinitramfs "$@"')
    program(tmp_path / "sbin/mkinitramfs", f'echo "sbin $@" >{tmp_path}/made')
    run("apply", "--initramfs")
    assert (tmp_path / "made").read_text() == "sbin -u -k all\n"
    (tmp_path / "sbin/update-initramfs").unlink()
    program(tmp_path / "sbin/dracut", f'echo "$@" >{tmp_path}/made')
    run("apply", "--initramfs")
    assert (tmp_path / "made").read_text() == "--regenerate-all --force\n"


@pytest.mark.parametrize("name", ["initrd.img-6.12", "initramfs-6.12.img", "initrd-6.12"])
def test_the_initramfs_is_made_once(kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Else a configuration system would have it made each hour; newer files have it made again."""
    rules.conf().write_text("*=fused\n")
    monkeypatch.setenv("XSMMU_BOOT", str(tmp_path / "boot"))
    monkeypatch.setenv("XSMMU_MODULES", str(tmp_path / "modules"))
    (file := kernel.sysfs.parent / "proc/sys/kernel/osrelease").parent.mkdir(parents=True)
    file.write_text("6.12\n")
    (built := tmp_path / "modules/6.12/updates/dkms/xsmmu.ko.xz").parent.mkdir(parents=True)
    built.touch()
    (tmp_path / "boot").mkdir()
    program(tmp_path / "bin/update-initramfs", f"echo >>{tmp_path}/made; sleep 0.01; echo >{tmp_path}/boot/{name}")

    def made() -> int:
        return len((tmp_path / "made").read_text())

    def as_json(*words: str) -> object:
        # The maker is named first, on standard error.
        said = run("apply", *words, "-o", "json")
        return json.loads(said[said.index("{") :])["changes"][0]["initramfs"]

    assert "rebuilt" in run("apply", "--initramfs", "--dry-run")
    assert as_json("--initramfs", "--dry-run") == "to be made"
    assert as_json("--initramfs") == "made"
    assert f"{tmp_path}/boot/{name}: newer than the rules, so kept" in run("apply", "--initramfs")
    assert "is newer than the rules, so it is kept" in run("apply", "--initramfs", "--dry-run")
    assert (as_json("--initramfs"), as_json(), made()) == ("made since", None, 1)
    built.touch()
    run("apply", "--initramfs")
    run("set", "nvme0n1", "strict", "--persist")
    run("apply", "--initramfs")
    assert made() == 3
    run("apply", "--initramfs", "--force")
    rules.conf().write_text("")
    run("apply", "--initramfs")
    run("apply", "--initramfs")
    assert made() == 5
    # An unknown state has it made.
    (tmp_path / "boot" / name).unlink()
    run("apply", "--initramfs")
    assert made() == 6


def test_the_initramfs_of_each_kernel(kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an update the running kernel is rarely the newest."""
    rules.conf().write_text("*=fused\n")
    monkeypatch.setenv("XSMMU_BOOT", str(tmp_path / "boot"))
    monkeypatch.setenv("XSMMU_MODULES", str(tmp_path / "modules"))
    (file := kernel.sysfs.parent / "proc/sys/kernel/osrelease").parent.mkdir(parents=True)
    file.write_text("6.1\n")
    for release in ("6.1", "6.12"):
        (built := tmp_path / "modules" / release / "updates/dkms/xsmmu.ko").parent.mkdir(parents=True)
        built.touch()
    images = [tmp_path / "boot" / f"initrd.img-{release}" for release in ("6.1", "6.12")]
    (tmp_path / "boot").mkdir()
    # Of no installed kernel.
    (tmp_path / "boot/initrd.img-5.10").touch()
    newest = 'case "$*" in *"-k all") echo >{0} ;; esac; echo >{1}; echo >>{2}/made; sleep 0.01'
    program(tmp_path / "bin/update-initramfs", "sleep 0.01; " + newest.format(*images, tmp_path))

    def made() -> int:
        return len((tmp_path / "made").read_text())

    run("apply", "--initramfs")
    assert all(image.exists() for image in images)
    stay = "".join(f"{image}: newer than the rules, so kept\n" for image in images)
    assert run("apply", "--initramfs").endswith(stay) and made() == 1
    assert [f"# {image} is newer than the rules, so it is kept" for image in images] == run(
        "apply", "--initramfs", "--dry-run"
    ).splitlines()[-2:]
    # A module built for only one of them.
    built.touch()
    run("apply", "--initramfs")
    run("apply", "--initramfs")
    assert made() == 2


@pytest.mark.parametrize("path", [None, "", ":", ".:/blocked"])
def test_no_program_is_of_the_folder_that_it_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    program(tmp_path / "update-initramfs", "true")
    program(tmp_path / "sbin/modprobe", "true")
    monkeypatch.setattr(machine, "SBIN", f"{tmp_path}/sbin")
    if path is None:
        monkeypatch.delenv("PATH")
    else:
        monkeypatch.setenv("PATH", path)
    assert machine.program("update-initramfs") is None
    assert machine.program("modprobe") == f"{tmp_path}/sbin/modprobe"
