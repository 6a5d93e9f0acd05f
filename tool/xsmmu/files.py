# SPDX-License-Identifier: GPL-2.0-only
"""Text files that are replaced atomically."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from xsmmu.errors import UserError
from xsmmu.steps import Step


def text_of(file: Path) -> str | None:
    """Content of a file; None without a file."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {file} ({why}): replace the file with a readable text file") from None


def replace(file: Path, text: str | None, follow: bool = True) -> None:
    """Replace a file by `text`, readable for all, or remove the file; readers see the old or the new content.

    A symbolic link is followed; without `follow` a link is refused.
    """
    # Not Path.resolve(), because a link to itself raises RuntimeError there.
    file = Path(os.path.realpath(file)) if follow else file
    with _written(file):
        mode = _mode(file)
        if text is None:
            file.unlink(missing_ok=True)
            return
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        made = Path(name)
        try:
            with os.fdopen(handle, "w") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(handle)
                os.fchmod(handle, mode)
            made.rename(file)
        except BaseException:
            made.unlink(missing_ok=True)
            raise


@contextmanager
def complete(out: Path) -> Iterator[Path]:
    """A name for a new file or folder, which gets its own name only when complete.

    Open a file by mode "x": then no link at either name is followed, not even one that leads nowhere.
    """
    if not out.name:
        raise UserError(f"{out} is a folder: name a new file in it")
    part = out.with_name(f"{out.name}.part")
    _free(out, "remove it, or choose another name")
    _free(part, "from a run that did not end: remove it")
    try:
        yield part
        _free(out, "remove it, or choose another name")
        part.rename(out)
    except OSError as error:
        raise UserError(f"cannot write {part}: {error.strerror}: make room, or choose another folder") from None
    finally:
        if part.is_dir() and not part.is_symlink():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def _free(name: Path, remedy: str) -> None:
    if os.path.lexists(name):
        raise UserError(f"{name} exists: {remedy}")


@contextmanager
def _written(file: Path) -> Iterator[None]:
    """Turns an OSError about writing a file into a UserError."""
    try:
        yield
    except PermissionError:
        raise UserError(f"{file} is not writable for this user: try sudo", code="no-permission") from None
    except OSError as error:
        raise UserError(
            f"cannot write {file}: {error.strerror}: remove the cause, then try again", code="cannot-write"
        ) from None


def _mode(file: Path) -> int:
    """Permissions of a present or new file; irregular files are refused.

    The path may lead to /dev/null, by which an administrator has disabled the file.
    """
    try:
        mode = file.lstat().st_mode
    except FileNotFoundError:
        return 0o644
    if not stat.S_ISREG(mode):
        kind = "a symbolic link is not followed" if stat.S_ISLNK(mode) else "not a regular file"
        raise UserError(
            f"cannot write {file}: {kind}: put a regular file there, or name another file", code="cannot-write"
        )
    return stat.S_IMODE(mode) & 0o777


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder during a change; the lock ends with the process."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def step(file: Path, text: str | None, again: Callable[[], str | None] | None = None) -> Step:
    """Step that replaces a file; an impossible replacement is refused now, before other steps run.

    `again` computes the text anew when the step runs, because another run of the tool may have changed the file.
    """
    real = Path(os.path.realpath(file))
    with _written(file):
        _mode(real)
        try:
            read_only = os.statvfs(real.parent).f_flag & os.ST_RDONLY
        except FileNotFoundError:
            message = f"cannot write {file}, because folder {real.parent} does not exist: create the folder"
            raise UserError(message, code="cannot-write") from None
        if read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    before = text_of(file)
    shell = f"rm {shlex.quote(str(file))}" if text is None else f"cat > {shlex.quote(str(file))} <<'END'\n{text}END"

    def do() -> None:
        nonlocal before
        with _written(file), _locked(real.parent):
            before = text_of(file)
            replace(file, again() if again else text)

    def undo() -> None:
        # A file that could not be written cannot be restored either.
        if text_of(file) != before:
            replace(file, before)

    return Step(shell, do, undo)
