"""Forms with weights in INT8: each engine beside onnxruntime on the Q/DQ model that the engine was built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ..node_tests import PASSED, WRONG, Outcome
from .form import Form
from .oracles import run_literal
from .write import with_dims

__all__ = ["ENGINES", "is_quantizable", "run_int8"]

ENGINES = ("onnxruntime", "cpu", "reference", "cuda")
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators whose weights are quantized."""
_FAR, _FLOOR = 0.05, 1e-4
"""How far results may be off by their norm: a code that is rounded to its neighbour changes those behind it."""


def is_quantizable(form: Form) -> bool:
    """Whether a form has one of these operators, with float32 inputs and weights that have values, all of them finite."""
    model = form.model
    nodes = [node for node in model.graph.node if node.op_type in WEIGHTED]
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    weights = [tensors[node.input[1]] for node in nodes if node.input[1] in tensors]
    arrays = [*form.inputs.values(), *(onnx.numpy_helper.to_array(tensor) for tensor in weights)]
    return bool(weights) and all(
        array.dtype == np.float32 and array.size and array.ndim and np.isfinite(array).all() for array in arrays
    )


def run_int8(form: Form, engine: str) -> Outcome:
    """Quantize a form with scales of its own inputs, and run it on an engine with all of int8; right where it is near the Q/DQ model.

    Raises:
        PytrtpluginsError: an engine or the quantizer refuses the form.
    """
    from pytrtplugins.calibration import MinMaxCalibrator
    from pytrtplugins.engines import build, calibrate

    model = with_dims(form.model, form.inputs)  # else calibration takes the first axis for images
    table = calibrate(model, MinMaxCalibrator([form.inputs]), engine="onnxruntime", progress=False)
    if engine == "cuda":
        results, written = _cuda(model, table, form.inputs)
    else:
        settings = {} if engine == "reference" else {"int8": "always"}
        options: dict[str, Any] = {"calibration": table, "settings": settings, "threads": 1, "progress": False}
        built = build(model, engine=engine, precision="int8", **options)
        with built.create_context() as context:
            found = context.run(dict(form.inputs))
        results, written = [found[info.name] for info in model.graph.output], built.model
    try:
        expected = run_literal(written, form.inputs)
    except Exception as error:  # onnxruntime has no QuantizeLinear of the newest opset
        return Outcome(PASSED, f"no oracle: {error}", results)
    text = _difference(expected, results)
    return Outcome(WRONG, text) if text else Outcome(PASSED, "", results)


def _cuda(model: onnx.ModelProto, table: Any, inputs: Mapping[str, Any]) -> tuple[list[Any], onnx.ModelProto]:
    """What engine `cuda` plans, on the GPU or on NumPy arrays."""
    from pytrtplugins.engines import build
    from pytrtplugins.engines.cuda.engine import CudaEngine
    from pytrtplugins.passes import prepare, quantize
    from pytrtplugins.passes.prepare import in_opset_of_precision

    names = [info.name for info in model.graph.output]
    if not CudaEngine.availability().reason:
        settings = {"disable": [*CudaEngine.fast_build["disable"], "pointwise"]}
        options: dict[str, Any] = {"calibration": table, "settings": settings, "progress": False}
        built = build(model, engine="cuda", precision="int8", **options)
        with built.create_context() as context:
            found = context.run(dict(inputs))
        return [found[name] for name in names], built.model
    from pytrtplugins.tensor import DType
    from tests.engines.cuda.host import run_on_host

    options = CudaEngine.quantize_options("int8")
    written = prepare(quantize(in_opset_of_precision(model, "int8"), table, precision="int8", **options))
    found = run_on_host(written, dict(inputs), DType.FLOAT32)[0]
    return [found[name] for name in names], written


def _difference(expected: Sequence[Any], results: Sequence[Any]) -> str:
    for index, (right, result) in enumerate(zip(expected, results, strict=True)):
        if right.shape != result.shape:
            return f"output {index}: dims {result.shape}, in the Q/DQ model {right.shape}"
        if right.dtype != result.dtype:
            return f"output {index}: {result.dtype}, in the Q/DQ model {right.dtype}"
        difference = np.linalg.norm(np.subtract(result, right, dtype=np.float64))
        limit = _FAR * np.linalg.norm(right.astype(np.float64)) + _FLOOR * np.sqrt(right.size)
        if not difference <= limit:
            return f"output {index}: off by {difference:.3g} of norm, {limit:.3g} allowed: {result.flat[:4]} for {right.flat[:4]}"
    return ""
