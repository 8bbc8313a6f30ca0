"""Order kernels on one stream even if they use programmatic dependent launch."""

from __future__ import annotations

from ....cuda.driver import Launch, driver
from .source import load_kernel

__all__ = ["Fence"]


class Fence:
    """Makes what is queued behind it begin when all in front of it has ended.

    From compute capability 9.0 on, kernels of this package let the next kernel begin early, and libraries launch kernels that
    use it. Each has to wait itself before it reads what others wrote; those of libraries that forget it stand behind a fence.

    Args:
        capability: The GPU's compute capability, 90 for 9.0.
    """

    def __init__(self, capability: int) -> None:
        self._driver = driver()
        self._launch = Launch(load_kernel("fence.cu", {}, capability), 1, 32, [])

    def queue(self, stream: int) -> None:
        """Queue it: in a CUDA graph as a node that runs nothing, else as an empty kernel.

        Args:
            stream: The stream's number.

        Raises:
            KernelError: the driver refuses.
        """
        api = self._driver.api
        code, status, _, graph, nodes, _, count = api.cuStreamGetCaptureInfo(stream)
        self._driver.check("cuStreamGetCaptureInfo", code)
        if status != api.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE:
            self._launch(stream)
        elif count:
            node = self._driver.call("cuGraphAddEmptyNode", graph, nodes, count)
            flags = api.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES
            self._driver.call("cuStreamUpdateCaptureDependencies", stream, [node], [api.CUgraphEdgeData()], 1, flags)
