# SPDX-License-Identifier: GPL-2.0-only
"""Modes of a group, and changes between modes: a policy of the module, or a mode of the kernel's own path.

Modes of the kernel's own path: kernel-strict, kernel-lazy, passthrough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from xsmmu import binding, choose, hooks, interfaces, machine, module, steps
from xsmmu.choose import Wish
from xsmmu.errors import UserError
from xsmmu.machine import Device
from xsmmu.steps import Step

KERNEL: Final = {name: kind for kind, (name, _) in machine.MODES.items()}
"""Group type for each mode of the kernel's own path."""


def offered(device: Device) -> list[str]:
    """Modes that a device can use."""
    return [*KERNEL, *module.policies(device)]


def wish(mode: str) -> Wish:
    """Request of `xsmmu set` for a mode."""
    return Wish("none", type=KERNEL[mode]) if mode in KERNEL else Wish(mode)


def now(device: Device) -> str:
    """Present mode of a device."""
    policy = module.choice(device).policy
    return policy if policy != "none" else device.group.kernel_path[0] if device.group else "unknown"


def level(device: Device) -> str:
    """Present level of a device."""
    return module.path(device, module.choice(device))[1]


class Mover:
    """Moves a group between modes, and restores the state that the group had when the Mover was made.

    `before` and `after` are shell commands to run around each rebind.
    """

    def __init__(self, device: Device, before: str | None = None, after: str | None = None, force: bool = False):
        self.device = device
        self.before, self.after, self.force = before, after, force
        self.members = device.group.members if device.group else [device]
        self.names = hooks.names(self.members)
        self.choice = module.choice(device)
        self.drivers = binding.bound(device)
        self.type = device.group.type if device.group else None
        self._rebinding = False
        self._bound_under: str | None = None
        """Mode at the latest bind by this Mover."""
        self._refused: set[tuple[str | None, str]] = set()
        """Pairs of mode at bind and new mode that need a rebind. Remembered, because the module logs each refusal."""
        restored = [Step("", steps.nothing, lambda: choose.restore(device, self.choice, self.members))]
        if device.group and self.type:
            restored.insert(0, binding.set_type(device.group, self.type))
        self._back = [
            Step("", steps.nothing, self._end),
            *(binding.unbind(*each) for each in reversed(self.drivers)),
            *restored,
            *(binding.bind(*each) for each in self.drivers),
            Step("", steps.nothing, self._begin),
        ]
        """Restoration as undo steps, so in reverse order."""

    def check(self, modes: Sequence[str]) -> None:
        """Refuse devices in use before anything changes."""
        if self.rebinds(modes) and not self.force:
            choose.refuse_essential(self.device, choose.CHOOSE_ANOTHER)

    def rebinds(self, modes: Sequence[str]) -> bool:
        """Whether a walk through these modes needs a rebind."""
        theirs = self.choice.policy == "none" or any(mode in KERNEL for mode in modes)
        default = module.defaults(self.device)
        copies = any(default.get(mode, {}).get("copy_bytes") for mode in modes)
        return (theirs and {*modes} != {now(self.device)}) or (copies and not module.can_copy(self.device))

    def notes(self, modes: Sequence[str]) -> list[str]:
        """Notes about settings that a rebind loses."""
        return interfaces.notes([each for each, _ in self.drivers], bool(self.after)) if self.rebinds(modes) else []

    def move(self, mode: str) -> None:
        """Change the group's mode, with a rebind only if needed."""
        change = (self._bound_under, mode)
        if change not in self._refused:
            try:
                self._do(wish(mode))
            except UserError as error:
                if error.code != "driver-bound":
                    raise
                self._refused.add(change)
            else:
                return
        rebinding = replace(wish(mode), rebind=True, force=self.force)
        choose.plan(self.device, rebinding)
        self._begin()
        self._do(rebinding)
        self._bound_under = mode
        self._end()

    def put_back(self) -> None:
        """Restore everything, even after an interrupted move; raises UserError with the remaining differences."""
        if self._as_bound():
            try:
                choose.restore(self.device, self.choice)
            except UserError as error:
                if error.code != "driver-bound":
                    raise
            else:
                if self._rebinding:
                    self._end()
                return
        left = steps.take_back(self._back)
        if left:
            raise UserError("; ".join(left), code="not-put-back")

    def _as_bound(self) -> bool:
        """Whether drivers and type are as before."""
        kind = self.device.group.type if self.device.group else None
        return binding.bound(self.device) == self.drivers and kind == self.type

    def _do(self, what: Wish) -> None:
        for step in choose.plan(self.device, what).steps:
            step.do()

    def _begin(self) -> None:
        if not self._rebinding:
            self._rebinding = True
            hooks.run("--before", self.before)

    def _end(self) -> None:
        hooks.wait_for(self.names, self.members)
        hooks.run("--after", self.after)
        self._rebinding = False
