# SPDX-License-Identifier: GPL-2.0-only
"""The content of an experiment's file as types: keys outside the types are refused, and an error names the place."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from xsmmu.errors import UserError

Text = Annotated[str, msgspec.Meta(min_length=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NotEmpty = msgspec.Meta(min_length=1)
"""For lists."""

T = TypeVar("T")


def read(kind: type[T], data: Any, where: str = "") -> T:
    """Convert the data at `where` in a file to a type. Raises UserError, which names the place."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        place = f"{where}{place.removesuffix('`')}".removeprefix(".")
        raise UserError(f"{place}: {text}" if place else text) from None
