"""Dims of a run that contradict each other are an error that names the node, on every way that a node can take."""

import numpy as np
import onnx
import pytest

from pytrtplugins.errors import BuildError, DimsError
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.operators import literal

# inputs, outputs, constants, nodes; dims that fit; dims that do not; the operator that refuses them
C1 = "float[1] c = {1}"
CASES = {
    "expand": ("float[N,1,1] x", "float[3,4,4] y", "int64[3] s = {3,4,4}", "y = Expand (x, s)", [(3, 1, 1)], [(2, 1, 1)]),
    "add": ("float[N,4] x", "float[a,4] y", "float[3,1] c = {1,2,3}", "y = Add (x, c)", [(3, 4)], [(2, 4)]),
    "where": ("float[N,4] x", "float[a,4] y", "bool[3,1] c = {1,0,1}", "y = Where (c, x, x)", [(3, 4)], [(2, 4)]),
    "reshape": ("float[N,3] x", "float[4,3] y", "int64[2] s = {4,3}", "y = Reshape (x, s)", [(4, 3)], [(2, 3)]),
    "reshape_rest": ("float[N,3] x", "float[4,a] y", "int64[2] s = {4,-1}", "y = Reshape (x, s)", [(8, 3)], [(2, 3)]),
    "squeeze": ("float[N,3] x", "float[3] y", "int64[1] s = {0}", "y = Squeeze (x, s)", [(1, 3)], [(2, 3)]),
    "matmul": ("float[2,N] x", "float[2,2] y", "float[3,2] w = {1,2,3,4,5,6}", "y = MatMul (x, w)", [(2, 3)], [(2, 2)]),
    "matmul_long": ("float[2,N] x", "float[2,2] y", "float[3,2] w = {1,2,3,4,5,6}", "y = MatMul (x, w)", [(2, 3)], [(2, 900)]),
    "gemm": ("float[2,N] x, float[M,2] z", "float[2,2] y", C1, "y = Gemm (x, z)", [(2, 3), (3, 2)], [(2, 2), (3, 2)]),
    "concat": ("float[2,N] x, float[2,M] z", "float[a,b] y", C1, "y = Concat <axis=0> (x, z)",
     [(2, 3), (2, 3)], [(2, 2), (2, 3)]),
    "split": ("float[N] x", "float[2] y, float[3] z", "int64[2] s = {2,3}", "y, z = Split (x, s)", [(5,)], [(4,)]),
    "split_long": ("float[N] x", "float[20] y, float[30] z", "int64[2] s = {20,30}", "y, z = Split (x, s)", [(50,)], [(4,)]),
    "layernorm": ("float[2,N] x", "float[2,a] y", "float[3] s = {1,2,3}", "y = LayerNormalization (x, s)", [(2, 3)], [(2, 2)]),
    "batchnorm": ("float[2,N,1,1] x", "float[2,a,1,1] y", "float[3] s = {1,2,3}", "y = BatchNormalization (x, s, s, s, s)",
     [(2, 3, 1, 1)], [(2, 5, 1, 1)]),
    "conv": ("float[1,N,3,3] x", "float[1,1,3,3] y", "float[1,3,1,1] w = {1,2,3}", "y = Conv (x, w)", [(1, 3, 3, 3)], [(1, 200, 3, 3)]),
    "depthtospace": ("float[1,N,1,1] x", "float[1,a,2,2] y", C1, "y = DepthToSpace <blocksize=2> (x)",
     [(1, 8, 1, 1)], [(1, 3, 1, 1)]),
    "gather": ("float[N,2] x", "float[2] y", "int64 i = {4}", "y = Gather <axis=0> (x, i)", [(5, 2)], [(3, 2)]),
    "gathernd": ("float[N,2] x", "float[1,2] y", "int64[1,1] i = {4}", "y = GatherND (x, i)", [(5, 2)], [(3, 2)]),
    "topk": ("float[N] x", "float[5] y, int64[5] i", "int64[1] k = {5}", "y, i = TopK (x, k)", [(7,)], [(3,)]),
    "behind_nonzero": ("float[N] x", "int64[a,b] y", "int64[1,3] c = {1,2,3}", "n = NonZero (x) y = Add (n, c)", [(3,)], [(2,)]),
}  # fmt: skip


def model_of(case):
    inputs, outputs, constants, nodes = case[:4]
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) <{constants}> {{ {nodes} }}'
    return onnx.parser.parse_model(text)


def arrays(model, dims):
    sizes = zip(model.graph.input, dims, strict=True)
    return {info.name: 1 + np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for info, shape in sizes}


@pytest.mark.parametrize("disable", [(), ("pointwise", "concat")], ids=["kernels", "arrays"])
@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize("name", CASES)
def test_dims_that_contradict_each_other_are_refused_and_those_that_fit_run(name, float_type, disable):
    model = model_of(CASES[name])
    *_, fit, misfit = CASES[name]
    op = model.graph.node[-1].op_type
    with pytest.raises(Exception, match=r"."):
        literal(model, arrays(model, misfit))
    with pytest.raises(DimsError) as caught:
        run_on_host(prepare(model), arrays(model, misfit), float_type, disable)
    assert caught.value.facts["op"] == op
    assert f"({op})" in str(caught.value)
    assert "Do: " in str(caught.value)
    inputs = arrays(model, fit)
    got = run_on_host(prepare(model), inputs, float_type, disable)[0]
    for info, wanted in zip(model.graph.output, literal(model, inputs), strict=True):
        np.testing.assert_allclose(got[info.name], wanted, rtol=2e-3 if float_type is DType.FLOAT16 else 1e-5)


def test_a_missing_operator_is_told_before_dims_that_do_not_fit():
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[a,4] y, int64 n)
        <float[3,1] c = {1,2,3}> { y = Add (x, c) s = SequenceConstruct (x) n = SequenceLength (s) }"""
    model = onnx.parser.parse_model(text)
    with pytest.raises(BuildError, match="Sequence"):
        run_on_host(prepare(model), {"x": np.ones((2, 4), np.float32)})


@pytest.mark.parametrize("declared", ["float[4,1]", "float[N,1]"])
def test_declared_output_dims_that_the_inputs_contradict_do_not_count(declared):
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N,3] x) => ({declared} y)
        <int64[1] a = {{1}}> {{ y = ReduceSum (x, a) }}"""
    model = onnx.parser.parse_model(text)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run_on_host(prepare(model), {"x": x})[0]["y"], x.sum(axis=1, keepdims=True))
    if declared == "float[4,1]":  # a model that was not prepared
        with pytest.raises(DimsError, match=r"'y' \(ReduceSum\).*\(2, 1\).*declares \(4, 1\)"):
            run_on_host(model, {"x": x})
