"""Steps of `pytrtplugins.export.typed_model`: half precision, ranges, samples, and checks of the written file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..calibration import CalibrationTable, Calibrator, MinMaxCalibrator
from ..engines.base.failures import shorten_message
from ..engines.calibrate import calibrate_prepared, fitting_table, network_runs
from ..engines.host.unsigned import UnsignedActivations
from ..errors import BuildError, ModelError, NoDataError
from ..model import Graph, read_onnx, write_onnx
from ..model.decompose import add_shapes, inline_plugins
from ..model.ir import rewrite
from ..model.opaque import hide_opaque, opaque_nodes, show_opaque, undescribed_tensors
from ..model.proto import info_dims, node_name
from ..passes import load_model, run_passes
from ..passes.half import convert_to_half, with_typed_scales
from ..passes.half_ranges import float_nodes
from ..passes.normalize import in_opset
from ..passes.prepare import prepare_loaded
from ..plugin.onnx_node import is_plugin_node
from ..tensor import DType
from ..utils.optional import ir, onnx
from ..validation.dataflow import walk
from .comparison import random_sample

__all__ = [
    "in_half",
    "prepare_float_model",
    "read_float_model",
    "seen_ranges",
    "take_sample",
    "write_checked",
    "write_out_plugins",
]

_BFLOAT16_OPSET = 22
"""The first opset in which ONNX's convolutions, pools and Q/DQ nodes all have bfloat16."""
_MAX_CHECKED = (1 << 31) - (1 << 20)
"""Bytes of a model that onnx.checker takes from memory."""
Sample = Mapping[str, npt.NDArray[Any]]


class _Ranges(MinMaxCalibrator):
    """Records the largest finite values; attention masks hold infinities, which float16 has too."""

    def _observe(self, name: str, array: npt.NDArray[np.float32]) -> None:
        super()._observe(name, array[np.isfinite(array)])


def read_float_model(model: str | Path | onnx.ModelProto | Graph) -> tuple[onnx.ModelProto, bool]:
    """A model, in which plugins without a class are opaque nodes, and whether its weights lie in a file of their own."""
    if isinstance(model, (str, Path)):
        loaded, external_data = read_onnx(model)
    else:
        loaded, external_data = load_model(model), isinstance(model, Graph) and model.external_data
    return hide_opaque(loaded), external_data


def prepare_float_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Prepare a model that declares the dims of its opaque nodes' outputs.

    Raises:
        ModelError: it does not say them; or as `pytrtplugins.passes.prepare`.
    """
    prepared = prepare_loaded(model)
    unknown = undescribed_tensors(prepared)
    if unknown:
        raise ModelError(
            f"tensor {unknown[0]!r}: it is an output of a node without a known class, and the model does not declare its dims and type.\n"
            f"Do: --shape {unknown[0]}=1x100x4, with its dims; pytrtplugins.model.opaque.with_shapes in Python",
            tensor=unknown[0],
        )
    return prepared


def in_half(
    model: onnx.ModelProto,
    dtype: DType,
    ranges: Mapping[str, float],
    pinned: Mapping[str, str] | None = None,
    half_weights: Collection[str] = (),
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Convert a model to half precision, in an opset that supports it.

    Args:
        model: A prepared model, with or without Q/DQ nodes; it is not changed.
        dtype: float16 or bfloat16.
        ranges: Tensor → largest absolute value that was seen.
        pinned: Name of each node that stays in float32 whatever its values are → why.
        half_weights: Float32 nodes whose constants are stored in half precision nevertheless.

    Returns:
        The model, and the name of each node that stays in float32 → why.
    """
    model = in_opset(model, _BFLOAT16_OPSET) if dtype is DType.BFLOAT16 else with_typed_scales(model)
    opaque = {node_name(node): "it has no known class" for node in opaque_nodes(model)}
    float32_nodes: dict[str, str] = {}

    def write(written: ir.Model) -> None:
        float32_nodes.update({**float_nodes(written, dtype, ranges), **opaque, **(pinned or {})})
        convert_to_half(written, dtype, keep=frozenset(float32_nodes), half_weights=half_weights, refuse_overflow=True)

    return rewrite(model, write), float32_nodes


def seen_ranges(
    model: onnx.ModelProto,
    calibration: Calibrator | CalibrationTable | str | Path | None,
    sample: Sample | None,
    progress: bool,
) -> dict[str, float]:
    """Tensor → largest absolute value: of a calibration, or else of one run on a sample.

    Raises:
        CalibrationTableError: a cache belongs to another network.
    """
    if isinstance(calibration, Calibrator):
        table = calibrate_prepared(model, calibration, progress=progress)
    elif calibration is not None:
        table = fitting_table(calibration, model, (), partial=True)
    elif sample is not None:
        table = calibrate_prepared(model, _Ranges([dict(sample)]), progress=progress)
    else:
        return {}
    return {name: table.amax(name) for name in table}


def take_sample(
    model: onnx.ModelProto, calibration: Calibrator | CalibrationTable | str | Path | None
) -> tuple[Sample | None, str]:
    """Inputs for one run, and where they come from: the first of the calibration data, or random numbers."""
    if isinstance(calibration, Calibrator):
        inputs = {info.name: info_dims(info) for info in model.graph.input}
        calibration.bind(inputs)
        try:
            batch = next(iter(calibration.get_batches()))
        except NoDataError:
            return random_sample(model), "random numbers"
        run, _ = next(network_runs(batch, inputs))
        return run, "the first calibration sample"
    return random_sample(model), "random numbers"


def write_out_plugins(model: onnx.ModelProto, reader: str, precision: str) -> onnx.ModelProto:
    """Replace plugins by standard operators, and int8 codes by the uint8 codes of CPU engines.

    Raises:
        BuildError: a plugin has no decomposition, or needs to know dims that are free.
    """
    written = inline_plugins(model)
    for node in walk(written.graph.node):
        if is_plugin_node(node):
            raise BuildError(
                f"node {node_name(node)!r}: plugin {node.domain}::{node.op_type} cannot be written as standard operators, and "
                f"{reader} has no other form of it.\n"
                "Causes: (1) the class has no method decompose; (2) its decomposition needs dims that are free in this model.\n"
                "Do: add decompose to the class (docs/how-to/custom_layer.md), or write the file for TensorRT: --for tensorrt",
                node=node.name,
                engine=reader,
            )
    return add_shapes(run_passes(written, UnsignedActivations()) if precision == "int8" else written)


def write_checked(model: onnx.ModelProto, path: str | Path, external_data: bool) -> int:
    """Write a model that onnx.checker accepts, with opaque nodes as before `hide_opaque`; returns the file's size.

    Raises:
        ModelError: onnx.checker refuses the model; nothing is written, unless the model is larger than 2 GiB.
    """
    small = model.ByteSize() <= _MAX_CHECKED
    if small:
        _check(model, path)
    show_opaque(model)
    files = write_onnx(model, path, external_data=external_data)
    if not small:
        _check(str(path), path)
    return files[0].stat().st_size


def _check(model: onnx.ModelProto | str, path: str | Path) -> None:
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:  # the C++ side raises types of its own
        raise ModelError(
            f"{path}: onnx.checker refuses the typed model: {shorten_message(error)}\n"
            "Causes: (1) an operator of the model's opset does not have the type; (2) the model has operators of a newer ONNX.\n"
            "Do: leave the operator's nodes in float32 with a precision file (pytrt precision search), or export the model with a "
            "newer opset",
            path=Path(path),
        ) from error
