# SPDX-License-Identifier: GPL-2.0-only
"""One virtual machine: its devices, its run, the hardware model's counts."""
