# SPDX-License-Identifier: GPL-2.0-only
"""xsmmu: the operator's tool. It reads and writes the module's files in sysfs; no kernel logic lives here."""

__version__ = "0.1.0"
