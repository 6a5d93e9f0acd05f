# SPDX-License-Identifier: GPL-2.0-only
"""The lab: kernels, guests, runs of experiments, and reports.

Policies and figures come from the module and from the hardware model.
"""
