# SPDX-License-Identifier: GPL-2.0-only
"""One virtual machine: devices, run, and the hardware model's counts."""
