"""Register plugin classes as PyTorch operators, which `torch.compile` and `torch.export` support."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import DimsError, PluginError, RegistryError
from ..plugin.base import Plugin
from .fake import output_descriptions
from .gradients import no_gradient
from .launch import PluginLaunches
from .schema import given_fields, operator_name, schema
from .tensors import from_numpy, require_torch, to_numpy, torch_dtype

__all__ = ["Operator", "register", "registered_operators"]


class Operator(NamedTuple):
    """A plugin class registered as a PyTorch operator.

    Attributes:
        name: ``"darknet::reorg"``.
        cls: The plugin class.
        outputs: Number of its outputs.
    """

    name: str
    cls: type[Plugin]
    outputs: int


_OPERATORS: dict[str, Operator] = {}
_LOCK = threading.Lock()


def registered_operators() -> list[Operator]:
    """Return all registered operators."""
    return list(_OPERATORS.values())


def register(cls: type[Plugin], name: str | None = None, outputs: int = 1) -> Any:
    """Register a plugin class as an operator: ``torch.ops.darknet.reorg(x, stride=2)`` for `pytrtplugins.layers.Reorg`.

    The inputs are those of `compute`, and the typed fields are keyword arguments with the class's defaults. On the host
    `compute` runs, on a GPU the plugin's `enqueue` on PyTorch's current stream, or `compute` on CuPy arrays where it has none. Dims
    come from `output_dims`, free ones too, so that `torch.export` and `torch.compile` trace it. Both of PyTorch's ONNX exporters
    write the plugin's node (`export_options`). A backward pass raises a `PluginError`: plugins have no gradients.

    Args:
        cls: A class with ``@plugin``; once more gives the same operator.
        name: The operator's name in its namespace; None: the class's in lower case, ``"leaky_scale"`` for ``LeakyScale``. What
            names of PyTorch's cannot hold, such as a dot in the namespace, becomes ``_``.
        outputs: How many outputs the plugin has.

    Returns:
        The operator.

    Raises:
        MissingExtraError: PyTorch is not installed.
        RegistryError: another class has the name.
        FieldError: a field is an array.
    """
    torch = require_torch("plugins as operators of PyTorch's")
    operator = Operator(operator_name(cls, name), cls, outputs)
    with _LOCK:
        registered = _OPERATORS.get(operator.name)
        if registered is None:
            _define(torch, operator)
            _OPERATORS[operator.name] = operator
        elif registered != operator:
            raise RegistryError(
                f"PyTorch's operator {operator.name!r} is {registered.cls.__name__} with {registered.outputs} outputs already.\n"
                "Do: register(cls, name=...)",
                name=operator.name,
            )
    namespace, _, operator_part = operator.name.partition("::")
    return getattr(getattr(torch.ops, namespace), operator_part)


def _define(torch: Any, operator: Operator) -> None:
    cls, has_several_outputs = operator.cls, operator.outputs > 1
    launches = PluginLaunches()

    def plugin_of(inputs: Sequence[Any], fields: dict[str, Any]) -> tuple[Plugin, list[Any]]:
        tensors = list(inputs[0]) if isinstance(inputs[0], (list, tuple)) else list(inputs)
        return cls(**given_fields(fields)), tensors

    def as_outputs(results: Sequence[Any], plugin: Plugin) -> Any:
        if len(results) != operator.outputs:
            raise DimsError(
                f"{plugin!r} has {len(results)} outputs, and was registered with {operator.outputs}.\n"
                f"Do: pytrtplugins.torch.register({cls.__name__}, outputs={len(results)})",
                expected=operator.outputs,
                found=len(results),
            )
        return tuple(results) if has_several_outputs else results[0]

    def on_host(*inputs: Any, **fields: Any) -> Any:
        plugin, tensors = plugin_of(inputs, fields)
        used_storages = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        results = []
        for y in map(from_numpy, plugin.all_outputs([to_numpy(tensor) for tensor in tensors])):
            is_shared = (
                y.untyped_storage().data_ptr() in used_storages
            )  # PyTorch's operators give memory of its own for each output
            results.append(y.clone() if is_shared else y)
            used_storages.add(results[-1].untyped_storage().data_ptr())
        return as_outputs(results, plugin)

    def on_gpu(*inputs: Any, **fields: Any) -> Any:
        plugin, tensors = plugin_of(inputs, fields)
        return as_outputs(launches.run(plugin, tensors), plugin)

    def fake(*inputs: Any, **fields: Any) -> Any:
        plugin, tensors = plugin_of(inputs, fields)
        described = output_descriptions(plugin, tensors)
        return as_outputs([tensors[0].new_empty(dims, dtype=torch_dtype(dtype)) for dims, dtype in described], plugin)

    def backward(context: Any, *_: Any) -> Any:
        raise no_gradient(cls.__name__, PluginError)

    custom_op = torch.library.custom_op(
        operator.name, on_host, mutates_args=(), device_types="cpu", schema=schema(cls, operator.outputs)
    )
    custom_op.register_kernel("cuda")(on_gpu)
    custom_op.register_fake(fake)
    custom_op.register_autograd(backward)
