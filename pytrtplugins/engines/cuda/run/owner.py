"""The interface of the engine that contexts use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...base.types import OwningEngine
from ..conv.selector import ConvSelector
from ..device.device import CudaDevice
from ..lower.pipeline import OptionalStep
from ..plan.plan import Plan
from .execution import Execution

__all__ = ["Owner"]


class Owner(OwningEngine, Protocol):
    """The engine whose runs a context makes.

    Attributes:
        device: The GPU.
        capturing: Held while a CUDA graph is captured: CuPy's memory must not be taken from another thread then.
        disabled: Steps of optimization that are left out.
        batches: Sizes of a free batch that kernels were chosen for.
        selector: Which kernel runs a convolution.
    """

    device: CudaDevice
    capturing: threading.Lock
    disabled: frozenset[OptionalStep]
    batches: tuple[int, ...]
    selector: ConvSelector

    def execution(
        self, sizes: Mapping[str, int], *, outside: Callable[[Plan], Mapping[str, Any]] | None = None
    ) -> Execution:
        """Buffers and launches for inputs whose free dims have these sizes; ``outside`` says what lies in the caller's arrays."""
