# SPDX-License-Identifier: GPL-2.0-only
"""Experiments, their runs and figures."""
