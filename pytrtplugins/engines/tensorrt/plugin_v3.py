"""Plugin → IPluginV3, for TensorRT 10 and 11."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ._api import Api
from .collected import guarded
from .host import PluginHost
from .plugin_fields import to_fields

__all__ = ["v3_class"]

_COPIED = (
    "plugin_name",
    "plugin_version",
    "plugin_namespace",
    "num_outputs",
    "timing_cache_id",
    "metadata_string",
    "host",
    "errors",
)
"""What an adapter and a twin of it share."""


@functools.cache
def v3_class(api: Api) -> type:
    """The adapter class over a TensorRT package's base classes; an instance wraps one `PluginHost`."""
    trt = api.trt
    bases = (trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime)

    class PluginV3(*bases):  # type: ignore[misc]
        """One plugin as IPluginV3: core, build and runtime in one object."""

        def __init__(self, host: PluginHost) -> None:
            for base in bases:  # before anything else: attributes of the C++ half crash without it
                base.__init__(self)
            namespace, name, version = host.plugin.plugin_key()
            self.plugin_name, self.plugin_version, self.plugin_namespace = name, version, namespace
            self.num_outputs = host.num_outputs
            self.timing_cache_id = host.timing_id
            self.metadata_string = repr(host.plugin)
            self.host: PluginHost | None = host
            self.errors = host.errors
            self._fields: Any = None

        # -- IPluginV3 -----------------------------------------------------------------------------------------------

        def get_capability_interface(self, kind: Any) -> Any:
            return self

        def clone(self) -> Any:
            """A clone; where that raises, an adapter of the same plugin, since TensorRT reads through the null pointer of an exception."""
            try:
                return self._clone()
            except BaseException:  # it is in the log, and raised at the end of the build
                return self._twin()

        @guarded
        def _clone(self) -> Any:
            return type(self)(self._living_host.clone())

        def _twin(self) -> Any:
            twin = type(self).__new__(type(self))
            for base in bases:
                base.__init__(twin)
            for name in _COPIED:
                setattr(twin, name, getattr(self, name))
            twin._fields = None
            return twin

        @property
        def _living_host(self) -> PluginHost:
            """The host, until the adapter is destroyed."""
            assert self.host is not None
            return self.host

        def destroy(self) -> None:
            """End it. TensorRT's bindings keep adapters: what they hold, such as weights, is let go."""
            self.close()
            self.host = self.errors = self._fields = None

        @guarded
        def close(self) -> None:
            if self.host is not None:
                self.host.close()

        # -- build ---------------------------------------------------------------------------------------------------

        @guarded
        def get_output_data_types(self, input_types: Sequence[Any]) -> list[Any]:
            return self._living_host.output_types(input_types)

        @guarded
        def get_output_shapes(self, inputs: Sequence[Any], shape_inputs: Sequence[Any], builder: Any) -> list[Any]:
            return [api.dims_exprs(dims) for dims in self._living_host.output_dims(inputs, builder)]

        @guarded
        def supports_format_combination(self, position: int, descs: Sequence[Any], num_inputs: int) -> bool:
            return self._living_host.supports(position, [desc.desc for desc in descs], num_inputs)

        def configure_plugin(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            """The dims may still be free: the plugin is configured when they are numbers, in `on_shape_change`."""

        @guarded
        def get_workspace_size(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
            return max(
                self._living_host.workspace_size(*([_At(desc, which) for desc in descs] for descs in (inputs, outputs)))
                for which in ("min", "opt", "max")
            )

        @guarded
        def get_valid_tactics(self) -> list[int]:
            return self._living_host.tactics()

        # -- runtime -------------------------------------------------------------------------------------------------

        @guarded
        def set_tactic(self, tactic: int) -> None:
            self._living_host.set_tactic(tactic)

        @guarded
        def on_shape_change(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            self._living_host.prepare(inputs, outputs)

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
            self._living_host.enqueue(inputs, outputs, workspace, stream)

        @guarded
        def attach_to_context(self, resource_context: Any) -> Any:
            return type(self)(self._living_host.clone())

        @guarded
        def get_fields_to_serialize(self) -> Any:
            self._fields = to_fields(api, self._living_host.plugin, self._living_host.all_extras)
            return self._fields

    return PluginV3


class _At:
    """The description of a tensor with the smallest, optimal or largest dims of a profile."""

    def __init__(self, desc: Any, which: str) -> None:
        self.type, self.scale, self._desc = desc.desc.type, desc.desc.scale, desc.desc
        self.dims = getattr(desc, which)

    @property
    def format(self) -> Any:
        """The layout."""
        return self._desc.format
