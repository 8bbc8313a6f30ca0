"""Indices out of range: noted by a step, and an error behind the run; none is read or written at."""

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.cuda import CudaEngine
from pytrtplugins.engines.cuda.operators import OPS
from pytrtplugins.engines.cuda.operators.index_flags import IndexFlags, noting, places
from pytrtplugins.errors import ExecutionError

REASON = CudaEngine.availability().reason
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(bool(REASON), reason=REASON or "")]


def test_places_count_from_either_end():
    np.testing.assert_array_equal(places(np, np.array([0, 2, -1, -3], np.int32), 3), [0, 2, 2, 0])


@pytest.mark.parametrize("index", [3, -4])
def test_an_index_out_of_range_raises_or_is_noted(index):
    indices = np.array([0, index])
    with pytest.raises(IndexError, match=f"an index is out of range, of 3 values: {min(index, 0)} to {max(index, 0)}"):
        places(np, indices, 3)
    flags = IndexFlags(np)
    first, second = flags.add("a", "Gather"), flags.add("b", "GatherND")
    with noting(first):
        places(np, np.array([2, -3]), 3)
    flags.check()
    with noting(second):
        found = OPS["Gather"](np, {}, None, np.float32([5, 6, 7]), indices)
    np.testing.assert_array_equal(found, [5, 7 if index > 0 else 5])
    with pytest.raises(ExecutionError, match=r"(?s)node 'b' \(GatherND\): an index is out of range.*Do: "):
        flags.check()
    flags.check()  # the next run begins anew
    with noting(first):
        places(np, indices, 3)
    flags.clear()
    flags.check()


CASES = {
    "Gather": "(float[3,2] x, int64[N] i) => (float[N,2] y) { y = Gather (x, i) }",
    "GatherElements": "(float[3] x, int64[N] i) => (float[N] y) { y = GatherElements (x, i) }",
    "GatherND": "(float[3] x, int64[N,1] i) => (float[N] y) { y = GatherND (x, i) }",
    "ScatterElements": "(float[3] x, int64[N] i) => (float[3] y) { u = Cast <to = 1> (i) y = ScatterElements (x, i, u) }",
}


@pytest.mark.parametrize("op", [pytest.param(op, marks=on_gpu) for op in CASES])
def test_on_a_gpu_the_run_is_an_error_and_the_next_one_is_right(op):
    text = f'<ir_version: 8, opset_import: ["" : 17]> one {CASES[op]}'
    model = onnx.parser.parse_model(text)
    x = np.arange(6, dtype=np.float32).reshape(3, 2) if op == "Gather" else np.arange(3, dtype=np.float32)
    right = np.array([-1, 0, 1])
    right = right[:, None] if op == "GatherND" else right
    expected = ptp.build(model, engine="reference").create_context().run({"x": x, "i": right})["y"]
    with ptp.build(model, engine="cuda").create_context() as context:
        for wrong in (50_000, -7, 3):
            indices = right.copy()
            indices.flat[1] = wrong
            np.testing.assert_array_equal(context.run({"x": x, "i": right})["y"], expected)
            with pytest.raises(ExecutionError, match=rf"(?s)\({op}\): an index is out of range.*Do: "):
                context.run({"x": x, "i": indices})
        np.testing.assert_array_equal(context.run({"x": x, "i": right})["y"], expected)
