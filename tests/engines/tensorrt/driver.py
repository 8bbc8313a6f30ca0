"""Plays TensorRT's part on a CPU: every call that TensorRT makes to a plugin, in its order, on real binding classes.

Creating a plugin, asking for its capabilities, serializing, deserializing and cloning (V2) go through TensorRT's C++
code into the adapter. The other overrides have no entry in C++ that Python could call, so they are called as C++ calls
them: by position, with binding objects. Dimension expressions are this file's own, since only TensorRT makes real ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from pytrtplugins import Plugin
from pytrtplugins.cuda import launches_kernels
from pytrtplugins.engines.tensorrt._api import Api
from pytrtplugins.engines.tensorrt.creators import register
from pytrtplugins.engines.tensorrt.plugin_fields import Extras, to_fields
from pytrtplugins.tensor import DType


class Expr:
    """A dimension expression: a number, or a free size with a value that only `evaluate` tells."""

    def __init__(self, value: int, free: bool = False) -> None:
        self.value, self.free = value, free

    def is_constant(self) -> bool:
        return not self.free

    def get_constant_value(self) -> int:
        assert not self.free, "TensorRT does not know this size"
        return self.value


class ExprBuilder:
    """TensorRT's IExprBuilder."""

    RULES: ClassVar[dict[str, Any]] = {
        "SUM": lambda a, b: a + b,
        "SUB": lambda a, b: a - b,
        "PROD": lambda a, b: a * b,
        "FLOOR_DIV": lambda a, b: a // b,
    }  # fmt: skip

    def constant(self, value: int) -> Expr:
        assert type(value) is int
        return Expr(value)

    def operation(self, kind: Any, a: Expr, b: Expr) -> Expr:
        return Expr(self.RULES[kind.name](a.value, b.value), a.free or b.free)


