"""Rules that need ONNX: nodes, decompositions, engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import MissingExtraError, UnavailableError
from ..model.decompose import add_functions, infer_shapes, inline_plugins
from ..plugin.onnx_node import from_node
from ..utils.optional import onnx, require
from .cases import Case, outputs_of
from .compare import differences
from .formats import cases_in_other_types

__all__ = ["decomposition", "engine", "node", "one_node_model"]

_OPSET, _IR = 18, 10


def one_node_model(case: Case, constant: int | None = None) -> onnx.ModelProto:
    """A model of the plugin's node alone, with the case's dims; ``constant``: index of the input that is an initializer."""
    helper = require("onnx.helper", extra="onnx", feature="checking a plugin's node")
    numpy_helper = require("onnx.numpy_helper", extra="onnx", feature="checking a plugin's node")
    inputs, outputs = case.descs()

    def infos(descs: Any) -> list[Any]:
        types = [helper.np_dtype_to_tensor_dtype(desc.dtype.numpy) for desc in descs]
        return [helper.make_tensor_value_info(d.name, t, d.dims) for d, t in zip(descs, types, strict=True)]

    node = case.plugin.as_node([desc.name for desc in inputs], [desc.name for desc in outputs], "checked")
    input_descs = [desc for index, desc in enumerate(inputs) if index != constant]
    weights = [] if constant is None else [numpy_helper.from_array(case.inputs()[constant], inputs[constant].name)]
    graph = helper.make_graph([node], "check", infos(input_descs), infos(outputs), weights)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(node.domain, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR)  # type: ignore[no-any-return]


def node(case: Case) -> str:
    """The ONNX node gives the plugin back, and the model with it is valid."""
    onnx = require("onnx", extra="onnx", feature="checking a plugin's node")
    model = one_node_model(case)
    data = model.SerializeToString()
    back = from_node(onnx.ModelProto.FromString(data).graph.node[0])
    if back != case.plugin:
        return f"the node gives {back!r}"
    onnx.checker.check_model(infer_shapes(model), full_check=True)
    return ""


def decomposition(case: Case) -> str:
    """The decomposition, inlined and as a function, gives on onnxruntime what compute gives, in each type that onnxruntime has."""
    onnx = require("onnx", extra="onnx", feature="checking a decomposition")
    require("onnxruntime", extra="cpu", feature="checking a decomposition")
    forms = (("inlined", inline_plugins, case), ("as a function", add_functions, case))
    for name, form, typed in (*forms, *(("inlined", inline_plugins, other) for other in cases_in_other_types(case))):
        where = name if typed is case else f"{name}, {typed.formats}"
        try:
            model = form(one_node_model(typed))
            onnx.checker.check_model(model, full_check=True)
            outputs = _run_plainly(model, typed.inputs())
        except Exception as error:  # onnx and onnxruntime raise types of their own
            if typed is not case and "NOT_IMPLEMENTED" in str(error):
                continue
            return f"{where}: {type(error).__name__}: {error}"
        if wrong := differences(outputs, outputs_of(case.plugin, typed.inputs())):
            return f"{where}: {wrong}"
    return ""


def _run_plainly(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    from ..engines.host.ort_session import make_session

    session = make_session(model, 1)
    return session.run([info.name for info in model.graph.output], {f"x{i}": array for i, array in enumerate(inputs)})


def engine(case: Case, name: str) -> str:
    """The engine, on a model of this one node, gives what compute gives; each of several inputs is also tried as a constant."""
    inputs = {f"x{index}": array for index, array in enumerate(case.inputs())}
    expected = outputs_of(case.plugin, case.inputs())
    for constant in (None, *range(len(inputs) if len(inputs) > 1 else 0)):
        try:
            wrong = differences(_run(one_node_model(case, constant), inputs, name), expected)
        except (MissingExtraError, UnavailableError):
            raise
        except Exception as error:  # whatever a plugin, or an engine's library, raises
            if constant is None:
                raise
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            return wrong if constant is None else f"with input {constant} as a constant of the model: {wrong}"
    return ""


def _run(model: onnx.ModelProto, arrays: Mapping[str, Any], engine_name: str) -> list[Any]:
    from ..engines.selection import build

    built = build(model, engine=engine_name, progress=False)
    with built.create_context() as context:
        outputs = context.run({desc.name: arrays[desc.name] for desc in built.inputs})
    return [outputs[f"y{index}"] for index in range(len(outputs))]
