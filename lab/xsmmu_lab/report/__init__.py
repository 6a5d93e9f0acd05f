# SPDX-License-Identifier: GPL-2.0-only
"""What people look at: tables, plots, a page."""
