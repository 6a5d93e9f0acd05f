# SPDX-License-Identifier: GPL-2.0-only
"""xsmmu: the command-line tool, the lab's driver, and its reports.

No kernel logic lives here: policies and figures come from the module and from the hardware model.
"""

__version__ = "0.1.0"
