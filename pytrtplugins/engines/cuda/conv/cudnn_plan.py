"""Execution plans of cuDNN that are kept on the disk, so that a machine builds each of them once."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from ....cuda.cache import cached_bytes
from ..device.device import CudaDevice
from .cudnn_frontend import loaded_versions

__all__ = ["BuiltPlan", "kept_plan"]

_log = logging.getLogger(__name__)
BuiltPlan = tuple[Any, int]
"""A graph of cuDNN's, and the index of one of its plans, which is built."""
_FORMAT = 1
"""It goes up when the same key stands for another graph."""


def kept_plan(cudnn: Any, handle: Any, device: CudaDevice, key: str, build: Callable[[], BuiltPlan]) -> BuiltPlan:
    """Read a plan from the disk, or build it and keep it there.

    To build a plan takes cuDNN's heuristics and its compiler, 0.15 s for an attention. A plan that the frontend cannot write or
    read is built.

    Args:
        cudnn: The frontend.
        handle: The handle of cuDNN.
        device: The GPU.
        key: All that the plan depends on beside the GPU and the versions of driver, frontend and library.
        build: Builds the plan; the graph has no other plan that was built later.

    Raises:
        Exception: what ``build`` raises.
    """
    built: list[BuiltPlan] = []

    def make() -> bytes:
        built.append(build())
        return bytes(built[0][0].serialize())

    facts = {"gpu": device.model, "driver": device.driver, "format": _FORMAT, **loaded_versions(cudnn)}
    try:
        data = cached_bytes(["plan of cuDNN", json.dumps(facts, sort_keys=True), key], ".plan", make)
    except Exception:  # of the frontend's own types
        if not built:
            raise
        _log.debug("a plan of cuDNN cannot be kept: %s", key, exc_info=True)
    if built:
        return built[0]
    try:
        graph = cudnn.pygraph(handle=handle)
        graph.deserialize(list(data))  # older frontends take no bytes
    except Exception:  # of the frontend's own types
        _log.info("engine 'cuda': a plan of cuDNN that was kept cannot be read, and is built again: %s", key)
        return build()
    return graph, 0
