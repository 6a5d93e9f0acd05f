# SPDX-License-Identifier: GPL-2.0-only
"""A change in steps: either all steps succeed or all are undone; each step has a shell line for --dry-run."""

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
"""Signals that end a command early."""


def echo(value: str, file: Path) -> str:
    """Shell line that writes a value to a file; names of drivers may contain blanks."""
    return f"echo {shlex.quote(value)} > {shlex.quote(str(file))}"


def nothing() -> None:
    """Undo of a step without changes."""


@dataclass(frozen=True)
class Step:
    """A step; `undo` may be called repeatedly, and wherever `do` stopped. Both raise UserError."""

    shell: str
    """Empty for a step that only has an undo."""
    do: Callable[[], None]
    undo: Callable[[], None] = nothing
    changes: bool = True
    """False for a write that repeats the shown value; the caller compares afterwards."""
    keeps: bool = False
    """True for a step whose failure undoes nothing; the error is raised after the other steps."""


def run(steps: Sequence[Step], tell: Callable[[str], None] = lambda _: None) -> None:
    """Run all steps; after a failure, Ctrl-C or SIGTERM, undo them, and say so in the error.

    `tell` is called with each shell line first. SIGHUP does not stop the steps: unbinding a network card may hang up
    the user's terminal.
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
        # All steps are done; SIGHUP from now on must not report a stopped command.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if kept:
        raise kept


@contextlib.contextmanager
def put_back_if_it_fails(begun: Sequence[Step]) -> Iterator[None]:
    """Undo the steps in `begun` if the context fails or a signal arrives; the error says so."""
    with _one_of(*STOPPING):
        try:
            yield
        except BaseException as error:
            try:
                left = _undisturbed(begun)
            except BaseException:
                # The signal arrived just before or after _undisturbed() blocked signals.
                left = _undisturbed(begun)
            if isinstance(error, Exception) and not isinstance(error, (UserError, OSError)):
                raise
            raise _ended(error, left) from error


def _undisturbed(begun: Sequence[Step]) -> list[str]:
    """Undo steps with signals blocked, and discard pending signals."""
    with later(*STOPPING):
        left = take_back(begun)
        while signal.sigtimedwait(STOPPING, 0):
            pass
    return left


@contextlib.contextmanager
def _one_of(*signals: signal.Signals) -> Iterator[None]:
    """Deliver only the first of these signals.

    While the kernel unbinds a driver, signals stay pending and are then delivered together: a second signal would
    interrupt the handling of the first before `later` could block the second.
    """
    before = {number: signal.getsignal(number) for number in signals}
    asked = {number: answer for number, answer in before.items() if callable(answer)}

    def answer(number: int, frame: FrameType | None) -> None:
        # SIG_IGN would be inherited by children.
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
    """Block signals."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        # A signal that arrived earlier is handled here.
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def take_back(begun: Sequence[Step]) -> list[str]:
    """Undo steps in reverse order; returns the failures."""
    left = []
    for step in reversed(begun):
        try:
            step.undo()
        except Exception as error:
            # Even a bug in an undo must not stop the others. A device that has gone needs no undo.
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
        message += f"; not restored: {'; '.join(left)}: see xsmmu status"
        code = "not-put-back"
    else:
        message += "; everything was restored"
    lines = error.lines if isinstance(error, UserError) else ()
    return UserError(message, lines, code=code, status=130 if stopped else None)
