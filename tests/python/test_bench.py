# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu bench` on a made-up sysfs; its kernel rebinds, and its workload has a cost per policy."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from tests.python import fake_kernel
from tests.python.fake_kernel import (
    COSTS,
    MODPROBE,
    Kernel,
    Refuses,
    everything,
    fails,
    ignore,
    program,
    put_back,
    run,
)
from tests.python.sysfs import IGB, MENU, NVME0, make_device

from xsmmu import calibration, machine, machine_file, model_files, module, native
from xsmmu.cli import app
from xsmmu.errors import UserError
from xsmmu.machine import Device
from xsmmu_lab.project import PROJECT

FREE = "0000:07:00.0"
"""A device without a driver."""
DEFAULT = ["kernel-strict", "kernel-lazy", *MENU[2:]]


@pytest.fixture(name="kernel")
def _kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("vendor_id\t: GenuineIntel\nmodel name\t: Made up\nflags\t\t: fpu tsc\n")
    with fake_kernel.booted(tmp_path, monkeypatch) as made:
        make_device(made.sysfs, FREE, 17, "none", state="off")
        yield made


def test_all_policies_of_a_free_device(kernel: Kernel) -> None:
    before = everything(kernel)
    result = json.loads(run("bench", FREE, "--rounds", "3", "-o", "json"))
    assert everything(kernel) == before
    assert (result["schema"], result["policies"], result["left_out"]) == ("xsmmu.bench/1", DEFAULT, {})
    assert (result["processor"], result["hypervisor"], result["drivers"]) == ("Made up", False, [])
    cheapest_first = ["fused", "fands", "xsmmu", "lazy", "kernel-lazy", "strict", "copy", "kernel-strict"]
    assert [row["policy"] for row in result["ranking"]] == cheapest_first
    fused = result["ranking"][0]
    assert fused["map_ns"] == {"median": 440.5, "mad": 0, "min": 440.5, "max": 440.5, "relative": 440.5 / 800}
    assert (fused["both_ns"]["median"], fused["flush_ns"]["median"]) == (pytest.approx(580.7), 30)
    assert fused["invalidations_per_page"]["median"] == pytest.approx(0.5)
    assert (fused["level"], result["ranking"][-1]["level"]) == ("held", "strict")
    assert result["ranking"][-1]["invalidations_per_page"] is None
    asked = [write.partition("micro ")[2] for write in kernel.writes if "/micro " in write]
    assert asked == ["ring=256 rounds=256 bytes=4096 ns=1"] * len(DEFAULT) * 4
    assert [row["policy"] for row in result["rows"]] == cheapest_first
    assert result["rows"][0] == {
        "policy": "fused",
        "driver": "unmodified",
        "tables": "kernel",
        "bytes": 4096,
        "pages": 1,
        "ring": 256,
        "list": 0,
        "walk_mib": 0,
        "cpus": 1,
        "wait_ns": None,
        "ns_per_page": pytest.approx(580.7),
        "low": pytest.approx(580.7),
        "high": pytest.approx(580.7),
        "map_ns": 440.5,
        "unmap_ns": pytest.approx(140.2),
        "inv_per_page": pytest.approx(0.5),
    }
    assert {*result["rows"][0]} == {field.name for field in fields(native.Row)}


@pytest.mark.usefixtures("kernel")
def test_rows_name_the_tables_as_make_native_does() -> None:
    run("set", "eth1", "strict", "--tables", "direct", "--rebind")
    words = ("bench", "eth1", "--rebind", "--rounds", "1", "-o", "json", "--policies", "passthrough,fused")
    rows = {row["policy"]: row for row in json.loads(run(*words))["rows"]}
    assert (rows["passthrough"]["driver"], rows["passthrough"]["tables"]) == ("none", "none")
    assert (rows["fused-direct"]["driver"], rows["fused-direct"]["tables"]) == ("unmodified", "direct")
    assert module.choice(Device(IGB)).tables == "direct"


