"""Arrays of bfloat16, which onnxruntime's and OpenVINO's interfaces to NumPy do not know, go in and out."""

import numpy as np
import pytest

from pytrtplugins.engines import build
from pytrtplugins.errors import BuildError
from tests.engines.model_parts import parsed
from tests.engines.networks import run


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime"])
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 3)])
def test_bfloat16_comes_in_and_goes_out(engine, shape):
    import ml_dtypes

    x = np.linspace(-2, 2, int(np.prod(shape))).reshape(shape).astype(ml_dtypes.bfloat16)
    dims = str([*shape]) if shape else ""
    text = f"(bfloat16{dims} x) => (bfloat16{dims} y, float{dims} n)"
    made = parsed(f"{text} {{ f = Cast <to = 1> (x) n = Neg (f) y = Cast <to = 16> (n) }}")
    results = run(build(made, engine=engine), {"x": x})
    assert results["y"].dtype == x.dtype
    np.testing.assert_array_equal(results["n"], -(x.astype(np.float32)))
    np.testing.assert_array_equal(results["y"].astype(np.float32), -(x.astype(np.float32)))


def test_a_node_that_onnxruntime_lacks_is_named():
    """Its own text names at most a node inside the operator's decomposition."""
    text = "(float[2] x) => (bool[2] y) { h = Neg (x) y = CastLike <saturate = 0> (h, like) }"
    made = parsed(text, 19, like=np.array([True]))
    with pytest.raises(BuildError, match=r"(?s)node 'CastLike_y' \(ai.onnx::CastLike\): .*\nDo: ") as caught:
        build(made, engine="onnxruntime")
    assert caught.value.facts["op"] == "CastLike"
