"""Inputs and outputs have memory of their own: what the caller writes after a run changes no result, and no later run."""

import numpy as np
import pytest
from onnx import parser

import pytrtplugins as ptp
from pytrtplugins.errors import BindingError

X = np.arange(6, dtype=np.float32).reshape(2, 3)
NETWORKS = {  # what moves or copies an input, or gives a constant
    "Identity": "(float[2,3] x) => (float[2,3] y) { y = Identity(x) }",
    "of a free size": "(float[N,3] x) => (float[M,3] y) { y = Identity(x) }",
    "Reshape": "(float[2,3] x) => (float[3,2] y) <int64[2] s = {3,2}> { y = Reshape(x, s) }",
    "Transpose": "(float[2,3] x) => (float[3,2] y) { y = Transpose(x) }",
    "Slice": "(float[2,3] x) => (float[1,3] y) <int64[1] a = {0}, int64[1] b = {1}> { y = Slice(x, a, b) }",
    "a constant": "(float[2,3] x) => (float[3] y, float[2,3] z) <float[3] c = {1,2,3}> { y = Identity(c) z = Relu(x) }",
    "a shape": "(float[2,3] x) => (int64[2] y, float[2,3] z) { y = Shape(x) z = Relu(x) }",
    "one tensor twice": "(float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Relu(x) z = Identity(y) }",
    "an input twice": "(float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Identity(x) z = Identity(x) }",
    "parts of one tensor": "(float[2,3] x) => (float[1,3] y, float[1,3] z) { y, z = Split<axis = 0, num_outputs = 2>(x) }",
    "a loop": """(float[2,3] x) => (float[2,3] y) <int64 n = {2}, bool t = {1}> { y = Loop(n, t, x) <body = b (int64 i, bool ci,
        float[2,3] v) => (bool co, float[2,3] w) { co = Identity(ci) w = Identity(v) }> }""",
}


def built(text, engine_name):
    return ptp.build(parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> g {text}'), engine=engine_name)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_written_after_a_run_changes_neither_results_nor_later_runs(engine_name, name, asynchronous):
    engine = built(NETWORKS[name], engine_name)
    with engine.create_context() as context, engine.create_context() as other:
        run = (lambda x: context.run_async({"x": x}).result()) if asynchronous else (lambda x: context.run({"x": x}))
        x = X.copy()
        first = run(x)
        wanted = {key: array.copy() for key, array in first.items()}
        x[...] = -1
        second = run(X + 100)
        for array in second.values():
            array[...] = -7
        for results in (first, run(X.copy()), other.run({"x": X.copy()})):
            for key, array in wanted.items():
                np.testing.assert_array_equal(results[key], array)
        if "z" in second:
            first["y"][...] = 55
            np.testing.assert_array_equal(first["z"], wanted["z"])


@pytest.mark.parametrize("text", [
    "(float[2,3] x) => (float[2,3] y) { y = Neg(x) }",
    "(float[2,3] x) => (float[2,3] y) <int64 a = {1}> { y = CumSum<reverse = 1>(x, a) }",
    "(float[3,3] x) => (float[3,3] y) { y = MatMul(x, x) }",
    "(float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Neg(x) z = Mul(x, x) }",
])  # fmt: skip
def test_an_output_may_be_written_into_the_input(engine_name, text):
    with built(text, engine_name).create_context() as context:
        size = 9 if "3,3" in text else 6
        x = np.arange(size, dtype=np.float32).reshape(-1, 3)
        wanted = {key: array.copy() for key, array in context.run({"x": x.copy()}).items()}
        results = context.run({"x": x}, {"y": x})
        assert results["y"] is x
        for key, array in wanted.items():
            np.testing.assert_array_equal(results[key], array)


def test_two_outputs_that_would_overwrite_each_other_are_refused(engine_name):
    """Arrays that lie between each other's values do not."""
    memory = np.zeros(13, np.float32)
    text = "(float[6] x) => (float[6] y, float[6] z) { y = Neg(x) z = Mul(x, x) }"
    with built(text, engine_name).create_context() as context:
        for y, z in ((memory[:6], memory[:6]), (memory[:6], memory[5:11]), (memory[1:12:2], memory[6:12])):
            for run in (context.run, lambda *arrays: context.run_async(*arrays).result()):
                with pytest.raises(BindingError, match=r"outputs 'y' and 'z': their arrays share memory[\s\S]*Do: "):
                    run({"x": X.ravel()}, {"y": y, "z": z})
        for y, z in ((memory[:6], memory[6:12]), (memory[::2][:6], memory[1::2])):
            context.run({"x": X.ravel()}, {"y": y, "z": z})
            assert (y.tolist(), z.tolist()) == ((-X.ravel()).tolist(), (X.ravel() ** 2).tolist())