def test_policies_are_interleaved(kernel: Kernel) -> None:
    run("bench", FREE, "--rounds", "1", "--policies", "fused,passthrough", "--ring", "64", "--bytes", "64")
    said = [write for write in kernel.writes if "/micro " in write or "policy" in write or "/type " in write]
    place = f"bus/pci/devices/{FREE}"
    work = f"{place}/xsmmu_bench/micro ring=64 rounds=1024 bytes=64 ns=1"
    assert said == [
        *[f"{place}/xsmmu/policy fused", work],
        *[f"{place}/xsmmu/policy none", "kernel/iommu_groups/17/type identity", work],
        *["kernel/iommu_groups/17/type DMA-FQ", f"{place}/xsmmu/policy fused", work],
        *[f"{place}/xsmmu/policy none", "kernel/iommu_groups/17/type identity", work],
        "kernel/iommu_groups/17/type DMA-FQ",
    ]


@pytest.mark.usefixtures("kernel")
def test_what_people_see(tmp_path: Path) -> None:
    said = run("bench", FREE, "--rounds", "6", "--policies", "strict,fused").splitlines()
    assert said[0].split() == ["policy", "level", "map", "ns", "unmap", "ns", "both", "ns", "range", "x", "inv/page"]
    assert said[1].split() == [
        "fused",
        "held",
        "440.5",
        "±0",
        "140.2",
        "±0",
        "580.7",
        "±0",
        "580.7..580.7",
        "0.264",
        "0.5000",
    ]
    assert said[2].split()[0] == "strict"
    assert said[3] == (
        "buffers of 4096 bytes, 256 at a time; medians of 6 rounds, ± median deviation; x: relative to strict"
    )
    assert len(said) == 4
    (tmp_path / "proc/cpuinfo").write_text("flags\t\t: fpu hypervisor tsc\n")
    said = run("bench", FREE, "--rounds", "6", "--policies", "copy").splitlines()
    assert said[-2].startswith("note: copy maps whole pages; ")
    assert said[-1].startswith("note: this is a virtual machine: bench measured its emulated IOMMU")


def test_a_driver_gives_way_by_leave_only(kernel: Kernel) -> None:
    error = put_back(kernel, "bench", "eth1")
    assert error.code == "driver-bound"
    assert f"drivers are bound in the IOMMU group of {IGB} ({IGB} (eth1) to igb)" in error.message
    assert not kernel.writes
    run("set", "eth1", "copy", "copy_bytes=512", "--tables", "direct", "--rebind")
    before = everything(kernel)
    run("bench", "eth1", "--rebind", "--rounds", "1")
    assert everything(kernel) == before
    assert module.choice(Device(IGB)).tunables["copy_bytes"] == 512


def test_all_drivers_of_a_group_give_way(kernel: Kernel) -> None:
    run("set", "nvme0n1", "xsmmu", "--rebind")
    before = everything(kernel)
    kernel.writes.clear()
    run("bench", "nvme0n1", "--rebind", "--rounds", "1", "--policies", "kernel-strict,fused")
    assert everything(kernel) == before
    assert kernel.writes[0].endswith("unbind 0000:06:00.0")
    assert kernel.writes[1].endswith(f"unbind {NVME0}")


def test_a_dry_run_says_what_would_be_done(kernel: Kernel) -> None:
    words = ("bench", "nvme0n1", "--rebind", "--rounds", "2", "--policies", "kernel-strict,fused")
    before = everything(kernel)
    setup = json.loads(run(*words, "--dry-run", "-o", "json"))
    first, *said, then, last = run(*words, "--dry-run", "--save").splitlines()
    assert everything(kernel) == before
    assert not kernel.writes
    assert not (kernel.sysfs.parent / "state").exists()
    assert (setup.pop("schema"), setup["drivers"]) == ("xsmmu.bench-setup/1", ["nvme", "nvme"])
    found = json.loads(run(*words, "-o", "json"))
    assert {name: found[name] for name in setup} == setup
    assert first == "modprobe xsmmu_bench"
    done = [write.split() for write in kernel.writes[: len(said)]]
    assert said == [f"echo {value} > {kernel.sysfs}/{file}" for file, value in done]
    assert done[-1] == ["bus/pci/drivers/xsmmu_bench/bind", NVME0]
    assert then == "# then 3 rounds of 65536 pages under each of kernel-strict, fused"
    assert last == "# then policy, type and drivers are restored"


