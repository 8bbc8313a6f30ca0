"""The rule that needs a GPU: `enqueue` on its arrays and a stream of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cuda import gpu_reason
from ..errors import UnavailableError
from ..plugin.runner import PluginRunner
from .cases import Case, outputs_of
from .compare import differences
from .enqueue import poisoned

__all__ = ["enqueue_on_gpu"]


def enqueue_on_gpu(case: Case) -> str:
    """Enqueue on a GPU, on a stream of its own, gives what compute gives on NumPy arrays.

    Raises:
        UnavailableError: there is no GPU, or no CuPy.
    """
    if reason := gpu_reason():
        raise UnavailableError(reason)
    import cupy

    stream, descs = cupy.cuda.Stream(non_blocking=True), case.descs()
    runner = PluginRunner(case.plugin.clone(), allocate=lambda size: cupy.full(size, 0xAA, np.uint8))
    inputs = [cupy.asarray(array) for array in case.inputs()]
    outputs = [cupy.asarray(poisoned(desc.dims, desc.dtype.numpy, 0)) for desc in descs[1]]
    runner.prepare(*descs)
    cupy.cuda.Device().synchronize()
    try:
        with stream:
            runner.enqueue(inputs, outputs, stream)
        stream.synchronize()
    finally:
        runner.close()
    found: list[Any] = [cupy.asnumpy(array) for array in outputs]
    return differences(found, outputs_of(case.plugin, case.inputs()))
