"""What computes forms: engines, and the rewrites of this package alone, each before plain onnxruntime."""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ..node_tests import FAILED, PASSED, REFUSED, WRONG, Outcome
from .compare import difference
from .draft import is_float
from .form import Form
from .int8 import ENGINES, is_quantizable, run_int8
from .oracles import ENDED, run_literal

__all__ = ["DOCUMENTED", "INT8", "RUNNERS", "is_named", "run_form", "run_model", "takes"]

_REASON = 400  # characters
_HALF = ("float16", "bfloat16")
_LOSING_NAN = {"Clip", "HardSigmoid", "Max", "MaxPool", "Min", "Relu"}
DOCUMENTED = "documented"
"""What differs is said in docs/reference/operators.md."""


def _engine(name: str) -> Callable[[onnx.ModelProto, Mapping[str, Any]], tuple[list[Any], str]]:
    def run(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> tuple[list[Any], str]:
        from pytrtplugins.engines import build

        quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
        engine = build(model, engine=name, precision="int8" if quantized else "fp32", threads=1, progress=False)
        with engine.create_context() as context:
            results = context.run(dict(inputs))
        library = [
            f"{key}: {engine.choices[key]}" for key in ("computed by", "run by onnxruntime") if key in engine.choices
        ]
        return [results[info.name] for info in model.graph.output], "; ".join(library)

    return run


def _cuda(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> tuple[list[Any], str]:
    """Engine `cuda`; without a GPU what it plans, on NumPy arrays."""
    from pytrtplugins.engines.cuda import CudaEngine
    from pytrtplugins.passes import prepare

    if not CudaEngine.availability().reason:
        return _on_gpu(model, inputs)
    from tests.engines.cuda.host import run_on_host

    results = run_on_host(prepare(model), dict(inputs))[0]
    return [results[info.name] for info in model.graph.output], ""


def _on_gpu(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> tuple[list[Any], str]:
    from pytrtplugins.engines import build
    from pytrtplugins.engines.cuda import CudaEngine

    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    settings = {**CudaEngine.fast_build, "float": "float32"}
    engine = build(model, engine="cuda", precision="int8" if quantized else "fp32", settings=settings, progress=False)
    with engine.create_context() as context:
        results = context.run(dict(inputs))
    return [results[info.name] for info in model.graph.output], ""


def _rewritten(rewrite: Callable[[onnx.ModelProto], onnx.ModelProto]) -> Callable[..., tuple[list[Any], str]]:
    def run(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> tuple[list[Any], str]:
        names = [info.name for info in model.graph.output]
        changed = rewrite(model)
        known = {info.name for info in changed.graph.input}
        results = run_literal(changed, {name: array for name, array in inputs.items() if name in known})
        by_name = dict(zip([info.name for info in changed.graph.output], results, strict=True))
        return [by_name[name] for name in names], ""

    return run


def _normalize(model: onnx.ModelProto) -> onnx.ModelProto:
    from pytrtplugins.passes import normalize

    return normalize(model)


def _prepare(model: onnx.ModelProto) -> onnx.ModelProto:
    from pytrtplugins.passes import prepare

    return prepare(model)


def _openvino_passes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The passes of engine `cpu`."""
    from pytrtplugins.engines.openvino.openvino_passes import openvino_passes
    from pytrtplugins.passes import prepare, run_passes

    return run_passes(prepare(model), *openvino_passes())


def _repair(model: onnx.ModelProto) -> onnx.ModelProto:
    """`pytrtplugins.passes.repair`, which is to find nothing here."""
    from pytrtplugins.passes.repairs import repair

    return repair(model).model


RUNNERS: dict[str, Callable[[onnx.ModelProto, Mapping[str, Any]], tuple[list[Any], str]]] = {
    "onnxruntime": _engine("onnxruntime"),
    "cpu": _engine("cpu"),
    "reference": _engine("reference"),
    "cuda": _cuda,
    "normalize": _rewritten(_normalize),
    "prepare": _rewritten(_prepare),
    "repair": _rewritten(_repair),
    "passes of cpu": _rewritten(_openvino_passes),
}
"""What computes a form, by name: engines, then rewrites in front of plain onnxruntime."""


INT8 = {f"{engine} int8": engine for engine in ENGINES}
"""Runners of forms with weights in INT8, and their engines."""


def takes(runner: str, form: Form) -> bool:
    """Whether a runner runs a form: INT8 where it has weights, rewrites where onnxruntime survives the form as it is."""
    if runner in _REWRITES and ENDED in form.notes:
        return False
    return runner not in INT8 or is_quantizable(form)


def run_form(form: Form, runner: str) -> Outcome:
    """Run one form in this process, as `run_model` says; right or wrong where there is an oracle."""
    from pytrtplugins.validation.dataflow import walk

    model = form.model
    names = [name for node in walk(model.graph.node) for name in (node.name, *node.output) if name]
    infos = (*model.graph.output, *model.graph.initializer)
    names = [form.operator.rpartition(".")[2], *names, *form.inputs, *(info.name for info in infos)]
    if runner in INT8:
        return _caught(lambda: run_int8(form, INT8[runner]), names, foreign=FAILED)
    outcome = run_model(model, form.inputs, runner, names)
    if outcome.kind != PASSED:
        return outcome
    if form.expected is None:
        return Outcome(PASSED, "no oracle")
    half = any(str(np.asarray(array).dtype) in _HALF for array in form.inputs.values()) or any(
        tensor.data_type in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16) for tensor in model.graph.initializer
    )
    text = difference(form.expected, outcome.values, form.operator, form.exact, form.loose, half)
    if not text:
        return Outcome(PASSED, outcome.reason)
    if runner in _REWRITES and not difference(
        _literal(form), outcome.values, form.operator, form.exact, form.loose, half
    ):
        return Outcome(PASSED, "as onnxruntime computes the form as it is, where it is wrong itself")
    if runner == "cpu" and _loses_nan(form, outcome.values, half):
        return Outcome(DOCUMENTED, f"NaN that arises inside is lost: {text}")
    return Outcome(WRONG, text)


def _literal(form: Form) -> list[Any]:
    """What onnxruntime alone gives for a form; nothing where it refuses it."""
    try:
        return run_literal(form.model, form.inputs)
    except Exception:  # of the library's own types
        return []


def _loses_nan(form: Form, results: Sequence[Any], half: bool) -> bool:
    """Whether NaN that arises inside of a form is all that differs, where OpenVINO loses it as docs/reference/operators.md says."""
    operators = {node.op_type for node in form.model.graph.node}
    arrays = [*form.inputs.values(), *(onnx.numpy_helper.to_array(tensor) for tensor in form.model.graph.initializer)]
    if not operators & _LOSING_NAN or any(_nan(array).any() for array in arrays):
        return False
    pairs = [
        (np.asarray(right), np.asarray(result)) for right, result in zip(form.expected or (), results, strict=True)
    ]
    if any(right.shape != result.shape for right, result in pairs):
        return False
    rights = [np.where(_nan(right), right.dtype.type(0), right) for right, _ in pairs]
    others = [np.where(_nan(right), result.dtype.type(0), result) for right, result in pairs]
    return not difference(rights, others, form.operator, form.exact, form.loose, half)


def _nan(array: Any) -> Any:
    array = np.asarray(array)
    return np.isnan(array) if is_float(array.dtype) else np.zeros(array.shape, bool)


def run_model(model: onnx.ModelProto, inputs: Mapping[str, Any], runner: str, names: Sequence[str]) -> Outcome:
    """Run a model in this process, without judging its results.

    Args:
        model: An ONNX model.
        inputs: Arrays by the names of its inputs.
        runner: One of `RUNNERS`.
        names: Nodes, operators and tensors that a refusal may name, besides the model's inputs and outputs.

    Returns:
        Results as values where it ran, and as the reason which other library computed them. Where it is refused, and the text has none
        of the names, the values are ``"unnamed"``.
    """

    def run() -> Outcome:
        results, library = RUNNERS[runner](model, inputs)
        return Outcome(PASSED, library, results)

    known = (*names, *inputs, *(info.name for info in model.graph.output))
    return _caught(run, known, REFUSED if runner in _REWRITES else FAILED)


def _caught(run: Callable[[], Outcome], names: Sequence[str], foreign: str) -> Outcome:
    """What a run gives; a refusal where it raises an error of this package, and ``foreign`` at another one."""
    from pytrtplugins.errors import PytrtpluginsError

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"), _quiet():
            warnings.simplefilter("ignore")
            return run()
    except PytrtpluginsError as error:
        text = str(error)
        named = text.startswith(_OF_MODEL) or any(is_named(name, text) for name in names)
        return Outcome(REFUSED, f"{type(error).__name__}: {_short(text)}", None if named else "unnamed")
    except Exception as error:
        library = "onnxruntime: " if foreign == REFUSED else ""
        return Outcome(foreign, f"{library}{type(error).__name__}: {_short(str(error))}")


def is_named(name: str, text: str) -> bool:
    """Whether a text has a name, alone or with what is put behind it: ``y/scaled``, ``y.Expand``, or ``y__2`` of onnx's inliner.

    One or two letters count between quotes or parentheses, behind "node", and at the end behind "name:" alone: they are in many words.
    """
    if not name or name not in text:
        return False
    word, text = re.escape(name), text.replace(_CAST_OF, "")
    if len(name) > _SHORT_NAME:
        return re.search(rf"(?<!\w){word}(?!\w)|(?<!\w){word}__\d", text) is not None
    return re.search(rf"['\"(]{word}(['\")/.]|__\d)|[Nn]ode {word} |name: {word}$", text) is not None


_SHORT_NAME = 2  # characters
_CAST_OF = "InsertedPrecisionFreeCast_"  # what onnxruntime puts in front of a float16 tensor's name
_OF_MODEL = ("the model has no outputs", "the model has opset ")
"""How errors begin that are about a whole model, in which there is nothing to name."""
_REWRITES = ("normalize", "prepare", "repair", "passes of cpu")


class _quiet:
    """Nothing is written to the error output: libraries write there what they raise anyway."""

    def __enter__(self) -> None:
        self._kept = os.dup(2)
        self._file = tempfile.TemporaryFile()
        os.dup2(self._file.fileno(), 2)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._kept, 2)
        os.close(self._kept)
        self._file.close()


def _short(text: str) -> str:
    return " ".join(text.split())[:_REASON]