def test_what_is_in_use_is_refused(kernel: Kernel) -> None:
    (kernel.sysfs.parent / "proc/swaps").write_text("Filename Type\n/dev/nvme0n1 partition 1 0 -2\n")
    error = put_back(kernel, "bench", "nvme0n1", "--rebind")
    assert error.code == "essential"
    assert not kernel.writes
    run("bench", "nvme0n1", "--rebind", "--force", "--rounds", "1", "--policies", "strict")


def test_a_policy_that_cannot_be_had_is_left_out_unless_it_was_named(kernel: Kernel) -> None:
    def refuse(write: str) -> None:
        if write.endswith("policy lazy"):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        if write.endswith("type DMA"):
            raise OSError(errno.EINVAL, "Invalid argument")

    kernel.before = refuse
    before = everything(kernel)
    result = json.loads(run("bench", FREE, "--rounds", "1", "-o", "json"))
    assert everything(kernel) == before
    assert {*result["left_out"]} == {"kernel-strict", "lazy"}
    assert "refused policy lazy" in result["left_out"]["lazy"]
    assert len(result["ranking"]) == len(DEFAULT) - 2
    assert "left out: lazy: " in run("bench", FREE, "--rounds", "1")
    error = put_back(kernel, "bench", FREE, "--rounds", "1", "--policies", "strict,lazy")
    assert error.code == "refused"


def test_only_the_kernels_modes_of_a_group_that_the_module_declines(kernel: Kernel) -> None:
    kernel.show(Device(FREE), "declined", f"{FREE}: untrusted (external-facing) device")
    result = json.loads(run("bench", FREE, "--rounds", "1", "-o", "json"))
    assert {row["policy"] for row in result["ranking"]} == {"kernel-strict", "kernel-lazy"}
    assert "untrusted (external-facing) device" in result["left_out"]["fused"]


def test_none_that_can_be_had(kernel: Kernel) -> None:
    def refuse(write: str) -> None:
        if "policy " in write and not write.endswith("none"):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        if "/type " in write:
            raise OSError(errno.EINVAL, "Invalid argument")

    (kernel.sysfs / "kernel/iommu_groups/17/type").write_text("identity\n")
    kernel.before = refuse
    error = put_back(kernel, "bench", FREE)
    assert error.code == "refused"
    assert "can use none of these policies" in error.message


@pytest.mark.parametrize("how", ["refused", "refused after it was done", "Ctrl-C", "SIGTERM"])
def test_any_write_may_fail(kernel: Kernel, how: str) -> None:
    (kernel.sysfs / "kernel/iommu_groups/11/type").write_text("identity\n")
    before = everything(kernel)
    words = ("bench", "eth1", "--rebind", "--rounds", "1", "--policies", "kernel-lazy,fused,copy")
    run(*words)
    assert everything(kernel) == before
    writes = [*kernel.writes]
    assert sum("/micro " in write for write in writes) == 6
    for nth, write in enumerate(writes, 1):
        if how != "refused" and write.endswith("policy copy") and "xsmmu_bench/unbind" in writes[nth]:
            continue  # The kernel refuses this write, so it never happens.
        kernel.writes.clear()

        def strike(_write: str, at: int = nth) -> None:
            if len(kernel.writes) == at:
                if how in ("Ctrl-C", "SIGTERM"):
                    os.kill(os.getpid(), signal.SIGINT if how == "Ctrl-C" else signal.SIGTERM)
                else:
                    raise OSError(errno.EIO, "Input/output error")

        kernel.before, kernel.after = (strike, ignore) if how == "refused" else (ignore, strike)
        error = fails(*words)
        assert everything(kernel) == before, (nth, write)
        assert error.message.endswith("everything was restored"), (nth, write, error.message)


