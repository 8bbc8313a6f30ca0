"""The passes before calibration and quantization: the form whose tensor names a calibration table speaks of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..model import Graph, read_onnx
from ..model.decompose import add_shapes
from ..model.ir import dims_of, to_ir, to_proto
from ..utils.garbage import no_collection
from ..utils.optional import require
from ..validation import check_slopes, validated
from .codes import CODES
from .constants import PropagateConstants
from .eliminate import Eliminate
from .fold import FoldBatchNorm
from .normalize import normalized, with_opset

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["load_model", "prepare", "prepare_loaded", "ready_for"]

_WORD = re.compile(r"[^\s()+*/%-]+")


def load_model(model: str | Path | onnx.ModelProto | Graph) -> onnx.ModelProto:
    """Read an ONNX file, or take a model as it is.

    Raises:
        ModelError: the file is not an ONNX model, or the model is broken; see `pytrtplugins.validation`.
        FileNotFoundError: there is no such file.
    """
    if isinstance(model, (str, Path)):
        return read_onnx(model)[0]
    return validated(model.model if isinstance(model, Graph) else model)


def prepare(model: str | Path | onnx.ModelProto | Graph) -> onnx.ModelProto:
    """Normalize, fold batch norms, eliminate what does nothing, and add all shapes. The same model gives the same names.

    Args:
        model: Path or model; it is not changed.

    Raises:
        ModelError: it is not an ONNX model, its shapes contradict each other, a slope of PRelu does not broadcast, or its opset is
            newer than the installed ONNX.
        RegistryError: it has a plugin that is not registered.
    """
    return prepare_loaded(load_model(model))


@no_collection()
def prepare_loaded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same for what `load_model` gave, which is not checked a second time."""
    ir_model = to_ir(normalized(model), checked=True)
    _name_inputs(ir_model)
    for step in (FoldBatchNorm(), Eliminate()):
        step(ir_model)
    prepared = add_shapes(to_proto(ir_model))  # always: nodes lose what they leave out behind their last input
    check_slopes(prepared)
    _name_outputs(prepared)
    return prepared


def _name_inputs(model: ir.Model) -> None:
    """Give free dims of inputs that have no name the one that engines show, so that dims that are equal to them are called the same."""
    shape = require("onnx_ir", extra="onnx").Shape
    for value in model.graph.inputs:
        if value.shape is not None and any(dim is None for dim in dims_of(value) or ()):
            named = [
                dim if isinstance(dim, int) or dim.value else f"{value.name}.{i}" for i, dim in enumerate(value.shape)
            ]
            value.shape = shape(named)


def _name_outputs(model: onnx.ModelProto) -> None:
    """Give free dims of outputs the names that inputs have, where they follow from these.

    ONNX's rules lose a name where a shape is computed, and behind Resize; PyTorch's exporter then makes up another one.
    """
    held = {tensor.name for tensor in model.graph.initializer}
    names = {dim.dim_param for info in model.graph.input if info.name not in held for dim in _dims(info)} - {""}
    strange = [info for info in model.graph.output if any(not _is_named(dim, names) for dim in _dims(info))]
    if not names or not strange:
        return
    known = to_ir(model, checked=True)  # whose dims alone are wanted
    PropagateConstants()(known)
    found = {value.name: value.shape for value in known.graph.outputs}
    for info in strange:
        shape = found[info.name]
        if shape is None or len(shape) != len(_dims(info)):
            continue
        for dim, told in zip(_dims(info), shape, strict=True):
            if isinstance(told, int):
                dim.dim_value = told
            elif told.value is not None and _is_of(told.value, names):
                dim.dim_param = told.value


def _dims(info: onnx.ValueInfoProto) -> Any:
    return info.type.tensor_type.shape.dim


def _is_named(dim: Any, names: set[str]) -> bool:
    return dim.HasField("dim_value") or _is_of(dim.dim_param, names)


def _is_of(text: str, names: set[str]) -> bool:
    """Whether a text is one of the names, or an expression of them."""
    words = [word for word in _WORD.findall(text) if not word.isdecimal()]
    return text in names or (bool(words) and names.issuperset(words))


def ready_for(model: onnx.ModelProto, precision: str) -> onnx.ModelProto:
    """A prepared model in an opset that has a precision's codes; its tensors keep the names that calibration tables know.

    Raises:
        ModelError: it cannot be converted.
    """
    converted = with_opset(model, CODES[precision].opset)
    if converted is model:
        return model
    made = {name for node in converted.graph.node for name in node.output}
    converted.graph.value_info.extend(info for info in model.graph.value_info if info.name in made)
    return add_shapes(converted)
