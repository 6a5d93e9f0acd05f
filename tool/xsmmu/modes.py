# SPDX-License-Identifier: GPL-2.0-only
"""What a group can be under: a policy of the module, or one of the kernel's own modes; and going from one to another.

The modes are the types of the kernel's own path by name: kernel-strict, kernel-lazy, passthrough.
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
"""The group's type for each of the kernel's own."""


def offered(device: Device) -> list[str]:
    """All that a device can be under."""
    return [*KERNEL, *module.policies(device)]


def wish(mode: str) -> Wish:
    """What `xsmmu set` would be asked for."""
    return Wish("none", type=KERNEL[mode]) if mode in KERNEL else Wish(mode)


def now(device: Device) -> str:
    """What a device is under."""
    policy = module.choice(device).policy
    return policy if policy != "none" else device.group.kernel_path[0] if device.group else "unknown"


def level(device: Device) -> str:
    """The level that it has now."""
    return module.path(device, module.choice(device))[1]


class Mover:
    """Moves a group from mode to mode, and back to what it was when this was made.

    `before` and `after` are commands for a shell, run around each rebind.
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
        """What drivers were bound under last, if it was done here."""
        self._refused: set[tuple[str | None, str]] = set()
        """From being bound under one mode to another: not without a rebind. The module logs each time it refuses."""
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
        """To be taken back, so that the last one is first."""

    def check(self, modes: Sequence[str]) -> None:
        """Refuse, before anything is changed, to take away what is in use."""
        if self.rebinds(modes) and not self.force:
            choose.refuse_essential(self.device, choose.CHOOSE_ANOTHER)

    def rebinds(self, modes: Sequence[str]) -> bool:
        """Whether drivers have to be unbound to go through all of these."""
        theirs = self.choice.policy == "none" or any(mode in KERNEL for mode in modes)
        default = module.defaults(self.device)
        copies = any(default.get(mode, {}).get("copy_bytes") for mode in modes)
        return (theirs and {*modes} != {now(self.device)}) or (copies and not module.can_copy(self.device))

    def notes(self, modes: Sequence[str]) -> list[str]:
        """What is to be said before that: addresses and routes that go with drivers."""
        return interfaces.notes([each for each, _ in self.drivers], bool(self.after)) if self.rebinds(modes) else []

    def move(self, mode: str) -> None:
        """Have the group under a mode; drivers are unbound and bound only if it must be."""
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
        """Have all as it was, from wherever a move was stopped; raises what could not be."""
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
        """Whether drivers and type are as they were."""
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
