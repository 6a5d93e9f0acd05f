# SPDX-License-Identifier: GPL-2.0
"""xsmmu: the command-line tool, the lab's driver, and its reports.

No kernel logic lives here: policies and figures come from the module and from the hardware model.
"""

__version__ = "0.1.0"


class Failure(Exception):
    """What ends a command with one clear message and a non-zero exit status.

    `message` says what was wrong and what was expected, `hint` what to do about it, and `detail` carries
    output worth reading in full (a compiler's, a guest's last lines), shown above the message.
    """

    def __init__(self, message: str, *, hint: str | None = None, detail: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.detail = detail

    def __str__(self) -> str:
        parts = [self.detail.rstrip()] if self.detail else []
        parts.append(f"error: {self.message}")
        if self.hint:
            parts.append(f"  {self.hint}")
        return "\n".join(parts)
