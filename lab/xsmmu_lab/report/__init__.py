# SPDX-License-Identifier: GPL-2.0-only
"""Output for readers: tables, plots, a page."""
