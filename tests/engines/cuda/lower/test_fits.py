"""Dims that do not fit each other are refused by the node's name before passes trust them."""

import numpy as np
import onnx
import pytest

from pytrtplugins.engines.cuda.lower.fits import find_misfit
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.errors import DimsError, PytrtpluginsError
from pytrtplugins.passes import prepare, to_ir
from tests.engines.cuda.host import run_on_host
from tests.engines.operators import literal


def parsed(text, opset=17):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]> g {text}')


SCALARS = {
    "ArgMax": "(float x) => (int64 y) { y = ArgMax <axis = 0> (x) }",
    "BatchNormalization": "(float x, float s) => (float y) { y = BatchNormalization (x, s, s, s, s) }",
    "Concat": "(float x) => (float[n] y) { y = Concat <axis = 0> (x, x) }",
    "Conv": "(float x) => (float[a,b,c,d] y) { y = Conv (x, x) }",
    "CumSum": "(float x) => (float y) <int64 a = {0}> { y = CumSum (x, a) }",
    "DepthToSpace": "(float x) => (float[a,b,c,d] y) { y = DepthToSpace <blocksize = 2> (x) }",
    "Flatten": "(float x) => (float[a,b] y) { y = Flatten <axis = 0> (x) }",
    "Gather": "(float x) => (float[n] y) <int64[1] i = {0}> { y = Gather <axis = 0> (x, i) }",
    "GatherElements": "(float x) => (float y) <int64 i = {0}> { y = GatherElements <axis = 0> (x, i) }",
    "Gemm": "(float x) => (float[a,b] y) { y = Gemm (x, x) }",
    "GlobalAveragePool": "(float x) => (float y) { y = GlobalAveragePool (x) }",
    "Hardmax": "(float x) => (float y) { y = Hardmax (x) }",
    "InstanceNormalization": "(float x) => (float y) { y = InstanceNormalization (x, x, x) }",
    "LayerNormalization": "(float x) => (float y) { y = LayerNormalization (x, x) }",
    "LogSoftmax": "(float x) => (float y) { y = LogSoftmax (x) }",
    "LpNormalization": "(float x) => (float y) { y = LpNormalization (x) }",
    "MatMul": "(float x) => (float y) { y = MatMul (x, x) }",
    "MaxPool": "(float x) => (float y) { y = MaxPool <kernel_shape = [1]> (x) }",
    "OneHot": "(int64 x) => (float[n] y) <int64 d = {3}, float[2] v = {0, 1}> { y = OneHot (x, d, v) }",
    "Pad": "(float x) => (float[n] y) <int64[2] p = {1, 1}> { y = Pad (x, p) }",
    "PRelu": "(float x) => (float y) { y = PRelu (x, x) }",
    "QuantizeLinear": "(float x) => (uint8 y) <float[1] s = {0.5}, uint8[1] z = {3}> { y = QuantizeLinear <axis = 0> (x, s, z) }",
    "ReduceMax": "(float x) => (float y) { y = ReduceMax <axes = [0]> (x) }",
    "ReduceSum": "(float x) => (float y) <int64[1] a = {0}> { y = ReduceSum (x, a) }",
    "ReverseSequence": "(float x) => (float y) <int64[1] l = {1}> { y = ReverseSequence (x, l) }",
    "ScatterElements": "(float x) => (float y) <int64 i = {0}> { y = ScatterElements (x, i, x) }",
    "Shape": "(float x) => (int64[n] y) { y = Shape (x) }",
    "Slice": "(float x) => (float[n] y) <int64[1] b = {0}, int64[1] e = {1}> { y = Slice (x, b, e) }",
    "Softmax": "(float x) => (float y) { y = Softmax (x) }",
    "Split": "(float x) => (float y, float z) { y, z = Split <axis = 0> (x) }",
    "Squeeze": "(float x) => (float y) <int64[1] a = {0}> { y = Squeeze (x, a) }",
    "Tile": "(float x) => (float[n] y) <int64[1] r = {2}> { y = Tile (x, r) }",
    "TopK": "(float x) => (float[n] y, int64[n] z) <int64[1] k = {1}> { y, z = TopK <axis = 0> (x, k) }",
    "Transpose": "(float x) => (float[n] y) { y = Transpose <perm = [0]> (x) }",
    "Trilu": "(float x) => (float y) { y = Trilu (x) }",
    "Unsqueeze": "(float x) => (float[n] y) <int64[1] a = {0}> { y = Unsqueeze (x, a) }",
}


COMPUTED = {"Flatten", "PRelu", "QuantizeLinear", "Shape", "Unsqueeze"}
"""Those that onnxruntime computes."""


