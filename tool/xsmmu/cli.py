# SPDX-License-Identifier: GPL-2.0-only
"""The command line: commands of the operator, and of the lab if installed (packages for servers have no lab).

Each click command is in the module that implements the command; that module imports heavy dependencies where needed.
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
from xsmmu.predict import predict
from xsmmu.record import record
from xsmmu.replay import replay
from xsmmu.report import report
from xsmmu.status import status
from xsmmu.top import top
from xsmmu.trace import trace
from xsmmu.watch import watch

COMPLETE = "_XSMMU_COMPLETE"
"""Variable that a shell sets: `bash_source` asks for the completion script, `bash_complete` for words."""


@click.group(cls=output.Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="xsmmu")
def app() -> None:
    """Choose an IOMMU policy for each device, watch its effect, and compare policies.

    DEVICE is a PCI address with or without domain, an interface or a disk: 0000:01:00.0, 01:00.0, eth1, nvme0n1.
    """


for command in (status, doctor, set_policy, unset, apply, compare, bench, top, watch, metrics, report):
    app.add_command(command)
for command in (record, trace, replay, predict):
    app.add_command(command)
if importlib.util.find_spec("xsmmu_lab"):
    from xsmmu_lab.runs.commands import lab
    from xsmmu_lab.runs.driver import driver

    app.add_command(lab)
    app.add_command(driver)


class _Stopped(BaseException):
    """Raised on SIGTERM and SIGHUP."""


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise _Stopped


def main() -> None:
    """Run a command. Errors print a message; exit status 1, or 2 for a wrong command line, 130 for Ctrl-C."""
    _open_streams()
    signal.signal(signal.SIGTERM, _stop)
    # SIGHUP comes from a closed terminal; nohup's SIG_IGN is kept.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _stop)
    completing = os.environ.get(COMPLETE)
    if completing:
        # An error message would appear in the middle of the typed line.
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
        _end(UserError("stopped; unfinished work was ended and removed", code="stopped"), 130, form)
    except BrokenPipeError:
        # The reader has closed the pipe; Python must not write to the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.errno == errno.EIO and _has_hung_up():
            sys.exit(0)
        where = f" ({error.filename})" if error.filename else ""
        _end(UserError(f"{error.strerror or error}{where}"), 1, form)


def _open_streams() -> None:
    """Open closed standard streams (`>&-`) on /dev/null, for this process and its children."""
    for number, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        try:
            os.fstat(number)
        except OSError:
            # open() returns `number`, because all lower descriptors are open.
            null = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null, True)
            setattr(sys, name, os.fdopen(null, mode))
    for stream in (sys.stdout, sys.stderr):
        # Names of files and interfaces are arbitrary bytes, and a terminal may lack characters.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _has_hung_up() -> bool:
    """Whether the output's terminal has hung up; later output then goes to /dev/null."""
    found = False
    for number in (1, 2):
        try:
            # An empty write fails only on a terminal that has hung up.
            os.write(number, b"")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            found = True
    return found


def _end(error: UserError, status: int, form: str) -> NoReturn:
    _has_hung_up()  # a failing message would change the exit status
    output.complain(error, form)
    sys.exit(status)