class Driver:
    """One TensorRT, one interface."""

    def __init__(self, api: Api, interface: str) -> None:
        self.api, self.trt, self.interface = api, api.trt, interface

    # -- the objects that TensorRT hands over ------------------------------------------------------------------------

    def desc(self, dims: Sequence[int], dtype: DType, scale: float = 0.0, layout: str | None = None) -> Any:
        desc = self.trt.PluginTensorDesc()
        desc.dims, desc.type, desc.scale = self.trt.Dims(list(dims)), self.api.data_type(dtype), scale
        if layout or hasattr(self.trt, "TensorFormat"):
            desc.format = getattr(self.trt.TensorFormat, layout or "LINEAR")
        return desc

    def dynamic(self, desc: Any, factor: int = 1) -> Any:
        dynamic = self.trt.DynamicPluginTensorDesc()
        dims = tuple(desc.dims)
        dynamic.desc, dynamic.min, dynamic.opt = desc, desc.dims, desc.dims
        if factor > 1:
            dynamic.desc = self.desc([-1, *dims[1:]], self.api.dtype(desc.type), desc.scale)
        dynamic.max = self.trt.Dims([dims[0] * factor, *dims[1:]])
        return dynamic

    # -- what it does ------------------------------------------------------------------------------------------------

    def create(self, plugin: Plugin, fields: Any = None, phase: str = "BUILD") -> Any:
        """Find the creator in TensorRT's registry and let it make the plugin, through C++."""
        namespace, name, version = plugin.plugin_key()
        register(type(plugin), interface=self.interface)
        found = self.trt.get_plugin_registry().get_creator(name, version, namespace)
        fields = fields or to_fields(self.api, plugin, Extras())
        if self.interface == "v2":
            return self.trt.IPluginCreator.create_plugin(found, "layer", fields)
        return self.trt.IPluginCreatorV3One.create_plugin(
            found, "layer", fields, getattr(self.trt.TensorRTPhase, phase)
        )

    def capability(self, made: Any, kind: str) -> Any:
        """The plugin's core, build or runtime part, through C++; a V2 plugin is all of them."""
        if self.interface == "v2":
            return made
        return self.trt.IPluginV3.get_capability_interface(made, getattr(self.trt.PluginCapabilityType, kind))

    def output_types(self, made: Any, dtypes: Sequence[DType]) -> list[DType]:
        build = self.capability(made, "BUILD")
        types = [self.api.data_type(dtype) for dtype in dtypes]
        if self.interface == "v2":
            return [self.api.dtype(build.get_output_datatype(index, types)) for index in range(build.num_outputs)]
        return [self.api.dtype(found) for found in build.get_output_data_types(types)]

    def output_exprs(self, made: Any, dims: Sequence[Sequence[int]], free: Sequence[int] = ()) -> list[list[Expr]]:
        """Dims of the outputs where axes ``free`` of every input are known at run time only."""
        build, builder = self.capability(made, "BUILD"), ExprBuilder()
        exprs = [[Expr(size, axis in free) for axis, size in enumerate(shape)] for shape in dims]
        self.api.dims_exprs = list  # type: ignore[assignment]  # real expressions exist in TensorRT alone
        try:
            if self.interface == "v2":
                return [build.get_output_dimensions(index, exprs, builder) for index in range(build.num_outputs)]
            return build.get_output_shapes(exprs, [], builder)
        finally:
            del self.api.dims_exprs

    def accepts(self, made: Any, descs: Sequence[Any], num_inputs: int) -> bool:
        """Whether the plugin takes the combination, asked position by position."""
        build = self.capability(made, "BUILD")
        shown = descs if self.interface == "v2" else [self.dynamic(desc) for desc in descs]
        return all(build.supports_format_combination(position, shown, num_inputs) for position in range(len(descs)))

    def configure(self, made: Any, inputs: Sequence[Any], outputs: Sequence[Any], factor: int = 1) -> int:
        """Configure for a range of batches up to ``factor`` times the dims; the workspace in bytes."""
        build = self.capability(made, "BUILD")
        ins, outs = ([self.dynamic(desc, factor) for desc in descs] for descs in (inputs, outputs))
        build.configure_plugin(ins, outs)
        return int(
            build.get_workspace_size(inputs, outputs) if self.interface == "v2" else build.get_workspace_size(ins, outs)
        )

    def reload(self, made: Any) -> Any:
        """What a saved and loaded engine has: serialized and made again, through C++."""
        if self.interface == "v2":
            data = bytes(self.trt.IPluginV2.serialize(made))
            assert self.trt.IPluginV2.serialization_size.fget(made) == len(data)
            found = self.trt.get_plugin_registry().get_creator(
                made.plugin_type, made.plugin_version, made.plugin_namespace
            )
            return self.trt.IPluginCreator.deserialize_plugin(found, "layer", data)
        runtime = self.capability(made, "RUNTIME")
        core = self.capability(made, "CORE")
        fields = runtime.get_fields_to_serialize()
        found = self.trt.get_plugin_registry().get_creator(core.plugin_name, core.plugin_version, core.plugin_namespace)
        return self.trt.IPluginCreatorV3One.create_plugin(found, "layer", fields, self.trt.TensorRTPhase.RUNTIME)

    def attach(self, made: Any) -> Any:
        """The plugin of one execution context."""
        if self.interface == "v2":
            copy = self.trt.IPluginV2.clone(made)
            if copy is None:
                raise RuntimeError("clone failed")
            self.trt.IPluginV2.initialize(copy)
            return copy
        return self.capability(made, "RUNTIME").attach_to_context(None)

    def enqueue(
        self,
        attached: Any,
        inputs: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        workspace_bytes: int,
        *,
        tactic: int = 0,
        scales: Sequence[float] = (),
        changed: bool = True,
    ) -> None:
        """Run once on NumPy arrays; their addresses stand for a GPU's."""
        if launches_kernels(type(attached.host.plugin)) and not (shutil.which("g++") or shutil.which("clang++")):
            pytest.skip("no C++ compiler: kernels do not run on NumPy arrays (apt-get install g++)")
        scales = scales or [0.0] * (len(inputs) + len(outputs))
        descs = [
            self.desc(array.shape, DType.of(array), scale)
            for array, scale in zip((*inputs, *outputs), scales, strict=True)
        ]
        ins, outs = descs[: len(inputs)], descs[len(inputs) :]
        workspace = np.full(workspace_bytes, 0xA5, np.uint8)
        if self.interface == "v3":
            if changed:
                attached.set_tactic(tactic)
                attached.on_shape_change(ins, outs)
        elif changed:
            attached.configure_plugin([self.dynamic(desc) for desc in ins], [self.dynamic(desc) for desc in outs])
        addresses = [[array.ctypes.data for array in side] for side in (inputs, outputs)]
        attached.enqueue(ins, outs, *addresses, workspace.ctypes.data, 0)

    def destroy(self, made: Any) -> None:
        if self.interface == "v2":
            self.trt.IPluginV2.destroy(made)
        else:
            made.destroy()

    def run(self, plugin: Plugin, arrays: Sequence[np.ndarray], *, tactic: int = 0) -> list[np.ndarray]:
        """The whole life: create, build for a free batch, save, load, run twice, destroy."""
        made = self.create(plugin)
        dtypes = self.output_types(made, [DType.of(array) for array in arrays])
        exprs = self.output_exprs(made, [array.shape for array in arrays], free=(0,))
        dims = [tuple(expr.value for expr in shape) for shape in exprs]
        outputs = [np.full(shape, 77).astype(dtype.numpy) for shape, dtype in zip(dims, dtypes, strict=True)]
        descs = [self.desc(array.shape, DType.of(array)) for array in (*arrays, *outputs)]
        assert self.accepts(made, descs, len(arrays)), f"{plugin!r} refuses {dtypes}"
        workspace = self.configure(made, descs[: len(arrays)], descs[len(arrays) :], factor=3)
        engine = self.reload(made)
        self.destroy(made)
        context = self.attach(engine)
        self.enqueue(context, arrays, outputs, workspace, tactic=tactic)
        first = [array.copy() for array in outputs]
        for array in outputs:
            array[...] = 55
        self.enqueue(context, arrays, outputs, workspace, tactic=tactic, changed=False)
        for a, b in zip(first, outputs, strict=True):
            np.testing.assert_array_equal(a, b)
        self.destroy(context)
        self.destroy(engine)
        return outputs
