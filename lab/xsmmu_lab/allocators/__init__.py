# SPDX-License-Identifier: GPL-2.0-only
"""`make allocators`: allocators of IOVAs, compared under the same traffic."""
