"""Arrays of bfloat16, which onnxruntime's and OpenVINO's interfaces to NumPy do not know, go in and out."""

from __future__ import annotations

import numpy as np
import pytest

from pytrtplugins.engines import build
from pytrtplugins.errors import BuildError
from tests.engines.model_parts import BOOL, F, info, model, node

BF16 = 16


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime"])
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 3)])
def test_bfloat16_comes_in_and_goes_out(engine, shape):
    import ml_dtypes

    x = np.linspace(-2, 2, int(np.prod(shape))).reshape(shape).astype(ml_dtypes.bfloat16)
    made = model(
        [node("Cast", ["x"], ["f"], to=F), node("Neg", ["f"], ["n"]), node("Cast", ["n"], ["y"], to=BF16)],
        [info("x", BF16, list(shape))],
        [info("y", BF16, list(shape)), info("n", F, list(shape))],
    )
    with build(made, engine=engine).create_context() as context:
        results = context.run({"x": x})
    assert results["y"].dtype == x.dtype
    np.testing.assert_array_equal(results["n"], -(x.astype(np.float32)))
    np.testing.assert_array_equal(results["y"].astype(np.float32), -(x.astype(np.float32)))


def test_a_node_that_onnxruntime_lacks_is_named():
    """Its own text names at most a node inside the operator's decomposition."""
    made = model(
        [node("Neg", ["x"], ["h"]), node("CastLike", ["h", "like"], ["y"], saturate=0)],
        [info("x", F, [2])],
        [info("y", BOOL, [2])],
        {"like": np.array([True])},
        opset=19,
    )
    with pytest.raises(BuildError, match=r"(?s)node 'CastLike_y' \(ai.onnx::CastLike\): .*\nDo: ") as caught:
        build(made, engine="onnxruntime")
    assert caught.value.facts["op"] == "CastLike"
