"""Inputs that fit the declared free dims, but not the network: each engine raises, with any number of threads."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import EngineError
from tests.engines.operators import ints, literal

ENGINES = ("cpu", "onnxruntime", "reference")


def rows(*values):
    """Indices of one axis each, as operators with N axes take them."""
    return np.array(values, np.int64)[:, None]


SQUARE = "g (float[2,N] x, float[M,2] w) => (float[2,2] y)"
# the network; inputs that fit and that contradict: arrays, or dims of an array of ones
CASES = {
    "Add of a constant": (
        "g (float[N,4] x) => (float[a,4] y) <float[3,1] c = {1,2,3}> { y = Add (x, c) }",
        *({"x": (3, 4)}, {"x": (2, 4)}),
    ),
    "Add": (
        "g (float[N,4] x, float[M,4] z) => (float[a,4] y) { y = Add (x, z) }",
        *({"x": (3, 4), "z": (1, 4)}, {"x": (2, 4), "z": (3, 4)}),
    ),
    "Where": (
        "g (bool[1] c, float[N] x, float[M] z) => (float[a] y) { y = Where (c, x, z) }",
        *({"c": np.array([True]), "x": (1,), "z": (3,)}, {"c": np.array([True]), "x": (2,), "z": (3,)}),
    ),
    "Expand": (
        "g (float[N,1,1] x) => (float[3,4,4] y) <int64[3] s = {3,4,4}> { y = Expand (x, s) }",
        *({"x": (3, 1, 1)}, {"x": (2, 1, 1)}),
    ),
    "Expand to a computed shape": (
        "g (float[N,1] x, int64[2] s) => (float[a,b] y) { y = Expand (x, s) }",
        *({"x": (4, 1), "s": ints(4, 3)}, {"x": (3, 1), "s": ints(4, 3)}),
    ),
    "Reshape": (
        "g (float[N,3] x) => (float[4,3] y) <int64[2] s = {4,3}> { y = Reshape (x, s) }",
        *({"x": (4, 3)}, {"x": (2, 3)}),
    ),
    "Reshape to a computed shape": (
        "g (float[N,3] x, int64[2] s) => (float[a,b] y) { y = Reshape (x, s) }",
        *({"x": (2, 3), "s": ints(3, 2)}, {"x": (2, 3), "s": ints(40, 30)}),
    ),
    "MatMul": (SQUARE + "{ y = MatMul (x, w) }", {"x": (2, 3), "w": (3, 2)}, {"x": (2, 2), "w": (3, 2)}),
    "Gemm": (SQUARE + "{ y = Gemm (x, w) }", {"x": (2, 3), "w": (3, 2)}, {"x": (2, 2), "w": (3, 2)}),
    "Split": (
        "g (float[N] x) => (float[2] y, float[3] z) <int64[2] s = {2,3}> { y, z = Split (x, s) }",
        *({"x": (5,)}, {"x": (4,)}),
    ),
    "LayerNormalization": (
        "g (float[2,N] x) => (float[2,a] y) <float[3] s = {1,2,3}> { y = LayerNormalization (x, s) }",
        *({"x": (2, 3)}, {"x": (2, 2)}),
    ),
    "BatchNormalization": (
        "g (float[2,N,1,1] x) => (float[2,a,1,1] y) <float[3] s = {1,2,3}> { y = BatchNormalization (x, s, s, s, s) }",
        *({"x": (2, 3, 1, 1)}, {"x": (2, 2, 1, 1)}),
    ),
    "Conv": (
        "g (float[1,N,3,3] x) => (float[1,1,3,3] y) <float[1,3,1,1] w = {1,2,3}> { y = Conv (x, w) }",
        *({"x": (1, 3, 3, 3)}, {"x": (1, 200, 3, 3)}),
    ),
    "DepthToSpace": (
        "g (float[1,N,1,1] x) => (float[1,a,2,2] y) { y = DepthToSpace <blocksize=2> (x) }",
        *({"x": (1, 4, 1, 1)}, {"x": (1, 3, 1, 1)}),
    ),
    **{
        f"{operator}, {index}": (
            f"g (float[3] x, int64[{dims}] i{updates}) => (float[a] y) {{ y = {operator} (x, i{', u' if updates else ''}) }}",
            *({"x": (3,), "i": at(*fitting)} | ({"u": (2,)} if updates else {}) for fitting in ((0, -3), (0, index))),
        )
        for operator, dims, updates, at in (
            ("Gather", "N", "", ints),
            ("GatherND", "N,1", "", rows),
            ("GatherElements", "N", "", ints),
            ("ScatterElements", "N", ", float[N] u", ints),
            ("ScatterND", "N,1", ", float[N] u", rows),
        )
        for index in (3, -4, 50000)
    },
    "Tile": (
        "g (float[3] x, int64[1] r) => (float[N] y) { y = Tile (x, r) }",
        *({"x": (3,), "r": ints(2)}, {"x": (3,), "r": ints(-1)}),
    ),
    "TopK": (
        "g (float[N] x) => (float[5] y, int64[5] i) <int64[1] k = {5}> { y, i = TopK (x, k) }",
        *({"x": (6,)}, {"x": (3,)}),
    ),
}


def case_of(name):
    """The model, what fits and what contradicts, as arrays."""
    text, *feeds = CASES[name]
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    return model, *(
        {key: np.ones(value, np.float32) if isinstance(value, tuple) else value for key, value in each.items()}
        for each in feeds
    )


@pytest.mark.parametrize("name", CASES)
def test_onnxruntime_refuses_what_contradicts(name):
    model, fitting, contradicting = case_of(name)
    literal(model, fitting)
    with pytest.raises(Exception, match="Non-zero status code"):
        literal(model, contradicting)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("engine_name", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_an_input_that_contradicts_the_network_is_an_error(name, engine_name, threads):
    model, fitting, contradicting = case_of(name)
    engine = ptp.build(model, engine=engine_name, threads=threads)
    wanted = literal(model, fitting)
    with engine.create_context() as one, engine.create_context() as other:
        for context in (one, other, one):
            with pytest.raises(EngineError):
                context.run(contradicting)
        for context in (one, other):
            for output, value in zip(model.graph.output, wanted, strict=True):
                np.testing.assert_allclose(context.run(fitting)[output.name], value, rtol=1e-5, atol=1e-5)
