# SPDX-License-Identifier: GPL-2.0-only
"""Preparation of the host: a private root of Debian packages, kernels, modules, images."""
