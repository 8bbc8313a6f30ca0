"""What a form is to give, by libraries that are not ours: onnxruntime node by node, onnx.reference; formulas where both are no judges."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .compare import difference
from .contrib_formulas import CONTRIB_FORMULAS
from .form import Form
from .formulas import LEGACY, SAME_AS
from .verdicts import verdict

__all__ = ["ENDED", "REWRITTEN", "ask", "judge", "run_literal"]

_Arrays = Mapping[str, Any]


def run_literal(model: onnx.ModelProto, inputs: _Arrays) -> list[Any]:
    """Outputs of a model by onnxruntime without any optimization."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = {name: _value(array) for name, array in inputs.items()}
    run = ort.RunOptions()
    run.log_severity_level = 4
    results = session.run_with_ort_values([info.name for info in session.get_outputs()], values, run)
    return [_array(result) for result in results]


def _value(array: Any) -> Any:
    import onnxruntime as ort

    array = np.ascontiguousarray(array).reshape(np.shape(array))
    if array.dtype.kind != "V" and array.dtype.name != "bfloat16":
        return ort.OrtValue.ortvalue_from_numpy(array)
    if array.dtype.name in ("int4", "uint4", "int2", "uint2"):
        raise NotImplementedError("onnxruntime's Python interface takes no packed numbers")
    bits = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, helper.np_dtype_to_tensor_dtype(array.dtype))


def _array(value: Any) -> Any:
    dtype = helper.tensor_dtype_to_np_dtype(value.element_type())
    if dtype.name != "bfloat16":
        return value.numpy()
    count = math.prod(value.shape())
    data = ctypes.string_at(value.data_ptr(), 2 * count)
    return np.frombuffer(data, dtype).reshape(value.shape()).copy()


def _by_onnxruntime(form: Form) -> list[Any]:
    """As it is; else in the first opset that has this version, in one whose version means the same, and with half numbers in float32."""
    model = form.model
    rewrites = [model]
    if form.opset != form.version >= 7:
        rewrites.append(_in_opset(model, form.version))
    newer = SAME_AS.get(form.operator, 0)
    if form.version < newer:
        rewrites.append(_in_opset(model, newer))
    failures: list[Exception] = []
    for rewritten in rewrites:
        try:
            return run_literal(rewritten, form.inputs)
        except Exception as error:  # of onnxruntime's own types
            failures.append(error)
            form.notes += [REWRITTEN]
    for rewritten in filter(None, map(_widened, rewrites)):
        with contextlib.suppress(Exception):
            return _narrowed(model, run_literal(rewritten, _widened_inputs(rewritten, form.inputs)))
    raise failures[0]


def _in_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The same operators in another opset, without attributes that mean nothing there."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for item in changed.opset_import:
        item.version = opset
    for node in changed.graph.node:
        kept = [item for item in node.attribute if item.name not in ("consumed_inputs", "is_test")]
        del node.attribute[:]
        node.attribute.extend(kept)
    return changed


_HALF = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def _widened(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with float32 in the place of half numbers; None where it has none."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    wide = False
    for info in (*changed.graph.input, *changed.graph.output):
        if info.type.tensor_type.elem_type in _HALF:
            info.type.tensor_type.elem_type, wide = onnx.TensorProto.FLOAT, True
    for tensor in changed.graph.initializer:
        if tensor.data_type in _HALF:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
            wide = True
    return changed if wide else None


def _widened_inputs(model: onnx.ModelProto, inputs: _Arrays) -> dict[str, Any]:
    types = {info.name: info.type.tensor_type.elem_type for info in model.graph.input}
    return {name: array.astype(helper.tensor_dtype_to_np_dtype(types[name])) for name, array in inputs.items()}


def _narrowed(model: onnx.ModelProto, results: list[Any]) -> list[Any]:
    """Results in the types that ONNX infers for the model as it was."""
    inferred = onnx.shape_inference.infer_shapes(model).graph.output
    types = [helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type) for info in inferred]
    return [result.astype(dtype) for result, dtype in zip(results, types, strict=True)]


def _by_onnx(form: Form) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    model = form.model
    for item in model.opset_import:
        item.domain = "" if item.domain == "ai.onnx" else item.domain
    for node in model.graph.node:
        node.domain = "" if node.domain == "ai.onnx" else node.domain
    with np.errstate(all="ignore"):
        results = ReferenceEvaluator(model).run(None, dict(form.inputs))
    results = [np.asarray(result) for result in results]
    with contextlib.suppress(KeyError):  # of a type that is not inferred
        return _narrowed(model, results)
    return results


def _by_formula(form: Form) -> list[Any]:
    formula, contrib = LEGACY.get(form.operator), CONTRIB_FORMULAS.get(form.operator)
    if (formula is None and contrib is None) or "inside" in form.tags:
        raise NotImplementedError(form.operator)
    model = form.model
    node = next(node for node in model.graph.node if node.name == "the_node")
    values = {**{tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}, **form.inputs}
    attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    operands = [values.get(name) for name in node.input]
    with np.errstate(all="ignore"):
        if contrib is None:
            assert formula is not None
            return [np.asarray(formula(form.version, attributes, operands))]
        results = dict(zip(node.output, contrib(attributes, operands), strict=False))
    outputs = [results.get(info.name) for info in model.graph.output]
    if any(output is None for output in outputs):
        raise NotImplementedError(f"all outputs of {form.operator}")
    return [np.asarray(output) for output in outputs]


ENDED = "a library ended the process"
"""Why a form has no oracle, where one of them did not survive it."""
REWRITTEN = "onnxruntime runs it in another opset or type, if at all"
"""Of a form that it refuses as it is."""
_ORACLES: dict[str, Callable[[Form], list[Any]]] = {"onnxruntime": _by_onnxruntime, "onnx.reference": _by_onnx}


def ask(form: Form) -> tuple[dict[str, list[Any]], str]:
    """What each library makes of a form: outputs by the library's name; and why the others do not run it."""
    answers: dict[str, list[Any]] = {}
    failures: list[str] = []
    for name, oracle in _ORACLES.items():
        try:
            answers[name] = oracle(form)
        except Exception as error:  # of each library's own types
            failures.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:160]}")
    return answers, "; ".join([*failures, *({REWRITTEN} & {*form.notes})])


def judge(form: Form, answers: dict[str, list[Any]], failures: str) -> tuple[list[Any] | None, str]:
    """The results of a form, and who says so.

    Returns:
        The outputs, and the oracle's name; None, and why, where no oracle runs it, or where two differ and no verdict says who is right.
    """
    answers = dict(answers)
    with contextlib.suppress(
        NotImplementedError, ModuleNotFoundError
    ):  # some formulas are PyTorch's, which may not be there
        answers["formula"] = _by_formula(form)
    chosen = verdict(form, answers)
    if chosen in answers:
        return answers[chosen], chosen
    if chosen:
        return None, chosen
    if not answers:
        return None, f"no oracle runs it: {failures}"
    names = list(answers)
    first = answers[names[0]]
    for name in names[1:]:
        text = difference(first, answers[name], form.operator, form.exact, form.loose)
        if text:
            return None, f"{names[0]} and {name} differ: {name} has {text}"
    return first, " and ".join(names)
