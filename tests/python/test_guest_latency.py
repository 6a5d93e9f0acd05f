# SPDX-License-Identifier: GPL-2.0-only
"""Duration of calls, and of disabled interrupts, compared with the kernel's own path: in instructions."""

from __future__ import annotations

from tests.python import guests

LATENCY = guests.Machine(("latency",))
test_latency = guests.each_case({"latency": LATENCY}, ("latency",))
