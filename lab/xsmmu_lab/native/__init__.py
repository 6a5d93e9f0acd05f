# SPDX-License-Identifier: GPL-2.0-only
"""Measurements in nanoseconds, on the CPUs of this machine."""
