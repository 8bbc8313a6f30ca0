"""Each row of the table of OpenVINO's known errors is still true of OpenVINO alone: when one fails here, take its row out, or narrow it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from benchmarks.forms.compare import difference
from benchmarks.forms.form import draw_form
from benchmarks.forms.oracles import ask, judge, run_literal
from benchmarks.node_tests import CRASHED, PASSED, Outcome, run_cases
from pytrtplugins.engines.openvino.fallback import facts_of
from pytrtplugins.engines.openvino.known_errors import KNOWN_ERRORS
from pytrtplugins.engines.openvino.usage import Usage
from pytrtplugins.passes import prepare
from pytrtplugins.validation.dataflow import walk
from tests.engines.openvino import known_rows


@dataclass
class Example:
    """A model that shows an error, its inputs, and what it is to give: None where onnxruntime refuses to run it."""

    model: onnx.ModelProto
    inputs: dict[str, Any]
    expected: list[Any] | None
    tolerance: dict[str, Any] = field(default_factory=lambda: {"operator": "", "exact": False, "loose": 8.0})


def example_of(row):
    if "=>" not in row.example:
        name, _, seed = row.example.partition(" of seed ")
        form = draw_form(name, int(seed or 0))
        expected, source = judge(form, *ask(form))
        assert expected is not None, source
        return Example(
            form.model, form.inputs, expected, {"operator": form.operator, "exact": form.exact, "loose": form.loose}
        )
    opset, _, graph = row.example.partition(" ")
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> example {graph}')
    names = {info.name for info in model.graph.input}
    inputs = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer if item.name in names}
    constants = [item for item in model.graph.initializer if item.name not in names]
    del model.graph.initializer[:]
    model.graph.initializer.extend(constants)
    return Example(model, inputs, literal(model, inputs))


def literal(model, inputs):
    """By onnxruntime, else by onnx.reference, which computes nodes that onnxruntime lacks; None where both refuse."""
    for run in (run_literal, lambda model, inputs: ReferenceEvaluator(model).run(None, inputs)):
        try:
            return run(model, inputs)
        except Exception:  # of each library's own types
            continue
    return None


def run_openvino(example):
    """OpenVINO alone, on the model as it is; the outcome is passed where it gives what is expected."""
    import openvino

    core = openvino.Core()
    config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    try:
        compiled = core.compile_model(core.read_model(example.model.SerializeToString()), "CPU", config)
        found = compiled(example.inputs)
        results = [found[index] for index in range(len(compiled.outputs))]
    except RuntimeError as error:
        if "Port for tensor name" in str(error):
            return Outcome("wrong", f"an input has lost its name: {error}")
        return Outcome(PASSED, f"it refuses the model, and computes nothing wrong: {error}")
    if example.expected is None:
        return Outcome("wrong", "it runs what others refuse")
    results = [
        result.view(right.dtype) if right.dtype.name == "bfloat16" else result  # which OpenVINO calls float16
        for right, result in zip(map(np.asarray, example.expected), results, strict=True)
    ]
    text = difference(example.expected, results, **example.tolerance)
    return Outcome("wrong" if text else PASSED, text)


ROWS = [pytest.param(row, id=f"{'-'.join(row.operators) or 'all'} {row.where}".strip()) for row in KNOWN_ERRORS]


@pytest.mark.parametrize("row", ROWS)
def test_openvino_alone_is_still_wrong(row):
    example = example_of(row)
    ((_, outcome),) = run_cases([example], run_openvino, 1, start="forkserver")  # it may crash
    if row.operators == ("Loop",) and outcome.kind == PASSED:
        pytest.skip("a Loop of no round ends the process with kernels for AVX-512, and not with all others")
    assert outcome.kind in ("wrong", CRASHED), f"OpenVINO no longer has this error of {row.version}: {outcome}"


@pytest.mark.parametrize("row", ROWS)
def test_the_row_is_about_its_example(row):
    model = example_of(row).model
    usages = (
        Usage(node, facts)
        for each in (model, prepare(model))
        for facts in [facts_of(each)]
        for node in walk(each.graph.node)
    )
    assert any(row.applies(usage) for usage in usages if not row.operators or usage.node.op_type in row.operators)


def test_rows_name_the_version_they_were_seen_in():
    assert all(row.version.count(".") == 2 for row in KNOWN_ERRORS)


def test_a_row_is_for_the_nodes_that_are_listed():
    found, listed = known_rows.lines(), known_rows.LIST.read_text().splitlines()
    assert found[0] != listed[0] or found == listed, (
        "other nodes\nDo: python -m tests.engines.openvino.known_rows, if they are wanted"
    )
