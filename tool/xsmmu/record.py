# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu record`: writes what drivers do with the DMA API to a file, by the program xsmmu-record."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click

from xsmmu import complete, machine, output, programs, steps, units
from xsmmu.digits import ratio
from xsmmu.errors import UserError
from xsmmu.machine import Device

PROGRAM: Final = "xsmmu-record"
SAID: Final = f"{PROGRAM}: "

Summary = dict[str, Any]


class Words(click.Command):
    """A command whose words after `--` are the user's command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before `--`."""
        words, command = args, None
        if "--" in args:
            at = args.index("--")
            words, command = args[:at], args[at + 1 :]
        ctx.meta[PROGRAM] = command
        return super().parse_args(ctx, words)


def _devices(names: Sequence[str]) -> list[Device]:
    """The devices, each once."""
    found: dict[str, str] = {}
    for name in names:
        address = machine.find(name).address
        if address in found:
            raise UserError(
                f"{name} and {found[address]} are the same device, {address}: name the device once", code="usage"
            )
        found[address] = name
    return [Device(address) for address in found]


def _check_file(file: Path) -> None:
    """Refuse a file that cannot be made, before anything is loaded into the kernel."""
    if os.path.lexists(file):
        raise UserError(f"{file} exists: name another file, or remove that one", code="file-exists")
    if not file.absolute().parent.is_dir():
        raise UserError(f"there is no folder {file.absolute().parent}: make it, or name another file", code="bad-value")


def _check_command(command: Sequence[str] | None, seconds: float | None) -> None:
    if command is None:
        return
    if seconds is not None:
        raise UserError("--seconds and a COMMAND exclude each other: leave out one of them", code="usage")
    if not command or not shutil.which(command[0]):
        name = f"program '{command[0]}' does not exist" if command else "there is no COMMAND"
        raise UserError(f"{name}: write COMMAND after --", code="no-command")


# ---- the recorder ----


