"""An engine as a PyTorch module."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import BindingError, DimsError
from ..tensor import bind_dims, evaluate_dims
from .gradients import without_gradients
from .tensors import from_numpy, require_torch, to_numpy, torch_dtype

if TYPE_CHECKING:
    import torch

    from ..engines.base.context import ExecutionContext
    from ..engines.base.engine import Engine

__all__ = ["as_module"]


def as_module(engine: Engine) -> torch.nn.Module:
    """Return an engine as a ``torch.nn.Module``, which is called with tensors.

    Tensors of the host are read where they are, and outputs are written by the engine into memory that becomes theirs. On engine
    ``cuda`` tensors on the GPU stay there: the run is queued on PyTorch's current stream, and the call returns at once. Each
    thread that calls it has an execution context of its own.

    Args:
        engine: From `pytrtplugins.build` or `pytrtplugins.load_engine`.

    Returns:
        A module that takes the engine's inputs by their places or names, and gives a tensor, or a tuple where there are several
        outputs, in the engine's order. It has no parameters and no gradients.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """
    module: torch.nn.Module = _module_class()(engine)
    return module


@functools.cache
def _module_class() -> Any:
    torch = require_torch("an engine as a module")

    class EngineModule(torch.nn.Module):  # type: ignore[misc, name-defined]
        """An engine as a module; attribute ``engine``."""

        def __init__(self, engine: Engine) -> None:
            super().__init__()
            self.engine, self._runner = engine, _TensorRunner(engine)

        def forward(self, *tensors: Any, **named: Any) -> Any:
            """Run the engine."""
            return self._runner(tensors, named)

        def extra_repr(self) -> str:
            """Return the text that `print` shows."""
            return repr(self.engine)

    return EngineModule


class _TensorRunner:
    """Callable that runs an engine on tensors, with an execution context for each thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._own = engine, threading.local()
        self._dims: dict[tuple[tuple[int, ...], ...], list[tuple[int, ...]]] = {}

    def __call__(self, tensors: Sequence[Any], named: Mapping[str, Any]) -> Any:
        inputs = self._tensors_by_name(tensors, named)
        context: Any = getattr(self._own, "context", None)
        if context is None:
            context = self._own.context = self._engine.create_context()
        is_on_gpu = _stays_on_gpu(context, inputs)
        results = self._run_on_gpu(context, inputs) if is_on_gpu else self._run_on_host(context, inputs)
        outputs = without_gradients(repr(self._engine), results, list(inputs.values()))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _tensors_by_name(self, tensors: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        names = [desc.name for desc in self._engine.inputs]
        tensor_of = {**dict(zip(names, tensors, strict=False)), **named}
        if tensor_of.keys() != set(names) or len(tensor_of) != len(tensors) + len(named):
            found_names = [*names[: len(tensors)], *[None] * (len(tensors) - len(names)), *named]
            raise BindingError(
                f"{self._engine!r}: expected one tensor for each of {names}, found {len(tensors)} by their places and "
                f"{sorted(named)} by name",
                expected=names,
                found=found_names,
            )
        return {name: tensor_of[name] for name in names}

    def _run_on_host(self, context: ExecutionContext, inputs: Mapping[str, Any]) -> list[Any]:
        arrays = {name: tensor if tensor.is_cuda else to_numpy(tensor) for name, tensor in inputs.items()}
        outputs = context.run(arrays)
        return [from_numpy(outputs[desc.name]) for desc in self._engine.outputs]

    def _run_on_gpu(self, context: Any, inputs: Mapping[str, Any]) -> list[Any]:
        torch = require_torch("an engine as a module")
        arrays = {name: tensor.detach().contiguous() for name, tensor in inputs.items()}
        device = next(iter(arrays.values())).device
        outputs = {
            desc.name: torch.empty(dims, dtype=torch_dtype(desc.dtype), device=device)
            for desc, dims in zip(self._engine.outputs, self._output_dims(context, arrays), strict=True)
        }
        context.enqueue(arrays, outputs, torch.cuda.current_stream(device))
        return list(outputs.values())

    def _output_dims(self, context: ExecutionContext, arrays: Mapping[str, Any]) -> list[tuple[int, ...]]:
        key = tuple(tuple(array.shape) for array in arrays.values())
        if key not in self._dims:
            pairs = zip(self._engine.inputs, key, strict=True)
            bindings = [bind_dims(desc.dims, shape) for desc, shape in pairs if len(desc.dims) == len(shape)]
            sizes = {name: size for binding in bindings for name, size in binding.items()}
            try:
                self._dims[key] = [evaluate_dims(desc.dims, sizes) for desc in self._engine.outputs]
            except DimsError:  # a run tells
                outputs = context.run(arrays)
                self._dims[key] = [outputs[desc.name].shape for desc in self._engine.outputs]
        return self._dims[key]


def _stays_on_gpu(context: ExecutionContext, inputs: Mapping[str, Any]) -> bool:
    return hasattr(context, "enqueue") and all(tensor.is_cuda for tensor in inputs.values())