@pytest.mark.parametrize("operator", SCALARS)
def test_an_operator_of_a_tensor_without_axes_raises_no_foreign_error(operator):
    model = parsed(SCALARS[operator])
    kind = np.int64 if model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.INT64 else np.float32
    inputs = {info.name: np.full((), 2, kind) for info in model.graph.input}
    results, message = {}, ""
    try:
        results = run_on_host(prepare(model), inputs)[0]
    except PytrtpluginsError as error:
        message = str(error)
    assert results or f"node 'y' ({operator})" in message
    if operator in COMPUTED:
        np.testing.assert_array_equal(results["y"], literal(model, inputs)[0])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("(float[2,3] x, float[2] z) => (float[a,b] y) { y = Concat <axis = 1> (x, z) }", "dims other than that of axis 1 differ"),
        ("(float[2,3] x, float[4,3] z) => (float[a,b] y) { y = Add (x, z) }", r"\(2, 3\) and \(4, 3\) do not broadcast"),
        ("(float[2,3] x) => (float[n] y) <int64[1,2] i = {1,3}> { y = GatherND (x, i) }", "an index is out of range, of 3 values: 3 to 3"),
        ("(float[2,3] x) => (float[a,b] y) <int64[2] s = {4,-1}> { y = Reshape (x, s) }", r"6 elements cannot have the dims \[4, -1\]"),
        ("(float x) => (float[n] y) { y = Concat <axis = 0> (x, x) }", "an operand has another number of axes than Concat takes"),
        ("(float[1,2,4,4] x) => (float[1,3,a,b] y) <float[3,2,1,1] w = {1,1,1,1,1,1}, float b = {1}> { y = Conv (x, w, b) }",
         "1 elements of input 2, expected 3"),
        ("(float[1,2,4,4] x) => (float[1,1,a,b] y) <float[1,2,1,1] w = {1,1}, float b = {1}> { y = Conv (x, w, b) }",
         r"a bias of the dims \(\), expected one axis"),
        ("(float[1,2,1,1] x) => (float[1,4,a,b] y) <float[2,2,1,1] w = {1,1,1,1}, float[2] b = {1,1}>"
         " { y = ConvTranspose <group = 2> (x, w, b) }",
         "2 elements of input 2, expected 4"),
        ("(float[1,2,4,4] x) => (float[1,3,a,b] y) <float[3,2,1] w = {1,1,1,1,1,1}> { y = Conv (x, w) }",
         r"filters of the dims \(3, 2, 1\) on an image of the dims \(1, 2, 4, 4\)"),
    ],
)  # fmt: skip
def test_dims_that_the_model_says_are_compared_before_it_is_lowered(text, what):
    message = rf"engine 'cuda': node 'y' \(\w+\) cannot run on tensors of the dims .*: {what}"
    with pytest.raises(DimsError, match=message) as caught:
        lower(prepare(parsed(text)))
    assert "\nDo: " in str(caught.value)


def test_so_are_those_of_an_operator_that_is_written_with_others():
    text = """(float[1,2,4] q, float[1,2,4] k, float[1,2,4] v, float[1,4,2,2] b) => (float[1,2,4] y)
        { y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v, , , b) }"""
    message = r"node 'y/biased' \(Add\) cannot run on tensors of the dims \(1, 2, 2, 2\), \(1, 4, 2, 2\)"
    with pytest.raises(DimsError, match=message):
        lower(prepare(parsed(text)))


def test_a_node_of_an_operators_definition_has_the_operators_name():
    text = "(float[1,1,2,4] q, float[1,1,3,5] k, float[1,1,3,4] v) => (float[1,1,2,4] y) { y = Attention (q, k, v) }"
    inputs = {name: np.zeros((1, 1, *size)) for name, size in {"q": (2, 4), "k": (3, 5), "v": (3, 4)}.items()}
    with pytest.raises(DimsError, match=r"engine 'cuda': node 'y\.\w+' \(\w+\) cannot run on"):
        run_on_host(prepare(parsed(text, 23)), inputs)


@pytest.mark.parametrize(
    ("node", "dims"),
    [
        ("<int64[4] p = {1, 0, 1, 2}> { y = Pad (x, p) }", "(4, 5)"),
        ("<int64[2] b = {0, 1}, int64[2] e = {1, 3}> { y = Slice (x, b, e) }", "(1, 2)"),
        ("<int64[2] r = {2, 3}> { y = Tile (x, r) }", "(4, 9)"),
        ("<int64[2] s = {3, 2}> { y = Reshape (x, s) }", "(3, 2)"),
        ("{ y = Transpose (x) }", "(3, 2)"),
    ],
)
def test_dims_that_a_model_declares_for_an_output_are_those_of_its_operator(node, dims):
    """By the rule of the operator, else by ONNX's inference with the values of small constants."""
    wrong = find_misfit(to_ir(parsed(f"(float[2,3] x) => (float[7,9] y) {node}"), checked=False))
    assert f"output 'y' has the dims {dims}, the model declares (7, 9)" in str(wrong)
    right = find_misfit(to_ir(parsed(f"(float[2,3] x) => (float[{dims[1:-1]}] y) {node}"), checked=False))
    assert right is None
