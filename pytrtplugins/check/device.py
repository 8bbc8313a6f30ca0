"""The rule that needs a GPU: `enqueue` on its arrays and a stream of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cuda import gpu_reason
from ..errors import UnavailableError
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

    plugin, stream = case.plugin.clone(), cupy.cuda.Stream(non_blocking=True)
    descs = case.descs()
    inputs = [cupy.asarray(array) for array in case.inputs()]
    outputs = [cupy.asarray(poisoned(desc.dims, desc.dtype.numpy, 0)) for desc in descs[1]]
    plugin.configure(*descs)
    size = int(plugin.workspace_size(*descs))
    workspace = cupy.full(size, 0xAA, np.uint8) if size else None
    plugin.initialize()
    cupy.cuda.Device().synchronize()
    try:
        with stream:
            plugin.enqueue(inputs, outputs, workspace, stream)
        stream.synchronize()
    finally:
        plugin.terminate()
    found: list[Any] = [cupy.asnumpy(array) for array in outputs]
    return differences(found, outputs_of(case.plugin, case.inputs()))
