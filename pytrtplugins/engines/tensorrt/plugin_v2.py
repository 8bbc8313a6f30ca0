"""Plugin → IPluginV2DynamicExt, for TensorRT 10."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ._api import Api
from .collected import guarded
from .host import PluginHost

__all__ = ["v2_class"]


@functools.cache
def v2_class(api: Api) -> type:
    """The adapter class over a TensorRT package's base class; an instance wraps one `PluginHost`."""
    base = api.trt.IPluginV2DynamicExt

    class PluginV2(base):  # type: ignore[misc, valid-type]
        """One plugin as IPluginV2DynamicExt."""

        def __init__(self, host: PluginHost) -> None:
            base.__init__(self)  # before anything else: attributes of the C++ half crash without it
            namespace, name, version = host.plugin.plugin_key()
            self.plugin_type, self.plugin_version, self.plugin_namespace = name, version, namespace
            self.num_outputs = host.num_outputs
            self.host, self.errors = host, host.errors
            self._dims: list[tuple[int, ...]] | None = None  # of the inputs, when the plugin was configured

        @guarded
        def get_output_datatype(self, index: int, input_types: Sequence[Any]) -> Any:
            return self.host.output_types(input_types)[index]

        @guarded
        def get_output_dimensions(self, output_index: int, inputs: Sequence[Any], builder: Any) -> Any:
            return api.dims_exprs(self.host.output_dims(inputs, builder)[output_index])

        @guarded
        def supports_format_combination(self, position: int, descs: Sequence[Any], num_inputs: int) -> bool:
            return self.host.supports(position, descs, num_inputs)

        @guarded
        def configure_plugin(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            """Where dims are still free, the plugin is configured when they are numbers: in `enqueue`."""
            ins, outs = ([desc.desc for desc in side] for side in (inputs, outputs))
            self._dims = None
            if all(dim >= 0 for desc in (*ins, *outs) for dim in tuple(desc.dims)):
                self._prepare(ins, outs)

        @guarded
        def get_workspace_size(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
            return self.host.workspace_size(inputs, outputs)

        @guarded
        def enqueue(
            self,
            input_desc: Sequence[Any],
            output_desc: Sequence[Any],
            inputs: Sequence[int],
            outputs: Sequence[int],
            workspace: int,
            stream: int,
        ) -> None:
            if [desc.dims for desc in input_desc] != self._dims:
                self._prepare(input_desc, output_desc)
            self.host.enqueue(inputs, outputs, workspace, stream)

        @guarded
        def serialize(self) -> bytes:
            return self.host.plugin.serialize()

        @guarded
        def clone(self) -> Any:
            return type(self)(self.host.clone())

        @guarded
        def terminate(self) -> None:
            self._dims = None
            self.host.close()

        def destroy(self) -> None:
            self.terminate()

        def _prepare(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            self.host.prepare(inputs, outputs)
            self._dims = [tuple(desc.dims) for desc in inputs]

    return PluginV2
