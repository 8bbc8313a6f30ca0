"""Run a plugin on GPU tensors: `enqueue` on PyTorch's current stream, or `compute` on CuPy arrays."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ..cuda import as_cupy
from ..cuda.bindings import stream_at
from ..plugin.base import Plugin
from ..plugin.policy import has_enqueue
from ..plugin.runner import PluginRunner
from ..tensor import DType, TensorDesc
from ..utils.optional import require
from .tensors import dtype_of, require_torch, torch_dtype

__all__ = ["PluginLaunches"]

_MAX_RUNNERS = 64


class PluginLaunches(threading.local):
    """Cache of configured runners of one plugin class in one thread, by fields, dims, types and GPU."""

    def __init__(self) -> None:
        self._runners: dict[Any, tuple[PluginRunner, list[tuple[Any, Any]]]] = {}

    def run(self, plugin: Plugin, tensors: Sequence[Any]) -> list[Any]:
        """Queue the plugin on the current stream, and return the output tensors."""
        torch = require_torch("a plugin on a GPU")
        cupy = require("cupy", extra="cuda", package="cupy-cuda13x", feature="a plugin on a GPU")
        device = tensors[0].device
        tensors = [tensor.detach().contiguous() for tensor in tensors]
        key = plugin, device.index, tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors)
        if key not in self._runners:
            while len(self._runners) >= _MAX_RUNNERS:
                self._runners.pop(next(iter(self._runners)))[0].close()
            self._runners[key] = _prepare_runner(plugin, tensors)
        runner, output_types = self._runners[key]
        with torch.cuda.device(device):
            stream = stream_at(cupy, torch.cuda.current_stream(device).cuda_stream)
            outputs = [torch.empty(dims, dtype=dtype, device=device) for dims, dtype in output_types]
            size = runner.workspace_bytes
            workspace = as_cupy(torch.empty(size, dtype=torch.uint8, device=device)) if size else None
            with stream:
                runner.enqueue([as_cupy(x) for x in tensors], [as_cupy(y) for y in outputs], stream, workspace)
        return outputs


def _prepare_runner(plugin: Plugin, tensors: Sequence[Any]) -> tuple[PluginRunner, list[tuple[Any, Any]]]:
    """Return a runner configured for tensors of these dims and types, and the dims and types of its outputs."""
    dims = [tuple(tensor.shape) for tensor in tensors]
    dtypes = [dtype_of(tensor.dtype) for tensor in tensors]
    out_dims = plugin.all_output_dims(dims)
    out_dtypes = plugin.all_output_dtypes(dtypes, len(out_dims))
    input_descs, output_descs = _descs("input", dims, dtypes), _descs("output", out_dims, out_dtypes)
    descs = [*input_descs, *output_descs]
    can_enqueue = has_enqueue(type(plugin)) and all(plugin.supports_format(index, descs) for index in range(len(descs)))
    runner = PluginRunner(plugin.clone(), form="enqueue" if can_enqueue else "compute", allocate=None)
    runner.prepare(input_descs, output_descs)
    return runner, [(shape, torch_dtype(dtype)) for shape, dtype in zip(out_dims, out_dtypes, strict=True)]


def _descs(kind: str, dims: Sequence[Any], dtypes: Sequence[DType]) -> list[TensorDesc]:
    pairs = zip(dims, dtypes, strict=True)
    return [TensorDesc(f"{kind}{index}", tuple(shape), dtype) for index, (shape, dtype) in enumerate(pairs)]
