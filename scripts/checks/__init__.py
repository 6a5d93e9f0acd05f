# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the project's own code; no part of the tool."""