def test_modprobe_need_not_be_in_path(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a shell of `su` without `-`."""
    place = kernel.sysfs.parent
    (place / "sbin").mkdir()
    for name in ("modprobe", "rmmod"):
        (place / "bin" / name).rename(place / "sbin" / name)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    before = everything(kernel)
    run("bench", FREE, "--rounds", "1", "--policies", "strict")
    assert everything(kernel) == before


def test_a_module_that_was_loaded_before_stays(kernel: Kernel) -> None:
    os.system(f"{kernel.sysfs.parent}/bin/modprobe xsmmu_bench")
    before = everything(kernel)
    run("bench", FREE, "--rounds", "1", "--policies", "strict")
    assert everything(kernel) == before
    assert "xsmmu_bench" in str(before["loaded"])


def test_what_a_killed_bench_has_left_is_released(kernel: Kernel, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(kernel)
    os.system(f"{kernel.sysfs.parent}/bin/modprobe xsmmu_bench")
    (kernel.sysfs / "bus/pci/devices" / FREE / "driver_override").write_text("xsmmu_bench\n")
    kernel.answer(kernel.sysfs / "bus/pci/drivers/xsmmu_bench/bind", FREE)
    words = ["bench", FREE, "--rounds", "1", "--policies", "strict"]
    app.main([*words, "--dry-run"], standalone_mode=False)
    assert Device(FREE).driver == "xsmmu_bench"
    app.main(words, standalone_mode=False)
    released, warning = capsys.readouterr().err.splitlines()
    assert released == f"{FREE}: unbound from xsmmu_bench, which a killed command had left bound"
    assert warning.startswith("warning: 1 run of each policy: too few to know")
    os.system(f"{kernel.sysfs.parent}/bin/rmmod xsmmu_bench")
    assert everything(kernel) == before


def test_a_driver_that_somebody_keeps_a_device_for_is_kept(kernel: Kernel) -> None:
    file = kernel.sysfs / "bus/pci/devices" / FREE / "driver_override"
    file.write_text("vfio-pci")
    before = everything(kernel)
    run("bench", FREE, "--rounds", "1", "--policies", "strict")
    assert everything(kernel) == before
    assert file.read_text() == "vfio-pci"


def test_one_at_a_time(kernel: Kernel) -> None:
    with (kernel.sysfs / "bus/pci/devices" / FREE / "driver_override").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        error = put_back(kernel, "bench", FREE)
    assert error.code == "busy"
    assert not kernel.writes


@pytest.mark.parametrize(
    ("file", "change", "code", "message"),
    [
        ("bin/modprobe", "echo 'FATAL: not found' >&2; exit 1", "no-module", "is missing or cannot be loaded"),
        ("bin/modprobe", f"VERSION=9.9; {MODPROBE}", "module-version", "has version 9.9, but this tool has version"),
        ("bin/modprobe", MODPROBE.replace("version", "other"), "module-version", "has version unknown"),
        ("bin/rmmod", "exit 1", "not-put-back", "the module xsmmu_bench cannot be unloaded"),
    ],
)
def test_a_module_that_is_not_right(kernel: Kernel, file: str, change: str, code: str, message: str) -> None:
    program(kernel.sysfs.parent / file, change)
    before = everything(kernel)
    error = fails("bench", FREE, "--rounds", "1", "--policies", "strict")
    assert (error.code, message in error.message) == (code, True), error.message
    now = everything(kernel)
    assert code == "not-put-back" or now == before
    assert {**now, "loaded": 0} == {**before, "loaded": 0}


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        (errno.EBUSY, "busy", "another bench runs on this machine"),
        (errno.EIO, "run-failed", "the run failed (Input/output error)"),
        (errno.ENODEV, "device-gone", "has disappeared"),
    ],
)
def test_a_run_that_fails(kernel: Kernel, number: int, code: str, message: str) -> None:
    def fail(write: str) -> None:
        if "/micro " in write:
            raise OSError(number, os.strerror(number))

    kernel.before = fail
    error = put_back(kernel, "bench", FREE)
    assert (error.code, message in error.message) == (code, True), error.message


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"map_ns_per_page": null}', "words"])
def test_a_result_that_is_none(kernel: Kernel, text: str) -> None:
    def say(write: str) -> None:
        if "/micro " in write:
            (machine.sysfs() / write.split()[0]).write_text(text)

    kernel.after = say
    assert put_back(kernel, "bench", FREE).code == "module-version"


def test_figures_of_another_path_are_refused(kernel: Kernel) -> None:
    """The module must have counted the calls; without the module, the group's type must show translation."""
    kernel.after = lambda write: kernel.show(Device(FREE), "state", "failed") if "/micro " in write else None
    assert put_back(kernel, "bench", FREE, "--policies", "fused").code == "attach-failed"

    def untranslated(write: str) -> None:
        file = machine.sysfs() / write.split()[0]
        if file.name == "micro":
            file.write_text(file.read_text().replace('"translated": true', '"translated": false'))

    kernel.after = untranslated
    assert put_back(kernel, "bench", FREE, "--policies", "kernel-lazy").code == "type-failed"

    def translated(write: str) -> None:
        file = machine.sysfs() / write.split()[0]
        if file.name == "micro":
            file.write_text(file.read_text().replace('"translated": false', '"translated": true'))

    kernel.after = translated
    assert put_back(kernel, "bench", FREE, "--policies", "passthrough").code == "type-failed"


@pytest.mark.usefixtures("kernel")
def test_a_saved_result_is_the_calibration(tmp_path: Path) -> None:
    assert calibration.read() is None
    said = run("bench", FREE, "--rounds", "1", "--save")
    assert said.endswith(f"saved: {tmp_path}/state/calibration.json\n")
    found = calibration.read()
    assert found
    assert {name: (cost.map_ns, cost.unmap_ns) for name, cost in found.policies.items()} == {
        name: COSTS[{"kernel-strict": "DMA", "kernel-lazy": "DMA-FQ"}.get(name, name)][:2] for name in DEFAULT
    }
    assert found.hypervisor is False
    whole = json.loads((tmp_path / "state/bench.json").read_text())
    assert (whole["schema"], len(whole["ranking"])) == ("xsmmu.bench/1", len(DEFAULT))
    (tmp_path / "state/calibration.json").unlink()
    (tmp_path / "proc/cpuinfo").write_text("flags\t\t: fpu hypervisor tsc\n")
    run("bench", FREE, "--rounds", "1", "--save", "--policies", "strict")
    found = calibration.read()
    assert found and (found.hypervisor, [*found.policies]) == (True, ["strict"])
    assert found.origin.endswith(", in a virtual machine: its emulated IOMMU was measured, not hardware")


def test_what_is_saved_is_the_middle_of_the_counted_rounds(kernel: Kernel) -> None:
    times = iter((9000, 100, 600, 200))

    def say(write: str) -> None:
        if "/micro " in write:
            file = machine.sysfs() / write.split()[0]
            found = json.loads(file.read_text())
            file.write_text(json.dumps({**found, "map_ns_per_page": next(times)}))

    kernel.after = say
    words = ("--rounds", "3", "--policies", "strict", "--save", "-o", "json")
    [row] = json.loads(run("bench", FREE, *words))["ranking"]
    assert [row["map_ns"][name] for name in ("min", "median", "max", "mad")] == [100, 200, 600, 100]
    found = calibration.read()
    assert found and found.policies["strict"].map_ns == 200


@pytest.mark.usefixtures("kernel")
def test_what_cannot_be_saved_is_printed_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(UserError) as error:
        app.main(["bench", FREE, "--rounds", "1", "--policies", "strict", "--save"], standalone_mode=False)
    assert error.value.code == "cannot-write"
    assert "strict" in capsys.readouterr().out


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("file", "content", "virtual"),
    [
        ("proc/device-tree/compatible", "linux,dummy-virt\0", True),
        ("sys/class/dmi/id/sys_vendor", "QEMU\n", True),
        ("sys/class/dmi/id/product_name", "Virtual Machine\n", True),
        ("sys/class/dmi/id/product_name", "OpenStack Nova\n", True),
        ("sys/class/dmi/id/sys_vendor", "KubeVirt\n", True),
        ("sys/class/dmi/id/product_name", "Apple Virtualization Generic Platform\n", True),
        ("sys/class/dmi/id/product_name", "VirtualBox\n", True),
        ("sys/class/dmi/id/product_name", "vServer\n", True),
        ("sys/class/dmi/id/product_name", "Google Compute Engine\n", True),
        ("sys/class/dmi/id/product_name", "bhyve\n", True),
        ("sys/class/dmi/id/sys_vendor", "Parallels International GmbH.\n", True),
        ("sys/class/dmi/id/sys_vendor", "Xen\n", True),
        ("sys/class/dmi/id/sys_vendor", "Ampere(R)\n", False),
        ("proc/device-tree/compatible", "raspberrypi,5-model-b\0brcm,bcm2712\0", False),
    ],
)
def test_a_virtual_machine_whose_processor_has_no_flags(tmp_path: Path, file: str, content: str, virtual: bool) -> None:
    """As on arm64."""
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(content)
    said = json.loads(run("bench", FREE, "--dry-run", "-o", "json"))
    assert said["hypervisor"] is virtual


