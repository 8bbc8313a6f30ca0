"""A plugin inside TensorRT, in our own terms: what IPluginV3 and IPluginV2DynamicExt have in common."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...cuda import launches_kernels
from ...errors import DimsError, PluginError
from ...plugin.base import Plugin
from ...plugin.policy import has_enqueue
from ...plugin.runner import PluginRunner
from ...tensor import DType, SymbolicDim, TensorDesc, evaluate_dims
from ._api import Api
from .collected import ErrorLog, current
from .dims import count_outputs, output_exprs
from .memory import current_memory
from .plugin_fields import Extras

__all__ = ["PluginHost"]

_KEPT_CALLS = 16


class _Call(NamedTuple):
    """Arrays over the addresses of one enqueue."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    workspace: Any
    stream: Any
    handle: Any


class PluginHost:
    """One plugin object of a network, an engine or an execution context; its plugin is shared with no other host.

    Errors of overrides that happen in a thread of TensorRT's own go to ``errors``, by default what collects in this thread.

    Raises:
        DimsError: the number of outputs cannot be told.
    """

    def __init__(self, api: Api, plugin: Plugin, extras: Extras = Extras(), errors: ErrorLog | None = None) -> None:  # noqa: B008
        self.api, self.plugin, self.extras = api, plugin, extras
        self.errors = current() if errors is None else errors
        self.num_outputs = extras.outputs or count_outputs(plugin)
        self._computes = extras.form == "compute" or not has_enqueue(type(plugin))
        self._runner = PluginRunner(plugin, form="compute" if self._computes else "enqueue", allocate=None)
        self._shapes: tuple[Sequence[TensorDesc], Sequence[TensorDesc]] = ((), ())
        self._calls: dict[tuple[int, ...], _Call] = {}

    def clone(self) -> PluginHost:
        """A host with a clone of the plugin, not yet initialized."""
        return PluginHost(self.api, self.plugin.clone(), self.all_extras, self.errors)

    @property
    def all_extras(self) -> Extras:
        """The extras, with the number of outputs that was found."""
        return replace(self.extras, outputs=self.num_outputs)

    @property
    def workspace_bytes(self) -> int:
        """Size of the workspace for the dims of the last `prepare`."""
        return self._runner.workspace_bytes

    @property
    def timing_id(self) -> str:
        """What tells layers apart that may have different timings."""
        digest = hashlib.sha256(self.plugin.serialize()).hexdigest()[:16]
        return " ".join(filter(None, (str(self.plugin.plugin_key()), digest, self.extras.form)))

    # -- while an engine is built ------------------------------------------------------------------------------------

    def output_types(self, input_types: Sequence[Any]) -> list[Any]:
        """TensorRT's types of the outputs.

        Raises:
            PluginError: an input's type is none that plugins get, or the plugin's answer is wrong.
        """
        dtypes = [self.api.dtype(value) for value in input_types]
        unknown = [value for value, dtype in zip(input_types, dtypes, strict=True) if dtype is None]
        if unknown:
            raise PluginError(f"{self.plugin!r}: plugins cannot take tensors of type {unknown[0]}")
        known = [dtype for dtype in dtypes if dtype is not None]
        return [self.api.data_type(dtype) for dtype in self.plugin.all_output_dtypes(known, self.num_outputs)]

    def output_dims(self, inputs: Sequence[Any], builder: Any) -> list[list[Any]]:
        """Expressions of the outputs' dims.

        Raises:
            DimsError: the plugin refuses the dims, or has another number of outputs than before.
        """
        dims = output_exprs(self.plugin, inputs, builder, self.api.trt.DimensionOperation)
        self._check_outputs(len(dims))
        return dims

    def supports(self, position: int, descs: Sequence[Any], num_inputs: int) -> bool:
        """Whether the plugin takes a combination of types and layouts; outputs must have the types that it says."""
        if any(self.api.dtype(desc.type) is None for desc in descs[: position + 1]):
            return False
        tensors = self._descs(descs, num_inputs)
        if not self.plugin.supports_format(position, tensors):
            return False
        if self._computes and tensors[position].layout != "linear":
            return False  # compute gets arrays, whose order is that of their axes
        if position < num_inputs:
            return True
        inputs = [desc.dtype for desc in tensors[:num_inputs]]
        expected = self.plugin.all_output_dtypes(inputs, self.num_outputs)[position - num_inputs]
        return tensors[position].dtype == expected

    def workspace_size(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
        """Bytes of workspace for tensors of these dims."""
        ins, outs = self._split(inputs, outputs)
        size = self._runner.workspace_size(ins, outs)
        if type(size) is not int or size < 0:
            raise PluginError(f"{self.plugin!r}: workspace_size must give a number of bytes, found {size!r}")
        return size

    def tactics(self) -> list[int]:
        """TensorRT's numbers of the plugin's tactics: 1 for the first; 0 is its default."""
        return list(range(1, len(getattr(self.plugin, "tactics", ())) + 1))

    # -- while it runs -----------------------------------------------------------------------------------------------

    def set_tactic(self, number: int) -> None:
        """Choose a tactic; 0 leaves the plugin's default."""
        names = getattr(self.plugin, "tactics", ())
        if not 0 <= number <= len(names):
            raise PluginError(f"{self.plugin!r}: tactic {number} is unknown; it has {len(names)}: {list(names)}")
        if number:
            self.plugin.tactic = names[number - 1]

    def prepare(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Configure the plugin for dims that are numbers now; initialize it the first time.

        Raises:
            DimsError: the plugin refuses the dims, or the outputs have others than it says.
            PluginError: the outputs have other types than it says.
        """
        ins, outs = self._split(inputs, outputs)
        self._check_agreed(ins, outs)
        first = not self._runner.initialized
        self._runner.prepare(ins, outs)
        if first:
            self._rehearse(ins)
        self._shapes = ins, outs
        self._calls.clear()

    def enqueue(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int, stream: int) -> None:
        """Queue the plugin's work; the arrays over the same addresses are made once."""
        key = (*inputs, *outputs, workspace, stream)
        call = self._calls.get(key)
        if call is None:
            call = self._bind(inputs, outputs, workspace, stream)
            if len(self._calls) >= _KEPT_CALLS:
                self._calls.clear()
            self._calls[key] = call
        if self._computes:
            self._check_not_captured(call.handle)
        with call.stream:
            self._runner.enqueue(call.inputs, call.outputs, call.handle, call.workspace)

    def close(self) -> None:
        """Terminate the plugin, if it was initialized."""
        self._calls.clear()
        self._runner.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _rehearse(self, inputs: Sequence[TensorDesc]) -> None:
        """Have the kernels compiled that `enqueue` will launch, so that no enqueue waits for a compiler."""
        if self._computes:
            current_memory().rehearse(self.plugin, inputs)
        elif launches_kernels(type(self.plugin)):
            trial = copy.copy(self._runner)
            trial.plugin = self.plugin.clone()  # which knows of runs alone
            try:
                launches = trial.recorded_launches()
            except Exception:  # it does more than to launch kernels: they are compiled when they are first used
                return
            for launch in launches:
                launch.prepare()

    def _bind(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int, stream: int) -> _Call:
        if not self._runner.initialized:
            raise PluginError(f"{self.plugin!r}: enqueue before the dims are known")
        memory = current_memory()
        arrays = [
            tuple(
                memory.view(address, evaluate_dims(desc.dims, {}), desc.dtype)
                for address, desc in zip(addresses, descs, strict=True)
            )
            for addresses, descs in zip((inputs, outputs), self._shapes, strict=True)
        ]
        size = self.workspace_bytes
        scratch = memory.view(workspace, (size,), DType.UINT8) if size else None
        queue = memory.stream(stream)
        return _Call(arrays[0], arrays[1], scratch, queue, queue if hasattr(queue, "ptr") else None)

    def _split(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[list[TensorDesc], list[TensorDesc]]:
        descs = self._descs([*inputs, *outputs], len(inputs))
        return descs[: len(inputs)], descs[len(inputs) :]

    def _descs(self, descs: Sequence[Any], num_inputs: int) -> list[TensorDesc]:
        scales = self.extras.scales if len(self.extras.scales) == len(descs) else ()
        return [
            self._desc(
                f"input{index}" if index < num_inputs else f"output{index - num_inputs}",
                desc,
                scales[index] if scales else 0.0,
            )
            for index, desc in enumerate(descs)
        ]

    def _desc(self, name: str, desc: Any, known_scale: float) -> TensorDesc:
        dims = tuple(
            int(dim) if dim >= 0 else SymbolicDim(f"{name}_{axis}") for axis, dim in enumerate(tuple(desc.dims))
        )
        dtype = self.api.dtype(desc.type) or DType.FLOAT32  # of a tensor whose turn has not come in `supports`
        scale = (known_scale or desc.scale or None) if dtype is DType.INT8 else None
        return TensorDesc(name, dims, dtype, self.api.layout(desc), scale if scale is None or scale > 0 else None)

    def _check_not_captured(self, stream: Any) -> None:
        if stream is not None and stream.is_capturing():
            raise PluginError(
                f"{self.plugin!r}: it runs through compute, and cannot run while a CUDA graph is captured: the arrays "
                "between its operations would not be there any more when the graph runs.\n"
                "Do: write an enqueue that launches a CudaKernel, or run without a CUDA graph"
            )

    def _check_agreed(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> None:
        dims = self.plugin.all_output_dims([desc.dims for desc in inputs])
        self._check_outputs(len(dims))
        dtypes = self.plugin.all_output_dtypes([desc.dtype for desc in inputs], len(dims))
        for desc, shape, dtype in zip(outputs, dims, dtypes, strict=True):
            if desc.dims != shape:
                raise DimsError(
                    f"{self.plugin!r}: {desc.name} has dims {desc.dims}, output_dims says {shape} for inputs "
                    f"{[item.dims for item in inputs]}.\nCauses: (1) output_dims treats free dims otherwise than numbers",
                    expected=shape,
                    found=desc.dims,
                )
            if desc.dtype != dtype:
                raise PluginError(
                    f"{self.plugin!r}: {desc.name} is {desc.dtype}, output_dtypes says {dtype}",
                    expected=dtype,
                    found=desc.dtype,
                )

    def _check_outputs(self, count: int) -> None:
        if count != self.num_outputs:
            raise DimsError(
                f"{self.plugin!r}: output_dims gives {count} outputs; expected {self.num_outputs}",
                expected=self.num_outputs,
                found=count,
            )
