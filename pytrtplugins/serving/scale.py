"""Number of replicas in a cluster, and the resources of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from ..errors import UsageError
from ..utils.declared import check_fields
from ..utils.numbers import FloatRange, IntRange

__all__ = ["Scale", "read_replicas"]

_MOST = 4096
_REPLICAS = re.compile(r"([0-9]{1,4})(?::([0-9]{1,4}))?")


@dataclass(frozen=True)
class Scale:
    """Number of replicas in a cluster, and resources of each. A replica is a whole server with all models.

    Attributes:
        min_replicas: Replicas that always run.
        max_replicas: Most replicas; autoscaling stays between the two. 0: as many as always run.
        cpu_replicas: On Ray, further replicas without GPUs, for machines that have none. They take the requests, decode, preprocess and
            postprocess; the others only compute. 0: there are none, and each replica does all of it.
        cpus: Cores of a replica.
        gpus: GPUs of a replica; Ray also takes a part, such as 0.5, and then places several replicas on one GPU. 0: a replica runs on
            the CPU.
        memory_mib: Memory of a replica, in MiB.
        target_requests: Requests per replica that autoscaling aims at: on Ray and KServe those that wait or are computed, in Kubernetes
            those that wait.
        drain_seconds: How long a replica that is to end may take to answer what it has accepted.

    Raises:
        UsageError: a value has another type, or is outside of its limits.
    """

    min_replicas: Annotated[int, IntRange(1, _MOST)] = 1
    max_replicas: Annotated[int, IntRange(0, _MOST)] = 0
    cpu_replicas: Annotated[int, IntRange(0, _MOST)] = 0
    cpus: Annotated[float, FloatRange(0.1, 1024)] = 2.0
    gpus: Annotated[float, FloatRange(0, 64)] = 0.0
    memory_mib: Annotated[int, IntRange(128, 1 << 24)] = 4096
    target_requests: Annotated[int, IntRange(1, 1_000_000)] = 32
    drain_seconds: Annotated[int, IntRange(1, 3600)] = 30

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "max_replicas", self.max_replicas or self.min_replicas)
        if self.max_replicas < self.min_replicas:
            raise UsageError(
                f"Scale.max_replicas: expected at least min_replicas, {self.min_replicas}, found {self.max_replicas}"
            )

    @property
    def autoscaled(self) -> bool:
        """Whether the number of replicas follows the load."""
        return self.max_replicas > self.min_replicas


def read_replicas(text: str) -> dict[str, int]:
    """Parse ``4`` or ``1:8`` into fields of `Scale`.

    Raises:
        UsageError: it is neither.
    """
    match = _REPLICAS.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--replicas: expected a number such as 2, or the least and the most such as 1:8, found {text[:40]!r}"
        )
    return {"min_replicas": int(match[1]), "max_replicas": int(match[2] or match[1])}
