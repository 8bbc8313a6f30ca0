"""Forms with one thing changed: an input left out, cut, or of another rank or type, an attribute left out or of another value.

Most of them are invalid. An engine refuses them by name, or runs what it takes; its process never ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .form import Form

__all__ = ["damaged"]

_NODE = "the_node"
_ATTRIBUTES = ("text", 0, -1, 1.5, [1, 2, 3, 4, 5, 6, 7])
_INPUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "one more axis": lambda array: array[None],
    "a scalar": lambda array: np.resize(array, 1).reshape(()) if array.size else np.zeros((), array.dtype),
    "one axis": lambda array: array.reshape(-1),
    "first axis cut": lambda array: array[: max(len(array) - 1, 0)] if array.ndim else array[None],
    "last axis cut": lambda array: array[..., :-1] if array.ndim else array[None],
    "float64": lambda array: array.astype(np.float64),
    "float32": lambda array: array.astype(np.float32),
    "int32": lambda array: array.astype(np.int32),
    "uint8": lambda array: array.astype(np.uint8),
}


def damaged(form: Form) -> Iterator[Form]:
    """Draw a form's damaged kin, named as the form with what was done to it, without declared dims of outputs and expected results."""
    for what, model, inputs in _changed(form):
        for info in model.graph.output:
            info.type.tensor_type.ClearField("shape")
        del model.graph.value_info[:]
        name = f"{form.name}: {what}"
        yield replace(form, name=name, data=model.SerializeToString(), inputs=inputs, expected=None, source="damaged")


def _changed(form: Form) -> Iterator[tuple[str, onnx.ModelProto, dict[str, Any]]]:
    node = _node(form.model)
    yield from _without_rows(form)
    for index in range(len(node.input)):
        model = form.model
        _node(model).input[index] = ""
        yield f"no input {index}", model, form.inputs
        model = form.model
        del _node(model).input[index:]
        yield f"inputs up to {index}", model, form.inputs
    for index, attribute in enumerate(node.attribute):
        model = form.model
        del _node(model).attribute[index]
        yield f"no {attribute.name}", model, form.inputs
        for value in _ATTRIBUTES:
            model = form.model
            _node(model).attribute[index].CopyFrom(helper.make_attribute(attribute.name, value))
            yield f"{attribute.name} = {value!r}", model, form.inputs
    for index, name in enumerate(dict.fromkeys(filter(None, node.input))):
        for what, change in _INPUTS.items():
            found = _with_input(form, name, change)
            if found is not None:
                yield f"input {index} {what}", *found


def _without_rows(form: Form) -> Iterator[tuple[str, onnx.ModelProto, dict[str, Any]]]:
    """Inputs without elements where dims are free: each input alone, then all."""
    names = [name for name, array in form.inputs.items() if isinstance(array, np.ndarray) and array.ndim]
    model = form.model
    for info in model.graph.input:
        if info.name in names:
            dims = [f"{info.name}_{axis}" for axis in range(form.inputs[info.name].ndim)]
            info.CopyFrom(helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, dims))
    for chosen in [*([name] for name in names), names] if len(names) > 1 else [names] * bool(names):
        rows = {name: form.inputs[name][:0] for name in chosen}
        copy = onnx.ModelProto.FromString(model.SerializeToString())
        yield f"no rows in {', '.join(chosen)}", copy, {**form.inputs, **rows}


def _node(model: onnx.ModelProto) -> onnx.NodeProto:
    return next((node for node in model.graph.node if node.name == _NODE), model.graph.node[0])


def _with_input(
    form: Form, name: str, change: Callable[[np.ndarray], np.ndarray]
) -> tuple[onnx.ModelProto, dict[str, Any]] | None:
    """A model whose constant or input is changed; None where it has no such array, or the change cannot be done to it."""
    model = form.model
    with (
        np.errstate(all="ignore"),
        suppress(KeyError, TypeError, ValueError),
    ):  # texts, sequences, inputs that are left out
        for tensor in model.graph.initializer:
            if tensor.name == name:
                array = change(numpy_helper.to_array(tensor))
                tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
                return model, form.inputs
        for info in model.graph.input:
            if info.name == name:
                array = change(np.asarray(form.inputs[name]))
                number = helper.np_dtype_to_tensor_dtype(array.dtype)
                info.CopyFrom(helper.make_tensor_value_info(name, number, array.shape))
                return model, {**form.inputs, name: array}
    return None
