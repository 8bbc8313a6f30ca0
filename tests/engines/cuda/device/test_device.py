"""What engine cuda asks CUDA's runtime for."""

from types import SimpleNamespace

import numpy as np

from pytrtplugins.engines.cuda.device.device import CudaDevice, HostDevice


def test_rows_that_lie_apart_are_copied_to_where_they_lie_together():
    """Three rows of 4 of 10 bytes each; on a GPU the same numbers are given to cudaMemcpy2DAsync."""
    x, memory = np.arange(30, dtype=np.uint8), np.zeros(12, np.uint8)
    HostDevice().copy_rows(x.ctypes.data, 10, memory, 4, 3, None)
    assert memory.tolist() == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]
    calls = []
    runtime = SimpleNamespace(memcpyDeviceToDevice=3, memcpy2DAsync=lambda *given: calls.append(given))
    device = SimpleNamespace(xp=SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    target, stream = SimpleNamespace(data=SimpleNamespace(ptr=0x2000)), SimpleNamespace(ptr=7)
    CudaDevice.copy_rows(device, 0x1000, 10, target, 4, 3, stream)
    assert calls == [(0x2000, 4, 0x1000, 10, 4, 3, 3, 7)]
