# SPDX-License-Identifier: GPL-2.0-only
"""A change in steps: all of them are done, or what was done is put back, and each can be said as a line for a shell."""

from __future__ import annotations

import contextlib
import shlex
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from xsmmu.errors import UserError

STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a command early."""


def echo(value: str, file: Path) -> str:
    """The line for a shell that writes a value to a file; names of drivers may have blanks."""
    return f"echo {shlex.quote(value)} > {shlex.quote(str(file))}"


def nothing() -> None:
    """What takes back a step that changes nothing."""


@dataclass(frozen=True)
class Step:
    """A step; `undo` makes it as it was, however far `do` came and if it was called before; both raise UserError."""

    shell: str
    """Empty for a step that only its undo is for."""
    do: Callable[[], None]
    undo: Callable[[], None] = nothing
    changes: bool = True
    """False for a write of what the module shows already: only what it shows then says whether that changed."""
    keeps: bool = False
    """True for a step whose failure takes nothing back: the error is raised when the other steps are done."""


def run(steps: Sequence[Step], tell: Callable[[str], None] = lambda _: None) -> None:
    """Do all; if one fails, or at Ctrl-C or SIGTERM, put back what was done, and say so in the error.

    Each is told before it begins.
    A terminal that hangs up does not end it: that may come of the step that unbinds a network card.
    """
    begun: list[Step] = []
    kept: UserError | None = None
    with later(signal.SIGHUP):
        with put_back_if_it_fails(begun):
            for step in steps:
                if step.shell:
                    tell(step.shell)
                begun.append(step)
                try:
                    step.do()
                except UserError as error:
                    if not step.keeps:
                        raise
                    kept = error
        # All is done: one that has hung up meanwhile, or does now, must not have this end as if it was stopped.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if kept:
        raise kept


@contextlib.contextmanager
def put_back_if_it_fails(begun: Sequence[Step]) -> Iterator[None]:
    """Take these steps back if what is done within fails, or at Ctrl-C or a signal; the error says so."""
    with _one_of(*STOPPING):
        try:
            yield
        except BaseException as error:
            try:
                left = _undisturbed(begun)
            except BaseException:
                # The one signal that is answered came before it could wait, or just after.
                left = _undisturbed(begun)
            if isinstance(error, Exception) and not isinstance(error, (UserError, OSError)):
                raise
            raise _ended(error, left) from error


def _undisturbed(begun: Sequence[Step]) -> list[str]:
    """Take steps back while signals wait, and forget those: it stops already."""
    with later(*STOPPING):
        left = take_back(begun)
        while signal.sigtimedwait(STOPPING, 0):
            pass
    return left


@contextlib.contextmanager
def _one_of(*signals: signal.Signals) -> Iterator[None]:
    """Have only the first of them answered.

    While the kernel unbinds a driver all of them wait, and then come at once: the second one would be raised before
    `later` could have it wait, in the middle of the answer to the first.
    """
    before = {number: signal.getsignal(number) for number in signals}
    asked = {number: answer for number, answer in before.items() if callable(answer)}

    def answer(number: int, frame: FrameType | None) -> None:
        # Not SIG_IGN, which children would have, too.
        for each in asked:
            signal.signal(each, lambda *_: None)
        asked[signal.Signals(number)](number, frame)

    for each in asked:
        signal.signal(each, answer)
    try:
        yield
    finally:
        for each in asked:
            signal.signal(each, before[each])


@contextlib.contextmanager
def later(*signals: signal.Signals) -> Iterator[None]:
    """Have signals wait."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        # One that came before is answered here.
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def take_back(begun: Sequence[Step]) -> list[str]:
    """Take steps back, the last one first, all of them; what could not be."""
    left = []
    for step in reversed(begun):
        try:
            step.undo()
        except Exception as error:
            # Not even a bug in one keeps the others from being taken back. Of a device that has gone nothing can be.
            if getattr(error, "code", None) != "device-gone":
                name, text = type(error).__name__, str(error)
                is_bug = not isinstance(error, UserError | OSError)
                left.append(f"{name}: {text}" if is_bug and text else text or name)
    return left


def _ended(error: BaseException, left: list[str]) -> UserError:
    stopped = not isinstance(error, Exception)
    message = "stopped" if stopped else str(error)
    code = error.code if isinstance(error, UserError) else "stopped" if stopped else "failed"
    if left:
        message += f"; not put back: {'; '.join(left)}: see xsmmu status"
        code = "not-put-back"
    else:
        message += "; everything is as it was before"
    lines = error.lines if isinstance(error, UserError) else ()
    return UserError(message, lines, code=code, status=130 if stopped else None)
