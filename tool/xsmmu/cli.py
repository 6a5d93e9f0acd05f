# SPDX-License-Identifier: GPL-2.0-only
"""The command line: the operator's commands, and the lab's where it is there (a package for servers has none).

Each command is a click command in the module that does its work; that module imports what is heavy where it is used.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import io
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import click
from click.shell_completion import shell_complete

from xsmmu import __version__, output
from xsmmu.apply import apply
from xsmmu.bench import bench
from xsmmu.choose import set_policy, unset
from xsmmu.compare import compare
from xsmmu.doctor import doctor
from xsmmu.errors import UserError
from xsmmu.metrics import metrics
from xsmmu.report import report
from xsmmu.status import status
from xsmmu.top import top
from xsmmu.watch import watch

COMPLETE = "_XSMMU_COMPLETE"
"""What a shell asks by: `bash_source` for its script of completion, then `bash_complete` for words."""


@click.group(cls=output.Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="xsmmu")
def app() -> None:
    """Choose how IOMMU translations are invalidated, per device; watch it; and compare the choices.

    DEVICE is a PCI address with or without domain, an interface or a disk: 0000:01:00.0, 01:00.0, eth1, nvme0n1.
    """


for command in (status, doctor, set_policy, unset, apply, compare, bench, top, watch, metrics, report):
    app.add_command(command)
if importlib.util.find_spec("xsmmu_lab"):
    from xsmmu_lab.runs.commands import lab
    from xsmmu_lab.runs.driver import driver

    app.add_command(lab)
    app.add_command(driver)


class _Stopped(BaseException):
    """SIGTERM or SIGHUP."""


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise _Stopped


def main() -> None:
    """Run; an error of ours is one message and its lines, and status 1; 2 is a wrong command line, 130 Ctrl-C."""
    _open_streams()
    signal.signal(signal.SIGTERM, _stop)
    # A terminal that closes; nohup's wish is kept.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _stop)
    completing = os.environ.get(COMPLETE)
    if completing:
        # What is wrong would be said in the middle of a line that is typed.
        with contextlib.suppress(UserError, OSError):
            sys.exit(shell_complete(app, {}, "xsmmu", COMPLETE, completing))
        sys.exit(1)
    form = output.asked(sys.argv[1:])
    try:
        with app.make_context("xsmmu", sys.argv[1:]) as context:
            app.invoke(context)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        if form == "table":
            error.show()
        else:
            output.complain(UserError(error.format_message(), code="usage"), form)
        sys.exit(error.exit_code)
    except UserError as error:
        _end(error, error.status, form)
    except (KeyboardInterrupt, click.Abort, _Stopped):
        _end(UserError("stopped; what had begun was ended and removed", code="stopped"), 130, form)
    except BrokenPipeError:
        # Whoever read has enough; nothing is written to the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.errno == errno.EIO and _has_hung_up():
            sys.exit(0)
        where = f" ({error.filename})" if error.filename else ""
        _end(UserError(f"{error.strerror or error}{where}"), 1, form)


def _open_streams() -> None:
    """What was closed by whoever started this (`>&-`) is read and written as nothing, here and by what this starts."""
    for number, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        try:
            os.fstat(number)
        except OSError:
            # Gets this number: those below it are open.
            null = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null, True)
            setattr(sys, name, os.fdopen(null, mode))
    for stream in (sys.stdout, sys.stderr):
        # Names of files and interfaces are bytes, and no terminal has all characters.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _has_hung_up() -> bool:
    """Whether the terminal has to which the output goes; what is written to it goes blocked then."""
    found = False
    for number in (1, 2):
        try:
            # Nothing, which only a terminal without anybody refuses.
            os.write(number, b"")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            found = True
    return found


def _end(error: UserError, status: int, form: str) -> NoReturn:
    _has_hung_up()  # or the message would fail, and with it the status
    output.complain(error, form)
    sys.exit(status)
