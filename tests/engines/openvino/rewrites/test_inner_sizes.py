"""InnerSizes: which operands get a Reshape, and that it changes no value."""

import numpy as np
import onnx
import pytest

from pytrtplugins.engines.openvino.rewrites.inner_sizes import InnerSizes
from pytrtplugins.passes import run_passes
from tests.engines.operators import literal

ATTENTION = (
    "{heads} => (float[a,b,c,d] y)"
    "{{ kt = Transpose <perm=[0,1,3,2]> (k)  s = MatMul (q, kt)  m = Add (s, bias)  p = Softmax (m)  y = MatMul (p, v) }}"
)
FREE = "g (float[B,2,N,4] q, float[B,2,M,4] k, float[B,2,L,4] v, float[1,1,1,M] bias)"
NAMED = "g (float[B,2,N,4] q, float[B,2,M,4] k, float[B,2,M,4] v, float[1,1,1,1] bias)"


def changed(text):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    model = onnx.shape_inference.infer_shapes(model)
    result = run_passes(model, InnerSizes())
    onnx.checker.check_model(result, full_check=True)
    return model, result


def guards(model):
    return [node.name for node in model.graph.node if node.op_type == "Reshape"]


@pytest.mark.parametrize(
    ("node", "dims"),
    [
        ("MatMul (x, w)", "2,N"),
        ("Gemm (x, w)", "2,N"),
        ("Gemm <transA=1> (x, w)", "N,2"),
        ("MatMul (x, w)", "1,2,N"),
        ("MatMul (x, w)", "N"),
    ],
)
def test_an_operand_of_free_inner_dim_beside_a_constant_is_checked(node, dims):
    rank = len(dims.split(","))
    out = ",".join("abc"[: max(rank, 1)])
    model, result = changed(
        f"g (float[{dims}] x) => (float[{out}] y) <float[3,2] w = {{1,2,3,4,5,6}}> {{ y = {node} }}"
    )
    assert guards(result) == ["y"]
    shape = tuple(3 if dim == "N" else int(dim) for dim in dims.split(","))
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    np.testing.assert_array_equal(literal(result, feeds)[0], literal(model, feeds)[0])


def test_attention_of_free_lengths_is_checked_at_its_values():
    model, result = changed(ATTENTION.format(heads=FREE))
    assert guards(result) == ["y"]
    random = np.random.default_rng(0)
    shapes = {"q": (2, 2, 3, 4), "k": (2, 2, 5, 4), "v": (2, 2, 5, 4), "bias": (1, 1, 1, 5)}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    np.testing.assert_array_equal(literal(result, feeds)[0], literal(model, feeds)[0])
    with pytest.raises(Exception, match=r"[Rr]eshape"):
        literal(result, feeds | {"v": feeds["v"][:, :, :1]})


@pytest.mark.parametrize(
    "text",
    [
        ATTENTION.format(heads=NAMED),
        "g (float[N,3] x) => (float[N,2] y) <float[3,2] w = {1,2,3,4,5,6}> { y = MatMul (x, w) }",
        "g (float[2,N] x, float[M,2] w) => (float[2,2] y) { y = MatMul (x, w) }",
    ],
)
def test_everything_else_stays(text):
    model, result = changed(text)
    assert result is model


def test_operands_that_many_ways_lead_to_are_looked_at_once():
    """Each sum doubles the ways from the product to what the sums begin with."""
    sums = " ".join(f"t{i + 1} = Add (t{i}, t{i})" for i in range(64))
    _, result = changed(
        f"g (float[2,N] x) => (float[a,b] y) {{ t0 = RandomNormal <shape=[3,4]> () {sums} y = MatMul (x, t64) }}"
    )
    assert guards(result) == ["y"]
