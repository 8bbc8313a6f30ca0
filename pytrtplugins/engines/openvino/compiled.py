"""A compiled OpenVINO network, which is compiled again after a failed run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy.typing as npt

from ...utils.forks import ForkLock

__all__ = ["CompiledNetwork", "Request"]


class CompiledNetwork:
    """A compiled OpenVINO network, shared by the contexts of an engine.

    A failed run of a network with free dims leaves its dims behind (OpenVINO 2026.4): operators before the one that failed
    have set the dims of their outputs, and do not set them again for inputs as large as those of the last good run. Later runs
    then fail, or give wrong numbers, in all requests. Therefore runs of such a network take turns, as they do inside OpenVINO,
    and after a failed one the network is compiled again.

    Args:
        compile_network: Compiles the network.
        free_dims: Whether dims of some tensors are known only at run time.
    """

    def __init__(self, compile_network: Callable[[], Any], free_dims: bool) -> None:
        self._compile, self._failed = compile_network, False
        self.compiled = compile_network()
        self._lock: AbstractContextManager[Any] = ForkLock() if free_dims else nullcontext()
        self._free_dims = free_dims

    def infer(self, request: Request, inputs: Mapping[str, npt.NDArray[Any]]) -> Any:
        """Run once."""
        with self._lock:
            if self._failed:
                self.compiled, self._failed = self._compile(), False
            try:
                return request.of(self.compiled).infer(inputs, share_inputs=True)
            except BaseException:
                self._failed = self._free_dims
                raise


class Request:
    """One context's inference request, with its memory."""

    def __init__(self, network: CompiledNetwork) -> None:
        self._network = network
        self._compiled = network.compiled
        self._request = self._compiled.create_infer_request()

    def of(self, compiled: Any) -> Any:
        """OpenVINO's inference request for the present compiled network."""
        if compiled is not self._compiled:
            self._request, self._compiled = compiled.create_infer_request(), compiled
        return self._request

    def infer(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Any:
        """Run once.

        Raises:
            RuntimeError: OpenVINO failed.
        """
        return self._network.infer(self, inputs)
