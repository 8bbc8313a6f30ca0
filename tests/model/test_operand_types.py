"""Operands that an operator takes in one type are refused where theirs differ; engine `cuda` knows where ONNX lists fractions alone."""

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.errors import BuildError, ModelError
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host


def parsed(text, opset=17):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]> g {text}')


DIFFERING = {
    "Add": "(float[2] x, int32[2] z) => (float[2] y) { y = Add (x, z) }",
    "Max": "(float[2] x, float[2] w, int32[2] z) => (float[2] y) { y = Max (x, w, z) }",
    "MatMul": "(float[2,2] x, double[2,2] z) => (float[2,2] y) { y = MatMul (x, z) }",
    "Concat": "(float[2] x, int32[2] z) => (float[4] y) { y = Concat <axis = 0> (x, z) }",
    "Where": "(bool[2] c, float[2] x, int32[2] z) => (float[2] y) { y = Where (c, x, z) }",
    "Clip": "(float[2] x, int32 z) => (float[2] y) { y = Clip (x, z) }",
    "Conv": "(float[1,1,4,4] x, double[1,1,3,3] z) => (float[1,1,2,2] y) { y = Conv (x, z) }",
    "Mul": """(float[2] x, bool c) => (float[2] y) { z = Cast <to = 11> (x) y = If <
        then_branch = g1 () => (float[2] a) { a = Mul (x, z) }, else_branch = g2 () => (float[2] b) { b = Identity (x) }> (c) }""",
}


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize("operator", DIFFERING)
def test_operands_of_different_types_are_refused_with_the_names_of_the_node_and_of_both(operator, engine):
    with pytest.raises(
        ModelError, match=rf"node '\w+' \({operator}\) reads 'x', which is float32, and 'z', which is "
    ) as caught:
        ptp.build(parsed(DIFFERING[operator]), engine=engine)
    assert str(caught.value).endswith("takes one type for both.\nDo: put a Cast before one of them")
    assert caught.value.facts["tensor"] == "z"


def test_so_are_those_of_an_operator_that_is_written_with_others():
    with pytest.raises(ModelError, match=r"node 'y/x' \(Add\) reads 'x', which is float32, and 'z', which is int32"):
        prepare(parsed("(float[3,3] x, int32[3] z) => (float[3,3] y) { y = com.microsoft.BiasGelu (x, z) }"))


@pytest.mark.parametrize(
    "text",
    [
        "(float[2] x, int32[2] z) => (float[2] y) { y = Pow (x, z) }",
        "(float[2] x, int32[2] z) => (float[2] y) { y = CastLike (x, z) }",
        "(float[2] x, float16[2] s, float[2] v) => (float[2] y) { y = BatchNormalization (x, s, s, v, v) }",
        "(float[2,2] x, int32[1] b, int32[1] e) => (float[1,2] y) { y = Slice (x, b, e) }",
    ],
)
def test_operands_may_differ_where_the_operator_says_so(text):
    prepare(parsed(text))


@pytest.mark.parametrize("operator", ["Exp", "Gelu", "LogSoftmax", "Softmax", "ThresholdedRelu"])
def test_engine_cuda_refuses_whole_numbers_where_an_operator_computes_with_fractions(operator):
    message = rf"node 'y' \({operator}\): its input 'x' is int32, and {operator} computes with fractions"
    with pytest.raises(BuildError, match=message) as caught:
        lower(prepare(parsed(f"(int32[2] x) => (int32[2] y) {{ y = {operator} (x) }}")))
    assert "\nDo: put a Cast" in str(caught.value)
    assert (caught.value.op, caught.value.tensor) == (operator, "x")


@pytest.mark.parametrize(("operator", "expected"), [("Sum", [4, -6]), ("Mean", [2, -3])])
def test_engine_cuda_adds_whole_numbers_up(operator, expected):
    model = parsed(f"(int32[2] x) => (int32[2] y) {{ y = {operator} (x, x) }}")
    np.testing.assert_array_equal(run_on_host(prepare(model), {"x": np.int32([2, -3])})[0]["y"], expected)


def test_engine_cuda_takes_types_that_only_a_later_opset_lists():
    (result,) = run_on_host(
        prepare(parsed("(int8[3] x) => (int8[3] y) { y = Relu (x) }", 13)), {"x": np.int8([-1, 0, 2])}
    )[0].values()
    np.testing.assert_array_equal(result, np.int8([0, 0, 2]))
