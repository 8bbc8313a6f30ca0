"""Compare a written ONNX model with its float32 form: onnxruntime runs both on one sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engines import build
from ..engines.base.failures import shorten_message
from ..engines.quantized import has_qdq
from ..errors import MissingExtraError, PytrtpluginsError
from ..model.decompose import inline_plugins
from ..model.opaque import computable_part, opaque_boundary
from ..model.proto import info_dims, info_dtype
from ..plugin.onnx_node import is_plugin_node
from ..tensor import AnyDims
from ..utils.optional import onnx, require
from ..validation.dataflow import given_inputs, walk

__all__ = ["Comparison", "OutputError", "compare_models", "random_sample"]

_MAX_BYTES = (1 << 31) - (1 << 20)
"""Of a model that onnxruntime takes from memory."""
Sample = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class OutputError:
    """The error of an output against the float32 model.

    Attributes:
        name: Name of the output.
        max_abs: Largest absolute difference, in the output's unit.
        relative: Root mean square of the difference, divided by that of the float32 output; 0 where all of it is 0.
    """

    name: str
    max_abs: float
    relative: float


@dataclass(frozen=True)
class Comparison:
    """Errors of a written model on one sample.

    Attributes:
        runner: What ran both models; empty where nothing ran.
        data: Source of the sample.
        outputs: Errors of the outputs.
        problem: Why there was no run; empty where there was one.
    """

    runner: str
    data: str
    outputs: tuple[OutputError, ...] = ()
    problem: str = ""


def compare_models(model: onnx.ModelProto, written: onnx.ModelProto, sample: Sample | None, data: str) -> Comparison:
    """Run two models on one sample.

    onnxruntime runs them with its graph optimizations off, so that Q/DQ nodes round as the file says. Plugins are written out as
    standard operators first; where one has no decomposition, engine ``onnxruntime`` runs both models. Where nobody here has a class
    for a node, the tensors that it reads are compared instead of what depends on it.

    Args:
        model: The float32 model.
        written: The model with the same inputs and outputs whose error is wanted.
        sample: An array for each input; None: there is none.
        data: Where the sample comes from, for the report.
    """
    if sample is None:
        return Comparison("", "", problem="the dims of its inputs are not known")
    if max(model.ByteSize(), written.ByteSize()) > _MAX_BYTES:
        return Comparison("", "", problem="the model is larger than 2 GiB")
    models = [inline_plugins(one) for one in (model, written)]
    try:
        ends = [{**_outputs(one), **opaque_boundary(one)} for one in models]
        models = [computable_part(one) for one in models]
        if any(is_plugin_node(node) for one in models for node in walk(one.graph.node)):
            runner = "engine 'onnxruntime', since a plugin has no decomposition"
            outputs = [_run_engine(computable_part(one), sample) for one in (model, written)]
        else:
            library = require("onnxruntime", extra="cpu", feature="running the written model")
            runner = f"onnxruntime {library.__version__}"
            outputs = [_run_session(library, one, sample) for one in models]
    except (MissingExtraError, PytrtpluginsError) as error:
        return Comparison("", data, problem=shorten_message(error))
    except Exception as error:  # onnxruntime raises types of its own
        return Comparison("", data, problem=f"onnxruntime: {shorten_message(error)}")
    shared = [end for end in ends[0] if end in ends[1] and ends[0][end] in outputs[0]]
    errors = (_error(end, outputs[0][ends[0][end]], outputs[1][ends[1][end]]) for end in shared)
    return Comparison(runner, data, tuple(errors))


def random_sample(model: onnx.ModelProto) -> dict[str, npt.NDArray[Any]] | None:
    """Random numbers in 0..1 for inputs of floats, zeros for others, free dims 1; None where the rank of an input is not known."""
    random = np.random.default_rng(0)
    sample: dict[str, npt.NDArray[Any]] = {}
    for info in given_inputs(model.graph):
        dims = info_dims(info)
        if isinstance(dims, AnyDims):
            return None
        values = random.random([dim if isinstance(dim, int) else 1 for dim in dims], np.float32)
        sample[info.name] = values.astype(info_dtype(info).numpy)
    return sample


def _run_session(library: Any, model: onnx.ModelProto, sample: Sample) -> dict[str, npt.NDArray[Any]]:
    options = library.SessionOptions()
    options.graph_optimization_level = library.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = library.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    inputs = {item.name: sample[item.name] for item in session.get_inputs()}
    return dict(zip(names, session.run(names, inputs), strict=True))


def _outputs(model: onnx.ModelProto) -> dict[str, str]:
    return {info.name: info.name for info in model.graph.output}


def _run_engine(model: onnx.ModelProto, sample: Sample) -> dict[str, npt.NDArray[Any]]:
    precision = "int8" if has_qdq(model) else "fp32"
    with build(model, engine="onnxruntime", precision=precision, progress=False).create_context() as context:
        return dict(context.run({desc.name: sample[desc.name] for desc in context.engine.inputs}))


def _error(name: str, expected: npt.NDArray[Any], actual: npt.NDArray[Any]) -> OutputError:
    wide = expected.astype(np.float64)
    difference = actual.astype(np.float64) - wide
    size = float(np.sqrt(np.mean(wide**2))) if wide.size else 0.0
    relative = float(np.sqrt(np.mean(difference**2))) / size if size else 0.0
    return OutputError(name, float(np.abs(difference).max(initial=0)), relative)
