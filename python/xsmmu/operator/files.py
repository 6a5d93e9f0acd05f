# SPDX-License-Identifier: GPL-2.0-only
"""Text files that are replaced as a whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from xsmmu.errors import UserError
from xsmmu.operator.steps import Step


def text_of(file: Path) -> str | None:
    """What is in a file; None if there is none."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from None


def replace(file: Path, text: str | None, follow: bool = True) -> None:
    """Have a file contain this, for all to read, or be no more; whoever reads it meanwhile has the old or the new.

    A link stays one, and what it names is replaced; without `follow` the link is.
    """
    if follow:
        file = file.resolve()
    # /dev/null itself, or a link to it by which somebody has put the file out of use.
    if not file.is_symlink() and file.exists() and not file.is_file():
        raise UserError(f"cannot write {file}: it is no regular file", code="cannot-write")
    try:
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
                os.fchmod(handle, file.stat().st_mode & 0o777 if file.is_file() and not file.is_symlink() else 0o644)
            made.rename(file)
        except BaseException:
            made.unlink(missing_ok=True)
            raise
    except PermissionError:
        raise UserError(f"{file} may not be written by you: only root may", code="no-permission") from None
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}", code="cannot-write") from None


def step(file: Path, text: str | None) -> Step:
    """The step that replaces a file."""
    before = text_of(file)
    shell = f"rm {file}" if text is None else f"cat > {file} <<'END'\n{text}END"

    def undo() -> None:
        # Where it could not be written, it cannot be again.
        if text_of(file) != before:
            replace(file, before)

    return Step(shell, lambda: replace(file, text), undo)
