# SPDX-License-Identifier: GPL-2.0-only
"""Eight CPUs: a NIC and a disk with eight queues each, while policies change and CPUs come and go."""

from __future__ import annotations

from tests.python import guests

from xsmmu_lab.setup import kernels
from xsmmu_lab.vm.iommu import DEFAULT_IOMMU, IOMMUS

CPUS = 8
DEFAULT, KERNELS = kernels.table()[0], kernels.stock_names()

WORDS = (
    # The lab gives its kernels a clock rate that is right only with -icount; 0 makes them measure the rate.
    "tsc_early_khz=0",
    # A change of policy waits for each CPU to pass a quiescent state, and a host with fewer CPUs runs them in turn.
    "rcupdate.rcu_expedited=1",
)

LOAD: dict[str, str | int] = {
    # Per stream and job. Unbounded, eight vCPUs on two CPUs would do nothing else.
    "NET_RATE": "1M",
    "DISK_RATE": 16,
}


def guest(
    rounds: int, round_s: int, kernel: str = DEFAULT, iommu: str = DEFAULT_IOMMU, cpus: int = CPUS
) -> guests.Machine:
    """Both devices work for some rounds of some seconds."""
    parts = dict.fromkeys(("CPUS", "STREAMS", "JOBS"), cpus)
    return guests.Machine(
        ("load", "many_cpus"),
        "^many_cpus_",
        mode="free",
        cpus=cpus,
        kernel=kernel,
        iommu=iommu,
        words=WORDS,
        settings={**LOAD, **parts, "ROUNDS": rounds, "ROUND_S": round_s},
        timeout_s=600 + 8 * rounds * round_s,
    )


MACHINES = {
    "short": guest(2, 10),
    **{f"kernel {name}": guest(4, 60, kernel=name) for name in KERNELS},
    **{name: guest(4, 60, iommu=name) for name in IOMMUS if name != DEFAULT_IOMMU},
}
test_many_cpus = guests.each_case(MACHINES, ["short"])
