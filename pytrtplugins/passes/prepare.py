"""Passes before calibration and quantization; tensor names of calibration tables refer to their result."""

from __future__ import annotations

from pathlib import Path

from ..model import Graph, read_onnx
from ..model.declared import check_declared, with_inferred_types
from ..model.ir import to_ir, to_proto
from ..utils.heap import no_collection
from ..utils.optional import onnx
from ..validation import check_operand_types, check_ranks, check_slopes, validated
from ..validation.operators import standard_opset
from .codes import CODES
from .contrib import declare_contrib_domain, has_faults, needed_opset, rewrite_faulty_operators, write_functions
from .dim_names import add_dims, name_inputs
from .eliminate import Eliminate
from .fold import FoldBatchNorm
from .merge_pads import MergePads
from .normalize import in_opset, normalize_if_needed
from .opsets import convert_or_keep
from .training_norms import TrainingNorms

__all__ = ["in_opset_of_precision", "load_model", "of_onnx", "prepare", "prepare_loaded"]


def load_model(model: str | Path | onnx.ModelProto | Graph) -> onnx.ModelProto:
    """Read an ONNX file, or accept a model as it is.

    Raises:
        ModelError: the file is not an ONNX model, or the model is broken; see `pytrtplugins.validation`.
        FileNotFoundError: there is no such file.
    """
    if isinstance(model, (str, Path)):
        return read_onnx(model)[0]
    return validated(model.model if isinstance(model, Graph) else model)


def prepare(model: str | Path | onnx.ModelProto | Graph) -> onnx.ModelProto:
    """Normalize, fold batch norms, merge borders into pools, eliminate what does nothing, and add all shapes.

    The same model gives the same names.

    Args:
        model: Path or model; it is not changed.

    Raises:
        ModelError: it is not an ONNX model, its shapes contradict each other, operands that are to have one type differ, a slope of
            PRelu does not broadcast, an input has other numbers of axes than its operator reads, or its opset is newer than the
            installed ONNX.
        RegistryError: it has a plugin that is not registered.
    """
    return prepare_loaded(load_model(model))


@no_collection()
def prepare_loaded(model: onnx.ModelProto, *, native: bool = False) -> onnx.ModelProto:
    """Prepare the result of `load_model`, which is not checked a second time.

    Args:
        model: The model; it is not changed.
        native: Leave operators of ``com.microsoft`` as they are, for an engine that runs them, but for forms that onnxruntime gets wrong.
    """
    # messages: they show what onnx-ir drops, and ONNX's own tools take them
    model = check_declared(model)
    check_ranks(model)  # as declared, before operators are written with others; below once more, with what is inferred
    normal = _without_faults(normalize_if_needed(model)) if native else of_onnx(model)
    # onnx-ir's form
    ir_model = to_ir(normal, checked=True)
    for step in (TrainingNorms(), FoldBatchNorm(), MergePads(), Eliminate()):
        step(ir_model)
    # messages again: ONNX's own inference tells dims and types
    prepared = to_proto(ir_model)
    name_inputs(prepared)
    prepared = add_dims(prepared, ir_model)
    for check in (check_operand_types, check_slopes, check_ranks):
        check(prepared)
    if native and any(info.type.WhichOneof("value") is None for info in prepared.graph.output):
        return prepare_loaded(model)  # ONNX's operators tell the types that the file leaves out
    return prepared


def of_onnx(model: onnx.ModelProto) -> onnx.ModelProto:
    """Normalize a model, and write its operators of ``com.microsoft`` with ONNX's own, as far as they can be.

    Raises:
        ModelError: as `normalize`.
    """
    normal = normalize_if_needed(declare_contrib_domain(model))
    opset = needed_opset(normal)
    newer = convert_or_keep(normal, opset) if 0 < standard_opset(normal) < opset else normal
    written = write_functions(newer)
    return (
        written if written is newer else with_inferred_types(written)
    )  # ONNX's operators tell them where those did not


def _without_faults(normal: onnx.ModelProto) -> onnx.ModelProto:
    """A normalized model whose operators that onnxruntime gets wrong are rewritten with ONNX's; itself if it has none."""
    if not has_faults(normal):
        return normal
    opset = needed_opset(normal)
    newer = convert_or_keep(normal, opset) if standard_opset(normal) < opset else normal
    written = rewrite_faulty_operators(newer)
    return normal if written is newer or len(written.graph.node) == len(newer.graph.node) else written


def in_opset_of_precision(model: onnx.ModelProto, precision: str) -> onnx.ModelProto:
    """A prepared model in an opset that has a precision's 8-bit type; tensors keep the names of calibration tables."""
    return in_opset(model, CODES[precision].opset)
