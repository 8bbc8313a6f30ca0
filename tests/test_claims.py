"""Models of few bytes that claim all memory are refused before it is taken."""

import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import ModelError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402

from pytrtplugins.model.decompose import check_claims  # noqa: E402
from tests.onnx_parts import (  # noqa: E402
    RELU,
    body,
    branches,
    call,
    function,
    info,
    model,
    node,
    shape,
)

CLAIMS = {
    "ConstantOfShape": model(
        node("ConstantOfShape", "s", "k"), node("ReduceMax", "k", "m", keepdims=0), node("Add", "x m", "y"),
        weights=[shape("s", 2**40)],
    ),
    "Expand": model(node("Expand", "x", "y"), weights=[shape("s", 2**30, 3, 8, 8)]),
    "Tile": model(node("Tile", "x s", "y"), weights=[shape("s", 2**20, 2**20, 1, 1)]),
    "Range": model(
        node("Range", "zero most one", "k"), node("Cast", "k", "f", to=1), node("ReduceMax", "f", "m", keepdims=0),
        node("Add", "x m", "y"),
        weights=[helper.make_tensor(n, 7, [], [v]) for n, v in (("zero", 0), ("most", 2**50), ("one", 1))],
    ),
    "Pad": model(node("Pad", "x s", "y"), weights=[shape("s", 0, 0, 2**20, 2**20, 0, 0, 0, 0)]),
    "Conv": model(
        node("Conv", "x w", "y", pads=[2**20] * 4), weights=[helper.make_tensor("w", 1, [1, 3, 1, 1], [1.0] * 3)]
    ),
    "RandomNormal": model(node("RandomNormal", "", "r", shape=[2**40]), node("ReduceMax", "r", "m", keepdims=0), node("Add", "x m", "y")),
    "EyeLike": model(
        node("ConstantOfShape", "s", "k"), node("MatMul", "k k", "mm"), node("ReduceMax", "mm", "m", keepdims=0), node("Add", "x m", "y"),
        weights=[shape("s", 2**16, 2**16)],
    ),
    "Resize": model(node("Resize", "x  roi scales".replace("  roi", " roi"), "y"), weights=[
        helper.make_tensor("roi", 1, [0], []), helper.make_tensor("scales", 1, [4], [1, 1, 2.0**20, 2.0**20]),
    ]),
    "a body": branches(
        body(node("ConstantOfShape", "s", "k"), node("ReduceMax", "k", "b", keepdims=1), weights=[shape("s", 2**40)])
    ),
    "a function": model(
        node("Constant", "", "s", value=shape("v", 2**40)), call("F", "s", "m"), node("Add", "x m", "y"),
        functions=[function("F", node("ConstantOfShape", "a", "k"), node("ReduceMax", "k", "b", keepdims=0))],
    ),
    "many": model(
        node("ConstantOfShape", "s", "k0"), *(node("Neg", f"k{i}", f"k{i + 1}") for i in range(9)),
        node("ReduceMax", "k9", "m", keepdims=0), node("Add", "x m", "y"),
        weights=[shape("s", 2**27)],
    ),
    "an input": model(RELU, inputs=[info("x", [2**20, 2**20])]),
}  # fmt: skip
CLAIMS["Expand"].graph.node[0].input.append("s")


@pytest.mark.parametrize("name", CLAIMS)
def test_a_model_of_few_bytes_that_claims_all_memory_is_refused_with_its_claim_and_the_limit(name):
    claim = CLAIMS[name]
    assert claim.ByteSize() < 800
    with pytest.raises(ModelError, match=r"(TiB|GiB|PiB|EiB)[\s\S]*the limit"):
        check_claims(claim)
    with pytest.raises(ModelError, match="the limit"):
        ptp.build(claim, engine="null")


@pytest.mark.parametrize("sizes", [(0, 64), (1, 100), (2, 3, 8, 8)])
def test_a_reshape_to_another_number_of_elements_is_refused(sizes):
    """OpenVINO took the first one, and wrote behind its memory."""
    wrong = model(node("Reshape", "x s", "y"), weights=[shape("s", *sizes)])
    for engine in ("cpu", "onnxruntime", "reference"):
        with pytest.raises(
            ModelError, match=r"'y' \(Reshape\) makes .* of \(1, 3, 8, 8\), which has another number|infer"
        ):
            ptp.build(wrong, engine=engine)


def test_constants_may_grow_with_the_weights():
    weights = helper.make_tensor("w", TensorProto.INT8, [4], bytes(4), raw=True)
    scale = helper.make_tensor("s", 1, [], [0.5])
    check_claims(model(node("DequantizeLinear", "w s", "d"), node("Expand", "d e", "f"), node("ReduceMax", "f", "m", keepdims=0),
                       node("Add", "x m", "y"), weights=[weights, scale, shape("e", 2**20, 4)]))  # fmt: skip