@pytest.mark.usefixtures("kernel")
def test_what_nobody_reads_is_saved_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with bench --save | head."""

    def close(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("click.echo", close)
    with pytest.raises(BrokenPipeError):
        app.main(["bench", FREE, "--rounds", "1", "--policies", "strict", "--save"], standalone_mode=False)
    assert (tmp_path / "state/calibration.json").exists()


def test_it_stays_on_one_cpu_near_the_device(kernel: Kernel) -> None:
    before = os.sched_getaffinity(0)
    last = max(before)
    (kernel.sysfs / "bus/pci/devices" / FREE / "local_cpulist").write_text(f"{min(before)}-{last},4096\n")
    seen = []
    kernel.before = lambda write: seen.append(os.sched_getaffinity(0)) if "/micro " in write else None
    run("bench", FREE, "--rounds", "1", "--policies", "strict")
    assert seen == [{last}] * 2
    # A near CPU is preferred to the last CPU.
    (kernel.sysfs / "bus/pci/devices" / FREE / "local_cpulist").write_text(f"{min(before)}\n")
    run("bench", FREE, "--rounds", "1", "--policies", "strict")
    assert seen[2:] == [{min(before)}] * 2
    assert os.sched_getaffinity(0) == before


@pytest.mark.usefixtures("kernel")
def test_progress_is_seen_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = run("bench", FREE, "--rounds", "1", "--policies", "strict,fused")
    assert "warm-up: strict" in said
    assert "round 1: fused" in said
    assert "4/4" in said


BAD = [
    (["eth9"], (1, "unknown-device", "no device 'eth9'")),
    ([], (2, "usage", "Missing argument 'DEVICE'")),
    ([FREE, "--policies", "fused,turbo"], (1, "unknown-name", "'turbo': choose from kernel-strict")),
    ([FREE, "--policies", "none"], (1, "unknown-name", "unknown policy 'none'")),
    ([FREE, "--policies", ""], (1, "unknown-name", "unknown policy ''")),
    ([FREE, "--policies", "fused,fused"], (2, "usage", "each policy once")),
    ([FREE, "--ring", "100"], (2, "usage", "'100' is not one of")),
    ([FREE, "--rounds", "0"], (2, "usage", "0 is not in the range")),
    ([FREE, "--bytes", "4097"], (2, "usage", "4097 is not in the range")),
    ([FREE, "--bytes", "64", "--save"], (2, "usage", "leave out --bytes")),
    (["eth1"], (1, "driver-bound", "add --rebind")),
    (["0000:08:00.0"], (1, "bad-value", "is a bridge")),
    (["0000:09:00.0"], (1, "no-iommu", "is not behind an IOMMU")),
]


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]], ids=" ".join)
@pytest.mark.parametrize(("words", "expected"), BAD, ids=[" ".join(case[0]) for case in BAD])
def test_bad_input(
    kernel: Kernel, refuses: Refuses, words: list[str], expected: tuple[int, str, str], dry_run: list[str]
) -> None:
    make_device(kernel.sysfs, "0000:08:00.0", 18, "none", state="off")
    (kernel.sysfs / "bus/pci/devices/0000:08:00.0/class").write_text("0x060400\n")
    make_device(kernel.sysfs, "0000:09:00.0", None, None)
    refuses(["bench", *dry_run, *words], expected)


def test_no_module(kernel: Kernel) -> None:
    for device in kernel.sysfs.glob("bus/pci/devices/*"):
        shutil.rmtree(device / "xsmmu", ignore_errors=True)
        shutil.rmtree(kernel.sysfs / "module/xsmmu", ignore_errors=True)
    assert fails("bench", FREE).code == "no-module"


# -- the file of a machine -------------------------------------------------------------------------

MACHINE = PROJECT / "model/machines/xeon-25g.toml"


def test_a_machine_s_file_gets_what_was_measured(kernel: Kernel, tmp_path: Path) -> None:
    del kernel
    file = tmp_path / "mine.toml"
    file.write_text(MACHINE.read_text())
    rows = {row["policy"]: row for row in json.loads(run("bench", FREE, "--rounds", "1", "-o", "json"))["ranking"]}
    run("bench", FREE, "--rounds", "1", "--machine", str(file))
    found = model_files.described(file, "machine", model_files.parameters())
    given = found.given
    lazy, strict = rows["kernel-lazy"], rows["kernel-strict"]
    assert given["kernel_map_ns"].value == round(lazy["map_ns"]["median"])
    assert given["kernel_unmap_ns"].value == round(lazy["unmap_ns"]["median"])
    assert given["engine_map_ns"].value == round(rows["lazy"]["map_ns"]["median"])
    wait = strict["unmap_ns"]["median"] - lazy["unmap_ns"]["median"]
    assert given["command_wait_ns"].value == max(0, round(wait))
    assert (given["cores"].value, given["cores"].how) == (os.cpu_count(), "measured")
    assert given["command_wait_ns"].range is None and given["command_wait_ns"].source.startswith(f"xsmmu bench {FREE}")
    before, after = MACHINE.read_text().splitlines(), file.read_text().splitlines()
    changed = [old.split()[0] for old, new in zip(before, after, strict=True) if old != new]
    assert {*changed} <= {*(name for name, *_ in machine_file._TIMES), "cores", "command_wait_ns"}


@pytest.mark.usefixtures("kernel")
def test_a_machine_s_file_is_checked_first(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    words = ("bench", FREE, "--machine", str(file))
    assert "mine.toml does not exist: copy a machine to begin with" in fails(*words).message
    file.write_text('kind = "workload"\n')
    assert "a machine is needed here" in fails(*words).message
    assert "--machine needs the costs of whole pages" in fails(*words, "--bytes", "64").message


def test_what_was_not_measured_stays(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('kind = "machine"\n[parameters]\n')
    row = {"policy": "lazy", "map_ns": {"median": 50.4}, "unmap_ns": {"median": 60.6}}
    assert machine_file.fill(file, 4, [row], "eth1") == ["cores", "engine_map_ns", "engine_unmap_ns"]
    given = model_files.described(file, "machine", model_files.parameters(), whole=False).given
    assert {name: each.value for name, each in given.items()} == {
        "cores": 4,
        "engine_map_ns": 50,
        "engine_unmap_ns": 61,
    }
