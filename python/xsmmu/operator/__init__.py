# SPDX-License-Identifier: GPL-2.0-only
"""The module's files in sysfs: choose, watch."""