class Recorder:
    """The running program, and what it says."""

    def __init__(self, words: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 # open as long as the program runs
        # Ctrl-C goes to the whole session of the terminal; the recorder is told by stop(). It also ends when the
        # other end of the pipe is gone.
        self._process = subprocess.Popen(
            [str(programs.find(PROGRAM)), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )

    def next(self) -> dict[str, Any] | None:
        """The next record that the program prints; None at its end."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        try:
            return dict(json.loads(line))
        except ValueError:
            # The end, also of a program that was killed while it printed.
            return None

    def stop(self) -> None:
        """End the recording; the program then writes the rest."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def end(self) -> list[str]:
        """Wait for the end; returns what was said beside records, or raises the program's error."""
        status = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").splitlines()
        said = [line.removeprefix(SAID) for line in said]
        if status:
            reason = said[-1] if said else units.ended(PROGRAM, status)
            raise UserError(reason, said[:-1], code="record-failed")
        return said


class Command:
    """The user's command; the recording ends with it."""

    def __init__(self, words: Sequence[str] | None) -> None:
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self.status = 0

    def start(self, recorder: Recorder) -> None:
        """Start it, if there is one."""
        if not self._words:
            return
        # A signal that comes while the command starts is told to the command, whose end is then waited for.
        with steps.later(*steps.STOPPING):
            self._process = process = subprocess.Popen(
                self._words, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, ())
            )

            def wait() -> None:
                self.status = process.wait()
                recorder.stop()

            self._thread = threading.Thread(target=wait, daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait for its end, also if the recorder has failed: the command is no less the user's work."""
        if self._thread:
            self._thread.join()

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """SIGTERM and SIGHUP act as Ctrl-C, which the terminal also sends to the command.

        Only the first ends the recording: both may come at once, and the other would meet the handling of the first.
        """
        ended = False

        def tell(number: int, _frame: FrameType | None) -> None:
            nonlocal ended
            if self._process:
                self._process.send_signal(number)
            if not ended:
                ended = True
                raise KeyboardInterrupt

        before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
        taken = [each for each, answer in before.items() if answer != signal.SIG_IGN]
        try:
            for each in taken:
                signal.signal(each, tell)
            yield
        finally:
            for each in taken:
                signal.signal(each, before[each])


def _follow(recorder: Recorder, command: Command) -> Summary:
    """Follow a recording to its end, and return its summary; Ctrl-C ends the recording."""
    while True:
        try:
            record = recorder.next()
            if not record or record["event"] == "end":
                return record["summary"] if record else {}
            if record["event"] == "progress":
                _show(record)
                continue
            output.progress("recording; Ctrl-C ends the recording and keeps the file")
            command.start(recorder)
        except KeyboardInterrupt:
            recorder.stop()


def _show(record: dict[str, Any]) -> None:
    """Overwrite the progress line."""
    with contextlib.suppress(OSError):
        if sys.stderr.isatty():
            lost = f", {record['lost']:,} lost" if record["lost"] else ""
            sys.stderr.write(f"\r{record['seconds']:.0f} s, {record['events']:,} events{lost}   ")
            sys.stderr.flush()


# ---- for people ----


def _print(file: Path, summary: Summary) -> None:
    events, size = summary["events"], file.stat().st_size
    per_event = f", {size / events:.1f} bytes an event" if events else ""
    click.echo(f"{file}: {events:,} events in {summary['seconds']:.1f} s, {size:,} bytes{per_event}")
    kinds = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in summary["by_kind"].items())
    click.echo(f"events: {kinds or 'none: the devices have mapped nothing'}")
    click.echo(f"lost: {_losses(summary)}")
    if summary["covered_seconds"] < summary["seconds"] * 0.99:
        click.echo(
            f"covered: {summary['covered_seconds']:.1f} of {summary['seconds']:.1f} s, in {summary['slices']:,} slices"
        )
    click.echo(f"overhead: {_overhead(summary['overhead'])}")
    click.echo(f"check: {_checked(summary['check'])}")
    for device in summary["devices"]:
        if device["removed"]:
            click.echo(f"warning: {device['address']} was removed while it was recorded", err=True)


def _losses(summary: Summary) -> str:
    if not summary["lost"]:
        return "nothing"
    cpus = ", ".join(f"{count:,} on CPU {cpu}" for cpu, count in summary["lost_by_cpu"].items())
    nested = f"{summary['nested']:,} inside of other calls" if summary["nested"] else ""
    return f"{summary['lost']:,} events ({', '.join(filter(None, (cpus, nested)))}): try --ring-kib"


def _overhead(cost: dict[str, Any]) -> str:
    rate = f"{cost['events_per_s']:,.0f} events/s, recorder {cost['recorder_s']:.2f} s of CPU"
    if cost["share"] is None:
        return f"{rate}; the kernel does not measure BPF programs"
    busy = f"{100 * cost['share']:.1f} % of {cost['busy_s']:.1f} s of busy CPUs"
    return f"{rate}, programs {cost['programs_s']:.2f} s ({cost['ns_per_call']} ns a call), {busy}"


def _checked(check: dict[str, Any]) -> str:
    if check["by"] == "none":
        return str(check["note"])
    pairs = [
        f"{name.replace('_', ' ')} {check[name][0]:,} of {check[name][1]:,}"
        for name in ("mapped_pages", "unmapped_pages", "unmaps")
        if name in check
    ]
    equal = "equal" if check["equal"] else f"not equal ({check['note']}; ratio {ratio(_quotient(check))})"
    return f"{equal}: {', '.join(pairs)} counted by {check['by']}"


def _quotient(check: dict[str, Any]) -> float | None:
    ours, theirs = check["mapped_pages"]
    return ours / theirs if theirs else None


# ---- the command ----


@click.command(cls=Words)
@click.argument("device", nargs=-1, required=True, shell_complete=complete.devices)
@click.option("-O", "--file", type=click.Path(path_type=Path), required=True, help="New file for the recording.")
@click.option("--seconds", type=output.Seconds(0.001, 1e9), help="How long; by default until Ctrl-C.")
@click.option("--raw", is_flag=True, help="Record page frame numbers as they are, not permuted.")
@click.option(
    "--max-overhead",
    type=click.FloatRange(0.01, 100),
    metavar="PERCENT",
    help="Record in slices of time, so that recording takes no larger share of the busy CPU time.",
)
@click.option(
    "--check", is_flag=True, help="Compare the totals with the kernel's own events iommu:map and iommu:unmap."
)
@click.option("--ring-kib", type=click.IntRange(4, 1 << 20), metavar="N", help="Memory for each CPU, a power of two.")
@output.option
@click.pass_context
def record(
    context: click.Context,
    device: tuple[str, ...],
    file: Path,
    seconds: float | None,
    raw: bool,
    max_overhead: float | None,
    check: bool,
    ring_kib: int | None,
    form: str,
) -> None:
    """Record all maps and unmaps of DEVICE in a file, without the module; `xsmmu replay` reads the file.

    Recording takes 0.1 to 0.5 microseconds of each call of the DMA API. By default addresses of memory become
    identities by a random permutation, and neither serial numbers nor names of processes are recorded. Recording ends
    with COMMAND, after --seconds, or at Ctrl-C or SIGTERM; the file is kept.

    \b
    Examples:
      xsmmu record eth1 -O eth1.xsr --seconds 10
      xsmmu record nvme0n1 eth1 -O both.xsr -- fio job.fio
      xsmmu record eth1 -O eth1.xsr --seconds 3600 --max-overhead 2
    """
    command = Command(context.meta[PROGRAM])
    found = _devices(device)
    _check_command(context.meta[PROGRAM], seconds)
    _check_file(file)
    words = ["-O", str(file), *(["--raw"] if raw else []), *(["--check"] if check else [])]
    words += ["--seconds", str(seconds)] if seconds else []
    words += ["--max-overhead", str(max_overhead)] if max_overhead else []
    words += ["--ring-kib", str(ring_kib)] if ring_kib else []
    recorder = Recorder([*words, *(each.address for each in found)])
    waits = True
    try:
        with command.told():
            summary = _follow(recorder, command)
            try:
                command.wait()
            except KeyboardInterrupt:
                waits = False
    except BaseException:
        recorder.stop()
        raise
    for line in recorder.end():
        click.echo(line, err=True)
    if form == "table":
        _print(file, summary)
    else:
        output.emit_one("record", {"file": str(file), "bytes": file.stat().st_size, **summary})
    if not waits:
        raise UserError("stopped; the recording is kept, and the command goes on", code="stopped", status=130)
    if command.status:
        raise UserError(f"the command ended with status {command.status}; the recording is kept", code="command-failed")
