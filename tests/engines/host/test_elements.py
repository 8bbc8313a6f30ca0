"""Tensors that turn out to have no elements inside a model: kernels of onnxruntime's that end the process do not get them."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from benchmarks.node_tests import PASSED, REFUSED, Outcome, run_cases
from pytrtplugins.engines.host.elements import with_checks
from pytrtplugins.errors import PytrtpluginsError
from pytrtplugins.passes import prepare

pytest.importorskip("onnxruntime")

FOUND = "n = NonZero (x) f = Cast <to = 1> (n)"
GRAPHS = {
    "Einsum": f'(float[4,3] x) => (float[A,B] y) {{ {FOUND} y = Einsum <equation = "ij,kj->ik"> (f, f) }}',
    "GRU": f"""(float[4] x, float[1,3,1] w, float[1,3,1] r) => (float[S,1,1,1] y)
        {{ {FOUND} s = Constant <value_ints = [-1,1,1]> () z = Reshape (f, s) y, h = GRU <hidden_size = 1> (z, w, r) }}""",
    "Scan": f"""(float[4] x) => (float[1] y, float[S,1] z)
        {{ {FOUND} t = Transpose (f) start = Constant <value_floats = [0.0]> ()
           y, z = Scan <num_scan_inputs = 1, body = b (float[1] s, float[1] e) => (float[1] o, float[1] p) {{
             o = Add (s, e) p = Identity (o) }}> (start, t) }}""",
    "Unique": f"(float[4] x) => (float[A,B] y) {{ {FOUND} y = Unique <axis = 0> (f) }}",
}


class Case(NamedTuple):
    operator: str
    engine: str
    value: float


def model_of(operator):
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> g {GRAPHS[operator]}')


def run(case):
    """What an engine gives where ``x`` has this value throughout; a process may end."""
    model = model_of(case.operator)
    inputs = {
        info.name: np.full([dim.dim_value for dim in info.type.tensor_type.shape.dim], case.value, np.float32)
        for info in model.graph.input
    }
    try:
        with ptp.build(model, engine=case.engine, threads=1, progress=False).create_context() as context:
            return Outcome(PASSED, "", {name: array.shape for name, array in context.run(inputs).items()})
    except PytrtpluginsError as error:
        return Outcome(REFUSED, str(error))


@functools.cache
def outcomes():
    cases = [Case(*each) for each in ((o, e, v) for o in GRAPHS for e in ("onnxruntime", "cpu") for v in (0.0, 1.0))]
    return dict(run_cases(cases, run, start="forkserver"))


@pytest.mark.parametrize("engine", ["onnxruntime", "cpu"])
@pytest.mark.parametrize("operator", GRAPHS)
def test_a_tensor_without_elements_ends_no_process(operator, engine):
    pytest.importorskip("openvino")
    empty, full = (outcomes()[Case(operator, engine, value)] for value in (0.0, 1.0))
    assert empty.kind in (PASSED, REFUSED), empty.reason
    assert empty.kind == PASSED or any(f"'{name}" in empty.reason for name in "yz")  # its outputs
    assert full.kind == PASSED, full.reason


def test_where_dims_are_known_nothing_is_added():
    text = '(float[N,3] x) => (float[N,N] y) { r = Relu (x) y = Einsum <equation = "ij,kj->ik"> (r, r) }'
    model = prepare(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> g {text}'))
    assert with_checks(model) is model


def test_checked_models_compute_the_same():
    import onnxruntime as ort

    model = prepare(model_of("Einsum"))
    checked = with_checks(model)
    assert len(checked.graph.node) == len(model.graph.node) + 2 * 8
    onnx.checker.check_model(checked, full_check=True)
    x = np.random.default_rng(0).integers(0, 2, (4, 3)).astype(np.float32)
    results = [
        ort.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(["y"], {"x": x})[0]
        for each in (model, checked)
    ]
    np.testing.assert_array_equal(*results)
