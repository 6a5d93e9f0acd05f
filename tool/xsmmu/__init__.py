# SPDX-License-Identifier: GPL-2.0-only
"""The operator's tool. It reads and writes the module's files in sysfs and contains no kernel logic."""

__version__ = "0.1.0"
