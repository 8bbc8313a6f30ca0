"""Compare the resources of a step with those of this machine."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

from ...errors import StepError
from .step import Step

__all__ = ["check_machine", "limited_environment", "use_cores"]

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_GPUS = "CUDA_VISIBLE_DEVICES"


def check_machine(step: Step) -> None:
    """Check that this machine has the resources that a step needs.

    Raises:
        StepError: there are fewer cores or GPUs, or there is less memory; or a secret is not set.
    """
    needs = step.resources
    if needs.cpu is not None and math.ceil(needs.cpu) > (cores := len(_cores())):
        _refuse(
            step,
            f"needs {needs.cpu:g} cores; this machine has {cores}",
            "lower resources.cpu, or use a larger machine",
        )
    if needs.memory is not None and needs.memory > (memory := _memory()):
        what = f"needs {needs.memory / 2**30:.1f} GiB of memory; this machine has {memory / 2**30:.1f} GiB"
        _refuse(step, what, "lower resources.memory, or use a larger machine")
    if needs.gpu > len(gpus := _visible_gpus()):
        what = f"needs {needs.gpu} GPU{'s' if needs.gpu > 1 else ''}; this machine has {len(gpus)}"
        _refuse(step, what, "set resources.gpu to what is there, or run this step on a machine with GPUs")
    for name in step.secrets:
        if not os.environ.get(name):
            _refuse(step, f"needs the secret {name}, which is not in the environment", f"export {name}=...")


def limited_environment(step: Step, environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of a step: thread counts for its cores, and its GPUs, or none."""
    variables = {**environment, _GPUS: ",".join(_visible_gpus()[: step.resources.gpu])}
    if step.resources.cpu is not None:
        variables |= dict.fromkeys(_THREADS, str(math.ceil(step.resources.cpu)))
    return variables


def use_cores(step: Step) -> None:
    """Limit this process and its children to as many cores as a step needs."""
    if step.resources.cpu is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(_cores())[: math.ceil(step.resources.cpu)])


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _visible_gpus() -> list[str]:
    """The GPUs that programs here may use, as CUDA_VISIBLE_DEVICES names them."""
    if (text := os.environ.get(_GPUS)) is not None:
        return [gpu for gpu in text.split(",") if gpu and gpu != "-1"]
    devices = [path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")]
    return sorted(devices, key=int)


def _refuse(step: Step, what: str, do: str) -> None:
    raise StepError(f"step {step.name} {what}.\nDo: {do}", step=step.name)
