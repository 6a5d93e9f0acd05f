# SPDX-License-Identifier: GPL-2.0-only
"""Page sizes for which the engine is compiled: XS_PAGE_LG2 of a userspace world (xsmmu/needs.h)."""

from __future__ import annotations

USUAL = "4K"
FLAGS: dict[str, tuple[str, ...]] = {USUAL: (), "16K": ("-DXS_PAGE_LG2=14",), "64K": ("-DXS_PAGE_LG2=16",)}
LARGER = tuple(page for page in FLAGS if page != USUAL)
