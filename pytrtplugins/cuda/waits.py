"""How threads of this process wait for a GPU: asleep, or in a loop that keeps a core busy."""

from __future__ import annotations

import logging
import os

from ..errors import KernelError, UsageError
from .driver import driver

__all__ = ["CUDA_WAIT", "choose_wait"]

CUDA_WAIT = "PYTRT_CUDA_WAIT"
"""Environment variable: ``block``, ``spin`` or ``auto``, CUDA's own choice, which spins where a process has fewer contexts than cores."""
_FLAGS = {"auto": "CU_CTX_SCHED_AUTO", "spin": "CU_CTX_SCHED_SPIN", "block": "CU_CTX_SCHED_BLOCKING_SYNC"}
_log = logging.getLogger(__name__)


def choose_wait(number: int) -> None:
    """Set on a GPU's context what the environment says; without a word there, nothing changes.

    It holds for everything in this process that waits, libraries too, such as nvImageCodec, whose events have no flag of their own.

    Raises:
        UsageError: the variable has another word.
    """
    given = os.environ.get(CUDA_WAIT)
    if given is None:
        return
    if given not in _FLAGS:
        raise UsageError(
            f"{CUDA_WAIT}, an environment variable: expected one of {', '.join(_FLAGS)}, found {given!r}.\n"
            f"Do: export {CUDA_WAIT}=block"
        )
    try:
        on = driver()
        on.call("cuInit", 0)
        flags = getattr(on.api.CUctx_flags, _FLAGS[given])
        on.call("cuDevicePrimaryCtxSetFlags", on.call("cuDeviceGet", number), flags)
    except KernelError as error:  # it still computes, only not at the wanted cost
        _log.warning("%s=%s has no effect: %s", CUDA_WAIT, given, error)
